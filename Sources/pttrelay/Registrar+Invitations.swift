// Carries out the operator's commands about channels and their invitations.
import Cryptography
import RelayProtocol
import RelayServer
import RelayStore

extension Registrar {
    func invite(
        _ reference: ChannelReference, _ terms: AdministrationRequest.Terms?,
        _ key: AdministrationRequest.MediaKeyOrigin?, _ retry: String?
    ) async throws -> AdministrationResponse {
        guard let address else {
            throw RelayStateError(
                description:
                    "the relay has not served yet, so its port is not known; start it first: 'pttrelay run --channel NAME'"
            )
        }
        let channel = try await channel(reference, for: key)
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
        var isNew = true
        if terms == nil, let standing = try store.standingToken(of: channel.id) {
            token = standing
        } else if let retry, let terms, let known = try repeated(retry, terms, channel) {
            (token, number, isNew) = (known.token, known.invitation.number, false)
            expiresAt = known.invitation.terms.expiresAt
        } else {
            let terms = terms ?? .init(priority: 0, isListenOnly: false)
            token = try retry.map { try retryToken($0, channel) } ?? InvitationToken()
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
                number: number, expiresAt: expiresAt, isNew: isNew))
    }

    /// The secret of the invitation that a request makes.
    private func retryToken(_ retry: String, _ channel: ChannelRecord) throws -> InvitationToken {
        let bytes = try retryBytes("invitation \(channel.id)", retry)
        return InvitationToken(bytes.prefix(InvitationToken.byteCountDefault)) ?? InvitationToken()
    }

    /// The invitation that the same request made before; nil: it comes for the first time.
    private func repeated(
        _ retry: String, _ terms: AdministrationRequest.Terms, _ channel: ChannelRecord
    ) throws -> (invitation: InvitationRecord, token: InvitationToken)? {
        let token = try retryToken(retry, channel)
        guard let known = try store.invitation(with: token, to: channel.id) else { return nil }
        let lifetime = known.terms.expiresAt.map { $0 - known.madeAt }
        guard
            known.terms.uses == terms.uses, known.terms.priority == terms.priority, lifetime == terms.lifetime,
            known.terms.isListenOnly == terms.isListenOnly
        else { throw RelayStoreError.retryDiffers }
        return (known, token)
    }

    /// The channel that somebody is invited to.
    private func channel(
        _ reference: ChannelReference, for key: AdministrationRequest.MediaKeyOrigin?
    ) async throws -> ChannelRecord {
        switch key {
        case nil: return try record(reference)
        case .first, .new: return try await endToEndChannel(reference)
        case .earlierLink(let id, let pin):
            // Its media key would open nothing on another channel, and nobody would hear why.
            let channel = try record(reference)
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
            return try await endToEndChannel(reference)
        }
    }

    /// The channel, made and served at once if there is none.
    private func endToEndChannel(_ reference: ChannelReference) async throws -> ChannelRecord {
        guard case .named(let text) = reference else { return try record(reference) }
        if let found = try store.knownChannel(named: text) {
            guard found.isEndToEnd else {
                throw RelayStoreError.wrongKind(
                    "the media key of '\(found.name)' comes from the relay, and a channel stays as it was made; "
                        + "name a new channel: pttrelay invite NAME --end-to-end")
            }
            return found
        }
        guard let name = DisplayName(text) else { throw RelayStateError.badName(text, of: "channel") }
        let channel = try store.addChannel(name, isEndToEnd: true, isAdded: true, isServed: true, now: clock())
        try await serve(channel)
        return channel
    }

    func invitations(_ channel: ChannelReference, _ before: Int64?, _ limit: Int?) throws -> AdministrationResponse {
        let limit = min(limit ?? .max, AdministrationLimits.invitationsPerResponse)
        let found = try store.invitations(to: try record(channel).id, before: before ?? .max, limit: limit + 1)
        let lines = found.prefix(limit).map(line)
        return .invitations(lines, next: found.count > limit ? lines.last?.number : nil)
    }

    func invitation(_ channel: ChannelReference, _ number: Int64) throws -> AdministrationResponse {
        .invitationLine(line(try store.invitation(number, to: try record(channel).id)))
    }

    private func line(_ invitation: InvitationRecord) -> AdministrationResponse.InvitationLine {
        .init(
            number: invitation.number, isStanding: invitation.standingToken != nil,
            isOpen: invitation.isOpen(at: clock()), isWithdrawn: invitation.withdrawnAt != nil,
            used: invitation.used, uses: invitation.terms.uses, expiresAt: invitation.terms.expiresAt,
            priority: invitation.terms.priority, isListenOnly: invitation.terms.isListenOnly,
            madeAt: invitation.madeAt)
    }
}
