// A binary heap of deadlines that are often moved and removed. Each entry knows its position. Pure.
import MonotonicTime

/// One deadline. Its owner schedules and removes it; the heap orders it.
public final class Deadline {
    fileprivate var index = -1
    /// Its place among those that have to be done at the same time.
    fileprivate var order: UInt64 = 0
    /// When it is due. Meaningful while it is scheduled.
    public fileprivate(set) var at = Instant.zero
    /// When it has to be done at the latest: until then it may wait for something else to be done at the same time.
    public fileprivate(set) var latest = Instant.zero
    /// Called by whoever pops it from the heap.
    public var handler: (() -> Void)?

    /// A deadline in no heap yet.
    public init(handler: (() -> Void)? = nil) { self.handler = handler }

    /// Whether a heap holds it.
    public var isScheduled: Bool { index >= 0 }

    fileprivate func isBefore(_ other: Deadline) -> Bool { (latest, order) < (other.latest, other.order) }
}

/// A heap of deadlines with removal and change in O(log n): moved and removed ones leave nothing behind.
///
/// It is ordered by the latest time of each, so none waits longer. Deadlines with the same latest time come out in the order in which
/// they were scheduled. A caller that is awake earlier can pop those that are due already.
public struct DeadlineHeap {
    private var entries: [Deadline] = []
    private var scheduled: UInt64 = 0

    /// An empty heap.
    public init() {}

    /// When the next deadline has to be done at the latest; nil while there is none.
    public var next: Instant? { entries.first?.latest }
    /// The number of scheduled deadlines.
    public var count: Int { entries.count }

    /// Inserts or moves `deadline`. It is due at `instant` and runs at most `slack` later.
    public mutating func schedule(_ deadline: Deadline, at instant: Instant, slack: Duration = .zero) {
        let latest = instant + slack
        deadline.at = instant
        let earlier = deadline.index < 0 || latest < deadline.latest
        guard deadline.index < 0 || latest != deadline.latest else { return }
        deadline.latest = latest
        deadline.order = scheduled
        scheduled += 1
        if deadline.index < 0 {
            deadline.index = entries.count
            entries.append(deadline)
        }
        if earlier { siftUp(deadline.index) } else { siftDown(deadline.index) }
    }

    /// Takes `deadline` out; no effect when it is not in.
    public mutating func remove(_ deadline: Deadline) {
        let index = deadline.index
        guard index >= 0 else { return }
        deadline.index = -1
        let last = entries.removeLast()
        guard last !== deadline else { return }
        place(last, at: index)
        siftUp(index)
        siftDown(last.index)
    }

    /// Takes out the most urgent deadline if it is due.
    public mutating func popDue(at now: Instant) -> Deadline? {
        guard let first = entries.first, first.at <= now else { return nil }
        remove(first)
        return first
    }

    private mutating func place(_ deadline: Deadline, at index: Int) {
        entries[index] = deadline
        deadline.index = index
    }

    private mutating func siftUp(_ start: Int) {
        var index = start
        let moving = entries[index]
        while index > 0 {
            let parent = (index - 1) / 2
            guard moving.isBefore(entries[parent]) else { break }
            place(entries[parent], at: index)
            index = parent
        }
        place(moving, at: index)
    }

    private mutating func siftDown(_ start: Int) {
        var index = start
        let moving = entries[index]
        while true {
            var child = 2 * index + 1
            guard child < entries.count else { break }
            if child + 1 < entries.count, entries[child + 1].isBefore(entries[child]) { child += 1 }
            guard entries[child].isBefore(moving) else { break }
            place(entries[child], at: index)
            index = child
        }
        place(moving, at: index)
    }
}
