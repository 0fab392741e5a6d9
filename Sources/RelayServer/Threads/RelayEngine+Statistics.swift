// The statistics of a running relay for the operator.
import MonotonicTime
import QUIC
import Reactor
import Synchronization

extension RelayEngine {
    /// What the workers have counted. Those of other threads count their connections and what came to the port only when they
    /// are asked, so of these the answer is what they were at the last time.
    private var tallies: [RelayWorkerTally] {
        workers.map { worker in
            if let orders = worker.orders { orders.post(.count, mayBeLost: true) } else { worker.count() }
            return worker.tally.withLock { $0 }
        }
    }

    /// What was counted since the start.
    var counters: RelayCounters { total(of: tallies) }

    private func total(of tallies: [RelayWorkerTally]) -> RelayCounters {
        var counters = core.counters
        for tally in tallies {
            counters.packetsOut += tally.packetsOut
            counters.packetsNotSent += tally.packetsNotSent + tally.mediaDropped
            counters.strayPackets += tally.strayPackets
            counters.repairsRefused += tally.repairsRefused
        }
        return counters
    }

    /// The statistics for the operator.
    var statistics: RelayStatistics {
        let tallies = tallies
        var transport = RelayStatistics.Transport()
        var forwarding = LatencyHistogram()
        for tally in tallies {
            transport.add(tally.transport)
            forwarding.add(tally.forwarding)
        }
        return RelayStatistics(
            uptime: .now - startedAt, connections: tallies.reduce(0) { $0 + $1.connections },
            counters: total(of: tallies), transport: transport, forwarding: forwarding,
            pushTokens: core.pushTokenCount, isDraining: core.isDraining, channels: core.channelStatistics,
            keptBytes: core.keptBytes)
    }
}

extension RelayStatistics.Transport {
    fileprivate mutating func add(_ other: Self) {
        packetsReceived += other.packetsReceived
        malformedPackets += other.malformedPackets
        strayPackets += other.strayPackets
        accepted += other.accepted
        handshakesFailed += other.handshakesFailed
        refusedForLoad += other.refusedForLoad
        retriesSent += other.retriesSent
    }
}
