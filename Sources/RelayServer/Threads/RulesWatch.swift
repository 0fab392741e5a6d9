// Whether the thread that rules takes what another thread reads. Pure.
import MonotonicTime

/// A worker's view of the thread that has the relay's rules.
///
/// What a worker reads it acknowledges, and by that a talker knows that it is heard (`HearingWatch`). A worker must not go on reading while
/// the rules stand still: nobody hears what is said then.
struct RulesWatch: Sendable {
    /// How long a report may wait. With the talker's timeout of 4 s this is less than the rules' T1 of 5 s, so a talker knows before.
    static let timeout: Duration = .milliseconds(500)

    /// The oldest report that is not known to be taken, by its number, and when it was made.
    private var waiting: (number: UInt64, since: Instant)?

    /// A report was made; `number` have been until now, by this thread and others.
    mutating func reported(_ number: UInt64, at now: Instant) {
        if waiting == nil { waiting = (number, now) }
    }

    /// Whether a report waits for too long; the rules are done with the first `handled`.
    mutating func isHanging(handled: UInt64, at now: Instant) -> Bool {
        guard let waiting else { return false }
        guard handled < waiting.number else {
            self.waiting = nil
            return false
        }
        return now - waiting.since >= Self.timeout
    }
}
