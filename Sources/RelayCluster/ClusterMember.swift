// A relay of a cluster, as it is known to the others.

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
