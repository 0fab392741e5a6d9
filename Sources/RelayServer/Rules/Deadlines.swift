// Deadlines by key: the earliest is known at once, and each can be moved or removed. Pure.
import MonotonicTime

/// A binary heap of deadlines that knows the place of each key, so that a change costs O(log n).
///
/// Deadlines of the same instant come in the order of their keys.
struct Deadlines<Key: Hashable & Comparable & Sendable>: Sendable {
    private var heap: [(at: Instant, key: Key)] = []
    private var places: [Key: Int] = [:]

    /// The earliest; nil: there is none.
    var next: Instant? { heap.first?.at }

    /// The deadline of a key; nil: it has none.
    subscript(key: Key) -> Instant? {
        get { places[key].map { heap[$0].at } }
        set {
            guard let place = places[key] else {
                guard let newValue else { return }
                heap.append((newValue, key))
                places[key] = heap.count - 1
                return settle(heap.count - 1)
            }
            if let newValue {
                guard heap[place].at != newValue else { return }
                heap[place].at = newValue
            } else {
                places[key] = nil
                heap.swapAt(place, heap.count - 1)
                heap.removeLast()
                if place < heap.count { places[heap[place].key] = place }
            }
            settle(place)
        }
    }

    /// Takes out the key of the earliest deadline, when that has come.
    mutating func popDue(at now: Instant) -> Key? {
        guard let first = heap.first, first.at <= now else { return nil }
        self[first.key] = nil
        return first.key
    }

    /// Moves the entry at `place`, which `places` knows, to where it belongs.
    private mutating func settle(_ place: Int) {
        guard place < heap.count else { return }
        let parent = (place - 1) / 2
        var child = 2 * place + 1
        if child + 1 < heap.count, isBefore(child + 1, child) { child += 1 }
        let isEarly = place > 0 && isBefore(place, parent)
        let next = isEarly ? parent : child
        if isEarly || child < heap.count && isBefore(child, place) {
            heap.swapAt(place, next)
            places[heap[place].key] = place
            places[heap[next].key] = next
            settle(next)
        }
    }

    private func isBefore(_ one: Int, _ other: Int) -> Bool {
        (heap[one].at, heap[one].key) < (heap[other].at, heap[other].key)
    }
}

/// The earlier of two deadlines, each of which may be missing.
func earlier(_ one: Instant?, _ other: Instant?) -> Instant? {
    guard let one, let other else { return one ?? other }
    return min(one, other)
}
