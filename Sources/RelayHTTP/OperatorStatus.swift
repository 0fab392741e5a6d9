// The data of the operator's page, as JSON.
import FoundationEssentials
import MonotonicTime
import RelayProtocol
import RelayServer

/// One look at a relay. Everything that is counted is counted since its start: the page takes differences.
struct OperatorStatus: Codable, Equatable {
    struct Channel: Codable, Equatable {
        var name: String
        var members: [Member]
        var waiting: Int
        var grants: Int
        var denials: Int
        var bursts: Int
        /// Packets of talkers that came, and that did not, repairs included.
        var up: Int
        var upLost: Int
        /// Packets that came to listeners, and that were lost on the way to them, before repair.
        var down: Int
        var downLost: Int
        /// In a cluster: the name of the one that serves it.
        var relay: String?
    }

    struct Member: Codable, Equatable {
        var id: String
        var name: String
        var isTalking: Bool
        var isSilent: Bool
    }

    struct Forwarding: Codable, Equatable, Sendable {
        /// Upper ends of the classes in microseconds.
        var bounds: [Int64]
        /// One more than `bounds`.
        var counts: [Int]
    }

    /// Maximum number of members per channel. There may be thousands, and the page shows no more than these.
    static let membersMaximum = 50

    var version: String
    /// Seconds.
    var uptime: Double
    var isDraining: Bool
    var connections: Int
    /// Nil of a relay of a cluster: nobody looks at it.
    var packetsIn: Int?
    var packetsOut: Int
    var packetsDropped: Int
    var forwarding: Forwarding
    var channels: [Channel]
    /// Members of each channel, also those that are left out of `channels`.
    var memberCounts: [Int]
    /// The cluster whose channels these are; nil: they are those of a relay that is in none.
    var cluster: OperatorCluster?

    init(_ relay: RelayStatistics, version: String) {
        self.init(relay, version: version, channels: relay.channels)
    }

    init(_ relay: RelayStatistics, version: String, channels: [RelayStatistics.Channel]) {
        self.version = version
        uptime = relay.uptime.milliseconds / 1_000
        isDraining = relay.isDraining
        connections = relay.connections
        packetsIn = relay.counters.packetsIn
        packetsOut = relay.counters.packetsOut
        packetsDropped = relay.counters.droppedTotal
        forwarding = Forwarding(bounds: LatencyHistogram.bounds, counts: relay.forwarding.counts)
        memberCounts = channels.map(\.members.count)
        self.channels = channels.map { Channel($0) }
    }

    /// As JSON, keys sorted.
    var text: String {
        let encoder = JSONEncoder()
        encoder.outputFormatting = .sortedKeys
        // Numbers and texts only, none of them infinite: there is always one.
        return (try? encoder.encode(self)).map { String(decoding: $0, as: UTF8.self) } ?? "{}"
    }
}

extension OperatorStatus.Channel {
    /// - Parameter hasRoom: Whether one more member is to be in it; the first one that is not is the last one that is asked for.
    init(_ channel: RelayStatistics.Channel, hasRoom: (RelayStatistics.Member) -> Bool = { _ in true }) {
        // Those who talk first, so that they are seen however many there are.
        let members = channel.members.filter(\.isTalking) + channel.members.filter { !$0.isTalking }
        let counters = channel.counters
        self.init(
            name: channel.name.text,
            members: members.prefix(OperatorStatus.membersMaximum).prefix(while: hasRoom).map {
                .init(id: $0.id.description, name: $0.name.text, isTalking: $0.isTalking, isSilent: $0.isSilent)
            }, waiting: channel.waiting, grants: counters.grants,
            denials: FloorDenyCause.allCases.reduce(0) { $0 + counters.denied($1) }, bursts: counters.bursts,
            up: counters.packets, upLost: counters.packetsLostUp, down: counters.packetsHeard,
            downLost: counters.packetsLostDown)
    }
}
