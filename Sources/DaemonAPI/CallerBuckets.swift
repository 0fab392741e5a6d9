// A token bucket for each caller, and one for all. Pure.
import MonotonicTime
import PTTBus

/// A rate limit: the calls allowed at once, and the calls allowed per second after that.
struct CallLimit: Sendable {
    var burst: Int
    var perSecond: Int

    init(_ limit: (burst: Int, perSecond: Int)) { (burst, perSecond) = limit }

    func bucket(at now: Instant) -> TokenBucket { TokenBucket(depth: burst, perSecond: perSecond, at: now) }
}

/// The calls of each caller and of all together. What is refused takes nothing.
struct CallerBuckets<Caller: Hashable> {
    /// Whose limit refuses a call.
    enum Refusal {
        case ofCaller, ofAll
    }

    let ofCaller: CallLimit
    let ofAll: CallLimit
    private var callers: [Caller: TokenBucket] = [:]
    private var all: TokenBucket

    init(caller: CallLimit, all: CallLimit, at now: Instant) {
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
