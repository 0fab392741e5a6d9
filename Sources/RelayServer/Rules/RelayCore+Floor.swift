// Requests for a channel's floor, and what the floor's rules say, as messages.
import MonotonicTime
import RelayProtocol

extension RelayCore {
    /// How long a member that sends without the floor is left alone after its burst or the last reminder (T8): packets of a burst may
    /// come behind its end.
    static let reminderInterval: Duration = .seconds(2)

    /// Whoever asks is there and hears: media that had stopped for want of reports come again, also when the floor is another's.
    mutating func floorRequest(
        _ request: ClientMessage.FloorRequest, from id: ConnectionID, channel number: Int, at now: Instant
    ) -> [Action] {
        endOverdue(channel: number, at: now) + channels[number].reported(id, number: number, at: now)
            + ask(request, from: id, channel: number, at: now)
    }

    private mutating func ask(
        _ request: ClientMessage.FloorRequest, from id: ConnectionID, channel number: Int, at now: Instant
    ) -> [Action] {
        guard var member = channels[number].members[id] else { return [] }
        let wish = FloorControlStateMachine.Request(
            ssrc: member.ssrc, member: member.id, requestID: request.requestID, keyID: request.keyID,
            priority: member.effectivePriority(of: request.priority), mayQueue: request.mayQueue)
        if let same = channels[number].floor.request(request.requestID, keyID: request.keyID, of: member.ssrc) {
            return apply(.request(same), channel: number, at: now)
        }
        // Asked again when it was denied, or when the burst is over: the same answer again.
        if request.requestID == member.lastRequestID, request.keyID == member.lastKeyID {
            return member.lastAnswer.map { .send($0, to: [id]) }
        }
        guard request.requestID > member.lastRequestID else {
            return violation(id, "a floor request that is not newer than the last", at: now)
        }
        let isFresh = request.keyID != member.lastKeyID
        member.lastRequestID = request.requestID
        member.lastKeyID = request.keyID
        member.lastAnswer = []
        member.nextReminder = now + Self.reminderInterval
        channels[number].members[id] = member
        guard !isDraining || wish.isEmergency || seededFault("a-relay-that-drains-grants-the-floor") else {
            return deny(wish, .noResources, Self.goingDown, channel: number)
        }
        guard !channels[number].onlyListens(member) else {
            return deny(wish, .receiveOnly, "this member may only listen", channel: number)
        }
        guard channels[number].allows(epoch: UInt16(request.keyID >> 48), limits: limits, at: now), isFresh else {
            let phrase = isFresh ? "the key id is of another epoch" : "the key id was used before"
            // It takes the place of an older one all the same.
            return apply(.withdrawn(ssrc: member.ssrc), channel: number, at: now)
                + deny(wish, .other, phrase, channel: number)
        }
        return apply(.request(wish), channel: number, at: now)
    }

    /// What the relay said last of a member's last request, if it is this one: repeated when the member asks for it again.
    private mutating func remember(
        _ answer: ServerMessage, to request: FloorRequestID, of id: ConnectionID, channel number: Int
    ) {
        guard channels[number].members[id]?.lastRequestID == request else { return }
        if case .floorIdle = answer {
            channels[number].members[id]?.lastAnswer.append(answer)
        } else {
            channels[number].members[id]?.lastAnswer = [answer]
        }
    }

    /// A member may only listen from now on: what it says and waits for is over.
    mutating func silence(_ id: ConnectionID, channel number: Int, at now: Instant) -> [Action] {
        guard let ssrc = channels[number].members[id]?.ssrc else { return [] }
        return apply(.silenced(ssrc: ssrc), channel: number, at: now)
    }

    /// A member sends without the floor (TS 24.380: U: not permitted but sends media). It is reminded of that from time
    /// to time.
    mutating func remind(_ id: ConnectionID, channel number: Int, at now: Instant) -> [Action] {
        guard let member = channels[number].members[id], let due = member.nextReminder, due <= now,
            !channels[number].floor.waiting.contains(where: { $0.ssrc == member.ssrc })
        else { return [] }
        channels[number].members[id]?.nextReminder = now + Self.reminderInterval
        channels[number].counters.count(.noPermission as FloorRevokeCause)
        let revoke = ServerMessage.FloorRevoke(
            requestID: member.lastRequestID, cause: .noPermission, phrase: "media without the floor")
        return [
            .send(.floorRevoke(revoke), to: [id]),
            .note(
                .floorRevoked(
                    channel: channels[number].name, member: member.id, requestID: member.lastRequestID, .noPermission)),
        ]
    }

