// The rules of a relay: joins, the floor, and forwarding. Pure: no sockets, no clock.
import Cryptography
import MonotonicTime
import RelayProtocol

/// The state machine of a relay: members, channels, their floors and keys.
///
/// Events go in, actions come out; media packets are decided upon one by one by `media`, and kept for
/// listeners who miss them (`BurstStore`). Connections are known by their number and by the pin of the client's key, which names the member.
public struct RelayCore: Sendable {
    struct Connection: Sendable {
        enum State: Sendable, Equatable {
            /// What came is early data, which somebody may have recorded: the handshake is not complete.
            case greeting
            /// The same, and its join is there.
            case greeted(EarlyJoin)
            case joining
            /// It is not a member yet; its enrolment is being recorded.
            case enrolling(ClientMessage.Join)
            /// It is to prove the code of that channel.
            case proving(channel: Int)
            /// The creator of that channel is asked about it.
            case asking(channel: Int)
            case member(channel: Int)
            case pushOnly(channel: Int)
            case refused
        }

        let member: MemberID
        var state: State
        var bucket: TokenBucket
        /// It connected when the relay was full. It is told so when it joins.
        var isSurplus = false
        /// Whether its transport takes datagrams as long as media packets are.
        var carriesMedia = true
    }

    /// The limits in force.
    public let limits: RelayLimits
    /// What was counted.
    public internal(set) var counters = RelayCounters()
    var channels: [RelayChannel]
    var connections: [ConnectionID: Connection] = [:]
    /// Until when those who are not members may stay.
    private(set) var pending: [ConnectionID: Instant] = [:]
    /// No instant in `pending` is before this one; exact after each deadline.
    private var earliestPending: Instant?
    private(set) var channelNumbers: [ChannelID: Int] = [:]
    var roster: RelayRoster
    /// Enrolments that wait for their answer.
    var enrolling = 0
    private let timers: FloorControlStateMachine.Timers
    var sources: Set<SSRC> = []
    var random: any RandomNumberGenerator & Sendable
    private(set) var isShuttingDown = false
    /// Whether it goes down as soon as nobody talks any more.
    public internal(set) var isDraining = false
    let acceptsPushes: Bool
    var pushes: PushRegistry
    /// What the bursts that are kept take in memory, of all channels.
    var keptBytes = 0
    /// What of them may still be given to members who ask.
    var burstBytes: TokenBucket
    /// Invitations that may still be given to strangers who ask.
    var invitationBucket: TokenBucket
    /// Those who ask for the invitation to a channel with a code, or whose creator is asked, by its number.
    var pendingJoins: [Int: PendingJoins] = [:]

    /// A relay without members. Each channel gets a fresh media key of a random epoch.
    ///
    /// - Parameters:
    ///   - channels: At most `limits.channels`, with distinct identifiers; what is beyond or repeated is left out.
    ///   - roster: The members. By default anyone who has a channel's token may join it.
    ///   - acceptsPushes: Whether `push` is going to be called, so that it makes sense to register tokens.
    ///   - startedAt: Now.
    ///   - random: What keys, epochs and sources are drawn from; must be a secure one outside tests.
    public init(
        channels: [RelayChannelConfiguration], limits: RelayLimits = RelayLimits(),
        timers: FloorControlStateMachine.Timers = .init(), roster: RelayRoster = .open, acceptsPushes: Bool = false,
        startedAt: Instant = .zero, random: any RandomNumberGenerator & Sendable = SecureRandom()
    ) {
        self.limits = limits
        self.timers = timers
        self.roster = roster
        self.acceptsPushes = acceptsPushes
        pushes = PushRegistry(limits: limits, startedAt: startedAt)
        burstBytes = TokenBucket(
            depth: limits.burstBytesOfAll, perSecond: limits.burstBytesOfAllPerSecond, at: startedAt)
        invitationBucket = TokenBucket(
            depth: limits.invitationBurst, perSecond: limits.invitationsPerSecond, at: startedAt)
        self.random = random
        self.channels = []
        for configuration in channels.prefix(limits.channels) where channelNumbers[configuration.id] == nil {
            add(configuration)
        }
    }

