// Joins of a relay's rules: who may join which channel, at once, after its enrolment, or after its handshake.
import MonotonicTime
import RelayProtocol

extension RelayCore {
    /// Why a join is refused.
    private enum Rejection: Error {
        case refused(JoinRefusal, String)
        /// It is not a member; its invitation may make it one.
        case unknown
        /// Another relay of the cluster serves the channel.
        case elsewhere(RelayPlace)
        static let notInvited = refused(.notInvited, "no such channel, or the invitation does not open it")
    }

    mutating func join(
        _ join: ClientMessage.Join, _ id: ConnectionID, _ memberID: MemberID, at now: Instant
    ) -> [Action] {
        let number: Int
        do throws(Rejection) {
            number = try admit(join, id, memberID)
        } catch {
            switch error {
            case .unknown: return enrol(join, id, memberID, at: now)
            case .elsewhere(let place): return shared.sendOn(id, to: place, at: now)
            case .refused(let cause, let phrase): return shared.refuse(id, cause, phrase, at: now)
            }
        }
        if join.isPushOnly { return joinForPushes(id, memberID, number, at: now) }
        guard channels[number].hasRoom(for: memberID) else { return refuseAsFull(id, at: now) }
        return enter(newMember(join, id, memberID, at: now), number, at: now)
    }

    /// The channel that the join is for, if this connection is let in now.
    private func admit(_ join: ClientMessage.Join, _ id: ConnectionID, _ member: MemberID) throws(Rejection) -> Int {
        if isDraining { throw .refused(.relayBusy, Self.goingDown) }
        guard let connection = shared.connections[id] else { throw .notInvited }
        guard connection.carriesMedia || join.isPushOnly else {
            let size = RelayProtocolLimits.datagramFrameByteCountMinimum
            throw .refused(
                .unsupportedVersion, "media need QUIC datagrams: max_datagram_frame_size must be \(size) or more")
        }
        let number = numbers[join.channel]
        if connection.isSurplus, shared.connections.total > limits.connections {
            // Who comes back leaves its older connection.
            let older = number.flatMap { channels[$0].members.connections[member] }
            guard older != nil, !join.isPushOnly else { throw .refused(.relayBusy, "the relay is full") }
        }
        guard join.protocolVersion == RelayProtocolLimits.version else {
            throw .refused(.unsupportedVersion, "the relay speaks version \(RelayProtocolLimits.version)")
        }
        guard let number, !moving.contains(number) else { throw absence(of: join.channel) }
        guard let membership = roster[join.channel, member] else {
            guard roster.isOpen else { throw .unknown }
            guard channels[number].configuration.token == join.token else { throw .notInvited }
            return number
        }
        // Who is a member is known by its key: the token may have been withdrawn since.
        guard !membership.isRevoked else { throw .refused(.revoked, "the member was removed from the channel") }
        return number
    }

    /// Why nobody is let in to a channel that is not served here.
    private func absence(of channel: ChannelID) -> Rejection {
        switch places[channel] {
        case .alone: .notInvited
        // The records of the cluster may have it before this relay has.
        case .here: roster.isOpen || numbers[channel] != nil ? .refused(.relayBusy, Self.moves) : .unknown
        case .elsewhere(let place): .elsewhere(place)
        case .nowhere: .refused(.relayBusy, "no relay of the cluster serves the channel at the moment")
        }
    }

    private mutating func refuseAsFull(_ id: ConnectionID, at now: Instant) -> [Action] {
        shared.refuse(id, .channelFull, "the channel has \(limits.membersPerChannel) members", at: now)
    }

    private mutating func newMember(
        _ join: ClientMessage.Join, _ id: ConnectionID, _ member: MemberID, at now: Instant
    ) -> ChannelMember {
        ChannelMember(
            connection: id, id: member, name: join.displayName, ssrc: shared.secrets.source(),
            downlinkKey: shared.secrets.trailerKey(), uplinkKey: shared.secrets.trailerKey(),
            membership: roster[join.channel, member], limits: limits, at: now)
    }

    /// Makes it a member, in place of its older connection. `early`: what it was welcomed with already.
    private mutating func enter(
        _ member: ChannelMember, _ number: Int, since early: ChannelWelcome? = nil, at now: Instant
    ) -> [Action] {
        if let older = channels[number].members.connections[member.id] { forget(older, at: now) }
        shared.connections.advance(member.connection, to: .member(channel: number))
        return on(number, at: now) { $0.enter(member, since: early, &$1, at: now) }
    }

