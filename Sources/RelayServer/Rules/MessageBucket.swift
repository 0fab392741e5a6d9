// How fast messages may come: a token bucket. Pure.
import MonotonicTime

/// The control messages that one connection may still send, or the pushes that may still be sent to one token.
struct MessageBucket: Sendable, Equatable {
    private let depth: Double
    private let perSecond: Double
    private var tokens: Double
    private var filledAt: Instant

    init(depth: Int, perSecond: Int, at now: Instant) {
        self.depth = Double(depth)
        self.perSecond = Double(perSecond)
        tokens = self.depth
        filledAt = now
    }

    init(limits: RelayLimits, at now: Instant) {
        self.init(depth: limits.messageBurst, perSecond: limits.messagesPerSecond, at: now)
    }

    /// Takes `count` messages' worth; false when they come too fast.
    mutating func take(_ count: Int = 1, at now: Instant) -> Bool {
        guard holds(count, at: now) else { return false }
        tokens -= Double(count)
        return true
    }

    /// Whether `take` of so many would succeed.
    mutating func holds(_ count: Int, at now: Instant) -> Bool {
        tokens = min(depth, tokens + Double((now - filledAt).nanoseconds) / 1e9 * perSecond)
        filledAt = now
        return tokens >= Double(count)
    }

    /// What was taken was not used.
    mutating func giveBack(_ count: Int) { tokens = min(depth, tokens + Double(count)) }
}