    mutating func add(_ configuration: RelayChannelConfiguration) {
        channelNumbers[configuration.id] = channels.count
        let key = Self.mediaKey(epoch: UInt16.random(in: 0...UInt16.max, using: &random), &random)
        channels.append(
            RelayChannel(configuration: configuration, mediaKey: key, timers: timers, limits: limits))
    }

    /// When `.deadline` must be delivered, at the latest; `nil` while nothing is under way.
    public var nextDeadline: Instant? {
        var next: Instant?
        for channel in channels {
            if let due = channel.floor.nextDeadline, due < next ?? Instant(nanoseconds: .max) { next = due }
            if let due = channel.store.nextDeadline, due < next ?? Instant(nanoseconds: .max) { next = due }
            if let due = channel.news.nextDeadline, due < next ?? Instant(nanoseconds: .max) { next = due }
        }
        if isDraining, let due = nextClosing, due < next ?? Instant(nanoseconds: .max) { next = due }
        // Looked for after every message: thousands may be joining, so they are not walked through.
        if !pending.isEmpty, let due = earliestPending, due < next ?? Instant(nanoseconds: .max) { next = due }
        return next
    }

    /// The deadline of one channel's floor, to be looked at after `media`.
    public func floorDeadline(channel: Int) -> Instant? {
        channels.indices.contains(channel) ? channels[channel].floor.nextDeadline : nil
    }

    /// The number of members of a channel.
    public func memberCount(of channel: ChannelID) -> Int {
        channelNumbers[channel].map { channels[$0].members.count } ?? 0
    }

    /// Takes an event and says what is to be done.
    public mutating func handle(_ event: Event, at now: Instant) -> [Action] {
        let actions = react(to: event, at: now)
        return isDraining ? actions + closeQuietChannels(at: now) : actions
    }

    private mutating func react(to event: Event, at now: Instant) -> [Action] {
        switch event {
        case .greeted(let id, let pin, let carriesMedia):
            return connected(id, pin, .greeting, carriesMedia: carriesMedia, at: now)
        case .connected(let id, let pin, let carriesMedia):
            guard connections[id] != nil else {
                return connected(id, pin, .joining, carriesMedia: carriesMedia, at: now)
            }
            connections[id]?.carriesMedia = carriesMedia
            return confirmed(id, at: now)
        case .message(let id, let message): return receive(message, from: id, at: now)
        case .unknownMessage(let id): return ignore(from: id, at: now)
        case .violation(let id, let what): return violation(id, what, at: now)
        case .disconnected(let id): return remove(id, at: now)
        case .enrolled(let id, let enrolment, let verdict): return enrolled(id, enrolment, verdict, at: now)
        case .revoke(let member, let channel): return revoke([member], from: channel, at: now)
        case .revokeAll(let members, let channel): return revoke(members, from: channel, at: now)
        case .readmit(let member, let channel, let membership):
            return readmit(member, to: channel, as: membership, at: now)
        case .renewMediaKey(let channel): return renewMediaKey(of: channel, at: now)
        case .setRules(let rules, let channel): return setRules(rules, of: channel, at: now)
        case .end(let channel, let phrase): return end(channel, phrase, at: now)
        case .admit(let isAdmitted, let member, let channel):
            return decide(isAdmitted, about: member, channel, at: now)
        case .setRetention(let retention, let channel):
            setRetention(retention, of: channel, at: now)
            return []
        case .drain(let successor): return drain(to: successor, at: now)
        case .shutDown: return shutDown()
        case .deadline: return deadline(at: now)
        }
    }

    // MARK: Connections

