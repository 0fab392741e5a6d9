// Decides when to give up a bus that no longer accepts messages. Pure.
import MonotonicTime

/// A bus stops reading from a connection whose messages other clients do not read. Then neither calls nor answers are
/// sent.
struct Congestion {
    /// How long the queue may stay full before the connection is given up.
    static let timeout = Duration.seconds(5)

    private var since: Instant?

    /// A message was queued.
    mutating func sent() { since = nil }

    /// A message could not be queued.
    ///
    /// - Returns: Whether to reconnect; true once.
    mutating func failed(at now: Instant) -> Bool {
        guard let since else {
            since = now
            return false
        }
        guard now - since >= Self.timeout else { return false }
        self.since = nil
        return true
    }
}
