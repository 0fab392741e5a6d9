// Statistics that one thread writes and any thread reads, each value atomically, without locks.
import Synchronization

/// A `PlaybackStatistics` in atomics. The fields are each right; together they may be of neighbouring moments.
final class PublishedStatistics: Sendable {
    private let received = Atomic<Int>(0)
    private let played = Atomic<Int>(0)
    private let lost = Atomic<Int>(0)
    private let recovered = Atomic<Int>(0)
    private let late = Atomic<Int>(0)
    private let duplicate = Atomic<Int>(0)
    private let malformed = Atomic<Int>(0)
    private let dropped = Atomic<Int>(0)
    private let concealed = Atomic<Int>(0)
    private let accelerated = Atomic<Int>(0)
    private let underruns = Atomic<Int>(0)
    private let repaired = Atomic<Int>(0)
    private let expanded = Atomic<Int>(0)
    private let awaited = Atomic<Int>(0)
    private let drift = Atomic<Int>(0)
    private let target = Atomic<Int>(0)
    private let held = Atomic<Int>(0)

    /// `PlaybackStatistics.held` alone.
    var packetsHeld: Int { held.load(ordering: .relaxed) }

    func store(_ counts: PlaybackStatistics) {
        received.store(counts.received, ordering: .relaxed)
        played.store(counts.played, ordering: .relaxed)
        lost.store(counts.lost, ordering: .relaxed)
        recovered.store(counts.recovered, ordering: .relaxed)
        late.store(counts.late, ordering: .relaxed)
        duplicate.store(counts.duplicate, ordering: .relaxed)
        malformed.store(counts.malformed, ordering: .relaxed)
        dropped.store(counts.dropped, ordering: .relaxed)
        concealed.store(counts.concealedSamples, ordering: .relaxed)
        accelerated.store(counts.acceleratedSamples, ordering: .relaxed)
        repaired.store(counts.repaired, ordering: .relaxed)
        expanded.store(counts.expandedSamples, ordering: .relaxed)
        awaited.store(counts.awaitedGaps, ordering: .relaxed)
        drift.store(counts.driftPartsPerMillion, ordering: .relaxed)
        underruns.store(counts.underruns, ordering: .relaxed)
        target.store(counts.targetMilliseconds, ordering: .relaxed)
        held.store(counts.held, ordering: .relaxed)
    }

    func load() -> PlaybackStatistics {
        var counts = PlaybackStatistics()
        counts.received = received.load(ordering: .relaxed)
        counts.played = played.load(ordering: .relaxed)
        counts.lost = lost.load(ordering: .relaxed)
        counts.recovered = recovered.load(ordering: .relaxed)
        counts.late = late.load(ordering: .relaxed)
        counts.duplicate = duplicate.load(ordering: .relaxed)
        counts.malformed = malformed.load(ordering: .relaxed)
        counts.dropped = dropped.load(ordering: .relaxed)
        counts.concealedSamples = concealed.load(ordering: .relaxed)
        counts.acceleratedSamples = accelerated.load(ordering: .relaxed)
        counts.repaired = repaired.load(ordering: .relaxed)
        counts.expandedSamples = expanded.load(ordering: .relaxed)
        counts.awaitedGaps = awaited.load(ordering: .relaxed)
        counts.driftPartsPerMillion = drift.load(ordering: .relaxed)
        counts.underruns = underruns.load(ordering: .relaxed)
        counts.targetMilliseconds = target.load(ordering: .relaxed)
        counts.held = packetsHeld
        return counts
    }
}

extension PlaybackStatistics {
    /// Adds other counts. Target and drift are not counts.
    mutating func add(_ other: PlaybackStatistics) {
        received += other.received
        played += other.played
        lost += other.lost
        recovered += other.recovered
        late += other.late
        duplicate += other.duplicate
        malformed += other.malformed
        dropped += other.dropped
        concealedSamples += other.concealedSamples
        acceleratedSamples += other.acceleratedSamples
        repaired += other.repaired
        expandedSamples += other.expandedSamples
        awaitedGaps += other.awaitedGaps
        underruns += other.underruns
        // Each voice has room of its own.
        held = max(held, other.held)
    }

    /// The counts since `start`. Target, drift and the held samples are not counts.
    func since(_ start: PlaybackStatistics) -> PlaybackStatistics {
        var counts = self
        counts.received -= start.received
        counts.played -= start.played
        counts.lost -= start.lost
        counts.recovered -= start.recovered
        counts.late -= start.late
        counts.duplicate -= start.duplicate
        counts.malformed -= start.malformed
        counts.dropped -= start.dropped
        counts.concealedSamples -= start.concealedSamples
        counts.acceleratedSamples -= start.acceleratedSamples
        counts.repaired -= start.repaired
        counts.expandedSamples -= start.expandedSamples
        counts.awaitedGaps -= start.awaitedGaps
        counts.underruns -= start.underruns
        return counts
    }
}
