// Joins: who may join which channel, and the content of the welcome.
import MonotonicTime
import RelayProtocol

extension RelayCore {
    mutating func join(
        _ join: ClientMessage.Join, _ id: ConnectionID, _ memberID: MemberID, at now: Instant
    ) -> [Action] {
        if let (cause, phrase) = turnsAway(join, id, memberID) { return refuse(id, cause, phrase, at: now) }
        let number: Int
        switch opens(join, memberID) {
        case .success(let opened): number = opened
        case .failure(.unknown): return enrol(join, id, memberID, at: now)
        case .failure(.refused(let cause, let phrase)): return refuse(id, cause, phrase, at: now)
        }
        if join.isPushOnly { return joinForPushes(id, memberID, channel: number, at: now) }
        guard hasRoom(for: memberID, channel: number) else {
            return refuse(id, .channelFull, "the channel has \(limits.membersPerChannel) members", at: now)
        }
        let member = newMember(join, id, memberID, at: now)
        return enter(member, channel: number, at: now) { core in core.welcome(member, channel: number) }
    }

    /// The channel that the join is for, or why it is not let in.
    func opens(_ join: ClientMessage.Join, _ member: MemberID) -> Result<Int, JoinRejection> {
        guard join.protocolVersion == RelayProtocolLimits.version else {
            return .failure(
                .refused(.unsupportedVersion, "the relay speaks version \(RelayProtocolLimits.version)"))
        }
        guard let number = channelNumbers[join.channel] else { return .failure(.notInvited) }
        switch roster[join.channel, member] {
        case .some(let membership) where membership.isRevoked:
            return .failure(.refused(.revoked, "the member was removed from the channel"))
        // Who is a member is known by its key: the token may have been withdrawn since.
        case .some: return .success(number)
        case nil where roster.isOpen:
            return channels[number].configuration.token == join.token ? .success(number) : .failure(.notInvited)
        case nil: return .failure(.unknown)
        }
    }

    /// Why this connection is not let in now, whatever its invitation opens; nil: it may be.
    func turnsAway(
        _ join: ClientMessage.Join, _ id: ConnectionID, _ member: MemberID
    ) -> (cause: JoinRefusal, phrase: String)? {
        guard let connection = connections[id] else { return nil }
        if isDraining { return (.relayBusy, Self.goingDown) }
        guard connection.carriesMedia || join.isPushOnly else {
            let size = RelayProtocolLimits.datagramFrameByteCountMinimum
            return (.unsupportedVersion, "media need QUIC datagrams: max_datagram_frame_size must be \(size) or more")
        }
        guard connection.isSurplus, connections.count > limits.connections else { return nil }
        // Who comes back leaves its older connection.
        let older = channelNumbers[join.channel].flatMap { channels[$0].connectionOfMember[member] }
        return older == nil || join.isPushOnly ? (.relayBusy, "the relay is full") : nil
    }

    /// Why a join is refused.
    enum JoinRejection: Error {
        case refused(JoinRefusal, String)
        /// It is not a member; its invitation may make it one.
        case unknown
        static let notInvited = refused(.notInvited, "no such channel, or the invitation does not open it")
    }

    /// Whether one more may be on the channel; who is on it already takes its own place.
    func hasRoom(for member: MemberID, channel number: Int) -> Bool {
        channels[number].connectionOfMember[member] != nil
            || channels[number].members.count < limits.membersPerChannel
    }

    mutating func newMember(
        _ join: ClientMessage.Join, _ id: ConnectionID, _ member: MemberID, at now: Instant
    ) -> RelayChannel.Member {
        var new = RelayChannel.Member(
            connection: id, id: member, name: join.displayName, ssrc: freshSource(),
            downlinkKey: Self.downlinkKey(&random), reportedAt: now)
        if let membership = roster[join.channel, member] {
            new.priority = membership.priority
            new.isListenOnly = membership.isListenOnly
        }
        return new
    }

    /// Makes it a member, in place of its older connection; `greeting` is the state of the channel that it gets.
    mutating func enter(
        _ member: RelayChannel.Member, channel number: Int, at now: Instant, greeting: (Self) -> [Action]
    ) -> [Action] {
        let id = member.connection
        var member = member
        // An early join may be seconds old.
        member.reportedAt = now
        var actions: [Action] = []
        let older = channels[number].connectionOfMember[member.id]
        if let older, let former = channels[number].members[older] {
            connections[older] = nil
            pushes.disconnected(older, of: member.id, at: now)
            actions.append(.close(older, .replaced, "the member joined on another connection"))
            actions += takeOut(former, channel: number, at: now)
        }
        actions += greeting(self)
        actions.append(.startMedia(id, channel: number, key: member.downlinkKey, ssrc: member.ssrc))
        connections[id]?.state = .member(channel: number)
        waitNoMore(for: id)
        channels[number].members[id] = member
        channels[number].connectionOfMember[member.id] = id
        actions += announce(
            .memberJoined(member.asMessage), framed: member.announcement, of: member.id, besides: id, channel: number,
            at: now)
        actions.append(
            .note(
                .memberJoined(
                    channel: channels[number].name, member: member.id, name: member.name, ssrc: member.ssrc,
                    replaced: older != nil)))
        return actions
    }

    /// The state of the channel for a new member.
    func welcome(_ member: RelayChannel.Member, channel number: Int) -> [Action] {
        let channel = channels[number]
        // The talkers first, so that a listener who comes late knows the names of those who talk. Its own older connection is
        // still there while it is welcomed early.
        let talkers = channel.speakers.compactMap { channel.member(of: $0.ssrc)?.connection }
        var first: [ServerMessage.Member] = []
        var further = MessageSeries()
        for id in talkers + channel.everyone.filter({ !talkers.contains($0) }) {
            guard let other = channel.members[id], other.id != member.id else { continue }
            if first.count < RelayProtocolLimits.welcomeMembersMaximum {
                first.append(other.asMessage)
            } else {
                further.append(other.announcement)
            }
        }
        var welcome = ServerMessage.Welcome(
            ssrc: member.ssrc, downlinkKey: member.downlinkKey, mediaKey: channel.offeredMediaKey,
            channelName: channel.name, members: first, floor: nil, memberID: member.id,
            talkTimeLimit: channel.floor.timers.talkTimeLimit)
        channel.tellFloor(in: &welcome, to: member)
        var actions = [Action.send(.welcome(welcome), to: [member.connection])]
        if let keys = channel.earlierKeys(for: member.id) {
            actions.append(.sendSeries(keys, to: [.init(member.connection)]))
        }
        if further.count > 0 { actions.append(.sendSeries(further, to: [.init(member.connection)])) }
        return actions
    }

    mutating func refuse(
        _ id: ConnectionID, _ cause: JoinRefusal, _ phrase: String, at now: Instant
    ) -> [Action] {
        counters.joinsRefused += 1
        connections[id]?.state = .refused
        wait(for: id, until: now + limits.refusalTime)
        return [
            .send(.joinRefused(.init(cause: cause, phrase: phrase)), to: [id]),
            .note(.joinRefused(id, cause, phrase)),
        ]
    }
}
