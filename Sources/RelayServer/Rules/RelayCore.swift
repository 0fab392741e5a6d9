// The rules of a relay, or of one of its shards: which channel an event concerns, and what channels and connections share. Pure: no
// sockets, no clock.
import Cryptography
import MonotonicTime
import RelayProtocol

/// The state machine of a relay: its channels, and the connections to them.
///
/// Events go in, actions come out; media packets are decided upon one by one by `media`, and kept for
/// listeners who miss them (`BurstStore`). A relay with several threads has one for each, with a part of the channels
/// (`RelayShardPlace`). Connections are known by their number and by the pin of the client's key, which names the member.
public struct RelayCore: Sendable {
    /// So long after the last word to a channel its members stay connected, so that it reaches them.
    static let closingTime: Duration = .milliseconds(500)
    /// Why the relay closes everybody's connection, and grants no floor before.
    static let goingDown = "the relay is going down"
    /// The same for those on a channel that another relay serves from now on.
    static let moves = "another relay serves the channel now"

    /// The channels, in the order they came. Only `on` and `media` change one.
    private(set) var channels: [RelayChannel] = []
    /// When each of them has something to do.
    private var deadlines = Deadlines<Int>()
    private(set) var numbers: [ChannelID: Int] = [:]
    /// Numbers of channels that were removed, for new ones.
    private var vacant: [Int] = []
    /// What belongs to no channel.
    var shared: RelayShared
    var roster: RelayRoster
    /// Enrolments of this shard that wait for their answer.
    var enrolling = 0
    /// The push tokens of all shards; without any but on the first.
    var pushes: PushRegistry
    /// What the registry of another shard has to hear.
    private var forRegistry: [PushEvent] = []
    /// Whether it goes down as soon as nobody talks any more.
    public private(set) var isDraining = false
    /// While it drains: the channels that somebody is on, and those that may have become quiet with the present event.
    private(set) var inhabited: Set<Int> = []
    private var touched: Set<Int> = []
    /// The channels that go to another relay when nobody talks on them.
    var moving: Set<Int> = []
    /// Where the channels are that this relay does not serve.
    var places = ChannelPlaces.alone
    private(set) var isShuttingDown = false
    /// Invitations that this shard may still give to strangers who ask.
    private var invitations: TokenBucket
    private let timers: FloorControlStateMachine.Timers

    /// A relay without members. Each channel gets a fresh media key of a random epoch.
    ///
    /// - Parameters:
    ///   - channels: At most `limits.channels`, with distinct identifiers; what is beyond or repeated is left out.
    ///   - roster: The members. By default anyone who has a channel's token may join it.
    ///   - web: Where clients reach the relay over TLS; nil: nowhere.
    ///   - acceptsPushes: Whether `push` is going to be called, so that it makes sense to register tokens.
    ///   - startedAt: Now.
    ///   - random: What keys, epochs and sources are drawn from; must be a secure one outside tests.
    public init(
        channels: [RelayChannelConfiguration], limits: RelayLimits = RelayLimits(),
        timers: FloorControlStateMachine.Timers = .init(), roster: RelayRoster = .open, acceptsPushes: Bool = false,
        web: WebPlace? = nil, startedAt: Instant = .zero, random: any RandomNumberGenerator & Sendable = SecureRandom()
    ) {
        self.init(
            channels: channels, limits: limits, timers: timers, roster: roster, acceptsPushes: acceptsPushes, web: web,
            shard: .only, startedAt: startedAt, random: random)
    }

    /// The same for a part of a relay's channels.
    init(
        channels: [RelayChannelConfiguration], limits: RelayLimits, timers: FloorControlStateMachine.Timers,
        roster: RelayRoster, acceptsPushes: Bool, web: WebPlace?, shard: RelayShardPlace, startedAt: Instant,
        random: any RandomNumberGenerator & Sendable = SecureRandom()
    ) {
        self.timers = timers
        self.roster = roster
        shared = RelayShared(limits, random, web: web, of: shard, at: startedAt)
        pushes = PushRegistry(limits: limits, acceptsTokens: acceptsPushes, startedAt: startedAt)
        invitations = TokenBucket(depth: limits.invitationBurst, perSecond: limits.invitationsPerSecond, at: startedAt)
        for configuration in channels.prefix(limits.channels) where numbers[configuration.id] == nil {
            add(configuration)
        }
    }

    /// The limits in force.
    public var limits: RelayLimits { shared.limits }
    /// What was counted.
    public var counters: RelayCounters { shared.counters }
    /// What the bursts that are kept take in memory, of all channels.
    var keptBytes: Int { shared.bursts.keptBytes }
    /// The number of live push tokens.
    public var pushTokenCount: Int { pushes.tokenCount }