    mutating func deny(
        _ request: FloorControlStateMachine.Request, _ cause: FloorDenyCause, _ phrase: String,
        retryAfter: Duration = .zero, channel number: Int
    ) -> [Action] {
        guard let member = channels[number].member(of: request.ssrc) else { return [] }
        channels[number].counters.count(cause)
        let message = ServerMessage.FloorDeny(
            requestID: request.requestID, cause: cause, phrase: phrase, retryAfter: retryAfter)
        remember(.floorDeny(message), to: request.requestID, of: member.connection, channel: number)
        return [
            .send(.floorDeny(message), to: [member.connection]),
            .note(
                .floorDenied(
                    channel: channels[number].name, member: member.id, requestID: request.requestID, cause)),
        ]
    }

    mutating func apply(
        _ event: FloorControlStateMachine.Event, channel number: Int, at now: Instant
    ) -> [Action] {
        let told = channels[number].floor.handle(event, at: now)
        let actions = told.flatMap { carryOut($0, channel: number, at: now) }
        let isChanged = told.contains { if case .rules = $0 { true } else { false } }
        return isChanged ? actions + silenceListeners(channel: number, at: now) : actions
    }

    private mutating func carryOut(
        _ action: FloorControlStateMachine.Action, channel number: Int, at now: Instant
    ) -> [Action] {
        let name = channels[number].name
        switch action {
        case .grant(let request, let talkTime): return grant(request, talkTime, channel: number, at: now)
        case .taken(let request):
            if seededFault("a-begin-is-not-announced") { return [] }
            guard let member = channels[number].member(of: request.ssrc) else { return [] }
            let others = channels[number].everyone.filter { $0 != member.connection }
            guard !others.isEmpty else { return [] }
            let taken = ServerMessage.FloorTaken(
                talker: member.id, ssrc: request.ssrc, keyID: request.keyID, priority: request.priority)
            return introduce(member, channel: number, at: now) + [.send(.floorTaken(taken), to: others)]
        case .deny(let request, let holder):
            let talker = channels[number].member(of: holder)?.name.text ?? "another member"
            let isFull = channels[number].floor.rules.talkersMaximum > 1
            return deny(
                request, .anotherClientHasPermission,
                isFull ? "\(talker) and others are talking" : "\(talker) is talking", channel: number)
        case .retryLater(let request, let time):
            return deny(
                request, .retryAfterNotExpired, "the last burst was too long", retryAfter: time, channel: number)
        case .notPermitted(let request):
            return deny(request, .receiveOnly, "this member may only listen", channel: number)
        case .queueFull(let request):
            return deny(request, .queueFull, "the queue for the floor is full", channel: number)
        case .queued(let request, let position):
            return queued(request, position, channel: number)
        case .revoke(let request, let cause):
            return revoke(request, cause, channel: number)
        case .idle(let ssrc, let lastSequence, let summary):
            let burst = channels[number].summary(of: summary, at: now)
            let note = Action.note(.burstEnded(channel: name, burst))
            channels[number].counters.note(burst)
            channels[number].noteIdle(of: ssrc)
            channels[number].keys.forgetUnused(inUse: channels[number].epochsInUse, at: now)
            changeStore(number) { $0.end(ssrc, at: now) }
            if channels[number].closesAt != nil { channels[number].closesAt = now + Self.closingTime }
            let idle = ServerMessage.floorIdle(.init(ssrc: ssrc, lastSequence: lastSequence))
            if let id = channels[number].member(of: ssrc)?.connection {
                channels[number].members[id]?.nextReminder = now + Self.reminderInterval
                remember(idle, to: summary.request.requestID, of: id, channel: number)
            }
            let everyone = channels[number].everyone
            guard !everyone.isEmpty, !seededFault("an-end-is-not-announced") else { return [note] }
            return [.send(idle, to: everyone), note]
        case .rules(let rules):
            channels[number].adopt(rules, store: limits.burstStore)
            return tellRules(channel: number) + [.note(.floorRulesChanged(channel: name, rules))]
        }
    }

    /// Removes requests and grants of members that may not have the floor under the new rules.
    private mutating func silenceListeners(channel number: Int, at now: Instant) -> [Action] {
        let channel = channels[number]
        return (channel.floor.waiting + channel.floor.holders)
            .filter { channel.member(of: $0.ssrc).map(channel.onlyListens) ?? false }
            .flatMap { apply(.silenced(ssrc: $0.ssrc), channel: number, at: now) }
    }

    /// Sends the new rules to all members. Their meaning for each one depends on its membership.
    private func tellRules(channel number: Int) -> [Action] {
        let channel = channels[number]
        var told: [ServerMessage.FloorRules: [ConnectionID]] = [:]
        for id in channel.everyone {
            if let member = channel.members[id] { told[channel.rules(for: member), default: []].append(id) }
        }
        return told.sorted { $0.value[0] < $1.value[0] }.map { .send(.floorRules($0.key), to: $0.value) }
    }

