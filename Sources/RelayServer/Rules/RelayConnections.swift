// The connections of a relay: whose they are, how far each has come, and until when it may stay so. Pure.
import MonotonicTime
import RelayProtocol

/// The connections that the rules know, with the rate limit of each one's messages.
struct RelayConnections: Sendable {
    /// How far a connection has come.
    enum State: Sendable {
        /// What came is early data, which somebody may have recorded: the handshake is not complete.
        case greeting
        /// The same, and its join is there, which is looked at after the handshake.
        case deferred(ClientMessage.Join)
        /// The same, and the answer to its join is on its way.
        indirect case welcomed(ChannelWelcome)
        case joining
        /// It is not a member yet; its enrolment is being recorded.
        case enrolling(ClientMessage.Join)
        /// It is to prove the code of that channel, by `client`; then the relay proves it by `relay`.
        case proving(channel: Int, (client: [UInt8], relay: [UInt8]))
        /// The creator of that channel is asked about it.
        case asking(channel: Int)
        case member(channel: Int)
        case pushOnly(channel: Int)
        case refused
    }

    struct Connection: Sendable {
        let member: MemberID
        /// It connected when the relay was full. It is told so when it joins.
        let isSurplus: Bool
        fileprivate(set) var state: State
        /// Whether its transport takes datagrams as long as media packets are.
        fileprivate(set) var carriesMedia: Bool
        fileprivate var messages: TokenBucket
        /// Pushes of another shard's registry that it has not confirmed.
        fileprivate var receiptsAwaited = 0
        /// Whether another shard's registry has to hear when it is gone.
        fileprivate(set) var hasTokens = false

        /// Changes nothing; mutating, so that it is not copied.
        fileprivate mutating func channel() -> Int? { if case .member(let channel) = state { channel } else { nil } }
    }

    private let limits: RelayLimits
    private let census: RelayCensus
    private var known: [ConnectionID: Connection] = [:]
    /// Until when those who were not let in may stay.
    private var pending = Deadlines<ConnectionID>()

    init(_ limits: RelayLimits, _ census: RelayCensus) {
        self.limits = limits
        self.census = census
    }

    /// How many there are on all shards.
    var total: Int { census.connections }
    /// All of them, the oldest first.
    var ids: [ConnectionID] { known.keys.sorted() }
    subscript(id: ConnectionID) -> Connection? { known[id] }

    /// The number of the channel that a connection is a member of; nil: of none. Copies nothing.
    mutating func channel(of id: ConnectionID) -> Int? {
        guard let place = known.index(forKey: id) else { return nil }
        return known.values[place].channel()
    }

    /// The connections to a channel of `members`, pending ones included, by member and the oldest first.
    func of(_ members: [MemberID], on channel: ChannelID, _ number: Int) -> [MemberID: [ConnectionID]] {
        let members = Set(members)
        let theirs = known.filter { members.contains($0.value.member) }.filter {
            switch $0.value.state {
            case .member(number), .pushOnly(number): true
            case .deferred(let join), .enrolling(let join): join.channel == channel
            case .welcomed(let welcome): welcome.channel == number
            case .member, .pushOnly, .greeting, .joining, .refused, .proving, .asking: false
            }
        }
        return theirs.sorted { $0.key < $1.key }
            .reduce(into: [:]) { $0[$1.value.member, default: []].append($1.key) }
    }

    /// The connections that were promised a place on the channel of that number and are not on it yet, the oldest first.
    func halfway(to channel: Int) -> [ConnectionID] {
        known.filter {
            switch $0.value.state {
            case .proving(channel, _), .asking(channel): true
            case .welcomed(let welcome): welcome.channel == channel
            case .deferred, .member, .pushOnly, .greeting, .joining, .enrolling, .refused, .proving, .asking: false
            }
        }.keys.sorted()
    }

    /// The connections that were welcomed for their early data, to that channel or to any, and have not completed their handshake, the oldest
    /// first.
    func welcomedEarly(to channel: Int? = nil) -> [ConnectionID] {
        known.filter {
            guard case .welcomed(let welcome) = $0.value.state else { return false }
            return channel == nil || channel == welcome.channel
        }.keys.sorted()
    }

    /// A connection was made; false: there are too many.
    mutating func insert(
        _ id: ConnectionID, of member: MemberID, _ state: State, carriesMedia: Bool, at now: Instant
    ) -> Bool {
        guard total < limits.connections + limits.connectionsRefused else { return false }
        let isSurplus = total >= limits.connections
        if known[id] == nil { census.add(connections: 1) }
        known[id] = Connection(
            member: member, isSurplus: isSurplus, state: state, carriesMedia: carriesMedia,
            messages: TokenBucket(depth: limits.messageBurst, perSecond: limits.messagesPerSecond, at: now))
        pending[id] = now + limits.joinTime
        return true
    }

    /// The handshake shows what its transport takes.
    mutating func set(_ id: ConnectionID, carriesMedia: Bool) { known[id]?.carriesMedia = carriesMedia }

    /// A connection has come as far as `state`; who is not let in may stay until `due`, or as long as before.
    mutating func advance(_ id: ConnectionID, to state: State, until due: Instant? = nil) {
        guard known[id] != nil else { return }
        known[id]?.state = state
        switch state {
        case .member, .pushOnly: pending[id] = nil
        default: if let due { pending[id] = due }
        }
    }

    /// Whether a message of a connection comes slowly enough.
    mutating func takeMessage(from id: ConnectionID, at now: Instant) -> Bool {
        known[id]?.messages.take(at: now) ?? false
    }

    @discardableResult
    mutating func remove(_ id: ConnectionID) -> Connection? {
        pending[id] = nil
        let connection = known.removeValue(forKey: id)
        if connection != nil { census.add(connections: -1) }
        return connection
    }

    mutating func removeAll() {
        census.add(connections: -known.count)
        known = [:]
        pending = Deadlines()
    }

    // MARK: Pushes of another shard's registry

    /// A connection registers a token there.
    mutating func noteToken(of id: ConnectionID) { known[id]?.hasTokens = true }

    /// A connection is sent a push, which it is to confirm; false: it is gone.
    mutating func awaitReceipt(of id: ConnectionID) -> Bool {
        known[id]?.receiptsAwaited += 1
        return known[id] != nil
    }

    /// A connection confirms a push; false: it was sent none.
    mutating func takeReceipt(of id: ConnectionID) -> Bool {
        guard let count = known[id]?.receiptsAwaited, count > 0 else { return false }
        known[id]?.receiptsAwaited = count - 1
        return true
    }

    /// When `popDue` has a connection.
    var nextDeadline: Instant? { pending.next }
    /// A connection that has been pending for too long. The deadline does not come again unless `advance` sets one.
    mutating func popDue(at now: Instant) -> ConnectionID? { pending.popDue(at: now) }
}
