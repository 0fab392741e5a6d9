// Joins in early data (0-RTT): answered at once, effective once the handshake is complete.
import MonotonicTime
import RelayProtocol

/// A join of a client that has not completed its handshake.
///
/// Whoever recorded it can send it again, after a restart of the relay also within the ten seconds for which its age
/// passes. So nothing that others notice depends on it: no member is announced or replaced, no media flow. The answer
/// is sealed for the one who made the greeting, with keys that a recording does not give.
enum EarlyJoin: Sendable, Equatable {
    /// It is looked at after the handshake.
    case deferred(ClientMessage.Join)
    /// `Welcome` is on its way.
    case welcomed(EarlyWelcome)
}

/// The content of an early `Welcome`.
struct EarlyWelcome: Sendable, Equatable {
    let channel: Int
    let member: RelayChannel.Member
    /// The members and their connections at that time. Changes are reported after the handshake.
    let members: [MemberID: ConnectionID]
    let floors: [ServerMessage.FloorTaken]
    let rules: ServerMessage.FloorRules
    let mediaKey: MediaKey?
}

extension RelayCore {
    /// Answers a join that is early data.
    mutating func greet(
        _ join: ClientMessage.Join, _ id: ConnectionID, _ memberID: MemberID, at now: Instant
    ) -> [Action] {
        // A refusal is noted and counted, and a push-only client replaces an older one: both can wait for the handshake. So does who
        // has so much to be told of others that it must not come twice.
        guard turnsAway(join, id, memberID) == nil, case .success(let number) = opens(join, memberID), !join.isPushOnly,
            hasRoom(for: memberID, channel: number), isToldTwice(channel: number)
        else {
            connections[id]?.state = .greeted(.deferred(join))
            return []
        }
        let member = newMember(join, id, memberID, at: now)
        let channel = channels[number]
        connections[id]?.state = .greeted(
            .welcomed(
                EarlyWelcome(
                    channel: number, member: member, members: channel.connectionOfMember,
                    floors: channel.floorsTaken(for: memberID), rules: channel.rules(for: member),
                    mediaKey: channel.offeredMediaKey)))
        return welcome(member, channel: number)
    }

    /// A client that sent early data has completed its handshake: it is authenticated, and its data was not a replay.
    mutating func confirmed(_ id: ConnectionID, at now: Instant) -> [Action] {
        guard let connection = connections[id] else { return [] }
        switch connection.state {
        case .greeting:
            connections[id]?.state = .joining
            return []
        case .greeted(.deferred(let join)):
            connections[id]?.state = .joining
            return self.join(join, id, connection.member, at: now)
        case .greeted(.welcomed(let welcome)):
            // It was welcomed, which a refusal would contradict.
            if isDraining { return [.close(id, .goingDown, Self.goingDown)] + remove(id, at: now) }
            guard hasRoom(for: connection.member, channel: welcome.channel) else {
                sources.remove(welcome.member.ssrc)
                return refuse(id, .channelFull, "the channel has \(limits.membersPerChannel) members", at: now)
            }
            var member = welcome.member
            // What it may do can have changed meanwhile.
            if let membership = roster[channels[welcome.channel].configuration.id, connection.member] {
                member.priority = membership.priority
                member.isListenOnly = membership.isListenOnly
            }
            return enter(member, channel: welcome.channel, at: now) { core in
                let channel = core.channels[welcome.channel]
                return core.news(since: welcome, rules: channel.rules(for: member), channel: channel)
            }
        case .joining, .enrolling, .proving, .asking, .member, .pushOnly, .refused: return []
        }
    }

    /// What has happened on the channel since the early `Welcome`.
    private func news(
        since welcome: EarlyWelcome, rules: ServerMessage.FloorRules, channel: RelayChannel
    ) -> [Action] {
        let (id, own) = (welcome.member.connection, welcome.member.id)
        var roster = MessageSeries()
        for member in welcome.members.keys where member != own && channel.connectionOfMember[member] == nil {
            roster.append(ServerMessage.memberLeft(member).framed())
        }
        for (member, connection) in channel.connectionOfMember
        where member != own && welcome.members[member] != connection {
            if let other = channel.members[connection] { roster.append(other.announcement) }
        }
        var messages: [ServerMessage] = []
        if let key = channel.offeredMediaKey, key != welcome.mediaKey { messages.append(.mediaKey(key)) }
        if rules != welcome.rules { messages.append(.floorRules(rules)) }
        let floors = channel.floorsTaken(for: welcome.member.id)
        for ended in welcome.floors where !floors.contains(ended) {
            messages.append(.floorIdle(.init(ssrc: ended.ssrc, lastSequence: nil)))
        }
        for taken in floors where !welcome.floors.contains(taken) { messages.append(.floorTaken(taken)) }
        let told = messages.map { Action.send($0, to: [id]) }
        return roster.count == 0 ? told : [.sendSeries(roster, to: [.init(id)])] + told
    }
}
