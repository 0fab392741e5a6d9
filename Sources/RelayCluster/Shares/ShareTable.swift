// Which relay of a cluster serves which share of the channels, as all of them read it in JetStream.
import RelayProtocol

/// The relays of a cluster, and what each serves.
///
/// Each relay counts `Node.renewals` up in it; the entry of one that does so no more is removed by the others (`SharesStateMachine`). Which
/// message of the table's stream counts is the business of `ShareTableChain`.
public struct ShareTable: Codable, Equatable, Sendable {
    /// A relay of the cluster.
    public struct Node: Codable, Equatable, Sendable {
        /// Its name.
        public var name: String
        /// See `ClusterMember.identifier`.
        public var identifier: String
        /// See `ClusterMember.incarnation`.
        public var incarnation: String
        /// Where members reach it, as `host:port`.
        public var place: String
        /// Where other relays reach its web endpoint (`WebLinkAddress`); nil: it has none.
        public var web: String?
        /// How often it has written its entry.
        public var renewals: UInt64 = 0
        /// Whether shares can be given to it: it has all records, and is not about to go.
        public var isReady = false
        /// The incarnations of the relays that the table had when this was written; see `ShareVotes`.
        public var voters: Set<String> = []

        /// A relay that begins.
        public init(_ member: ClusterMember) {
            name = member.node
            identifier = member.identifier
            incarnation = member.incarnation
            place = member.place
            web = member.web
        }

        var member: ClusterMember {
            ClusterMember(node: name, identifier: identifier, incarnation: incarnation, place: place, web: web)
        }
    }

    /// A part of the channels.
    public struct Share: Codable, Equatable, Sendable {
        /// The incarnation of the relay that serves it; nil: none does.
        public var owner: String?
        /// Counts the owners.
        public var epoch: UInt64 = 0
        /// The incarnation of an earlier owner on which somebody still talks, on `held`; nil: none.
        public var earlier: String?
        /// The channels that the earlier owner still has, whose floors the owner grants to nobody yet.
        public var held: [String] = []
    }

    /// The relay that writes the records.
    public struct Writer: Codable, Equatable, Sendable {
        /// See `Node.incarnation`.
        public var incarnation: String
        /// Counts the relays that write. The log of the records lets only the last one do so (`ClusterLog`).
        public var epoch: UInt64
    }

    /// The relays, by their names.
    public var nodes: [Node] = []
    /// The shares, by their numbers (`ChannelID.share`).
    public var shares: [Share]
    /// Which of the relays writes the records; nil: none has done so yet.
    public var writer: Writer?

    /// The most relays of a cluster.
    public static let nodesMaximum = 64
    /// The most channels of one share on which somebody may talk when it is given to another relay.
    static let heldMaximum = 64

    /// A cluster without relays.
    public init(shares count: Int = ChannelID.shareCount) { shares = Array(repeating: Share(), count: count) }

    /// Whether it is a table of this version.
    var isPossible: Bool { shares.count == ChannelID.shareCount && nodes.count <= Self.nodesMaximum }

    func node(_ incarnation: String?) -> Node? { nodes.first { $0.incarnation == incarnation } }

    /// The shares that a relay serves.
    public func shares(of incarnation: String) -> [Int] { shares.indices.filter { shares[$0].owner == incarnation } }

    // MARK: Changes

    /// A relay is there, in place of an earlier run of its own; false: there are too many.
    mutating func enter(_ node: Node) -> Bool {
        for earlier in nodes where earlier.incarnation != node.incarnation {
            if earlier.identifier == node.identifier || earlier.name == node.name { remove(earlier.incarnation) }
        }
        if let index = nodes.firstIndex(where: { $0.incarnation == node.incarnation }) {
            nodes[index] = node
            return true
        }
        guard nodes.count < Self.nodesMaximum else { return false }
        nodes.append(node)
        nodes.sort { $0.name < $1.name }
        return true
    }

    /// A relay is gone, and all that it did.
    mutating func remove(_ incarnation: String) {
        nodes.removeAll { $0.incarnation == incarnation }
        for index in shares.indices {
            if shares[index].owner == incarnation { shares[index].owner = nil }
            if shares[index].earlier == incarnation { (shares[index].earlier, shares[index].held) = (nil, []) }
        }
    }

    /// Gives each share that nobody serves to the relay with the fewest.
    mutating func assignFree() {
        var loads = readyLoads()
        for index in shares.indices where shares[index].owner == nil {
            guard let least = Self.least(loads) else { return }
            give(index, to: least)
            loads[least, default: 0] += 1
        }
    }

    /// Has a relay write the records: the same one as before, while it is there.
    ///
    /// - Parameters:
    ///   - leaving: A relay that goes.
    ///   - preferred: The one that is surely there, since it writes the table.
    ///   - epoch: The last one in which a relay has written records, as far as is known.
    mutating func assignWriter(
        insteadOf leaving: String? = nil, preferring preferred: String, after epoch: UInt64 = 0
    ) {
        if let writer, writer.incarnation != leaving, node(writer.incarnation) != nil { return }
        let ready = nodes.filter { $0.isReady && $0.incarnation != leaving }
        guard let next = ready.first(where: { $0.incarnation == preferred }) ?? ready.first else { return }
        writer = Writer(incarnation: next.incarnation, epoch: max(writer?.epoch ?? 0, epoch) &+ 1)
    }

    mutating func give(_ share: Int, to incarnation: String) {
        shares[share].owner = incarnation
        shares[share].epoch &+= 1
    }

    /// How many shares the relays have that may get some, by their incarnations.
    func readyLoads(except incarnation: String? = nil) -> [String: Int] {
        var loads: [String: Int] = [:]
        for node in nodes where node.isReady && node.incarnation != incarnation { loads[node.incarnation] = 0 }
        for owner in shares.compactMap(\.owner) where loads[owner] != nil { loads[owner, default: 0] += 1 }
        return loads
    }

    /// The one with the fewest shares; of several the first.
    static func least(_ loads: [String: Int]) -> String? { loads.min { ($0.value, $0.key) < ($1.value, $1.key) }?.key }
}
