// Decides when an unanswered floor request means that the relay is gone. Pure.
import MonotonicTime

/// A relay may vanish without notice long before the idle timeout ends. It answers a floor request at once, or at least
/// its transport acknowledges it. If nothing at all arrives within `timeout` after a request, the connection is lost.
/// Silence before the request means nothing, because an idle link is silent.
struct FloorAnswerTimeout: Sendable {
    /// How long the relay may take to answer.
    static let timeout = UplinkStateMachine.answerTimeout

    /// What is known now.
    enum Verdict: Equatable, Sendable {
        /// Nothing is doubtful.
        case none
        /// Look again then.
        case look(at: Instant)
        /// The connection is lost.
        case gone
    }

    private var askedAt: Instant?
    private var isDoubtful = false

    /// A request for the floor went out.
    mutating func asked(at now: Instant) {
        askedAt = now
        isDoubtful = false
    }

    /// The burst ended without an answer.
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
