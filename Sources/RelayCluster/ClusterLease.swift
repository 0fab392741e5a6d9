// Which relay of a cluster serves, and until when.

/// The lease of the relay that serves, as the cluster's nodes read it in JetStream. One node at a time has it: it is written only over the
/// revision that the writer has read.
public struct ClusterLease: Codable, Equatable, Sendable {
    /// What its holder is about.
    public enum State: String, Codable, Sendable {
        /// It reads the last records, and does not serve yet.
        case starting
        /// It serves.
        case serving
        /// It has given the lease up, so that another node takes it at once.
        case released
    }

    /// Counts the holders: each has one more than the one before.
    public var epoch: UInt64
    /// The holder's name.
    public var node: String
    /// The identifier that the holder keeps in its state directory.
    public var identifier: String
    /// Random, of this run of the holder's program.
    public var incarnation: String
    /// Where members reach the holder, as `host:port`.
    public var place: String
    /// See `State`.
    public var state: State
    /// How long it lasts after a renewal, in milliseconds.
    public var milliseconds: Int

    /// A lease.
    public init(
        epoch: UInt64, node: String, identifier: String, incarnation: String, place: String, state: State,
        milliseconds: Int
    ) {
        self.epoch = epoch
        self.node = node
        self.identifier = identifier
        self.incarnation = incarnation
        self.place = place
        self.state = state
        self.milliseconds = milliseconds
    }
}

/// The relay that a state machine speaks for.
public struct ClusterMember: Equatable, Sendable {
    /// Its name, which no other node of the cluster has.
    public var node: String
    /// See `ClusterLease.identifier`.
    public var identifier: String
    /// See `ClusterLease.incarnation`.
    public var incarnation: String
    /// See `ClusterLease.place`.
    public var place: String
    /// See `ShareTable.Node.web`.
    public var web: String?

    /// A relay.
    public init(node: String, identifier: String, incarnation: String, place: String, web: String? = nil) {
        self.node = node
        self.identifier = identifier
        self.incarnation = incarnation
        self.place = place
        self.web = web
    }

    /// Its lease.
    func lease(epoch: UInt64, _ state: ClusterLease.State, lasts time: Duration) -> ClusterLease {
        ClusterLease(
            epoch: epoch, node: node, identifier: identifier, incarnation: incarnation, place: place, state: state,
            milliseconds: Int(time / .milliseconds(1)))
    }
}