    /// Lets a client in that is to be no member, in place of its older connection.
    private mutating func joinForPushes(
        _ id: ConnectionID, _ member: MemberID, _ number: Int, at now: Instant
    ) -> [Action] {
        if let older = channels[number].pushConnections[member] { forget(older, at: now) }
        shared.connections.advance(id, to: .pushOnly(channel: number))
        return on(number, at: now) { channel, _ in channel.enterForPushes(id, member) }
    }

    // MARK: Early data

    /// Answers a join that is early data.
    mutating func greet(
        _ join: ClientMessage.Join, _ id: ConnectionID, _ memberID: MemberID, at now: Instant
    ) -> [Action] {
        if seededFault("an-early-join-is-a-member-at-once") { return self.join(join, id, memberID, at: now) }
        // Nothing that others notice depends on where a client is sent.
        if case .elsewhere(let place) = places[join.channel], numbers[join.channel] == nil, !isDraining {
            return shared.sendOn(id, to: place, at: now)
        }
        // A refusal is noted and counted, and a push-only client replaces an older one: both can wait for the handshake. So does who
        // has so much to be told of others that it must not come twice.
        guard let number = try? admit(join, id, memberID), !join.isPushOnly, channels[number].hasRoom(for: memberID),
            channels[number].members.areToldTwice(limits)
        else {
            shared.connections.advance(id, to: .deferred(join))
            return []
        }
        let welcome = ChannelWelcome(newMember(join, id, memberID, at: now), to: channels[number])
        shared.connections.advance(id, to: .welcomed(welcome))
        return welcome.actions(of: channels[number], shared.web)
    }

    /// A client that sent early data has completed its handshake: it is authenticated, and its data was not a replay.
    mutating func confirmed(_ id: ConnectionID, at now: Instant) -> [Action] {
        guard let connection = shared.connections[id] else { return [] }
        switch connection.state {
        case .greeting:
            shared.connections.advance(id, to: .joining)
            return []
        case .deferred(let join):
            shared.connections.advance(id, to: .joining)
            return self.join(join, id, connection.member, at: now)
        case .welcomed(let welcome):
            // It was welcomed, which a refusal would contradict.
            if isDraining { return [.close(id, .goingDown, Self.goingDown)] + remove(id, at: now) }
            var member = welcome.member
            guard channels[welcome.channel].hasRoom(for: member.id) else {
                shared.secrets.release(member.ssrc)
                return refuseAsFull(id, at: now)
            }
            // What it may do can have changed meanwhile.
            if let membership = roster[channels[welcome.channel].configuration.id, member.id] {
                member.adopt(membership)
            }
            return enter(member, welcome.channel, since: welcome, at: now)
        case .joining, .enrolling, .proving, .asking, .member, .pushOnly, .refused: return []
        }
    }

    // MARK: Enrolments

    /// Asks for a membership, which has to be on disk before the client hears of it.
    private mutating func enrol(
        _ join: ClientMessage.Join, _ id: ConnectionID, _ member: MemberID, at now: Instant
    ) -> [Action] {
        guard enrolling < limits.enrolments else {
            return shared.refuse(id, .relayBusy, "too many members are joining for the first time", at: now)
        }
        enrolling += 1
        shared.connections.advance(id, to: .enrolling(join))
        let enrolment = RelayEnrolment(
            channel: join.channel, token: join.token, member: member, name: join.displayName,
            shard: shared.shard.number)
        return [.enrol(id, enrolment)]
    }

    /// The answer to `enrol`. It holds also for a client that has gone in the meantime, but not for a channel that is not served: the
    /// records say who is on it when it is.
    mutating func enrolled(
        _ id: ConnectionID, _ enrolment: RelayEnrolment, _ verdict: RelayEnrolmentVerdict, at now: Instant
    ) -> [Action] {
        enrolling = max(0, enrolling - 1)
        var actions: [Action] = []
        if case .admitted(let membership) = verdict, let name = configuration(of: enrolment.channel)?.name {
            roster.admit(enrolment.member, to: enrolment.channel, as: membership)
            actions = [.note(.memberEnrolled(channel: name, member: enrolment.member, name: enrolment.name))]
        }
        guard let connection = shared.connections[id], case .enrolling(let join) = connection.state else {
            return actions
        }
        shared.connections.advance(id, to: .joining)
        switch verdict {
        case .admitted where numbers[join.channel] == nil && places[join.channel] == .here:
            return actions + shared.refuse(id, .relayBusy, "the relay is about to serve the channel", at: now)
        case .admitted: return actions + self.join(join, id, connection.member, at: now)
        case .refused(let cause, let phrase): return actions + shared.refuse(id, cause, phrase, at: now)
        }
    }
}
