// Statistics that one thread writes and any thread reads, each value atomically, without locks.
import Synchronization

/// A `PlaybackStatistics` in atomics. The fields are each right; together they may be of neighbouring moments.
final class PublishedStatistics: Sendable {
    private let values: InlineArray<17, Atomic<Int>> = InlineArray { _ in Atomic(0) }

    init() { precondition(values.count == PlaybackStatistics.count) }

    /// `PlaybackStatistics.held` alone.
    var packetsHeld: Int { load().held }

    func store(_ counts: PlaybackStatistics) {
        for index in 0..<values.count { values[index].store(counts[index], ordering: .relaxed) }
    }

    func load() -> PlaybackStatistics {
        var counts = PlaybackStatistics()
        for index in 0..<values.count { counts[index] = values[index].load(ordering: .relaxed) }
        return counts
    }
}

extension PlaybackStatistics {
    /// Its fields are all of one type, so that what holds for each of them need not be written for each.
    fileprivate static let count = MemoryLayout<PlaybackStatistics>.size / MemoryLayout<Int>.size

    /// The field at a place in the order of their declaration.
    fileprivate subscript(index: Int) -> Int {
        get { withUnsafePointer(to: self) { UnsafeRawPointer($0).assumingMemoryBound(to: Int.self)[index] } }
        set {
            withUnsafeMutablePointer(to: &self) {
                UnsafeMutableRawPointer($0).assumingMemoryBound(to: Int.self)[index] = newValue
            }
        }
    }

    /// Adds other counts. Target and drift are not counts.
    mutating func add(_ other: PlaybackStatistics) {
        let own = self
        for index in 0..<Self.count { self[index] += other[index] }
        (targetMilliseconds, driftPartsPerMillion) = (own.targetMilliseconds, own.driftPartsPerMillion)
        // Each voice has room of its own.
        held = max(own.held, other.held)
    }

    /// The counts since `start`. Target, drift and the held samples are not counts.
    func since(_ start: PlaybackStatistics) -> PlaybackStatistics {
        var counts = self
        for index in 0..<Self.count { counts[index] -= start[index] }
        (counts.targetMilliseconds, counts.driftPartsPerMillion) = (targetMilliseconds, driftPartsPerMillion)
        counts.held = held
        return counts
    }
}
