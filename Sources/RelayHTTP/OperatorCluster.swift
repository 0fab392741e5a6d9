// A cluster, as the operator's page of any of them shows it.
import RelayServer

/// One look at a cluster.
public struct OperatorCluster: Equatable, Sendable {
    /// A relay of the cluster.
    public struct Relay: Equatable, Sendable {
        /// Its name.
        public var name: String
        /// Where members reach it.
        public var place: String
        /// How many shares of the channels it serves.
        public var shares: Int
        /// Whether it writes the records.
        public var writes: Bool
        /// Whether the page is this relay's.
        public var isOwn: Bool
        /// What it says of itself.
        public var answer: Answer

        /// Such a relay.
        public init(name: String, place: String, shares: Int, writes: Bool, isOwn: Bool, answer: Answer) {
            self.name = name
            self.place = place
            self.shares = shares
            self.writes = writes
            self.isOwn = isOwn
            self.answer = answer
        }
    }

    /// What a relay says of itself.
    public enum Answer: Equatable, Sendable {
        /// This.
        case told(OperatorRelay)
        /// It serves channels, and does not say which: what is shown is partial.
        case silent
        /// The same, because its program knows another question.
        case otherVersion
        /// It serves no channels. So long ago it said something the last time.
        case away(seconds: Int64)
    }

    /// Its name.
    public var name: String
    /// How many shares there are.
    public var shares: Int
    /// How many of them no relay serves.
    public var unserved: Int
    /// The relays, in the order of their names.
    public var relays: [Relay]

    /// A cluster.
    public init(name: String, shares: Int, unserved: Int, relays: [Relay]) {
        self.name = name
        self.shares = shares
        self.unserved = unserved
        self.relays = relays.sorted { $0.name < $1.name }
    }

    /// What the relay whose page it is says of itself; nil: it does not run.
    var own: OperatorRelay? {
        for relay in relays where relay.isOwn { if case .told(let own) = relay.answer { return own } }
        return nil
    }
}

/// The cluster in the data of the page.
extension OperatorStatus {
    struct Cluster: Codable, Equatable {
        var name: String
        var shares: Int
        var unserved: Int
        var relays: [Relay]
    }

    struct Relay: Codable, Equatable {
        enum State: String, Codable {
            case told, silent, otherVersion, away
        }

        var name: String
        var place: String
        var shares: Int
        var writes: Bool
        var isOwn: Bool
        var state: State
        /// How long ago it said something, in seconds, where it is away.
        var awaySeconds: Int64?
        /// What it says of itself, without its channels, where it has told.
        var told: Told?
    }

    struct Told: Codable, Equatable {
        var version: String
        var uptime: Double
        var isDraining: Bool
        var connections: Int
        var packetsOut: Int
        var packetsDropped: Int
        var forwarding: Forwarding
        var up: Int
        var upLost: Int
        var down: Int
        var downLost: Int
        var channels: Int
        var members: Int
        /// Channels that the page does not show, and the members on them.
        var channelsLeftOut: Int
        var membersLeftOut: Int
    }

    /// All channels of the cluster that its relays have told of. The page puts them in order.
    ///
    /// - Parameter own: What the relay whose page it is says of itself.
    init(_ cluster: OperatorCluster, own: OperatorRelay) {
        version = own.version
        uptime = own.uptime
        isDraining = own.isDraining
        connections = own.connections
        packetsIn = nil
        packetsOut = own.packetsOut
        packetsDropped = own.packetsDropped
        forwarding = own.forwarding
        self.cluster = Cluster(
            name: cluster.name, shares: cluster.shares, unserved: cluster.unserved,
            relays: cluster.relays.map(Relay.init))
        (channels, memberCounts) = ([], [])
        for relay in cluster.relays {
            guard case .told(let told) = relay.answer else { continue }
            memberCounts += told.memberCounts
            channels += told.channels.map { channel in
                var channel = channel
                channel.relay = relay.name
                return channel
            }
        }
    }
}

extension OperatorStatus.Relay {
    init(_ relay: OperatorCluster.Relay) {
        (name, place, shares) = (relay.name, relay.place, relay.shares)
        (writes, isOwn) = (relay.writes, relay.isOwn)
        switch relay.answer {
        case .told(let answer): (state, told) = (.told, OperatorStatus.Told(answer))
        case .silent: state = .silent
        case .otherVersion: state = .otherVersion
        case .away(let seconds): (state, awaySeconds) = (.away, seconds)
        }
    }
}

extension OperatorStatus.Told {
    init(_ relay: OperatorRelay) {
        version = relay.version
        uptime = relay.uptime
        isDraining = relay.isDraining
        connections = relay.connections
        packetsOut = relay.packetsOut
        packetsDropped = relay.packetsDropped
        forwarding = relay.forwarding
        (up, upLost) = (relay.up, relay.upLost)
        (down, downLost) = (relay.down, relay.downLost)
        channels = relay.channelCount
        members = relay.memberCount
        channelsLeftOut = max(0, relay.channelCount - relay.channels.count)
        membersLeftOut = max(0, relay.memberCount - relay.memberCounts.reduce(0, +))
    }
}