    // MARK: Channels

    private mutating func add(_ configuration: RelayChannelConfiguration) {
        let number = vacant.popLast() ?? channels.count
        numbers[configuration.id] = number
        let channel = RelayChannel(
            configuration, number: number, mediaKey: shared.secrets.mediaKey(), timers: timers, limits: limits)
        if number < channels.count { channels[number] = channel } else { channels.append(channel) }
    }

    /// Serves a channel no more: it ends for everybody on it, and its number is free for another one.
    private mutating func remove(_ channel: ChannelID, _ phrase: String, at now: Instant) -> [Action] {
        guard let number = numbers[channel] else { return [] }
        return end(channel, phrase, at: now) + vacate(number, .channelEnded, phrase, at: now)
    }

    /// Nobody is on the channel of that number any more, which is free for another one.
    mutating func vacate(_ number: Int, _ code: RelayCloseCode, _ phrase: String, at now: Instant) -> [Action] {
        let channel = channels[number].configuration.id
        var actions: [Action] = []
        // A handshake that is not complete must not end in the channel that gets the number.
        for id in shared.connections.halfway(to: number) {
            actions += [.close(id, code, phrase)] + remove(id, at: now)
        }
        numbers[channel] = nil
        deadlines[number] = nil
        moving.remove(number)
        vacant.append(number)
        roster.forget(channel)
        return actions
    }

    /// Whether that channel is one that is served; otherwise it is what is left of one.
    func isServed(_ channel: RelayChannel) -> Bool { numbers[channel.configuration.id] == channel.number }

    /// Serves another channel, or serves one that nobody has joined yet with another configuration.
    ///
    /// - Parameters:
    ///   - members: The members of another channel, removed ones included.
    ///   - isPaused: Whether nobody is granted the floor of another channel until it is resumed.
    /// - Returns: Whether it is served that way now.
    public mutating func serve(
        _ configuration: RelayChannelConfiguration, members: [MemberID: RelayMembership] = [:], isPaused: Bool = false
    ) -> Bool {
        guard let number = numbers[configuration.id] else {
            guard numbers.count < limits.channels else { return false }
            add(configuration)
            for (member, membership) in members { roster.readmit(member, to: configuration.id, as: membership) }
            if isPaused, let number = numbers[configuration.id] { channels[number].pause() }
            return true
        }
        if channels[number].configuration == configuration { return true }
        guard channels[number].members.isEmpty else { return false }
        channels[number].reconfigure(configuration)
        return true
    }

    /// Has a channel do something, and looks again at what it needs then. Who breaks the protocol by that is closed.
    mutating func on(
        _ number: Int, at now: Instant, _ work: (inout RelayChannel, inout RelayShared) -> [Action]
    ) -> [Action] {
        let actions = work(&channels[number], &shared) + settle(number, at: now)
        guard let (id, what) = shared.violation.take() else { return actions }
        return actions + violation(id, what, at: now)
    }

    /// A channel has changed: its memory, its media key and its deadline are looked at.
    private mutating func settle(_ number: Int, at now: Instant) -> [Action] {
        var upkeep = channels[number].upkeep()
        shared.bursts.note(upkeep.keptBytes, of: number)
        while shared.bursts.isExceeded, let fullest = BurstBudget.fullest(channels) {
            channels[fullest].store.makeRoom()
            shared.bursts.note(channels[fullest].store.byteCount, of: fullest)
            deadlines[fullest] = channels[fullest].nextDeadline
            if fullest == number { upkeep = channels[number].upkeep() }
        }
        deadlines[number] = upkeep.nextDeadline
        if isDraining { noteWhileDraining(number) } else if moving.contains(number) { touched.insert(number) }
        guard upkeep.isKeyUsedUp else { return [] }
        return renewMediaKey(number, at: now)
    }

    // MARK: Events

    /// The channels that may have become quiet since the last call.
    mutating func takeTouched() -> [Int] { exchange(&touched, with: []).sorted() }

    private mutating func noteWhileDraining(_ number: Int) {
        touched.insert(number)
        if channels[number].isDeserted { inhabited.remove(number) } else { inhabited.insert(number) }
    }

    /// When `.deadline` must be delivered, at the latest; `nil` while nothing is under way.
    public var nextDeadline: Instant? { earlier(deadlines.next, shared.connections.nextDeadline) }

    /// The same. It is mutating for a core that is the property of an object: for a getter, all of it would be copied.
    mutating func deadlineInPlace() -> Instant? { earlier(deadlines.next, shared.connections.nextDeadline) }

