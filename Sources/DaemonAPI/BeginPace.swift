// A rate limit on begins. Pure.
import DBus
import MonotonicTime

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
        let unbounded = DBusCallBound.Rate(burst: .max, perSecond: .max)
        return BeginPace(caller: unbounded, all: unbounded, at: .now)
    }

    private var buckets: CallerBuckets<Key>
    private var waiting: [(key: Key, ids: [ID])] = []
    private var last: ID = 0

    init(caller: DBusCallBound.Rate, all: DBusCallBound.Rate, at now: Instant) {
        buckets = CallerBuckets(caller: caller, all: all, at: now)
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
        if waiting.isEmpty || !buckets.isAllUsedUp(at: now), buckets.take(key, at: now) == nil { return nil }
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
            if buckets.take(entry.key, at: now) == nil { due += entry.ids } else { left.append(entry) }
        }
        waiting = left
        return due
    }

    /// When `takeDue` has something; nil: nobody waits.
    mutating func nextDeadline(at now: Instant) -> Instant? {
        waiting.isEmpty ? nil : buckets.nextToken(of: waiting.lazy.map(\.key), at: now)
    }
}
