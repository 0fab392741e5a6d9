// How often the relay is asked for the floor, whatever programs of this machine do. Pure.
import MonotonicTime

/// Keeps a flood of short bursts from becoming a flood of messages, for which the relay would close the connection.
///
/// Nobody presses that often: a request waits only when many were made just before. A burst that ends before it was asked for costs no
/// message at all, so the newest state is what the relay is told. What an unreachable relay has not answered is bounded too: it would all
/// be read at one instant.
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

    /// The relay has told something of the floor: it reads what it is sent.
    mutating func answered() { unanswered = 0 }

    /// Nothing waits any more.
    mutating func relax() { retryAt = nil }
}
