// Requests for a channel's floor, and what the floor's rules say, as messages.
import MonotonicTime
import RelayProtocol

extension RelayCore {
    mutating func floorRequest(
        _ request: ClientMessage.FloorRequest, from id: ConnectionID, channel number: Int, at now: Instant
    ) -> [Action] {
        guard var member = channels[number].members[id] else { return [] }
        let wish = FloorControlStateMachine.Request(
            ssrc: member.ssrc, requestID: request.requestID, keyID: request.keyID, priority: request.priority,
            mayQueue: request.mayQueue)
        if !channels[number].floor.isUnderWay(wish) {
            guard request.requestID > member.lastRequestID else {
                return violation(id, "a floor request that is not newer than the last", at: now)
            }
            let isFresh = request.keyID != member.lastKeyID
            member.lastRequestID = request.requestID
            member.lastKeyID = request.keyID
            channels[number].members[id] = member
            guard channels[number].allows(epoch: UInt16(request.keyID >> 48), at: now), isFresh else {
                let phrase = isFresh ? "the key id is of another epoch" : "the key id was used before"
                return deny(wish, .other, phrase, channel: number)
            }
        }
        return apply(.request(wish), channel: number, at: now)
    }

    private func deny(
        _ request: FloorControlStateMachine.Request, _ cause: FloorDenyCause, _ phrase: String, channel number: Int
    ) -> [Action] {
        guard let member = channels[number].member(of: request.ssrc) else { return [] }
        return [
            .send(
                .floorDeny(.init(requestID: request.requestID, cause: cause, phrase: phrase)), to: [member.connection]),
            .note(
                .floorDenied(
                    channel: channels[number].name, member: member.id, requestID: request.requestID, cause)),
        ]
    }

    mutating func apply(
        _ event: FloorControlStateMachine.Event, channel number: Int, at now: Instant
    ) -> [Action] {
        channels[number].floor.handle(event, at: now).flatMap { carryOut($0, channel: number, at: now) }
    }

    private mutating func carryOut(
        _ action: FloorControlStateMachine.Action, channel number: Int, at now: Instant
    ) -> [Action] {
        let name = channels[number].name
        switch action {
        case .grant(let request, let talkTime):
            channels[number].noteSpeaker(request.ssrc)
            guard let member = channels[number].member(of: request.ssrc) else { return [] }
            return [
                .send(
                    .floorGranted(.init(requestID: request.requestID, duration: talkTime)), to: [member.connection]),
                .note(.floorGranted(channel: name, member: member.id, requestID: request.requestID)),
            ]
        case .taken(let request):
            guard let member = channels[number].member(of: request.ssrc) else { return [] }
            let others = channels[number].everyone.filter { $0 != member.connection }
            guard !others.isEmpty else { return [] }
            let taken = ServerMessage.FloorTaken(talker: member.id, ssrc: request.ssrc, keyID: request.keyID)
            return [.send(.floorTaken(taken), to: others)]
        case .deny(let request, let holder):
            let talker = channels[number].member(of: holder)?.name.text ?? "another member"
            return deny(request, .anotherClientHasPermission, "\(talker) is talking", channel: number)
        case .queueFull(let request):
            return deny(request, .queueFull, "too many wait for the floor", channel: number)
        case .queued(let request, let position):
            guard let member = channels[number].member(of: request.ssrc) else { return [] }
            return [
                .send(
                    .floorQueuePosition(.init(requestID: request.requestID, position: position)),
                    to: [member.connection]),
                .note(
                    .floorQueued(channel: name, member: member.id, requestID: request.requestID, position: position)),
            ]
        case .revoke(let request, let cause):
            return revoke(request, cause, channel: number)
        case .idle(let ssrc, let lastSequence, let summary):
            channels[number].noteIdle(of: ssrc)
            let everyone = channels[number].everyone
            let note = Action.note(.burstEnded(channel: name, channels[number].summary(of: summary, at: now)))
            guard !everyone.isEmpty else { return [note] }
            return [.send(.floorIdle(.init(ssrc: ssrc, lastSequence: lastSequence)), to: everyone), note]
        }
    }

    private func revoke(
        _ request: FloorControlStateMachine.Request, _ cause: FloorControlStateMachine.RevokeCause,
        channel number: Int
    ) -> [Action] {
        guard let member = channels[number].member(of: request.ssrc) else { return [] }
        let (wireCause, phrase): (FloorRevokeCause, String) =
            switch cause {
            case .talkTimeLimit: (.mediaBurstTooLong, "the talk-time limit is over")
            case .noMedia: (.other, "no media came")
            }
        return [
            .send(
                .floorRevoke(.init(requestID: request.requestID, cause: wireCause, phrase: phrase)),
                to: [member.connection]),
            .note(
                .floorRevoked(
                    channel: channels[number].name, member: member.id, requestID: request.requestID, wireCause)),
        ]
    }
}
