// The channels that a start serves, and their members, as the records have them.
import Cryptography
import Glibc
import RelayProtocol
import RelayServer
import RelayStore

extension RelayState {
    /// The records of the channels to serve: those of the names, made if they are new, or without names those that were served last; and
    /// those that commands have added. What the operator has left out since is served only when it is named again. Those of the names
    /// are marked as declared, and no others; `RelayStore.setServed` keeps that.
    ///
    /// - Parameter mayBeNone: Whether a relay that has never run may do without; channels come while it runs then.
    func servedChannels(named names: [String], mayBeNone: Bool = false) throws -> [ChannelRecord] {
        var declared: [DisplayName] = []
        var isDeclared: Set<DisplayName> = []
        for text in names {
            guard let name = DisplayName(text) else { throw RelayStateError.badName(text, of: "channel") }
            if isDeclared.insert(name).inserted { declared.append(name) }
        }
        let known = try store.channels(including: declared, now: Int64(time(nil)))
        var result = declared.compactMap { known[$0] }
        result += known.values.filter {
            !isDeclared.contains($0.name) && (names.isEmpty && $0.isServed || $0.isAdded)
        }.sorted { $0.name.text < $1.name.text }
        for index in result.indices { result[index].isDeclared = isDeclared.contains(result[index].name) }
        // A relay that has run may have lost its last channel by a command.
        guard try !result.isEmpty || mayBeNone || store.lastStart() != nil else {
            throw RelayStateError(
                description: "there is no channel to serve; name one: pttrelay run --channel Team")
        }
        return result
    }

    /// The same as the relay serves them.
    func channels(named names: [String], floors: Floors = Floors()) throws -> [RelayChannelConfiguration] {
        try configurations(servedChannels(named: names), floors)
    }

    /// Channels as the relay serves them.
    func configurations(_ channels: [ChannelRecord], _ floors: Floors) throws -> [RelayChannelConfiguration] {
        let tokens = try store.standingTokens()
        return channels.map { $0.configuration(token: tokens[$0.id], floors) }
    }

    /// The members of every channel.
    func roster() throws -> RelayRoster {
        RelayRoster(
            memberships: try store.members().mapValues { members in
                Dictionary(uniqueKeysWithValues: members.map { ($0.id, $0.membership) })
            })
    }

    /// Has the records keep what the configuration says of its channels: in a cluster, only the records do.
    func recordDeclaredChannels(_ settings: RelaySettings) throws {
        let floors = Floors(rules: settings.floorRules, retentions: settings.retentions)
        let served = try servedChannels(named: settings.channels, mayBeNone: true)
        try store.setServed(Set(served.map(\.id)), declared: [])
        for channel in served where channel.isDeclared {
            let (rules, retention) = (floors.rules(of: channel), floors.retention(of: channel))
            var recorded = ChannelSettings()
            recorded.mode = ChannelSettings.Mode(rules.mode)
            recorded.hasQueue = rules.hasQueue
            recorded.preemptionStep = rules.preemptionStep
            recorded.keptBursts = retention.bursts
            recorded.keptMilliseconds = retention.time.wholeMilliseconds
            _ = try store.changeChannel(channel.id, name: channel.name, settings: recorded, isServed: true)
        }
    }

    /// The name in invitations of the last start; nil before the first.
    func host() throws -> String? { try store.lastStart()?.host }

    /// The link of a channel's standing invitation; nil when its media key is its members' own.
    func standingInvitation(
        _ channel: RelayChannelConfiguration, host: String, port: UInt16, web: WebPlace?
    ) throws -> InvitationLink? {
        guard let token = try store.standingToken(of: channel.id) else { return nil }
        return try InvitationLink(
            host: host, port: port, channelName: channel.name, channel: channel.id, token: token, pin: identity.pin,
            web: web)
    }
}

extension ChannelRecord {
    /// As the relay serves it. Its own token is not what opens it: that is in the records.
    func configuration(token: InvitationToken?, _ floors: Floors) -> RelayChannelConfiguration {
        var configuration = RelayChannelConfiguration(
            id: id, name: name, token: token ?? InvitationToken(), rules: floors.rules(of: self),
            isEndToEnd: isEndToEnd)
        configuration.retention = floors.retention(of: self)
        return configuration
    }
}
