// A cluster, as the operator's page of any of them shows it.
import RelayServer

/// One look at a cluster, as it is in the data of the page.
public struct OperatorCluster: Codable, Equatable, Sendable {
    /// A relay of the cluster.
    public struct Relay: Codable, Equatable, Sendable {
        enum State: String, Codable {
            case told, silent, otherVersion, away
        }

        let name: String
        let place: String
        let shares: Int
        let writes: Bool
        let isOwn: Bool
        let state: State
        /// How long ago it said something, in seconds, where it is away.
        let awaySeconds: Int64?
        /// What it says of itself, without its channels, where it has told.
        let told: Told?
        /// All that it says of itself. Its channels are among all of the page's.
        var look: OperatorRelay?

        private enum CodingKeys: CodingKey {
            case name, place, shares, writes, isOwn, state, awaySeconds, told
        }

        /// A relay.
        ///
        /// - Parameters:
        ///   - place: Where members reach it.
        ///   - shares: How many shares of the channels it serves.
        ///   - writes: Whether it writes the records.
        ///   - isOwn: Whether the page is this relay's.
        ///   - answer: What it says of itself.
        public init(name: String, place: String, shares: Int, writes: Bool, isOwn: Bool, answer: Answer) {
            (self.name, self.place, self.shares) = (name, place, shares)
            (self.writes, self.isOwn) = (writes, isOwn)
            if case .away(let seconds) = answer { awaySeconds = seconds } else { awaySeconds = nil }
            if case .told(let relay) = answer { look = relay }
            told = look.map(Told.init)
            state =
                switch answer {
                case .told: .told
                case .silent: .silent
                case .otherVersion: .otherVersion
                case .away: .away
                }
        }
    }

    /// What a relay says of itself.
    public enum Answer: Sendable {
        /// This.
        case told(OperatorRelay)
        /// It serves channels, and does not say which: what is shown is partial.
        case silent
        /// The same, because its program knows another question.
        case otherVersion
        /// It serves no channels. So long ago it said something the last time.
        case away(seconds: Int64)
    }

    let name: String
    let shares: Int
    /// How many of them no relay serves.
    let unserved: Int
    /// In the order of their names.
    public let relays: [Relay]

    /// A cluster with so many shares.
    public init(name: String, shares: Int, unserved: Int, relays: [Relay]) {
        self.name = name
        self.shares = shares
        self.unserved = unserved
        self.relays = relays.sorted { $0.name < $1.name }
    }

    /// What the relay whose page it is says of itself; nil: it does not run.
    var own: OperatorRelay? { relays.first { $0.isOwn && $0.look != nil }?.look }

    struct Told: Codable, Equatable, Sendable {
        var version: String
        var uptime: Double
        var isDraining: Bool
        var connections: Int
        var packetsOut: Int
        var packetsDropped: Int
        var forwarding: OperatorStatus.Forwarding
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
}

extension OperatorStatus {
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
        self.cluster = cluster
        (channels, memberCounts) = ([], [])
        for relay in cluster.relays {
            guard let told = relay.look else { continue }
            memberCounts += told.memberCounts
            channels += told.channels.map { channel in
                var channel = channel
                channel.relay = relay.name
                return channel
            }
        }
    }
}

extension OperatorCluster.Told {
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
