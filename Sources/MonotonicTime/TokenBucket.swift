// A rate limit: a token bucket. Pure.

/// Lets a burst through at once, and refills at an even rate.
public struct TokenBucket: Sendable, Equatable {
    private let depth: Double
    private let perSecond: Double
    private var tokens: Double
    private var filledAt: Instant

    /// A full bucket.
    ///
    /// - Parameters:
    ///   - depth: Tokens that may be taken at once.
    ///   - perSecond: Tokens that come back each second.
    public init(depth: Int, perSecond: Int, at now: Instant) {
        self.init(depth: depth, rate: Double(perSecond), at: now)
    }

    /// A full bucket of `depth` tokens, to which one comes back each `interval`.
    public init(depth: Int, every interval: Duration, at now: Instant) {
        self.init(depth: depth, rate: 1e9 / Double(max(1, interval.nanoseconds)), at: now)
    }

    private init(depth: Int, rate: Double, at now: Instant) {
        self.depth = Double(depth)
        perSecond = rate
        tokens = self.depth
        filledAt = now
    }

    /// Takes `count` tokens.
    ///
    /// - Returns: False when there are fewer; then none is taken.
    public mutating func take(_ count: Int = 1, at now: Instant) -> Bool {
        guard holds(count, at: now) else { return false }
        tokens -= Double(count)
        return true
    }

    /// Whether `take` of `count` tokens would succeed.
    public mutating func holds(_ count: Int, at now: Instant) -> Bool {
        fill(at: now)
        return tokens >= Double(count)
    }

    /// When a token is there: `now`, or later.
    public mutating func nextToken(at now: Instant) -> Instant {
        fill(at: now)
        guard tokens < 1, perSecond > 0 else { return now }
        return now + .nanoseconds(Int64(((1 - tokens) / perSecond * 1e9).rounded(.up)) + 1)
    }

    /// Whether nothing is missing, so that a new bucket would be the same.
    public mutating func isFull(at now: Instant) -> Bool {
        fill(at: now)
        return tokens >= depth
    }

    /// Returns tokens that were taken and not used.
    public mutating func giveBack(_ count: Int) { tokens = min(depth, tokens + Double(count)) }

    private mutating func fill(at now: Instant) {
        tokens = min(depth, tokens + Double((now - filledAt).nanoseconds) / 1e9 * perSecond)
        filledAt = now
    }
}
