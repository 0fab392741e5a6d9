// The relays of a cluster: as they know each other, and as an operator asks for them. Pure.

/// A cluster, as one of them sees it.
public struct ClusterOverview: Equatable, Sendable {
    /// A relay that is in the table of shares.
    public struct Relay: Equatable, Sendable {
        /// Its name.
        public var name: String
        /// See `ClusterMember.incarnation`.
        public var incarnation: String
        /// Where members reach it, as `host:port`.
        public var place: String
        /// How many shares it serves.
        public var shares: Int
        /// Whether it writes the records.
        public var writes: Bool
        /// Whether it is the relay that looks.
        public var isOwn: Bool
    }

    /// The cluster's name.
    public var name: String
    /// The relays, by their names; the one that looks is always among them.
    public var relays: [Relay]
    /// How many shares no relay serves.
    public var unserved: Int

    /// What the table says.
    ///
    /// - Parameters:
    ///   - table: nil: it was not read yet.
    ///   - own: The relay that looks.
    init(_ table: ShareTable?, of name: String, seenBy own: ClusterMember) {
        let table = table ?? ShareTable()
        self.name = name
        var nodes = table.nodes
        if table.node(own.incarnation) == nil { nodes.append(ShareTable.Node(own)) }
        relays = nodes.sorted { $0.name < $1.name }.map { node in
            Relay(
                name: node.name, incarnation: node.incarnation, place: node.place,
                shares: table.shares(of: node.incarnation).count,
                writes: table.writer?.incarnation == node.incarnation, isOwn: node.incarnation == own.incarnation)
        }
        unserved = table.shares.count { table.node($0.owner) == nil }
    }

    /// The relays that serve nothing, of those that have said something of themselves not too long ago.
    ///
    /// - Parameter time: Now, in seconds since 1970.
    public func away(_ reports: [ClusterNodeReport], at time: Int64) -> [Away] {
        let names = Set(relays.map(\.name))
        return reports.filter { !names.contains($0.node) && time - $0.at < Self.forgottenAfter }
            .map { Away(name: $0.node, place: $0.place, seconds: max(0, time - $0.at)) }
            .sorted { $0.name < $1.name }
    }

    /// A relay that is not in the table: it has ended, or starts.
    public struct Away: Equatable, Sendable {
        /// Its name.
        public var name: String
        /// Where members reached it.
        public var place: String
        /// How long ago it said something, by the clocks of both.
        public var seconds: Int64
    }

    /// A relay that was not heard of for a week is one that the operator has taken away.
    private static let forgottenAfter: Int64 = 7 * 24 * 3_600
}

/// What NATS knows of a cluster, and what of it is here.
public struct ClusterSurvey: Equatable, Sendable {
    /// What the relays have said of themselves.
    public var reports: [ClusterNodeReport]
    /// The last record of the log that is here.
    public var position: UInt64
    /// How many further ones the log has.
    public var behind: UInt64
}

/// One run of a relay of the cluster.
public struct ClusterMember: Equatable, Sendable {
    /// Its name, which no other relay of the cluster has.
    public var node: String
    /// The identifier that it keeps in its state directory.
    public var identifier: String
    /// Random, of this run of its program.
    public var incarnation: String
    /// Where members reach it, as `host:port`.
    public var place: String
    /// Where other relays reach its web endpoint (`WebLinkAddress`); nil: it has none.
    public var web: String?

    /// A relay.
    public init(node: String, identifier: String, incarnation: String, place: String, web: String? = nil) {
        self.node = node
        self.identifier = identifier
        self.incarnation = incarnation
        self.place = place
        self.web = web
    }
}
