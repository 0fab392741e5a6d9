// Carries out the operator's commands about channels and their invitations.
import Cryptography
import RelayProtocol
import RelayServer
import RelayStore

extension Registrar {
    func invite(
        _ name: String, _ terms: AdministrationRequest.Terms?, _ key: AdministrationRequest.MediaKeyOrigin?
    ) async throws -> AdministrationResponse {
        guard let address else {
            throw RelayStateError(
                description:
                    "the relay has not served yet, so its port is not known; start it first: 'pttrelay run --channel NAME'"
            )
        }
        let channel = try await channel(named: name, for: key)
        let isFirst = try store.invitations(to: channel.id, limit: 1).isEmpty
        if channel.isEndToEnd, key == nil || key == .first && !isFirst {
            throw RelayStoreError.wrongKind(
                """
                the media key of '\(channel.name)' is in its earlier links, and the relay does not know it. Give one \
                of them with --end-to-end --like LINK, so that the new member hears the others; or use --end-to-end \
                --new-key for a new key, after which everybody needs a new link
                """)
        }
        var number: Int64?
        var expiresAt: Int64?
        let token: InvitationToken
        if terms == nil, let standing = try store.standingToken(of: channel.id) {
            token = standing
        } else {
            let terms = terms ?? .init(priority: 0, isListenOnly: false)
            token = InvitationToken()
            let now = clock()
            expiresAt = terms.lifetime.map { now.addingReportingOverflow($0).partialValue }
            number = try store.invite(
                to: channel.id, token: token,
                terms: InvitationTerms(
                    expiresAt: expiresAt, uses: terms.uses, priority: terms.priority, isListenOnly: terms.isListenOnly),
                now: now)
        }
        let link = try InvitationLink(
            host: address.host, port: address.port, channelName: channel.name, channel: channel.id, token: token,
            pin: pin, web: web)
        return .invitation(
            .init(
                link: link.text, isEndToEnd: channel.isEndToEnd, members: try store.memberCount(of: channel.id),
                number: number, expiresAt: expiresAt))
    }

    /// The channel that somebody is invited to.
    private func channel(
        named name: String, for key: AdministrationRequest.MediaKeyOrigin?
    ) async throws -> ChannelRecord {
        switch key {
        case nil: return try store.channel(named: name)
        case .first, .new: return try await endToEndChannel(name)
        case .earlierLink(let id, let pin):
            // Its media key would open nothing on another channel, and nobody would hear why.
            let channel = try store.channel(named: name)
            guard pin == self.pin.description else {
                throw RelayStoreError.wrongKind(
                    "the link of --like is of another relay, whose key is not this one's; give one that this relay printed"
                )
            }
            guard id == channel.id.description else {
                let other = try store.channels().first { $0.id.description == id }
                throw RelayStoreError.wrongKind(
                    "the link of --like is for \(other.map { "'\($0.name)'" } ?? "a channel that the relay does not have"), "
                        + "not for '\(channel.name)'; give one for that")
            }
            return try await endToEndChannel(name)
        }
    }

    /// The channel, made and served at once if there is none.
    private func endToEndChannel(_ text: String) async throws -> ChannelRecord {
        if let found = try store.channels().first(where: { $0.name.text == text }) {
            guard found.isEndToEnd else {
                throw RelayStoreError.wrongKind(
                    "the media key of '\(found.name)' comes from the relay, and a channel stays as it was made; "
                        + "name a new channel: pttrelay invite NAME --end-to-end")
            }
            return found
        }
        guard let name = DisplayName(text) else { throw RelayStateError.badChannelName(text) }
        let channel = try store.addChannel(name, isEndToEnd: true, isAdded: true, isServed: true, now: clock())
        var configuration = channel.configuration(token: nil)
        configuration.rules = floors.rules(of: channel.name)
        configuration.retention = floors.retention(of: channel.name)
        if let server, await !server.serve(configuration) {
            throw RelayStateError(
                description:
                    "the channel is created but not served: the relay has reached its limit of channels; restart it with fewer others"
            )
        }
        return channel
    }

    func invitations(_ name: String) throws -> AdministrationResponse {
        let now = clock()
        let found = try store.invitations(
            to: try store.channel(named: name).id, limit: AdministrationLimits.invitationsPerResponse)
        return .invitations(
            found.map {
                .init(
                    number: $0.number, isStanding: $0.standingToken != nil, isOpen: $0.isOpen(at: now),
                    isWithdrawn: $0.withdrawnAt != nil, used: $0.used, uses: $0.terms.uses,
                    expiresAt: $0.terms.expiresAt, priority: $0.terms.priority, isListenOnly: $0.terms.isListenOnly,
                    madeAt: $0.madeAt)
            })
    }

    func channels() async throws -> [AdministrationResponse.ChannelLine] {
        var lines: [AdministrationResponse.ChannelLine] = []
        let now = clock()
        for channel in try store.channels() {
            let open = try store.openInvitationCount(of: channel.id, now: now)
            lines.append(
                .init(
                    name: channel.name.text, id: channel.id.description,
                    members: try store.memberCount(of: channel.id),
                    connected: await server?.connectedMembers(of: channel.id)?.count, openInvitations: open,
                    isEndToEnd: channel.isEndToEnd))
        }
        return lines
    }
}
