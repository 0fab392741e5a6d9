// Who is on a channel now: the relay that serves it knows, and tells the other relays of its cluster.
import Cryptography
import RelayCluster
import RelayProtocol
import RelayServer
import RelayStore
import Vocabulary

/// What the relay that serves a channel knows of its members now.
struct ChannelPresence: Codable, Equatable {
    /// Members that are connected.
    var count: Int
    /// The names of those that were asked for, by their identifiers.
    var names: [String: String] = [:]
    /// Those who talk.
    var talkers: [AdministrationResponse.Talker] = []

    /// The same for the records.
    var members: [MemberID: DisplayName] {
        names.reduce(into: [:]) { members, entry in
            guard let bytes = Hexadecimal.decode(entry.key), let id = MemberID(bytes: bytes),
                let name = DisplayName(entry.value)
            else { return }
            members[id] = name
        }
    }
}

/// Whose names are asked for.
enum PresenceQuestion: Codable, Equatable {
    /// Nobody's.
    case count
    /// These members'.
    case members(Set<String>)
    /// Those of members that an operator may mean by this text; see `RelayStore.member`.
    case meant(String)

    /// The most names in an answer. Of more members with one name none is meant.
    fileprivate static let namesMaximum = AdministrationLimits.membersPerResponse
}

extension Registrar {
    /// Who is on these channels. A channel that no relay serves, or whose relay does not answer, is not among them.
    func presence(of channels: [ChannelID], _ question: PresenceQuestion) async -> [ChannelID: ChannelPresence] {
        var found = await ownPresence(of: channels, question)
        let others = channels.filter { found[$0] == nil }
        guard let part, !others.isEmpty else { return found }
        let request = ClusterRequest.presence(channels: others.map(\.description), question)
        for answer in await part.node.askOthers(request.bytes).all {
            guard case .presence(let theirs)? = ClusterResponse(bytes: answer) else { continue }
            for (text, presence) in theirs { if let channel = ChannelID(text) { found[channel] = presence } }
        }
        return found
    }

    /// Whether a member is among those that are asked for.
    private func asked(
        _ question: PresenceQuestion, of channel: ChannelID
    ) -> (_ id: String, _ name: String) -> Bool {
        switch question {
        case .count: return { _, _ in false }
        case .members(let ids): return { id, _ in ids.contains(id) }
        case .meant(let text):
            // One that has enrolled by this name may have another one now.
            let enrolled = Set(((try? store.members(called: text, of: channel)) ?? []).map(\.description))
            return { id, name in name == text || enrolled.contains(id) }
        }
    }

    /// The same for those that this relay serves.
    func ownPresence(of channels: [ChannelID], _ question: PresenceQuestion) async -> [ChannelID: ChannelPresence] {
        guard let server else { return [:] }
        var found: [ChannelID: ChannelPresence] = [:]
        for channel in channels where owns(channel) {
            guard let now = await server.statistics(of: channel) else { continue }
            var presence = ChannelPresence(count: now.members.count)
            let asked = asked(question, of: channel)
            for member in now.members {
                let (id, name) = (member.id.description, member.name.text)
                if presence.names.count < PresenceQuestion.namesMaximum, asked(id, name) {
                    presence.names[id] = name
                }
                if member.isTalking {
                    presence.talkers.append(
                        .init(channel: channel.description, channelName: now.name.text, member: id, name: name))
                }
            }
            found[channel] = presence
        }
        return found
    }
}
