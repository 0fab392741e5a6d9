// When a bus that takes nothing from us any more is given up. Pure.
import MonotonicTime

/// A bus stops reading from a connection whose messages others do not read. Then neither calls nor answers go out.
struct Congestion {
    /// How long a full queue is waited for.
    static let timeout = Duration.seconds(5)

    private var since: Instant?

    /// A message found room.
    mutating func sent() { since = nil }

    /// A message found none.
    ///
    /// - Returns: Whether the connection has to be made anew; once.
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
