// Whether the path to the relay may be dead while somebody talks. Pure.
import MonotonicTime

/// Watches for silence where something should come, on a link that has another path: then the relay is asked for a sign
/// of life, instead of waiting for the time-outs of a link with one path only.
struct PathDoubt: Sendable {
    /// How long this end sends without an acknowledgement, or a burst of another member brings nothing.
    static let silence: Duration = .milliseconds(1_500)
    /// The longest time in which another burst's packets are expected. Its talker may be silent on purpose, and later the
    /// rules of listening end it.
    static let burstMaximum: Duration = .seconds(8)

    private var unansweredSince: Instant?
    private var expectedSince: Instant?
    private var askedAt: Instant?

    /// When `isDue` has to be asked; `nil` while nothing has to come.
    var nextDeadline: Instant? {
        guard let since = [unansweredSince, expectedSince].compactMap(\.self).min() else { return nil }
        return max(since, askedAt ?? since) + Self.silence
    }

    /// A packet of this end's burst went out.
    mutating func sent(at now: Instant) { if unansweredSince == nil { unansweredSince = now } }

    /// The relay has acknowledged one, or this end's burst is over.
    mutating func answered() { unansweredSince = nil }

    /// Another member has the floor, or a packet of it came.
    mutating func expects(at now: Instant) { expectedSince = now }

    /// Whether packets of another member have to come.
    var isExpecting: Bool { expectedSince != nil }

    /// Nobody else has the floor.
    mutating func expectsNothing() { expectedSince = nil }

    /// Whether the relay is to be asked for a sign of life now.
    mutating func isDue(at now: Instant) -> Bool {
        guard let due = nextDeadline, due <= now else { return false }
        askedAt = now
        if let since = expectedSince, now - since >= Self.burstMaximum { expectedSince = nil }
        return true
    }
}
