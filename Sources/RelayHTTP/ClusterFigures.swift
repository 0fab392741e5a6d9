// What a relay counts of its cluster, for the metrics.

/// A relay's part in a cluster.
public struct ClusterFigures: Sendable, Equatable {
    /// Relays that were heard of within a week.
    public var relaysKnown: Int
    /// Of these, those that serve, or begin to.
    public var relays: Int
    /// Shares of the channels that this relay serves.
    public var shares: Int
    /// Shares that no relay serves.
    public var unserved: Int
    /// Whether this relay writes the records.
    public var writes: Bool
    /// The last record of the cluster's log that is here; nil: not known.
    public var position: UInt64?
    /// Records of the log that are not here yet; nil: not known.
    public var behind: UInt64?
    /// Links over TLS between the relays; nil: this relay takes none.
    public var passages: LinkPassages?

    /// Such a part.
    public init(
        relaysKnown: Int, relays: Int, shares: Int, unserved: Int, writes: Bool, position: UInt64? = nil,
        behind: UInt64? = nil, passages: LinkPassages? = nil
    ) {
        self.relaysKnown = relaysKnown
        self.relays = relays
        self.shares = shares
        self.unserved = unserved
        self.writes = writes
        self.position = position
        self.behind = behind
        self.passages = passages
    }
}

/// Links over TLS that one relay of a cluster passes on to another, since the start.
public struct LinkPassages: Sendable, Equatable {
    /// Those that this relay passes on now.
    public var openTo = 0
    /// Those that it was to pass on.
    public var begunTo = 0
    /// Of these, those whose relay was not reached.
    public var failedTo = 0
    /// Those that other relays pass on to this one now.
    public var openFrom = 0
    /// Those that they have passed on.
    public var begunFrom = 0

    /// None yet.
    public init() {}
}
