// What a new member is told of its channel, also in answer to early data (0-RTT), before its handshake is complete. Pure.
import RelayProtocol

/// The state of a channel that a member is welcomed with, also in answer to the join of a client that has not completed its handshake.
///
/// Whoever recorded such a join can send it again, after a restart of the relay also within the ten seconds for which its age
/// passes. So nothing that others notice depends on it: no member is announced or replaced, no media flow. The answer
/// is sealed for the one who made the greeting, with keys that a recording does not give.
struct ChannelWelcome: Sendable {
    let channel: Int
    let member: ChannelMember
    /// The members and their connections at that time. Changes are reported after the handshake.
    private let present: [MemberID: ConnectionID]
    private let floors: [ServerMessage.FloorTaken]
    private let rules: ServerMessage.FloorRules
    private let mediaKey: MediaKey?

    /// What `member` is told of `channel` now.
    init(_ member: ChannelMember, to channel: RelayChannel) {
        self.member = member
        self.channel = channel.number
        present = channel.members.connections
        floors = channel.floorsTaken(for: member.id)
        rules = channel.floor.rules(for: member)
        mediaKey = channel.keys.offered
    }

    /// The messages with it. `web`: where the relay takes links over TLS.
    func actions(of channel: RelayChannel, _ web: WebPlace?) -> [RelayAction] {
        let members = channel.members
        // The talkers first, so that a listener who comes late knows the names of those who talk. Its own older connection is
        // still there while it is welcomed early.
        let talkers = channel.floor.talkers.compactMap { members.of($0)?.connection }
        var first: [ServerMessage.Member] = []
        var further = MessageSeries()
        for id in talkers + members.everyone.filter({ !talkers.contains($0) }) {
            guard let other = members[id], other.id != member.id else { continue }
            if first.count < RelayProtocolLimits.welcomeMembersMaximum {
                first.append(other.asMessage)
            } else {
                further.append(other.announcement)
            }
        }
        var welcome = ServerMessage.Welcome(
            ssrc: member.ssrc, downlinkKey: member.downlinkKey, mediaKey: mediaKey, channelName: channel.name,
            members: first, floor: floors.first, memberID: member.id,
            talkTimeLimit: channel.floor.timers.talkTimeLimit)
        welcome.uplinkKey = member.uplinkKey
        welcome.moreFloors = Array(floors.dropFirst())
        welcome.floorRules = rules
        welcome.offersLateEntry = true
        welcome.retention = channel.store.limits.retention
        welcome.web = web
        // It hears bursts in progress under an earlier key to their end if it was allowed to have that key.
        let keys = channel.keys.earlierKeys(of: Set(floors.map { UInt16($0.keyID >> 48) }), for: member.id)
        return [.send(.welcome(welcome), to: [member.connection])]
            + [keys, further].filter { $0.count > 0 }.map { .sendSeries($0, to: [.init(member.connection)]) }
    }

    /// What has happened on the channel since, for the member as it is now.
    func news(for member: ChannelMember, of channel: RelayChannel) -> [RelayAction] {
        let now = ChannelWelcome(member, to: channel)
        var roster = MessageSeries()
        for other in present.keys where other != member.id && now.present[other] == nil {
            roster.append(ServerMessage.memberLeft(other).framed())
        }
        for (other, connection) in now.present where other != member.id && present[other] != connection {
            if let other = channel.members[connection] { roster.append(other.announcement) }
        }
        var messages: [ServerMessage] = []
        if let key = now.mediaKey, key != mediaKey { messages.append(.mediaKey(key)) }
        if now.rules != rules { messages.append(.floorRules(now.rules)) }
        for ended in floors where !now.floors.contains(ended) {
            messages.append(.floorIdle(.init(ssrc: ended.ssrc, lastSequence: nil)))
        }
        for taken in now.floors where !floors.contains(taken) { messages.append(.floorTaken(taken)) }
        let told = messages.map { RelayAction.send($0, to: [member.connection]) }
        return roster.count == 0 ? told : [.sendSeries(roster, to: [.init(member.connection)])] + told
    }
}
