// A rate limit on calls that cause work at the relay. Pure.
import DBus
import MonotonicTime
import PTTBus

/// A token bucket for each caller, and one for all. Refused calls take nothing.
///
/// A relay ends a connection that sends too much, and all callers of this machine share one.
struct CallRate {
    /// A rate limit: the calls allowed at once, and the calls allowed per second after that.
    struct Limit: Sendable {
        var burst: Int
        var perSecond: Int

        init(_ limit: (burst: Int, perSecond: Int)) { (burst, perSecond) = limit }

        func bucket(at now: Instant) -> TokenBucket { TokenBucket(depth: burst, perSecond: perSecond, at: now) }
    }

    private let what: String
    private let ofCaller: Limit
    private let ofAll: Limit
    private var callers: [String: TokenBucket] = [:]
    private var all: TokenBucket

    /// - Parameter what: What is asked for, for the error.
    init(_ what: String, caller: Limit, all: Limit, at now: Instant) {
        self.what = what
        ofCaller = caller
        ofAll = all
        self.all = all.bucket(at: now)
    }

    /// Takes a call of `caller`.
    /// - Throws: `LimitsExceeded`.
    mutating func take(_ caller: String, at now: Instant) throws(DBusErrorReply) {
        var own = callers[caller] ?? ofCaller.bucket(at: now)
        defer { remember(own, of: caller, at: now) }
        guard own.holds(1, at: now) else {
            throw .limitsExceeded(
                "too many \(what) by this caller; at most \(ofCaller.perSecond) a second are accepted")
        }
        guard all.take(at: now) else {
            throw .limitsExceeded("too many \(what) on this machine; at most \(ofAll.perSecond) a second are accepted")
        }
        _ = own.take(at: now)
    }

    /// A full bucket says no more than none. What is left are callers that have called lately.
    private mutating func remember(_ own: TokenBucket, of caller: String, at now: Instant) {
        callers[caller] = own
        guard callers.count > PTTBusLimits.watchedCallers else { return }
        for (name, var bucket) in callers where bucket.isFull(at: now) { callers[name] = nil }
        // Beyond that the bound on all is what counts.
        if callers.count > PTTBusLimits.watchedCallers { callers = [caller: own] }
    }
}