    /// Takes an event and says what is to be done.
    public mutating func handle(_ event: Event, at now: Instant) -> [Action] {
        var actions = react(to: event, at: now)
        if isDraining || !touched.isEmpty { actions += closeQuietChannels(at: now) }
        guard !forRegistry.isEmpty else { return actions }
        return actions + exchange(&forRegistry, with: []).map { .pushes($0) }
    }

    private mutating func react(to event: Event, at now: Instant) -> [Action] {
        switch event {
        case .greeted(let id, let pin, let carriesMedia):
            return connected(id, MemberID(pin), .greeting, carriesMedia: carriesMedia, at: now)
        case .connected(let id, let pin, let carriesMedia):
            guard shared.connections[id] != nil else {
                return connected(id, MemberID(pin), .joining, carriesMedia: carriesMedia, at: now)
            }
            shared.connections.set(id, carriesMedia: carriesMedia)
            return confirmed(id, at: now)
        case .message(let id, let message): return receive(message, from: id, at: now)
        case .unknownMessage(let id): return receive(nil, from: id, at: now)
        case .violation(let id, let what): return violation(id, what, at: now)
        case .disconnected(let id): return remove(id, at: now)
        case .enrolled(let id, let enrolment, let verdict): return enrolled(id, enrolment, verdict, at: now)
        case .revoke(let members, let channel): return revoke(members, from: channel, at: now)
        case .readmit(let member, let channel, let membership):
            return readmit(member, to: channel, as: membership, at: now)
        case .renewMediaKey(let channel): return numbers[channel].map { renewMediaKey($0, at: now) } ?? []
        case .setRules(let rules, let channel):
            guard let number = numbers[channel], !isDraining else { return [] }
            return on(number, at: now) { channel, _ in channel.set(rules, at: now) }
        case .setRetention(let retention, let channel):
            return numbers[channel].map { on($0, at: now) { channel, _ in channel.set(retention, at: now) } } ?? []
        case .end(let channel, let phrase): return end(channel, phrase, at: now)
        case .removeChannel(let channel, let phrase): return remove(channel, phrase, at: now)
        case .renameChannel(let channel, let name):
            guard let number = numbers[channel] else { return [] }
            channels[number].rename(name)
            return []
        case .admit(let isAdmitted, let member, let channel):
            return numbers[channel].map { settle(member, isAdmitted ? .admitted : .refused, $0, at: now) } ?? []
        case .pushes(let event): return take(event, at: now)
        case .push(let push, let id):
            return shared.connections.awaitReceipt(of: id) ? [.send(.push(push), to: [id])] : []
        case .drain(let successor):
            guard !isDraining else { return [] }
            isDraining = true
            var actions: [Action] = []
            let early = shared.connections.welcomedEarly()
            if let successor, !early.isEmpty { actions.append(.send(.successor(successor), to: early)) }
            for number in channels.indices {
                // Those that go to another relay are told where already.
                guard !moving.contains(number) else { noteWhileDraining(number); continue }
                actions += on(number, at: now) { channel, _ in channel.drain(to: successor, Self.goingDown, at: now) }
            }
            return actions
        case .move(let channels, let place): return move(channels, to: place, at: now)
        case .resume(let channels):
            return channels.compactMap { numbers[$0] }.flatMap { on($0, at: now) { $0.resume(&$1, at: now) } }
        case .setPlaces(let places):
            self.places = places
            return []
        case .shutDown: return shutDown(at: now)
        case .deadline: return deadline(at: now)
        }
    }

    private mutating func deadline(at now: Instant) -> [Action] {
        var due: [Int] = []
        while let number = deadlines.popDue(at: now) { due.append(number) }
        var actions = due.sorted().flatMap { on($0, at: now) { channel, _ in channel.deadline(at: now) } }
        while let id = shared.connections.popDue(at: now) {
            guard let connection = shared.connections[id] else { continue }
            switch connection.state {
            case .refused:
                shared.connections.remove(id)
                actions.append(.close(id, .joinRefused, "the join was refused"))
            case .asking(let number): actions += settle(connection.member, .unanswered, number, at: now)
            case .enrolling:
                actions += shared.refuse(id, .relayBusy, "the relay's records do not answer in time", at: now)
            default: actions += violation(id, "no join in time", at: now)
            }
        }
        return actions
    }

    // MARK: Connections

