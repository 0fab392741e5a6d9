// Whether the path to the relay may be dead while somebody talks. Pure.
import MonotonicTime

/// Watches for silence where something should come, on a link that has another path: then the relay is asked for a sign
/// of life, instead of waiting for the time-outs of a link with one path only.
struct PathDoubt: Sendable {
    /// How long this end sends without an acknowledgement, or a burst of another member brings nothing.
    static let silence: Duration = .milliseconds(1_500)
    /// The same of another member's burst, for a first question with more time for its answer. A member that only listens sends little, and
    /// the host of a relay that has ended says so only in answer to a packet.
    static let firstSilence: Duration = .milliseconds(300)
    /// The longest time in which another burst's packets are expected. Its talker may be silent on purpose, and later the
    /// rules of listening end it.
    static let burstMaximum: Duration = .seconds(8)

    private var unansweredSince: Instant?
    private var expectedSince: Instant?
    private var askedAt: Instant?
    private var hasAskedFirst = false

    /// When `takeQuestion` has to be asked; `nil` while nothing has to come.
    var nextDeadline: Instant? {
        guard let since = [unansweredSince, expectedSince].compactMap(\.self).min() else { return nil }
        let due = max(since, askedAt ?? since) + Self.silence
        return firstDue.map { min($0, due) } ?? due
    }

    private var firstDue: Instant? { hasAskedFirst ? nil : expectedSince.map { $0 + Self.firstSilence } }

    /// A packet of this end's burst went out.
    mutating func sent(at now: Instant) { if unansweredSince == nil { unansweredSince = now } }

    /// The relay has acknowledged one, or this end's burst is over.
    mutating func answered() { unansweredSince = nil }

    /// Whether a packet of this end's burst that went out by then is not acknowledged yet, nor any after it.
    func isUnanswered(since time: Instant) -> Bool { unansweredSince.map { $0 <= time } ?? false }

    /// Another member has the floor, or a packet of it came.
    mutating func expects(at now: Instant) { (expectedSince, hasAskedFirst) = (now, false) }

    /// Whether packets of another member have to come.
    var isExpecting: Bool { expectedSince != nil }

    /// Nobody else has the floor.
    mutating func expectsNothing() { expectedSince = nil }

    /// Whether the relay is to be asked for a sign of life now: how much longer than usual it may take for that; `nil`: it is not.
    mutating func takeQuestion(at now: Instant) -> Duration? {
        guard let due = nextDeadline, due <= now else { return nil }
        if due == firstDue {
            hasAskedFirst = true
            return Self.silence - Self.firstSilence
        }
        askedAt = now
        if let since = expectedSince, now - since >= Self.burstMaximum { expectedSince = nil }
        return .zero
    }
}
