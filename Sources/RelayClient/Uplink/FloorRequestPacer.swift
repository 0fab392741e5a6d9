// A rate limit on floor requests, whatever programs of this machine do. Pure.
import MonotonicTime

/// Prevents a flood of short bursts from becoming a flood of messages, for which the relay would close the connection.
///
/// No person presses that often: a request waits only after many recent ones. A burst that ends before its request is
/// sent costs no message, so the relay always gets the newest state. The number of unanswered requests is limited, too,
/// because a relay that becomes reachable reads them all at once.
struct FloorRequestPacer: Sendable {
    /// Requests that may go at once. Each is followed by a release: so these are less than half of the 64 messages that a relay takes at once.
    static let requestsAtOnce = 12
    /// Requests in the long run, each second; of 32 messages that a relay takes.
    static let requestsPerSecond = 6
    /// Of those that may go at once, what only an emergency uses.
    static let emergencyReserve = 4
    /// Requests that the relay may leave unanswered.
    static let unansweredMaximum = 8
    /// A refused request may go so much later: there is one more then.
    static let pause: Duration = .milliseconds(Int64(1_000 / requestsPerSecond + 1))

    private var bucket = TokenBucket(depth: requestsAtOnce, perSecond: requestsPerSecond, at: .zero)
    private var unanswered = 0
    /// When to try again; nil: nothing waits, or for the relay.
    private(set) var retryAt: Instant?

    /// Whether a request may go now; it is counted then.
    mutating func allows(emergency: Bool, at now: Instant) -> Bool {
        retryAt = nil
        guard unanswered < Self.unansweredMaximum else { return false }
        guard bucket.holds(emergency ? 1 : 1 + Self.emergencyReserve, at: now) else {
            retryAt = now + Self.pause
            return false
        }
        note(at: now)
        return true
    }

    /// A request goes that cannot wait.
    mutating func note(at now: Instant) {
        _ = bucket.take(at: now)
        unanswered += 1
    }

    /// The relay has sent a floor message, so it reads requests.
    mutating func answered() { unanswered = 0 }

    /// Nothing waits any more.
    mutating func relax() { retryAt = nil }
}
