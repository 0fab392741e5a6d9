// Whether the relay still hears what is said: a talker must not go on talking to nobody. Pure.
import MonotonicTime

/// Watches for the relay's answers to what this end says.
///
/// While media go out the relay acknowledges some of them many times a second, and it tells the end of every burst. Neither comes when
/// the relay hangs or the network is gone, in whichever direction: then the talker is told, and the connection is given up.
/// Nothing else counts as an answer: what the relay says of its own accord does not mean that it hears.
struct HearingWatch: Sendable {
    /// How long no packet may be acknowledged. More than a gap of 2 s with its repair, which ends no burst; less than the relay's T1 of
    /// 5 s, after which the burst is over in any case.
    static let answerTimeout: Duration = .seconds(4)
    /// How long the end of a burst may not be told after it was released: a gap of 2 s, and the relay's T3 of 2 s.
    static let conclusionTimeout: Duration = .seconds(6)
    /// A deadline that is handled so much too late tells that this machine was held up itself: answers may wait to be read. That is
    /// believed once, until the next answer.
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

    /// The relay has told the end of this end's burst: it has heard the release, and waits for no packet before it.
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