    private mutating func connected(
        _ id: ConnectionID, _ pin: PublicKeyPin, _ state: Connection.State, carriesMedia: Bool, at now: Instant
    ) -> [Action] {
        guard !isShuttingDown, connections.count < limits.connections + limits.connectionsRefused else {
            return [.close(id, .goingDown, isShuttingDown ? Self.goingDown : "the relay is full")]
        }
        connections[id] = Connection(
            member: MemberID(pin), state: state, bucket: TokenBucket(limits: limits, at: now),
            isSurplus: connections.count >= limits.connections, carriesMedia: carriesMedia)
        wait(for: id, until: now + limits.joinTime)
        return []
    }

    /// A connection that is not a member's may stay until `due`.
    mutating func wait(for id: ConnectionID, until due: Instant) {
        pending[id] = due
        earliestPending = min(earliestPending ?? due, due)
    }

    /// The connection is a member's now and may stay.
    mutating func waitNoMore(for id: ConnectionID) { pending[id] = nil }

    /// A message of an unknown kind changes nothing, but counts: nobody is served at the cost of others.
    private mutating func ignore(from id: ConnectionID, at now: Instant) -> [Action] {
        guard var connection = connections[id] else { return [] }
        counters.messagesIn += 1
        counters.messagesUnknown += 1
        let isWithinRate = connection.bucket.take(at: now)
        connections[id] = connection
        return isWithinRate ? [] : violation(id, "too many messages", at: now)
    }

    private mutating func receive(_ message: ClientMessage, from id: ConnectionID, at now: Instant) -> [Action] {
        guard var connection = connections[id] else { return [] }
        counters.messagesIn += 1
        let isAskedFor =
            if case .pushReceipt(let receipt) = message { pushes.awaitsReceipt(receipt.id, from: id) } else { false }
        let isWithinRate = isAskedFor || message.isRepair || connection.bucket.take(at: now)
        connections[id] = connection
        guard isWithinRate else { return violation(id, "too many messages", at: now) }
        switch (connection.state, message) {
        case (.refused, _):
            return []
        case (.greeting, .join(let join)):
            return greet(join, id, connection.member, at: now)
        case (.greeting, _), (.greeted, _):
            return violation(id, "early data that is not a join", at: now)
        case (.joining, .join(let join)):
            return self.join(join, id, connection.member, at: now)
        case (.joining, .invitationRequest(let request)):
            return giveInvitation(request, to: id, at: now)
        case (.proving(let channel), .invitationProof(let proof)):
            return prove(proof, by: id, channel: channel, at: now)
        case (.member, .invitationRequest), (.pushOnly, .invitationRequest), (.member, .invitationProof),
            (.pushOnly, .invitationProof):
            return violation(id, "a request for an invitation after the join", at: now)
        case (_, .leave):
            return [.close(id, .none, "left")] + remove(id, at: now)
        case (.member(let channel), .floorRequest(let request)):
            return floorRequest(request, from: id, channel: channel, at: now)
        case (.member(let channel), .floorRelease(let release)):
            guard let ssrc = channels[channel].members[id]?.ssrc else { return [] }
            return apply(
                .release(ssrc: ssrc, requestID: release.requestID, lastSequence: release.lastSequence),
                channel: channel, at: now)
        case (.member(let channel), .receptionReport(let report)):
            return reported(report, by: id, channel: channel, at: now)
        case (.member, .mediaRepair(let packet)): return repaired(packet, from: id, at: now)
        case (.member(let channel), .repairRequest(let request)):
            return answer(request, from: id, channel: channel, at: now)
        case (.member(let channel), .burstListRequest(let request)):
            return listBursts(request, for: id, channel: channel, at: now)
        case (.member(let channel), .burstRequest(let request)):
            return giveBurst(request, to: id, channel: channel, at: now)
        case (.member(let channel), .successionOffer): return offerSuccession(id, channel: channel)
        case (.pushOnly, .burstListRequest(let request)): return refuseBursts(request, .notAMember, to: id)
        case (.pushOnly, .burstRequest(let request)): return refuseBursts(request.id, .notAMember, to: id)
        case (.member, .join), (.pushOnly, .join):
            return violation(id, "a second join on one connection", at: now)
        case (.member, .pushRegister), (.member, .pushUnregister), (.member, .pushReceipt),
            (.pushOnly, .pushRegister), (.pushOnly, .pushUnregister), (.pushOnly, .pushReceipt):
            return receivePush(message, from: id, connection.member, at: now)
        case (.pushOnly, _):
            return violation(id, "a member's message from a client that is not a member", at: now)
        case (.joining, _), (.enrolling, _), (.proving, _), (.asking, _):
            return violation(id, "a message before the join", at: now)
        }
    }

