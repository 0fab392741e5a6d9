// Whether the relay still receives the talker's media, so that nobody talks into a dead link. Pure.
import MonotonicTime

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