    private mutating func connected(
        _ id: ConnectionID, _ member: MemberID, _ state: RelayConnections.State, carriesMedia: Bool, at now: Instant
    ) -> [Action] {
        if isShuttingDown { return [.close(id, .goingDown, Self.goingDown)] }
        let isTaken = shared.connections.insert(id, of: member, state, carriesMedia: carriesMedia, at: now)
        return isTaken ? [] : [.close(id, .goingDown, "the relay is full")]
    }

    /// A message of an unknown kind (nil) changes nothing, but counts: nobody is served at the cost of others.
    private mutating func receive(_ message: ClientMessage?, from id: ConnectionID, at now: Instant) -> [Action] {
        guard let connection = shared.connections[id] else { return [] }
        shared.counters.messagesIn += 1
        if message == nil { shared.counters.messagesUnknown += 1 }
        guard takesOwnBound(message, from: id) || shared.connections.takeMessage(from: id, at: now) else {
            return violation(id, "too many messages", at: now)
        }
        guard let message else { return [] }
        let member = connection.member
        switch (connection.state, message) {
        case (.refused, _):
            return []
        case (.greeting, .join(let join)):
            return greet(join, id, member, at: now)
        case (.greeting, _), (.deferred, _), (.welcomed, _):
            return violation(id, "early data that is not a join", at: now)
        case (.joining, .join(let join)):
            return self.join(join, id, member, at: now)
        case (.joining, .invitationRequest(let request)):
            return giveInvitation(request, member, on: id, at: now)
        case (.proving(let number, let tags), .invitationProof(let proof)):
            return on(number, at: now) {
                $0.admissions.prove(proof, tags, member, on: id, to: $0.configuration, &$1, at: now)
            }
        case (.member, .invitationRequest), (.pushOnly, .invitationRequest), (.member, .invitationProof),
            (.pushOnly, .invitationProof):
            return violation(id, "a request for an invitation after the join", at: now)
        case (_, .leave):
            return [.close(id, .none, "left")] + remove(id, at: now)
        case (.member, .join), (.pushOnly, .join):
            return violation(id, "a second join on one connection", at: now)
        case (.member, .pushRegister(let registration)), (.pushOnly, .pushRegister(let registration)):
            return tell(.register(registration, member, id), at: now)
        case (.member, .pushUnregister(let token)), (.pushOnly, .pushUnregister(let token)):
            return tell(.unregister(token, member), at: now)
        case (.member, .pushReceipt(let receipt)), (.pushOnly, .pushReceipt(let receipt)):
            return tell(.receipt(receipt, id), at: now)
        case (.member, .mediaRepair(let packet)): return repaired(packet, from: id, at: now)
        case (.member(let number), _):
            return on(number, at: now) { $0.receive(message, from: id, &$1, at: now) }
        case (.pushOnly, .burstListRequest(let request)): return shared.refuseBursts(request, .notAMember, to: id)
        case (.pushOnly, .burstRequest(let request)): return shared.refuseBursts(request.id, .notAMember, to: id)
        case (.pushOnly, _):
            return violation(id, "a member's message from a client that is not a member", at: now)
        case (.joining, _), (.enrolling, _), (.proving, _), (.asking, _):
            return violation(id, "a message before the join", at: now)
        }
    }

    /// Whether a message does not count as one of those that a connection may send.
    private mutating func takesOwnBound(_ message: ClientMessage?, from id: ConnectionID) -> Bool {
        switch message {
        case .pushReceipt(let receipt):
            hasRegistry ? pushes.awaitsReceipt(receipt.id, from: id) : shared.connections.takeReceipt(of: id)
        // They come as fast as packets are lost.
        case .mediaRepair, .repairRequest: true
        default: false
        }
    }

    /// Gives the invitation to a channel nearby, asks for what its rule wants first, or says why not.
    ///
    /// No client may ask often, and all clients together may not either: a stranger who asks costs a handshake, and no more.
    private mutating func giveInvitation(
        _ request: ClientMessage.InvitationRequest, _ member: MemberID, on id: ConnectionID, at now: Instant
    ) -> [Action] {
        guard request.protocolVersion == RelayProtocolLimits.version else {
            return shared.refuseInvitation(
                .unsupportedVersion, "the relay speaks version \(RelayProtocolLimits.version)", to: id)
        }
        guard let number = numbers[request.channel], channels[number].configuration.admission != .invited else {
            return shared.refuseInvitation(.notOpen, "no such channel, or it is not open to everybody", to: id)
        }
        guard invitations.take(at: now) else {
            return shared.refuseInvitation(
                .tooMany, "too many ask at a time", to: id, retryAfter: limits.invitationRetryTime)
        }
        return on(number, at: now) {
            $0.admissions.take(request, member, on: id, to: $0.configuration, &$1, at: now)
        }
    }

