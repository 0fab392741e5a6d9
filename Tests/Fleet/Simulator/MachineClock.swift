// The clock of one machine of the simulation, and what happens by it.
import MonotonicTime
import TestSupport

/// A machine's monotonic clock. It begins anywhere, goes a little too fast or too slowly, and stands still while the machine sleeps;
/// nothing happens on the machine then.
final class MachineClock {
    /// Further from the true rate than the quartz of any machine, in parts per million.
    static let driftMax: Int64 = 300

    private let world: World
    private let origin: Instant
    private let drift: Int64
    /// How long the machine has slept, until it fell asleep last.
    private var slept = Duration.zero
    /// When it fell asleep; nil: it is awake.
    private(set) var asleepSince: Instant?
    /// When it woke up last.
    private(set) var wokeAt = Instant.zero
    /// What came due while it slept, in order.
    private var waiting: [() -> Void] = []

    /// - Parameter number: The machine's, from 0. The clocks of two machines show times that have nothing to do with each other.
    init(_ world: World, number: Int) {
        self.world = world
        origin = World.start + .seconds(1_000 * number)
        var random = world.random("clock \(number)")
        drift = Int64.random(in: -Self.driftMax...Self.driftMax, using: &random)
    }

    /// What it shows.
    var now: Instant { shown(at: asleepSince ?? world.now) }

    private func shown(at time: Instant) -> Instant {
        let awake = (time - World.start - slept).nanoseconds
        return origin + .nanoseconds(awake + awake * drift / 1_000_000)
    }

    /// When it shows that time, unless the machine sleeps before.
    func worldTime(of shown: Instant) -> Instant {
        let wanted = (shown - origin).nanoseconds
        // Rounding may make it a nanosecond early.
        var awake = wanted - wanted * drift / (1_000_000 + drift) - 2
        while awake + awake * drift / 1_000_000 < wanted { awake += 1 }
        return World.start + slept + .nanoseconds(awake)
    }

    // MARK: What happens by it

    func after(_ delay: Duration, _ work: @escaping () -> Void) { at(now + delay, work) }

    /// Does the work when the clock shows that time.
    func at(_ time: Instant, _ work: @escaping () -> Void) {
        world.at(worldTime(of: time)) { [self] in
            guard asleepSince == nil else { return waiting.append { [self] in at(time, work) } }
            // It has slept meanwhile.
            if now < time { at(time, work) } else { work() }
        }
    }

    /// Does the work now, or when the machine wakes up.
    func whenAwake(_ work: @escaping () -> Void) { if asleepSince == nil { work() } else { waiting.append(work) } }

    // MARK: Sleep

    func fallAsleep() { if asleepSince == nil { asleepSince = world.now } }

    func wakeUp() {
        guard let since = asleepSince else { return }
        slept += world.now - since
        (asleepSince, wokeAt) = (nil, world.now)
        let due = waiting
        waiting = []
        for work in due { world.after(.zero) { [self] in whenAwake(work) } }
    }
}
