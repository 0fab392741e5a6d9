// How fast one connection may send control messages: a token bucket. Pure.
import MonotonicTime

/// The control messages that one connection may still send.
struct MessageBucket: Sendable, Equatable {
    private let depth: Double
    private let perSecond: Double
    private var tokens: Double
    private var filledAt: Instant

    init(limits: RelayLimits, at now: Instant) {
        depth = Double(limits.messageBurst)
        perSecond = Double(limits.messagesPerSecond)
        tokens = depth
        filledAt = now
    }

    /// Takes one message's worth; false when the connection sends too fast.
    mutating func take(at now: Instant) -> Bool {
        tokens = min(depth, tokens + Double((now - filledAt).nanoseconds) / 1e9 * perSecond)
        filledAt = now
        guard tokens >= 1 else { return false }
        tokens -= 1
        return true
    }
}
