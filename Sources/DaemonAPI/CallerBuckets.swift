// Rate limits on calls: a token bucket for each caller, and one for all. Pure.
import DBus
import MonotonicTime
import PTTBus

/// The calls of each caller and of all together. What is refused takes nothing.
struct CallerBuckets<Caller: Hashable> {
    /// Whose limit refuses a call.
    enum Refusal {
        case ofCaller, ofAll
    }

    let ofCaller: DBusCallBound.Rate
    let ofAll: DBusCallBound.Rate
    private var callers: [Caller: TokenBucket] = [:]
    private var all: TokenBucket

    init(caller: DBusCallBound.Rate, all: DBusCallBound.Rate, at now: Instant) {
        ofCaller = caller
        ofAll = all
        self.all = all.bucket(at: now)
    }

    /// Takes a call; nil: it is within both limits.
    mutating func take(_ caller: Caller, at now: Instant) -> Refusal? {
        var own = callers[caller] ?? ofCaller.bucket(at: now)
        defer { remember(own, of: caller, at: now) }
        guard own.holds(1, at: now) else { return .ofCaller }
        guard all.take(at: now) else { return .ofAll }
        _ = own.take(at: now)
        return nil
    }

    /// Whether all callers together have used up what they have.
    mutating func isAllUsedUp(at now: Instant) -> Bool { !all.holds(1, at: now) }

    /// When a call of one of these callers is within both limits.
    mutating func nextToken(of waiting: some Sequence<Caller>, at now: Instant) -> Instant {
        let common = all.nextToken(at: now)
        var own: Instant?
        for caller in waiting {
            guard let time = callers[caller]?.nextToken(at: now) else { return common }
            own = min(own ?? time, time)
        }
        return max(common, own ?? common)
    }

    /// A full bucket says no more than none. What is left are callers that have called lately.
    private mutating func remember(_ own: TokenBucket, of caller: Caller, at now: Instant) {
        callers[caller] = own
        guard callers.count > PTTBusLimits.watchedCallers else { return }
        for (name, var bucket) in callers where bucket.isFull(at: now) { callers[name] = nil }
        // Beyond that the bound on all is what counts.
        if callers.count > PTTBusLimits.watchedCallers { callers = [caller: own] }
    }
}

/// Refuses calls above the rate limit.
///
/// A relay ends a connection that sends too much, and all callers of this machine share one.
struct CallRate {
    private let what: String
    private var buckets: CallerBuckets<String>

    /// - Parameter what: What is asked for, for the error.
    init(_ what: String, caller: DBusCallBound.Rate, all: DBusCallBound.Rate, at now: Instant) {
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
