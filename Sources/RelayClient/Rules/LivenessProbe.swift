// Whether the relay is there and hears: one that is asked, one that does not answer, and one that says nothing for long. Pure.
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

/// Watches for the relay's answers to this end's media.
///
/// While media are sent, the relay acknowledges some of them many times a second, and it reports the end of every
/// burst. Neither arrives when the relay hangs or the network fails in either direction. Then the talker is informed,
/// and the connection is given up. Nothing else counts as an answer: messages that the relay sends on its own do not
/// prove that it receives media.
struct HearingWatch: Sendable {
    /// How long no packet may be acknowledged. More than a gap of 2 s with its repair, which ends no burst; less than the relay's T1 of
    /// 5 s, after which the burst is over in any case.
    static let answerTimeout: Duration = .seconds(4)
    /// How long the report of the burst's end may take after the release: a gap of 2 s, and the relay's T3 of 2 s.
    static let conclusionTimeout: Duration = .seconds(6)
    /// A deadline that is handled this much too late shows that this machine itself stalled, so answers may be waiting
    /// unread. That is accepted once until the next answer.
    static let lateness: Duration = .milliseconds(250)

    private var unansweredSince: Instant?
    private var releasedAt: Instant?
    private var isExcused = false

    /// When `isGone` has to be asked; `nil` while no answer is awaited.
    var nextDeadline: Instant? {
        let answer = unansweredSince.map { $0 + Self.answerTimeout }
        let conclusion = releasedAt.map { $0 + Self.conclusionTimeout }
        guard let answer, let conclusion else { return answer ?? conclusion }
        return min(answer, conclusion)
    }

    /// A packet of this end's burst went out.
    mutating func sent(at now: Instant) {
        if unansweredSince == nil { unansweredSince = now }
    }

    /// The relay has acknowledged one.
    mutating func answered() { (unansweredSince, isExcused) = (nil, false) }

    /// This end has given the floor back, after it had said something.
    mutating func released(at now: Instant) {
        if releasedAt == nil { releasedAt = now }
    }

    /// The relay has reported the end of this end's burst: it has received the release and all packets before it that
    /// it waits for.
    mutating func concluded() { self = HearingWatch() }

    /// Whether the relay does not hear this end any more.
    mutating func isGone(at now: Instant) -> Bool {
        guard let due = nextDeadline, due <= now else { return false }
        guard now - due <= Self.lateness || isExcused else {
            isExcused = true
            if unansweredSince != nil { unansweredSince = now }
            if releasedAt != nil { releasedAt = now }
            return false
        }
        self = HearingWatch()
        return true
    }
}

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
