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
    /// How long the relay may take.
    var timeout = Self.timeout
    /// The longest time that is given to a slow path.
    static let timeoutMaximum: Duration = .seconds(1)
    /// The same over TLS, where TCP sends again what was lost, after a while.
    static let timeoutOverTLS: Duration = .seconds(1)

    /// A probe over a path with that round trip, beside which another path may be used: a satellite's takes its time.
    ///
    /// - Parameter patience: How much longer than usual the relay may take.
    init(askedAt: Instant, roundTrip: Duration?, isReliable: Bool, patience: Duration = .zero) {
        let fair = max(Self.timeout, min((roundTrip ?? .zero) * 3, Self.timeoutMaximum))
        self.init(askedAt: askedAt, timeout: (isReliable ? Self.timeoutOverTLS : fair) + patience)
    }

    init(askedAt: Instant, timeout: Duration = Self.timeout) { (self.askedAt, self.timeout) = (askedAt, timeout) }

    /// When the relay is taken to be gone.
    var deadline: Instant { askedAt + timeout }

    /// What to think of a relay that was heard at `heard` last.
    func verdict(heard: Instant?, at now: Instant) -> Verdict {
        if let heard, heard > askedAt || seededFault("a-silent-host-is-taken-to-be-there") { return .isThere }
        return now >= deadline ? .isGone : .look(at: min(now + Self.lookInterval, deadline))
    }
}
