// Whether a relay that is asked for a sign of life gives one. Pure.
import MonotonicTime

/// One question to the relay whether it is there. An idle link is silent, so the transport asks often while this goes on.
struct LivenessProbe: Sendable, Equatable {
    /// How long the relay may take to give a sign of life.
    static let timeout: Duration = .milliseconds(400)
    /// It is asked after so much silence meanwhile.
    static let interval: Duration = .milliseconds(100)
    /// The time between two looks: an answer to what was asked last may be there by then.
    static let lookInterval = interval + .milliseconds(20)

    /// What is known at a look.
    enum Verdict: Equatable, Sendable {
        /// It has been heard since it was asked.
        case isThere
        /// Nothing came in time.
        case isGone
        /// Look again then.
        case look(at: Instant)
    }

    /// When the question began.
    let askedAt: Instant

    /// What to think of a relay that was heard at `heard` last.
    func verdict(heard: Instant?, at now: Instant) -> Verdict {
        if let heard, heard > askedAt || seededFault("a-silent-host-is-taken-to-be-there") { return .isThere }
        return now - askedAt >= Self.timeout ? .isGone : .look(at: now + Self.lookInterval)
    }
}