    /// The creator of a channel has decided about a newcomer, or has not in time.
    private mutating func settle(
        _ member: MemberID, _ outcome: PendingJoinOutcome, _ number: Int, at now: Instant
    ) -> [Action] {
        on(number, at: now) { $0.admissions.settle(member, outcome, $0.configuration, &$1, at: now) }
    }

    mutating func violation(_ id: ConnectionID, _ what: String, at now: Instant) -> [Action] {
        guard shared.connections[id] != nil else { return [] }
        shared.counters.protocolViolations += 1
        return [.note(.violation(id, what)), .close(id, .protocolViolation, what)] + remove(id, at: now)
    }

    mutating func remove(_ id: ConnectionID, at now: Instant) -> [Action] {
        if seededFault("who-is-gone-stays-a-member") { return [] }
        guard let connection = forget(id, at: now) else { return [] }
        let member = connection.member
        switch connection.state {
        case .welcomed(let welcome):
            shared.secrets.release(welcome.member.ssrc)
            return []
        case .asking(let number):
            return on(number, at: now) { channel, _ in channel.admissions.remove(id, member, of: channel.name) }
        case .pushOnly(let number):
            return on(number, at: now) { channel, _ in channel.leavePushes(id, member) }
        case .member(let number): return on(number, at: now) { $0.leave(id, &$1, at: now) }
        case .greeting, .deferred, .joining, .enrolling, .proving, .refused: return []
        }
    }

    /// A connection is not there any more; its channel does not hear of it by this.
    @discardableResult
    mutating func forget(_ id: ConnectionID, at now: Instant) -> RelayConnections.Connection? {
        let connection = shared.connections.remove(id)
        if let connection, hasRegistry { pushes.disconnected(id, of: connection.member, at: now) }
        if let connection, connection.hasTokens { forRegistry.append(.disconnected(id, connection.member)) }
        return connection
    }

    private mutating func shutDown(at now: Instant) -> [Action] {
        isShuttingDown = true
        let ids = shared.connections.ids
        shared.connections.removeAll()
        for number in channels.indices {
            _ = on(number, at: now) { channel, shared in
                _ = channel.empty(&shared)
                channel.admissions = AdmissionRequests(channel: number, shared.limits)
                return []
            }
        }
        return ids.map { .close($0, .goingDown, Self.goingDown) }
    }

    // MARK: Media

    /// Decides on a media packet that came from `id`, in a datagram or, when its datagram was lost, on the control stream. It is
    /// kept when it is forwarded.
    ///
    /// - Returns: What to do with the packet, and what else there is to do afterwards (empty in the middle of a burst).
    public mutating func media(
        _ packet: MediaPacketHeader, bytes: [UInt8], isRepaired: Bool = false, from id: ConnectionID, at now: Instant
    ) -> (MediaDecision, [Action]) {
        shared.counters.packetsIn += 1
        guard let number = shared.connections.channel(of: id) else {
            return (shared.counters.drop(.notJoined), [])
        }
        let (decision, actions) = channels[number].media(
            packet, bytes, isRepaired: isRepaired, from: id, &shared.counters, at: now)
        let further = settle(number, at: now)
        return (decision, further.isEmpty ? actions : actions + further)
    }

    /// A packet whose datagram was lost: taken as if that had come now.
    private mutating func repaired(_ packet: [UInt8], from id: ConnectionID, at now: Instant) -> [Action] {
        guard let header = MediaPacketHeader(parsing: packet, limit: limits.datagramBytes) else {
            countMalformedMedia()
            return []
        }
        let (decision, actions) = media(header, bytes: packet, isRepaired: true, from: id, at: now)
        guard case .forward(let channel) = decision else { return actions }
        shared.counters.packetsRepaired += 1
        // Who starts to listen with this packet gets it; everything else can wait until it is out.
        return actions.filter(\.isMediaSwitch) + [.forward(packet, channel: channel, except: id, arrived: now)]
            + actions.filter { !$0.isMediaSwitch }
    }

    /// Counts a packet that could not be read as media.
    public mutating func countMalformedMedia() {
        shared.counters.packetsIn += 1
        _ = shared.counters.drop(.malformed)
    }

    /// An answer of `bytes` bytes to a request for a burst could not be sent, because the connection has not read the previous ones.
    mutating func burstNotTaken(
        _ request: BurstRequestID, bytes count: Int, by id: ConnectionID, at now: Instant
    ) -> [Action] {
        guard case .member(let number)? = shared.connections[id]?.state else { return [] }
        return on(number, at: now) { $0.burstNotTaken(request, bytes: count, by: id, &$1) }
    }
}
