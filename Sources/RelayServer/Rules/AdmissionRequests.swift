// Strangers who ask for the invitation to a channel nearby: by its code, or by the word of its creator. Pure.
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

/// The outcome of a join request to a channel's creator.
public enum PendingJoinOutcome: Sendable, Equatable {
    /// The creator let it in.
    case admitted
    /// The creator did not.
    case refused
    /// The creator did not answer in time.
    case unanswered
    /// It waits no more, or the channel has ended.
    case gone
}

/// Requests to be admitted to one channel: proofs of its code, and questions to its creator.
struct AdmissionRequests: Sendable {
    /// A request that waits for the creator's answer.
    private struct Question: Sendable {
        let member: MemberID
        /// The requesting connections. A client asks at several addresses of one relay, and uses the first answer.
        var connections: [ConnectionID]
    }

    /// The most connections of one question.
    private static let connectionsPerQuestion = 8

    private let number: Int
    /// The rate limit on wrong codes.
    private var wrongCodes: TokenBucket
    /// In the order of the requests.
    private var questions: [Question] = []
    /// The rate limit on questions to the creator.
    private var bucket: TokenBucket
    /// Admitted members, which need not ask again, the oldest first.
    private var admitted: [MemberID] = []

    /// Of the channel of that number.
    init(channel number: Int, _ limits: RelayLimits) {
        self.number = number
        wrongCodes = TokenBucket(depth: limits.wrongCodes, every: limits.wrongCodeInterval, at: .zero)
        bucket = TokenBucket(depth: limits.pendingJoinsMaximum, every: limits.pendingJoinInterval, at: .zero)
    }

    /// Gives the invitation, or asks for what the channel's rule wants first.
    mutating func take(
        _ request: ClientMessage.InvitationRequest, _ member: MemberID, on id: ConnectionID,
        to channel: RelayChannelConfiguration, _ shared: inout RelayShared, at now: Instant
    ) -> [RelayAction] {
        guard case .nearby(let rule, let relay, _) = channel.admission else { return [] }
        switch rule {
        case .open: return shared.invite(id, to: channel)
        case .code(let code):
            guard let share = request.codeShare else {
                return shared.refuseInvitation(.codeNeeded, "the channel has a code", to: id)
            }
            let proof = code.proof(
                .responder, channel: channel.id, relay: relay, client: member, using: &shared.secrets.generator)
            guard let tags = proof.tags(with: share) else { return shared.violates(id, "an invalid share of CPace") }
            shared.connections.advance(id, to: .proving(channel: number, tags))
            return [.send(.invitationChallenge(.init(codeShare: proof.share)), to: [id])]
        case .ask: return ask(request.name, member, id, channel, &shared, at: now)
        }
    }

    /// A newcomer proves that it knows the code. All wrong proofs together have a rate limit. While it is reached, right ones
    /// are refused as well.
    mutating func prove(
        _ proof: ClientMessage.InvitationProof, _ tags: (client: [UInt8], relay: [UInt8]), _ member: MemberID,
        on id: ConnectionID, to channel: RelayChannelConfiguration, _ shared: inout RelayShared, at now: Instant
    ) -> [RelayAction] {
        shared.connections.advance(id, to: .joining)
        guard wrongCodes.holds(1, at: now) else {
            return shared.refuseInvitation(
                .tooMany, "too many wrong codes were tried", to: id, retryAfter: shared.limits.wrongCodeInterval)
        }
        guard constantTimeEqual(proof.tag, tags.client) else {
            _ = wrongCodes.take(at: now)
            return shared.refuseInvitation(.wrongCode, "the code is wrong", to: id)
                + [.note(.wrongCode(channel: channel.name, member: member))]
        }
        return shared.invite(id, to: channel, codeTag: tags.relay)
    }

    /// Asks the channel's creator whether a newcomer may join.
    private mutating func ask(
        _ name: DisplayName?, _ member: MemberID, _ id: ConnectionID, _ channel: RelayChannelConfiguration,
        _ shared: inout RelayShared, at now: Instant
    ) -> [RelayAction] {
        let limits = shared.limits
        guard let name else {
            return shared.refuseInvitation(.nameNeeded, "the creator is asked about each newcomer: give a name", to: id)
        }
        if admitted.contains(member) { return shared.invite(id, to: channel) }
        var actions = [RelayAction.send(.invitationPending(.init(time: limits.pendingJoinTime)), to: [id])]
        let index = questions.firstIndex { $0.member == member }
        if let index, questions[index].connections.count < Self.connectionsPerQuestion {
            questions[index].connections.append(id)
        } else if index == nil, questions.count < limits.pendingJoinsMaximum, bucket.take(at: now) {
            questions.append(Question(member: member, connections: [id]))
            actions.append(.note(.joinPending(channel: channel.name, member: member, name: name)))
        } else {
            return shared.refuseInvitation(
                .tooMany, "too many members wait for the creator's answer", to: id,
                retryAfter: limits.pendingJoinInterval)
        }
        shared.connections.advance(id, to: .asking(channel: number), until: now + limits.pendingJoinTime)
        return actions
    }

    /// The creator has answered, or has not in time. It has no effect if that newcomer is no longer waiting.
    mutating func settle(
        _ member: MemberID, _ outcome: PendingJoinOutcome, _ channel: RelayChannelConfiguration,
        _ shared: inout RelayShared, at now: Instant
    ) -> [RelayAction] {
        guard let index = questions.firstIndex(where: { $0.member == member }) else { return [] }
        if outcome == .admitted { admitted = (admitted + [member]).suffix(shared.limits.admittedMembersKept) }
        var actions = [RelayAction.note(.joinSettled(channel: channel.name, member: member, outcome))]
        for id in questions.remove(at: index).connections {
            shared.connections.advance(id, to: .joining, until: now + shared.limits.joinTime)
            switch outcome {
            case .admitted: actions += shared.invite(id, to: channel)
            case .refused: actions += shared.refuseInvitation(.notAdmitted, "the creator refused", to: id)
            case .unanswered:
                actions += shared.refuseInvitation(.notAdmitted, "the creator did not answer", to: id)
            case .gone: actions += shared.refuseInvitation(.notOpen, "the channel has ended", to: id)
            }
        }
        return actions
    }

    /// A connection of a newcomer has closed.
    mutating func remove(_ id: ConnectionID, _ member: MemberID, of channel: DisplayName) -> [RelayAction] {
        guard let index = questions.firstIndex(where: { $0.connections.contains(id) }) else { return [] }
        questions[index].connections.removeAll { $0 == id }
        guard questions[index].connections.isEmpty else { return [] }
        questions.remove(at: index)
        return [.note(.joinSettled(channel: channel, member: member, .gone))]
    }

    /// The channel has ended: all pending requests end.
    mutating func end(
        _ channel: RelayChannelConfiguration, _ shared: inout RelayShared, at now: Instant
    ) -> [RelayAction] {
        var actions: [RelayAction] = []
        for question in questions { actions += settle(question.member, .gone, channel, &shared, at: now) }
        self = AdmissionRequests(channel: number, shared.limits)
        return actions
    }
}
