// The connections of a relay: whose they are, how far each has come, and until when it may stay so. Pure.
import MonotonicTime
import RelayProtocol

/// The connections that the rules know, with the rate limit of each one's messages.
struct RelayConnections: Sendable {
    /// How far a connection has come.
    enum State: Sendable {
        /// What came is early data, which somebody may have recorded: the handshake is not complete.
        case greeting
        /// The same, and its join is there.
        indirect case greeted(EarlyJoin)
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
    }

    private let limits: RelayLimits
    private var known: [ConnectionID: Connection] = [:]
    /// Until when those who were not let in may stay.
    private var pending = Deadlines<ConnectionID>()

    init(_ limits: RelayLimits) { self.limits = limits }

    var count: Int { known.count }
    /// All of them, the oldest first.
    var ids: [ConnectionID] { known.keys.sorted() }
    subscript(id: ConnectionID) -> Connection? { known[id] }

    /// The connections to a channel of `members`, pending ones included, by member and the oldest first.
    func of(_ members: [MemberID], on channel: ChannelID, _ number: Int) -> [MemberID: [ConnectionID]] {
        let members = Set(members)
        let theirs = known.filter { members.contains($0.value.member) }.filter {
            switch $0.value.state {
            case .member(number), .pushOnly(number): true
            case .greeted(.deferred(let join)), .enrolling(let join): join.channel == channel
            case .greeted(.welcomed(let welcome)): welcome.channel == number
            case .member, .pushOnly, .greeting, .joining, .refused, .proving, .asking: false
            }
        }
        return theirs.sorted { $0.key < $1.key }
            .reduce(into: [:]) { $0[$1.value.member, default: []].append($1.key) }
    }

    /// A connection was made; false: there are too many.
    mutating func insert(
        _ id: ConnectionID, of member: MemberID, _ state: State, carriesMedia: Bool, at now: Instant
    ) -> Bool {
        guard known.count < limits.connections + limits.connectionsRefused else { return false }
        known[id] = Connection(
            member: member, isSurplus: known.count >= limits.connections, state: state, carriesMedia: carriesMedia,
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
        return known.removeValue(forKey: id)
    }

    /// When `popDue` has a connection.
    var nextDeadline: Instant? { pending.next }
    /// A connection that has been pending for too long. The deadline does not come again unless `advance` sets one.
    mutating func popDue(at now: Instant) -> ConnectionID? { pending.popDue(at: now) }
}
