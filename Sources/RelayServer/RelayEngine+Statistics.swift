// What the operator is told of a relay that runs.
import MonotonicTime
import QUIC

extension RelayEngine {
    /// What the operator is told.
    var statistics: RelayStatistics {
        let transport = endpoint.statistics
        return RelayStatistics(
            uptime: .now - startedAt, connections: endpoint.connectionCount, counters: core.counters,
            transport: .init(
                packetsReceived: transport.packetsReceived, malformedPackets: transport.malformedPackets,
                strayPackets: transport.strayPackets, accepted: transport.accepted,
                handshakesFailed: transport.handshakesFailed, refusedForLoad: transport.refusedForLoad,
                retriesSent: transport.retriesSent),
            forwarding: forwarding, pushTokens: core.pushTokenCount, isDraining: core.isDraining,
            channels: core.channelStatistics, keptBytes: core.keptBytes)
    }
}
