// A rate limit on calls that cause work at the relay. Pure.
import DBus
import MonotonicTime

/// Refuses calls above the rate limit.
///
/// A relay ends a connection that sends too much, and all callers of this machine share one.
struct CallRate {
    private let what: String
    private var buckets: CallerBuckets<String>

    /// - Parameter what: What is asked for, for the error.
    init(_ what: String, caller: CallLimit, all: CallLimit, at now: Instant) {
        self.what = what
        buckets = CallerBuckets(caller: caller, all: all, at: now)
    }

    /// Takes a call of `caller`.
    /// - Throws: `LimitsExceeded`.
    mutating func take(_ caller: String, at now: Instant) throws(DBusErrorReply) {
        switch buckets.take(caller, at: now) {
        case nil: return
        case .ofCaller:
            throw .limitsExceeded(
                "too many \(what) by this caller; at most \(buckets.ofCaller.perSecond) a second are accepted")
        case .ofAll:
            throw .limitsExceeded(
                "too many \(what) on this machine; at most \(buckets.ofAll.perSecond) a second are accepted")
        }
    }
}