    /// Only its first place is noted: those behind move with everyone who comes and goes before them.
    private mutating func queued(
        _ request: FloorControlStateMachine.Request, _ position: Int, channel number: Int
    ) -> [Action] {
        guard let member = channels[number].member(of: request.ssrc) else { return [] }
        let place = ServerMessage.FloorQueuePosition(requestID: request.requestID, position: position)
        let told = Action.send(.floorQueuePosition(place), to: [member.connection])
        guard member.notedRequest != request.requestID else { return [told] }
        channels[number].members[member.connection]?.notedRequest = request.requestID
        channels[number].counters.queued += 1
        return [
            told,
            .note(
                .floorQueued(
                    channel: channels[number].name, member: member.id, requestID: request.requestID,
                    position: position)),
        ]
    }

    private mutating func grant(
        _ request: FloorControlStateMachine.Request, _ talkTime: Duration, channel number: Int, at now: Instant
    ) -> [Action] {
        channels[number].noteSpeaker(request.ssrc)
        guard let member = channels[number].member(of: request.ssrc) else { return [] }
        channels[number].members[member.connection]?.nextReminder = nil
        // Asked again, it is the same one.
        var further: [Action] = []
        if member.grantedRequest != request.requestID {
            channels[number].members[member.connection]?.grantedRequest = request.requestID
            channels[number].counters.grants += 1
            further = tellLossOfLastBurst(to: member.connection, channel: number)
            further += countBurst(request.keyID, channel: number, at: now)
        }
        let granted = ServerMessage.FloorGranted(
            requestID: request.requestID, duration: talkTime, priority: request.priority)
        if seededFault("a-grant-is-not-told") { return further }
        return [
            .send(.floorGranted(granted), to: [member.connection]),
            .note(
                .floorGranted(channel: channels[number].name, member: member.id, requestID: request.requestID)),
        ] + further
    }

    private mutating func revoke(
        _ request: FloorControlStateMachine.Request, _ cause: FloorControlStateMachine.RevokeCause,
        channel number: Int
    ) -> [Action] {
        guard let member = channels[number].member(of: request.ssrc) else { return [] }
        let (wireCause, phrase): (FloorRevokeCause, String) =
            switch cause {
            case .talkTimeLimit: (.mediaBurstTooLong, "the talk-time limit was reached")
            case .noMedia: (.other, "no media arrived")
            case .heldUp: (.other, "the relay stalled, and nobody heard it")
            case .preempted: (.preempted, preemptionPhrase(channel: number))
            case .noPermission: (.noPermission, "this member may only listen")
            }
        channels[number].counters.count(wireCause)
        let message = ServerMessage.floorRevoke(
            .init(requestID: request.requestID, cause: wireCause, phrase: phrase))
        remember(message, to: request.requestID, of: member.connection, channel: number)
        return [
            .send(message, to: seededFault("a-revocation-is-not-told") ? [] : [member.connection]),
            .note(
                .floorRevoked(
                    channel: channels[number].name, member: member.id, requestID: request.requestID, wireCause)),
        ]
    }

    /// By whom: the first who waits.
    private func preemptionPhrase(channel number: Int) -> String {
        guard let next = channels[number].floor.waiting.first, let member = channels[number].member(of: next.ssrc)
        else { return "somebody else takes the floor" }
        return next.isEmergency ? "\(member.name) has an emergency" : "\(member.name) takes the floor"
    }
}

extension RelayChannel.Member {
    /// The effective priority of the member's request. Any member may declare an emergency. Otherwise the member's own
    /// priority is the maximum.
    func effectivePriority(of asked: UInt8) -> UInt8 {
        asked == FloorRules.emergency ? asked : min(asked, priority, FloorRules.emergency - 1)
    }
}

extension RelayChannel {
    /// The state of the floor for a new member.
    func tellFloor(in welcome: inout ServerMessage.Welcome, to member: Member) {
        let floors = floorsTaken(for: member.id)
        welcome.floor = floors.first
        welcome.moreFloors = Array(floors.dropFirst())
        welcome.floorRules = rules(for: member)
        welcome.offersLateEntry = true
        welcome.retention = store.limits.retention
    }

    /// Whether a member may not talk, by its invitation or on this channel.
    func onlyListens(_ member: Member) -> Bool { member.isListenOnly || !floor.rules.admits(member.priority) }

    /// What the floor is like for a member.
    func rules(for member: Member) -> ServerMessage.FloorRules {
        let mode: FloorMode =
            switch floor.rules.mode {
            case .halfDuplex, .listenOnly: .halfDuplex
            case .fullDuplex: .fullDuplex
            case .cutIn: .cutIn
            }
        return ServerMessage.FloorRules(
            mode: mode, hasQueue: floor.rules.queues,
            preemptionStep: floor.rules.preemptionStep.map { max(1, $0) } ?? 0,
            isListenOnly: onlyListens(member), priority: min(member.priority, FloorRules.emergency - 1))
    }
}
