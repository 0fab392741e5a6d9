// Channels nearby: how their invitation is given, and how they end for all.
import Cryptography
import MonotonicTime
import RelayProtocol

/// To whom the relay itself gives a channel's invitation.
public enum ChannelAdmission: Sendable, Hashable {
    /// Nobody: the operator of the relay gives out links.
    case invited
    /// Whoever asks and does as the rule says, with the media key of an end-to-end channel. `relay` is the key of this relay, to which a
    /// proof of a code belongs.
    case nearby(AdmissionRule, relay: PublicKeyPin, mediaKey: MediaKey?)
}

extension RelayCore {
    /// Gives the invitation to a channel nearby, asks for what its rule wants first, or says why not.
    ///
    /// No client may ask often, and all clients together may not either: a stranger who asks costs a handshake, and no more.
    mutating func giveInvitation(
        _ request: ClientMessage.InvitationRequest, to id: ConnectionID, at now: Instant
    ) -> [Action] {
        guard request.protocolVersion == RelayProtocolLimits.version else {
            return refuseInvitation(
                .unsupportedVersion, "the relay speaks version \(RelayProtocolLimits.version)", to: id)
        }
        guard let number = channelNumbers[request.channel], let member = connections[id]?.member,
            case .nearby(let rule, let relay, _) = channels[number].configuration.admission
        else { return refuseInvitation(.notOpen, "no such channel, or it is not open to everybody", to: id) }
        guard invitationBucket.take(at: now) else {
            return refuseInvitation(
                .tooMany, "too many ask at a time", to: id, retryAfter: limits.invitationRetryTime)
        }
        switch rule {
        case .open: return invite(id, to: number)
        case .code(let code):
            guard let share = request.codeShare else {
                return refuseInvitation(.codeNeeded, "the channel has a code", to: id)
            }
            let proof = code.proof(.responder, channel: request.channel, relay: relay, client: member, using: &random)
            guard let tags = proof.tags(with: share) else {
                return violation(id, "an invalid share of CPace", at: now)
            }
            var known = pendingJoins[number] ?? PendingJoins(limits, at: now)
            known.proofs[id] = tags
            pendingJoins[number] = known
            connections[id]?.state = .proving(channel: number)
            return [.send(.invitationChallenge(.init(codeShare: proof.share)), to: [id])]
        case .ask: return ask(request.name, member, id, channel: number, at: now)
        }
    }

    /// A newcomer proves that it knows the code. All wrong proofs together have a rate limit; correct ones do not.
    mutating func prove(
        _ proof: ClientMessage.InvitationProof, by id: ConnectionID, channel number: Int, at now: Instant
    ) -> [Action] {
        guard let tags = pendingJoins[number]?.proofs.removeValue(forKey: id), let member = connections[id]?.member
        else { return [] }
        connections[id]?.state = .joining
        guard pendingJoins[number]?.wrongCodes.holds(1, at: now) ?? false else {
            return refuseInvitation(
                .tooMany, "too many wrong codes were tried", to: id, retryAfter: limits.wrongCodeInterval)
        }
        guard constantTimeEqual(proof.tag, tags.client) else {
            _ = pendingJoins[number]?.wrongCodes.take(at: now)
            return refuseInvitation(.wrongCode, "the code is wrong", to: id)
                + [.note(.wrongCode(channel: channels[number].name, member: member))]
        }
        return invite(id, to: number, codeTag: tags.relay)
    }

    func invitation(to number: Int, codeTag: [UInt8]?) -> ServerMessage.Invitation? {
        let configuration = channels[number].configuration
        guard case .nearby(_, _, let mediaKey) = configuration.admission else { return nil }
        return .init(
            token: configuration.token, channelName: configuration.name, mediaKey: mediaKey, codeTag: codeTag)
    }

    mutating func invite(_ id: ConnectionID, to number: Int, codeTag: [UInt8]? = nil) -> [Action] {
        guard let invitation = invitation(to: number, codeTag: codeTag) else { return [] }
        counters.invitationsGiven += 1
        return [.send(.invitation(invitation), to: [id])]
    }

    mutating func refuseInvitation(
        _ cause: InvitationRefusal, _ phrase: String, to id: ConnectionID, retryAfter: Duration = .zero
    ) -> [Action] {
        counters.invitationsRefused += 1
        return [.send(.invitationRefused(.init(cause: cause, phrase: phrase, retryAfter: retryAfter)), to: [id])]
    }

    /// Ends a channel for all its members, who do not come back.
    mutating func end(_ channel: ChannelID, _ phrase: String, at now: Instant) -> [Action] {
        guard let number = channelNumbers[channel], !seededFault("a-deleted-channel-goes-on") else { return [] }
        var actions: [Action] = []
        let pushOnly = channels[number].pushConnectionOfMember.values.sorted()
        for id in channels[number].everyone + pushOnly {
            // Nobody is told that the others leave: they leave themselves.
            if let member = connections[id]?.member { pushes.disconnected(id, of: member, at: now) }
            connections[id] = nil
            actions += [.stopMedia(id, channel: number), .close(id, .channelEnded, phrase)]
        }
        actions += endQuestions(channel: number, at: now)
        for member in channels[number].members.values { sources.remove(member.ssrc) }
        changeStore(number) { $0.removeAll() }
        channels[number].clear()
        channels[number].configuration.admission = .invited
        return actions
    }
}
