// A rate limit on repair requests. Pure.
import MonotonicTime

/// It stays within the relay's limit per client (docs/relay-protocol.md, section 12: 16 requests at once, 20 a second),
/// with a margin for varying delays.
struct RequestBudget: Sendable {
    /// Requests at once, after a rest.
    static let depth = 12
    /// The time for which one is earned.
    static let interval: Duration = .milliseconds(50)
    /// The minimum time between two requests. Each contains everything that is due by then.
    static let spacing: Duration = .milliseconds(20)

    /// When everything is earned again.
    private var fullAt = Instant.zero
    private var lastAt: Instant?

    /// When the next request may be made.
    var nextRequestAt: Instant {
        // One is left when all but one interval of the debt is paid.
        let earned = Instant(nanoseconds: fullAt.nanoseconds - (Self.interval * (Self.depth - 1)).nanoseconds)
        return max(earned, lastAt.map { $0 + Self.spacing } ?? .zero)
    }

    /// A request is made.
    mutating func take(at now: Instant) {
        fullAt = max(fullAt, now) + Self.interval
        lastAt = now
    }
}
