// Keeps the requests of one caller in order, although some of them wait for information from the bus.
import PushToTalkCore

/// The requests of callers that wait for an earlier one of the same caller.
struct CallerTurns {
    /// Requests of one caller that wait.
    private static let waitingMax = 64

    /// No entry while nothing of a caller is under way.
    private var waiting: [String: [CheckedContinuation<Void, Never>]] = [:]

    /// Begins a request of a caller.
    ///
    /// - Returns: Whether it has to `wait` for an earlier one.
    /// - Throws: When too many wait.
    mutating func begin(_ caller: String) throws(PTChannelError) -> Bool {
        guard let earlier = waiting[caller] else {
            waiting[caller] = []
            return false
        }
        guard earlier.count < Self.waitingMax else {
            throw PTChannelError(.unknown, explanation: "this caller has too many pending requests; try again")
        }
        return true
    }

    /// The request waits from now on.
    mutating func wait(_ caller: String, _ turn: CheckedContinuation<Void, Never>) { waiting[caller]?.append(turn) }

    /// Lets the caller's next request continue after the current one.
    mutating func end(_ caller: String) {
        if waiting[caller]?.isEmpty == false { waiting[caller]?.removeFirst().resume() } else { waiting[caller] = nil }
    }
}
