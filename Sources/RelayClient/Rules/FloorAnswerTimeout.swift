// When a press that nobody answers means that the relay is gone. Pure.
import MonotonicTime

/// A relay may be gone without a word, and the idle time-out is far away. A request for the floor is a question that is answered at
/// once, or at least acknowledged by the transport: when nothing at all came for `timeout` after one, there is no connection.
/// Silence before it says nothing, for an idle link is silent.
struct FloorAnswerTimeout: Sendable {
    /// How long the relay may take.
    static let timeout = UplinkStateMachine.answerTimeout

    /// What is known now.
    enum Verdict: Equatable, Sendable {
        /// Nothing is doubtful.
        case none
        /// Look again then.
        case look(at: Instant)
        /// There is no connection any more.
        case gone
    }

    private var askedAt: Instant?
    private var isDoubtful = false

    /// A request for the floor went out.
    mutating func asked(at now: Instant) {
        askedAt = now
        isDoubtful = false
    }

    /// The burst has ended without an answer.
    mutating func unanswered() { isDoubtful = askedAt != nil }

    /// What to think of a relay that was heard at `heard` last.
    mutating func verdict(heard: Instant?, at now: Instant) -> Verdict {
        guard isDoubtful, let askedAt else { return .none }
        if let heard, heard > askedAt {
            isDoubtful = false
            return .none
        }
        guard now - askedAt >= Self.timeout else { return .look(at: askedAt + Self.timeout) }
        isDoubtful = false
        return .gone
    }
}
