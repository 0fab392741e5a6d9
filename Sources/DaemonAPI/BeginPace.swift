// A rate limit on begins. Pure.
import MonotonicTime
import PTTBus

/// Begins above the rate limit wait, and waiting begins of one caller are merged; none is refused. An end never waits.
/// It takes effect at once and cancels the begins that wait before it, so the caller's last request always wins.
struct BeginPace {
    /// Names a begin, once.
    typealias ID = UInt64

    /// The caller and the action of a begin.
    struct Key: Hashable {
        var caller: String
        var use: WatchedCaller.Use
    }

    /// Nobody waits.
    static var unbounded: BeginPace {
        BeginPace(
            caller: .init((burst: .max, perSecond: .max)), all: .init((burst: .max, perSecond: .max)), at: .now)
    }

    private let ofCaller: CallRate.Limit
    private var callers: [Key: TokenBucket] = [:]
    private var all: TokenBucket
    private var waiting: [(key: Key, ids: [ID])] = []
    private var last: ID = 0

    init(caller: CallRate.Limit, all: CallRate.Limit, at now: Instant) {
        ofCaller = caller
        self.all = all.bucket(at: now)
    }

    /// A begin has come.
    ///
    /// - Returns: nil: it is its turn now; else how it will be named.
    mutating func begin(_ key: Key, at now: Instant) -> ID? {
        if let index = waiting.firstIndex(where: { $0.key == key }) {
            last += 1
            waiting[index].ids.append(last)
            return last
        }
        // Nobody overtakes those who wait for what all have together.
        if waiting.isEmpty || !isAllUsedUp(at: now), take(key, at: now) { return nil }
        last += 1
        waiting.append((key, [last]))
        return last
    }

    /// An end has come: the begins of the same caller that are over with it.
    mutating func end(_ key: Key) -> [ID] {
        guard let index = waiting.firstIndex(where: { $0.key == key }) else { return [] }
        return waiting.remove(at: index).ids
    }

    /// The begins whose turn it is, the caller that has waited longest first.
    mutating func takeDue(at now: Instant) -> [ID] {
        var due: [ID] = []
        var left: [(key: Key, ids: [ID])] = []
        for entry in waiting {
            if take(entry.key, at: now) { due += entry.ids } else { left.append(entry) }
        }
        waiting = left
        return due
    }

    /// When `takeDue` has something; nil: nobody waits.
    mutating func nextDeadline(at now: Instant) -> Instant? {
        guard !waiting.isEmpty else { return nil }
        let common = all.nextToken(at: now)
        var own: Instant?
        for entry in waiting {
            guard let time = callers[entry.key]?.nextToken(at: now) else { return common }
            own = min(own ?? time, time)
        }
        return max(common, own ?? common)
    }

    private mutating func isAllUsedUp(at now: Instant) -> Bool { !all.holds(1, at: now) }

    private mutating func take(_ key: Key, at now: Instant) -> Bool {
        var own = callers[key] ?? ofCaller.bucket(at: now)
        defer { remember(own, of: key, at: now) }
        guard own.holds(1, at: now), all.take(at: now) else { return false }
        return own.take(at: now)
    }

    /// A full bucket says no more than none.
    private mutating func remember(_ own: TokenBucket, of key: Key, at now: Instant) {
        callers[key] = own
        guard callers.count > PTTBusLimits.watchedCallers else { return }
        for (name, var bucket) in callers where bucket.isFull(at: now) { callers[name] = nil }
        // Beyond that the bound on all is what counts.
        if callers.count > PTTBusLimits.watchedCallers { callers = [key: own] }
    }
}
