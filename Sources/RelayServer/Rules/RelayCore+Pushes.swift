// Push-only clients, and what all clients say about pushes.
import MonotonicTime
import RelayProtocol

extension RelayCore {
    /// A push came from outside.
    public mutating func push(_ request: PushRequest, at now: Instant) -> (PushVerdict, [Action]) {
        guard !isShuttingDown, !isDraining else { return (.shutDown, []) }
        counters.pushesIn += 1
        let id = PushID(rawValue: UInt64.random(in: 0...UInt64.max, using: &random))
        let (verdict, actions) = pushes.push(request, id: id, at: now)
        if case .accepted = verdict { counters.pushesAccepted += 1 }
        return (verdict, actions.map(asAction))
    }

    /// The number of live push tokens.
    public var pushTokenCount: Int { pushes.tokenCount }

    /// Lets a client in that is to be no member.
    mutating func joinForPushes(
        _ id: ConnectionID, _ member: MemberID, channel number: Int, at now: Instant
    ) -> [Action] {
        var actions: [Action] = []
        if let older = channels[number].pushConnectionOfMember[member] {
            actions.append(.close(older, .replaced, "the member joined on another connection"))
            actions += remove(older, at: now)
        }
        connections[id]?.state = .pushOnly(channel: number)
        waitNoMore(for: id)
        channels[number].pushConnectionOfMember[member] = id
        let welcome = ServerMessage.PushWelcome(channelName: channels[number].name, memberID: member)
        return actions + [
            .send(.pushWelcome(welcome), to: [id]),
            .note(.pushClientJoined(channel: channels[number].name, member: member)),
        ]
    }

    /// Takes a message about pushes from a client that was let in.
    mutating func receivePush(
        _ message: ClientMessage, from id: ConnectionID, _ member: MemberID, at now: Instant
    ) -> [Action] {
        switch message {
        case .pushRegister(let registration):
            guard acceptsPushes else {
                let refused = ServerMessage.PushRefused(
                    token: registration.token, cause: .noEndpoint, phrase: "the relay has no endpoint for pushes")
                return [
                    .send(.pushRefused(refused), to: [id]),
                    .note(.pushTokenRefused(member: member, registration.token, .noEndpoint)),
                ]
            }
            return pushes.register(registration, by: member, on: id, at: now).map(asAction)
        case .pushUnregister(let token): return pushes.unregister(token, by: member, at: now).map(asAction)
        case .pushReceipt(let receipt): return pushes.receive(receipt, from: id, at: now).map(asAction)
        case .join, .leave, .floorRequest, .floorRelease, .receptionReport, .mediaRepair, .repairRequest,
            .burstListRequest, .burstRequest, .invitationRequest, .invitationProof, .successionOffer:
            return []
        }
    }

    private func asAction(_ action: PushRegistry.Action) -> Action {
        switch action {
        case .send(let message, let id): .send(message, to: [id])
        case .note(let milestone): .note(milestone)
        }
    }
}
