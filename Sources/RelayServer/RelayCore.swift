// The rules of a relay: who is let in, who may talk, what is forwarded to whom. Pure: no sockets, no clock.
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
            case member(channel: Int)
            case pushOnly(channel: Int)
            case refused
        }

        let member: MemberID
        var state: State
        var bucket: MessageBucket
    }

    /// The limits in force.
    public let limits: RelayLimits
    /// What was counted.
    public internal(set) var counters = RelayCounters()
    var channels: [RelayChannel]
    var connections: [ConnectionID: Connection] = [:]
    /// Until when those who are not members may stay.
    var pending: [ConnectionID: Instant] = [:]
    private(set) var channelNumbers: [ChannelID: Int] = [:]
    private var sources: Set<SSRC> = []
    var random: any RandomNumberGenerator & Sendable
    private(set) var isShuttingDown = false
    let acceptsPushes: Bool
    var pushes: PushRegistry

    /// A relay without members. Each channel gets a fresh media key of a random epoch.
    ///
    /// - Parameters:
    ///   - channels: At most `limits.channels`, with distinct identifiers; what is beyond or repeated is left out.
    ///   - acceptsPushes: Whether `push` is going to be called, so that it makes sense to register tokens.
    ///   - startedAt: Now.
    ///   - random: What keys, epochs and sources are drawn from; must be a secure one outside tests.
    public init(
        channels: [RelayChannelConfiguration], limits: RelayLimits = RelayLimits(),
        timers: FloorControlStateMachine.Timers = .init(), acceptsPushes: Bool = false, startedAt: Instant = .zero,
        random: any RandomNumberGenerator & Sendable = SecureRandom()
    ) {
        self.limits = limits
        self.acceptsPushes = acceptsPushes
        pushes = PushRegistry(limits: limits, startedAt: startedAt)
        self.random = random
        self.channels = []
        for configuration in channels.prefix(limits.channels) where channelNumbers[configuration.id] == nil {
            channelNumbers[configuration.id] = self.channels.count
            let key = Self.mediaKey(epoch: UInt16.random(in: 0...UInt16.max, using: &self.random), &self.random)
            self.channels.append(
                RelayChannel(configuration: configuration, mediaKey: key, timers: timers, store: limits.burstStore))
        }
    }

    /// When `.deadline` must be delivered, at the latest; `nil` while nothing is under way.
    public var nextDeadline: Instant? {
        var next: Instant?
        for channel in channels {
            if let due = channel.floor.nextDeadline, due < next ?? Instant(nanoseconds: .max) { next = due }
            if let due = channel.store.nextDeadline, due < next ?? Instant(nanoseconds: .max) { next = due }
        }
        for due in pending.values where due < next ?? Instant(nanoseconds: .max) { next = due }
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
        switch event {
        case .greeted(let id, let pin): return connected(id, pin, .greeting, at: now)
        case .connected(let id, let pin):
            return connections[id] == nil ? connected(id, pin, .joining, at: now) : confirmed(id, at: now)
        case .message(let id, let message): return receive(message, from: id, at: now)
        case .violation(let id, let what): return violation(id, what, at: now)
        case .disconnected(let id): return remove(id, at: now)
        case .renewMediaKey(let channel): return renewMediaKey(of: channel, at: now)
        case .shutDown: return shutDown()
        case .deadline: return deadline(at: now)
        }
    }

    // MARK: Connections

    private mutating func connected(
        _ id: ConnectionID, _ pin: PublicKeyPin, _ state: Connection.State, at now: Instant
    ) -> [Action] {
        guard !isShuttingDown, connections.count < limits.connections else {
            return [.close(id, .goingDown, isShuttingDown ? "the relay is going down" : "the relay is full")]
        }
        connections[id] = Connection(
            member: MemberID(pin), state: state, bucket: MessageBucket(limits: limits, at: now))
        pending[id] = now + limits.joinTime
        return []
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
            return violation(id, "early data that is no join", at: now)
        case (.joining, .join(let join)):
            return self.join(join, id, connection.member, at: now)
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
        case (.member, .join), (.pushOnly, .join):
            return violation(id, "a second join on one connection", at: now)
        case (.member, .pushRegister), (.member, .pushUnregister), (.member, .pushReceipt),
            (.pushOnly, .pushRegister), (.pushOnly, .pushUnregister), (.pushOnly, .pushReceipt):
            return receivePush(message, from: id, connection.member, at: now)
        case (.pushOnly, _):
            return violation(id, "a message of members from a client that is none", at: now)
        case (.joining, _):
            return violation(id, "a message before the join", at: now)
        }
    }

    mutating func violation(_ id: ConnectionID, _ what: String, at now: Instant) -> [Action] {
        guard connections[id] != nil else { return [] }
        counters.protocolViolations += 1
        return [.note(.violation(id, what)), .close(id, .protocolViolation, what)] + remove(id, at: now)
    }

    mutating func remove(_ id: ConnectionID, at now: Instant) -> [Action] {
        pending[id] = nil
        guard let connection = connections.removeValue(forKey: id) else { return [] }
        pushes.disconnected(id, of: connection.member, at: now)
        if case .pushOnly(let number) = connection.state,
            channels[number].pushConnectionOfMember[connection.member] == id
        {
            channels[number].pushConnectionOfMember[connection.member] = nil
        }
        if case .greeted(.welcomed(let welcome)) = connection.state { sources.remove(welcome.member.ssrc) }
        guard case .member(let number) = connection.state else { return [] }
        guard let member = channels[number].members[id] else { return [] }
        var actions = takeOut(member, channel: number, at: now)
        let others = channels[number].everyone
        if !others.isEmpty { actions.append(.send(.memberLeft(member.id), to: others)) }
        actions.append(.note(.memberLeft(channel: channels[number].name, member: member.id)))
        return actions
    }

    /// Ends a membership without telling anyone but of the floor, when it held it.
    mutating func takeOut(_ member: RelayChannel.Member, channel number: Int, at now: Instant) -> [Action] {
        channels[number].members[member.connection] = nil
        channels[number].connectionOfMember[member.id] = nil
        var actions: [Action] = [.stopMedia(member.connection, channel: number)]
        actions += apply(.left(ssrc: member.ssrc), channel: number, at: now)
        sources.remove(member.ssrc)
        return actions
    }

    private mutating func shutDown() -> [Action] {
        isShuttingDown = true
        let ids = connections.keys.sorted()
        connections = [:]
        pending = [:]
        for number in channels.indices { channels[number].clear() }
        return ids.map { .close($0, .goingDown, "the relay is going down") }
    }

    private mutating func deadline(at now: Instant) -> [Action] {
        var actions: [Action] = []
        for number in channels.indices {
            if let due = channels[number].floor.nextDeadline, due <= now {
                actions += apply(.deadline, channel: number, at: now)
            }
            channels[number].store.expire(at: now)
        }
        for id in pending.filter({ $0.value <= now }).keys.sorted() {
            if connections[id]?.state == .refused {
                connections[id] = nil
                pending[id] = nil
                actions.append(.close(id, .joinRefused, "the join was refused"))
            } else {
                actions += violation(id, "no join in time", at: now)
            }
        }
        return actions
    }

    // MARK: Joining

    mutating func join(
        _ join: ClientMessage.Join, _ id: ConnectionID, _ memberID: MemberID, at now: Instant
    ) -> [Action] {
        let number: Int
        switch opens(join) {
        case .success(let opened): number = opened
        case .failure(let refusal): return refuse(id, refusal.cause, refusal.phrase, at: now)
        }
        if join.isPushOnly { return joinForPushes(id, memberID, channel: number, at: now) }
        guard hasRoom(for: memberID, channel: number) else {
            return refuse(id, .channelFull, "the channel has \(limits.membersPerChannel) members", at: now)
        }
        let member = newMember(join, id, memberID, at: now)
        return enter(member, channel: number, at: now) { core in core.welcome(member, channel: number) }
    }

    /// The channel that the join is for, or why it is not let in.
    func opens(_ join: ClientMessage.Join) -> Result<Int, JoinRefused> {
        guard join.protocolVersion == RelayProtocolLimits.version else {
            return .failure(
                JoinRefused(.unsupportedVersion, "the relay speaks version \(RelayProtocolLimits.version)"))
        }
        guard let number = channelNumbers[join.channel], channels[number].configuration.token == join.token else {
            return .failure(JoinRefused(.notInvited, "no such channel, or the invitation does not open it"))
        }
        return .success(number)
    }

    struct JoinRefused: Error {
        let cause: JoinRefusal
        let phrase: String
        init(_ cause: JoinRefusal, _ phrase: String) { (self.cause, self.phrase) = (cause, phrase) }
    }

    /// Whether one more may be on the channel; who is on it already takes its own place.
    func hasRoom(for member: MemberID, channel number: Int) -> Bool {
        channels[number].connectionOfMember[member] != nil
            || channels[number].members.count < limits.membersPerChannel
    }

    mutating func newMember(
        _ join: ClientMessage.Join, _ id: ConnectionID, _ member: MemberID, at now: Instant
    ) -> RelayChannel.Member {
        RelayChannel.Member(
            connection: id, id: member, name: join.displayName, ssrc: freshSource(),
            downlinkKey: Self.downlinkKey(&random), reportedAt: now)
    }

    /// Makes it a member, in place of its older connection; `greeting` says what it is told of the channel.
    mutating func enter(
        _ member: RelayChannel.Member, channel number: Int, at now: Instant, greeting: (Self) -> [Action]
    ) -> [Action] {
        let id = member.connection
        var actions: [Action] = []
        let older = channels[number].connectionOfMember[member.id]
        if let older, let former = channels[number].members[older] {
            connections[older] = nil
            pushes.disconnected(older, of: member.id, at: now)
            actions.append(.close(older, .replaced, "the member joined on another connection"))
            actions += takeOut(former, channel: number, at: now)
        }
        let others = channels[number].everyone
        actions += greeting(self)
        actions.append(.startMedia(id, channel: number, key: member.downlinkKey, ssrc: member.ssrc))
        connections[id]?.state = .member(channel: number)
        pending[id] = nil
        channels[number].members[id] = member
        channels[number].connectionOfMember[member.id] = id
        if !others.isEmpty { actions.append(.send(.memberJoined(member.asMessage), to: others)) }
        actions.append(
            .note(
                .memberJoined(
                    channel: channels[number].name, member: member.id, name: member.name, ssrc: member.ssrc,
                    replaced: older != nil)))
        return actions
    }

    /// What a newcomer is told of the channel.
    func welcome(_ member: RelayChannel.Member, channel number: Int) -> [Action] {
        let channel = channels[number]
        // The talker first, so that a listener who comes late knows the name of who talks. Its own older connection is
        // still there while it is welcomed early.
        let others = channel.members.values.filter { $0.id != member.id }.sorted {
            ($0.ssrc == channel.speaker ? 0 : 1, $0.connection) < ($1.ssrc == channel.speaker ? 0 : 1, $1.connection)
        }.map(\.asMessage)
        var welcome = ServerMessage.Welcome(
            ssrc: member.ssrc, downlinkKey: member.downlinkKey, mediaKey: channel.mediaKey,
            channelName: channel.name, members: Array(others.prefix(RelayProtocolLimits.welcomeMembersMaximum)),
            floor: channel.floorTaken(for: member.id), memberID: member.id,
            talkTimeLimit: channel.floor.timers.talkTimeLimit)
        welcome.hasFloorQueue = channel.floor.hasQueue
        var actions: [Action] = [.send(.welcome(welcome), to: [member.connection])]
        for other in others.dropFirst(RelayProtocolLimits.welcomeMembersMaximum) {
            actions.append(.send(.memberJoined(other), to: [member.connection]))
        }
        return actions
    }

    mutating func refuse(
        _ id: ConnectionID, _ cause: JoinRefusal, _ phrase: String, at now: Instant
    ) -> [Action] {
        counters.joinsRefused += 1
        connections[id]?.state = .refused
        pending[id] = now + limits.refusalTime
        return [
            .send(.joinRefused(.init(cause: cause, phrase: phrase)), to: [id]),
            .note(.joinRefused(id, cause, phrase)),
        ]
    }

    // MARK: Media

    /// Decides on a media packet that came from `id`, in a datagram or, when its datagram was lost, on the control stream. It is
    /// kept when it is forwarded.
    ///
    /// - Returns: What to do with the packet, and what else there is to do afterwards (empty in the middle of a burst).
    public mutating func media(
        _ packet: MediaPacketHeader, bytes: [UInt8], isRepaired: Bool = false, from id: ConnectionID, at now: Instant
    ) -> (MediaDecision, [Action]) {
        counters.packetsIn += 1
        guard let connection = connections[id], case .member(let number) = connection.state,
            let member = channels[number].members[id]
        else { return drop(.notJoined) }
        let ssrc = member.ssrc
        guard packet.ssrc == ssrc else { return drop(.foreignSource) }
        switch channels[number].floor.media(
            ssrc: ssrc, keyID: packet.keyID, sequence: packet.sequence, marker: packet.marker, at: now)
        {
        case .noFloor: return drop(.noFloor)
        case .wrongKeyID: return drop(.wrongKeyID)
        case .duplicate: return drop(.duplicate)
        case .afterRelease: return drop(.afterRelease)
        case .forward(let isFirst, let endsBurst):
            assert(channels[number].speaker == ssrc, "only the holder's media are forwarded")
            counters.packetsForwarded += 1
            channels[number].burstBytes += bytes.count
            channels[number].talkerLoss.note(isRepaired: isRepaired)
            channels[number].store.keep(
                bytes, of: member.id, ssrc: ssrc, keyID: packet.keyID, sequence: packet.sequence, at: now)
            var actions = isFirst ? firstPacket(packet, channel: number, at: now) : []
            if now >= channels[number].nextReportCheck {
                let silent = channels[number].stopSilentListeners(
                    number: number, timeout: limits.reportTimeout, at: now)
                counters.listenersStopped += silent.count / RelayChannel.actionsPerSilentListener
                actions += silent
            }
            if endsBurst { actions += apply(.deadline, channel: number, at: now) }
            return (.forward(channel: number), actions)
        }
    }

    private mutating func drop(_ reason: MediaDrop) -> (MediaDecision, [Action]) {
        counters.count(reason)
        return (.drop(reason), [])
    }

    /// Counts a packet that could not be read as media.
    public mutating func countMalformedMedia() {
        counters.packetsIn += 1
        counters.count(.malformed)
    }

    private mutating func firstPacket(_ packet: MediaPacketHeader, channel number: Int, at now: Instant) -> [Action] {
        let milestone = RelayMilestone.firstPacket(
            channel: channels[number].name, ssrc: packet.ssrc, sequence: packet.sequence)
        return [.note(milestone)] + channels[number].beginListening(number: number, at: now)
    }

    // MARK: Keys and sources

    private mutating func renewMediaKey(of id: ChannelID, at now: Instant) -> [Action] {
        guard let number = channelNumbers[id] else { return [] }
        let key = Self.mediaKey(epoch: channels[number].mediaKey.epoch &+ 1, &random)
        channels[number].renew(key, keepingPrevious: limits.previousEpochTime, at: now)
        let note = Action.note(.mediaKeyRenewed(channel: channels[number].name, epoch: key.epoch))
        let everyone = channels[number].everyone
        return everyone.isEmpty ? [note] : [.send(.mediaKey(key), to: everyone), note]
    }

    mutating func freshSource() -> SSRC {
        while true {
            let candidate = SSRC(rawValue: UInt32.random(in: 1...UInt32.max, using: &random))
            if sources.insert(candidate).inserted { return candidate }
        }
    }

    private static func mediaKey(epoch: UInt16, _ random: inout any RandomNumberGenerator & Sendable) -> MediaKey {
        guard let key = MediaKey(epoch: epoch, baseKey: bytes(MediaKey.byteCountDefault, &random)) else {
            preconditionFailure("a media key of the default size is one")
        }
        return key
    }

    static func downlinkKey(_ random: inout any RandomNumberGenerator & Sendable) -> DownlinkKey {
        guard let key = DownlinkKey(bytes(DownlinkKey.byteCount, &random)) else {
            preconditionFailure("a down-link key of the fixed size is one")
        }
        return key
    }

    private static func bytes(_ count: Int, _ random: inout any RandomNumberGenerator & Sendable) -> [UInt8] {
        (0..<count).map { _ in UInt8.random(in: 0...UInt8.max, using: &random) }
    }
}