    mutating func violation(_ id: ConnectionID, _ what: String, at now: Instant) -> [Action] {
        guard connections[id] != nil else { return [] }
        counters.protocolViolations += 1
        return [.note(.violation(id, what)), .close(id, .protocolViolation, what)] + remove(id, at: now)
    }

    mutating func remove(_ id: ConnectionID, at now: Instant) -> [Action] {
        if seededFault("who-is-gone-stays-a-member") { return [] }
        pending[id] = nil
        guard let connection = connections.removeValue(forKey: id) else { return [] }
        pushes.disconnected(id, of: connection.member, at: now)
        if case .pushOnly(let number) = connection.state,
            channels[number].pushConnectionOfMember[connection.member] == id
        {
            channels[number].pushConnectionOfMember[connection.member] = nil
        }
        if case .greeted(.welcomed(let welcome)) = connection.state { sources.remove(welcome.member.ssrc) }
        if case .proving(let number) = connection.state { pendingJoins[number]?.proofs[id] = nil }
        if case .asking(let number) = connection.state {
            return stopAsking(id, connection.member, channel: number)
        }
        guard case .member(let number) = connection.state else { return [] }
        guard let member = channels[number].members[id] else { return [] }
        var actions = takeOut(member, channel: number, at: now)
        if seededFault("who-has-left-is-not-told") { return actions }
        actions += announce(.memberLeft(member.id), of: member.id, besides: id, channel: number, at: now)
        actions.append(.note(.memberLeft(channel: channels[number].name, member: member.id)))
        return actions
    }

    /// Ends a membership without telling anyone but of the floor, when it held it.
    mutating func takeOut(_ member: RelayChannel.Member, channel number: Int, at now: Instant) -> [Action] {
        channels[number].members[member.connection] = nil
        channels[number].connectionOfMember[member.id] = nil
        var actions: [Action] = [.stopMedia(member.connection, channel: number)]
        actions += apply(.left(ssrc: member.ssrc), channel: number, at: now)
        actions += withdrawSuccession(member.connection, channel: number)
        sources.remove(member.ssrc)
        return actions
    }

    private mutating func shutDown() -> [Action] {
        isShuttingDown = true
        let ids = connections.keys.sorted()
        connections = [:]
        pendingJoins = [:]
        pending = [:]
        for number in channels.indices { channels[number].clear() }
        keptBytes = 0
        return ids.map { .close($0, .goingDown, Self.goingDown) }
    }

    private mutating func deadline(at now: Instant) -> [Action] {
        var actions: [Action] = []
        for number in channels.indices {
            if let due = channels[number].floor.nextDeadline, due <= now {
                actions += apply(.deadline, channel: number, at: now)
            }
            changeStore(number) { $0.expire(at: now) }
            if let due = channels[number].news.nextDeadline, due <= now {
                actions += tellNews(channel: number, at: now)
            }
        }
        for id in pending.filter({ $0.value <= now }).keys.sorted() {
            if connections[id]?.state == .refused {
                connections[id] = nil
                pending[id] = nil
                actions.append(.close(id, .joinRefused, "the join was refused"))
            } else if case .asking(let number) = connections[id]?.state {
                actions += unanswered(id, channel: number, at: now)
            } else if case .enrolling = connections[id]?.state {
                actions += refuse(id, .relayBusy, "the relay's records do not answer in time", at: now)
            } else {
                actions += violation(id, "no join in time", at: now)
            }
        }
        earliestPending = pending.values.min()
        return actions
    }
}
