// Whether the relay is there: one that is asked, one that does not answer a press, and one that says nothing for long. Pure.
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

    /// When the relay is taken to be gone.
    var deadline: Instant { askedAt + timeout }

    /// What to think of a relay that was heard at `heard` last.
    func verdict(heard: Instant?, at now: Instant) -> Verdict {
        if let heard, heard > askedAt || seededFault("a-silent-host-is-taken-to-be-there") { return .isThere }
        return now >= deadline ? .isGone : .look(at: min(now + Self.lookInterval, deadline))
    }
}

extension LivenessProbe {
    /// A probe over a path with that round trip, beside which another path may be used: a satellite's takes its time.
    ///
    /// - Parameter patience: How much longer than usual the relay may take.
    init(askedAt: Instant, roundTrip: Duration?, isReliable: Bool, patience: Duration = .zero) {
        let fair = max(Self.timeout, min((roundTrip ?? .zero) * 3, Self.timeoutMaximum))
        self.init(askedAt: askedAt, timeout: (isReliable ? Self.timeoutOverTLS : fair) + patience)
    }
}

/// A relay may vanish without notice long before the idle timeout ends. It answers a floor request at once, or at least
/// its transport acknowledges it. If nothing at all arrives within `timeout` after a request, the connection is lost.
/// Silence before the request means nothing, because an idle link is silent.
struct FloorAnswerTimeout: Sendable {
    /// How long the relay may take to answer.
    static let timeout = UplinkStateMachine.answerTimeout

    private var askedAt: Instant?
    private var isDoubtful = false

    /// A request for the floor went out.
    mutating func asked(at now: Instant) {
        askedAt = now
        isDoubtful = false
    }

    /// The burst ended without an answer.
    mutating func unanswered() { isDoubtful = askedAt != nil }

    /// What to think of a relay that was heard at `heard` last; without a doubt it is there.
    mutating func verdict(heard: Instant?, at now: Instant) -> LivenessProbe.Verdict {
        guard isDoubtful, let askedAt else { return .isThere }
        if let heard, heard > askedAt {
            isDoubtful = false
            return .isThere
        }
        guard now - askedAt >= Self.timeout else { return .look(at: askedAt + Self.timeout) }
        isDoubtful = false
        return .isGone
    }
}

/// Watches for silence on an idle link whose relay may be at another address by now: its keep-alives are answered, or it is asked for a
/// sign of life.
enum IdleWatch {
    /// How long nothing may come: a keep-alive, and the time for its answer.
    static let silence: Duration = RelayClientStateMachine.keepAliveOfSeveral + .seconds(1)

    /// Whether the relay is to be asked, and when to look again.
    ///
    /// - Parameter heard: When something came last; nil: nothing has, since the connection was made.
    static func look(heard: Instant?, at now: Instant) -> (asks: Bool, next: Instant) {
        guard let heard, now - heard < silence else { return (heard != nil, now + silence) }
        return (false, heard + silence)
    }
}
