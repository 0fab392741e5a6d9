// The timer of one state machine of the simulation.
import MonotonicTime

/// A timer that goes off once. Like a timer of the event loop, it has one time: a new one replaces the former one.
final class Alarm {
    private let clock: MachineClock
    /// Whose it is. It lives on while an entry of the queue is for it.
    private unowned let owner: AnyObject
    private let work: () -> Void
    /// When it is to go off; nil: never.
    private var due: Instant?
    /// The earliest entry of the queue that is for it. Later ones are void.
    private var queued: Instant?
    private var number: UInt64 = 0

    /// - Parameter work: What happens when it goes off.
    init<Owner: AnyObject>(_ clock: MachineClock, of owner: Owner, _ work: @escaping (Owner) -> Void) {
        self.clock = clock
        self.owner = owner
        self.work = { [unowned owner] in work(owner) }
    }

    /// Sets its time: the earlier one of two; nil: it does not go off.
    func set(_ time: Instant?, _ other: Instant? = nil) {
        due = time.map { min($0, other ?? $0) } ?? other
        guard let due, due < queued ?? Instant(nanoseconds: .max) else { return }
        number += 1
        queued = due
        let (number, owner) = (number, owner)
        clock.at(due) { [self] in withExtendedLifetime(owner) { goOff(number) } }
    }

    private func goOff(_ number: UInt64) {
        guard number == self.number else { return }
        queued = nil
        guard let due else { return }
        guard due <= clock.now else { return set(due) }
        self.due = nil
        work()
    }
}
