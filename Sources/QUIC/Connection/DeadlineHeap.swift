// Deadlines of many connections, of which each moves often: a binary heap whose entries know their place. Pure.
import MonotonicTime

/// One deadline; its owner moves it, the heap orders it.
final class Deadline {
    fileprivate var index = -1
    /// When it is due; meaningful while it is in the heap.
    fileprivate(set) var at = Instant.zero
    /// How long it may wait for something else to be done at the same time.
    fileprivate(set) var latest = Instant.zero
    /// Called by whoever pops it.
    var handler: () -> Void

    init(handler: @escaping () -> Void = {}) { self.handler = handler }

    var isScheduled: Bool { index >= 0 }
}

/// A heap of deadlines with removal and change in O(log n), so that moved ones leave nothing behind.
///
/// Ordered by how long they may wait: none waits longer, and whoever is awake before can do those that are due already.
struct DeadlineHeap {
    private var entries: [Deadline] = []

    /// Until when something has to be done.
    var next: Instant? { entries.first?.latest }
    var count: Int { entries.count }

    /// Puts `deadline` in, or moves it: due at `instant`, and to be done `patience` later at the latest.
    mutating func schedule(_ deadline: Deadline, at instant: Instant, patience: Duration = .zero) {
        let latest = instant + patience
        deadline.at = instant
        let earlier = deadline.index < 0 || latest < deadline.latest
        guard deadline.index < 0 || latest != deadline.latest else { return }
        deadline.latest = latest
        if deadline.index < 0 {
            deadline.index = entries.count
            entries.append(deadline)
        }
        if earlier { siftUp(deadline.index) } else { siftDown(deadline.index) }
    }

    /// Takes `deadline` out; no effect when it is not in.
    mutating func remove(_ deadline: Deadline) {
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
    mutating func popDue(at now: Instant) -> Deadline? {
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
            guard moving.latest < entries[parent].latest else { break }
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
            if child + 1 < entries.count, entries[child + 1].latest < entries[child].latest { child += 1 }
            guard entries[child].latest < moving.latest else { break }
            place(entries[child], at: index)
            index = child
        }
        place(moving, at: index)
    }
}
