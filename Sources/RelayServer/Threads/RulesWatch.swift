// Watches whether the thread of the rules handles what a worker reads. Pure.
import MonotonicTime

/// A worker's watchdog for the thread that runs the relay's rules.
///
/// A worker acknowledges what it reads, and a talker concludes from that that it is heard (`HearingWatch`). So a worker
/// must stop reading while the rules stall, because nobody hears the talker then.
struct RulesWatch: Sendable {
    /// How long a report may wait. Together with the talker's timeout of 4 s it is less than the rules' T1 of 5 s, so
    /// the talker is informed first.
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
