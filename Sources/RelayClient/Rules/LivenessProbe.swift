// A liveness probe of the relay. Pure.
import MonotonicTime

/// One probe of the relay. An idle link is silent, so the transport sends keep-alives often while the probe runs.
struct LivenessProbe: Sendable, Equatable {
    /// How long the relay may take to answer.
    static let timeout: Duration = .milliseconds(400)
    /// The keep-alive interval during the probe.
    static let interval: Duration = .milliseconds(100)
    /// The time between two checks: the answer to the last keep-alive may have arrived by then.
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

    /// When the probe began.
    let askedAt: Instant

    /// What to think of a relay that was heard at `heard` last.
    func verdict(heard: Instant?, at now: Instant) -> Verdict {
        if let heard, heard > askedAt || seededFault("a-silent-host-is-taken-to-be-there") { return .isThere }
        return now - askedAt >= Self.timeout ? .isGone : .look(at: now + Self.lookInterval)
    }
}
