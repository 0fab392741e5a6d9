// The floor of one channel: its state machine, what its talkers have sent, and what its members are told of it. Pure.
import MonotonicTime
import RelayProtocol

/// The floor of a channel, whose events become messages to the members.
struct ChannelFloor: Sendable {
    typealias Machine = FloorControlStateMachine
    typealias Request = Machine.Request

    /// One who was granted the floor, and what it has sent since.
    private struct Speaker: Sendable {
        let ssrc: SSRC
        var bytes = 0
        /// Packets of the burst that came, and those of them that had been lost at first.
        var loss = TalkerLoss()
    }

    /// How long a member that sends without the floor is left alone after its burst or the last reminder (T8): packets of a burst may
    /// come behind its end.
    static let reminderInterval: Duration = .seconds(2)

    /// For the operator.
    var counters = RelayChannelCounters()
    private var name: DisplayName
    private var machine: Machine
    /// The members that were granted the floor, kept separately from `machine` as a check.
    private var speakers: [Speaker] = []

    init(name: DisplayName, timers: Machine.Timers, rules: FloorRules) {
        self.name = name
        machine = Machine(timers: timers, rules: rules)
    }

    /// Begins anew, with nobody on the floor.
    mutating func reset(name: DisplayName, rules: FloorRules) {
        self.name = name
        machine = Machine(timers: machine.timers, rules: rules)
        speakers = []
    }

    /// Its channel is called differently from now on.
    mutating func rename(_ name: DisplayName) { self.name = name }

    var rules: FloorRules { machine.rules }
    var timers: Machine.Timers { machine.timers }
    var nextDeadline: Instant? { machine.nextDeadline }
    var holder: Request? { machine.holder }
    var holders: [Request] { machine.holders }
    var waiting: [Request] { machine.waiting }
    /// The sources that were granted the floor, the longest there first.
    var talkers: [SSRC] { speakers.map(\.ssrc) }
    /// The epochs of the bursts in progress and of the waiting requests.
    var epochsInUse: Set<UInt16> { Set((holders + waiting).map { UInt16($0.keyID >> 48) }) }

    /// Who talks, the longest first.
    func taken(by members: ChannelMembers) -> [ServerMessage.FloorTaken] {
        holders.compactMap { holder in members.of(holder.ssrc).map { Self.taken(holder, by: $0) } }
    }

    private static func taken(_ request: Request, by member: ChannelMember) -> ServerMessage.FloorTaken {
        .init(talker: member.id, ssrc: request.ssrc, keyID: request.keyID, priority: request.priority)
    }

    /// Whether a member may not talk, by its invitation or on this channel.
    func onlyListens(_ member: ChannelMember) -> Bool { member.isListenOnly || !rules.admits(member.priority) }

    /// What the floor is like for a member.
    func rules(for member: ChannelMember) -> ServerMessage.FloorRules {
        let mode: FloorMode =
            switch rules.mode {
            case .halfDuplex, .listenOnly: .halfDuplex
            case .fullDuplex: .fullDuplex
            case .cutIn: .cutIn
            }
        return ServerMessage.FloorRules(
            mode: mode, hasQueue: rules.queues, preemptionStep: rules.preemptionStep.map { max(1, $0) } ?? 0,
            isListenOnly: onlyListens(member), priority: min(member.priority, FloorRules.emergency - 1))
    }

    /// The request of that number and key id that is on the floor, or waits for it.
    func request(_ request: ClientMessage.FloorRequest, of ssrc: SSRC) -> Request? {
        machine.request(request.requestID, keyID: request.keyID, of: ssrc)
    }

    // MARK: What happens to it

    /// Takes an event; each of the actions is then for `carryOut`.
    mutating func handle(_ event: Machine.Event, at now: Instant) -> [Machine.Action] { machine.handle(event, at: now) }

    /// Decides on a packet, once an overdue `.deadline` was delivered. Allocates nothing.
    mutating func media(_ packet: MediaPacketHeader, at now: Instant) -> Machine.MediaDecision {
        machine.media(ssrc: packet.ssrc, keyID: packet.keyID, sequence: packet.sequence, marker: packet.marker, at: now)
    }

    /// A packet of a talker is forwarded for the first time.
    mutating func noteForwarded(_ ssrc: SSRC, bytes: Int, isRepaired: Bool) {
        guard let index = speakers.firstIndex(where: { $0.ssrc == ssrc }) else {
            preconditionFailure("only the holders' media are forwarded")
        }
        speakers[index].bytes += bytes
        speakers[index].loss.note(isRepaired: isRepaired)
    }

    /// Tells the members of an action of the floor.
    mutating func carryOut(
        _ action: Machine.Action, _ members: inout ChannelMembers, _ keys: inout ChannelMediaKeys,
        at now: Instant
    ) -> [RelayAction] {
        switch action {
        case .grant(let request, let talkTime): return grant(request, talkTime, &members, &keys)
        case .taken(let request):
            guard !seededFault("a-begin-is-not-announced"), let member = members.of(request.ssrc) else { return [] }
            let others = members.everyone(but: member.connection)
            guard !others.isEmpty else { return [] }
            return members.introduce(member, at: now)
                + [.send(.floorTaken(Self.taken(request, by: member)), to: others)]
        case .deny(let request, let holder):
            let talker = members.of(holder)?.name.text ?? "another member"
            let phrase = rules.talkersMaximum > 1 ? "\(talker) and others are talking" : "\(talker) is talking"
            return deny(request, .anotherClientHasPermission, &members, phrase)
        case .retryLater(let request, let time):
            return deny(request, .retryAfterNotExpired, &members, "the last burst was too long", retryAfter: time)
        case .notPermitted(let request): return deny(request, .receiveOnly, &members)
        case .queueFull(let request): return deny(request, .queueFull, &members, "the queue for the floor is full")
        case .queued(let request, let position): return queued(request, position, &members)
        case .revoke(let request, let cause): return revoke(request, cause, &members)
        case .idle(let ssrc, let lastSequence, let summary):
            return end(ssrc, lastSequence, summary, &members, &keys, at: now)
        case .rules(let rules): return tellRules(members) + [.note(.floorRulesChanged(channel: name, rules))]
        }
    }

    private static let mayOnlyListen = "this member may only listen"

    private mutating func grant(
        _ request: Request, _ talkTime: Duration, _ members: inout ChannelMembers, _ keys: inout ChannelMediaKeys
    ) -> [RelayAction] {
        if !talkers.contains(request.ssrc) {
            // Invariant I4: nobody is granted the floor while it is full.
            precondition(speakers.count < rules.talkersMaximum, "more members hold the floor than may")
            speakers.append(Speaker(ssrc: request.ssrc))
        }
        guard var member = members.of(request.ssrc) else { return [] }
        var further: [RelayAction] = []
        member.floor.nextReminder = nil
        // Asked again, it is the same one.
        if member.floor.grantedRequest != request.requestID {
            member.floor.grantedRequest = request.requestID
            counters.grants += 1
            further = tellLossOfLastBurst(to: &member, members)
            keys.noteBurst(UInt16(request.keyID >> 48))
        }
        members[member.connection] = member
        if seededFault("a-grant-is-not-told") { return further }
        let granted = ServerMessage.FloorGranted(
            requestID: request.requestID, duration: talkTime, priority: request.priority)
        return [
            .send(.floorGranted(granted), to: [member.connection]),
            .note(.floorGranted(channel: name, member: member.id, requestID: request.requestID)),
        ] + further
    }

    /// Denies a request; when the member repeats it, it gets the same answer.
    mutating func deny(
        _ request: Request, _ cause: FloorDenyCause, _ members: inout ChannelMembers,
        _ phrase: String = mayOnlyListen, retryAfter: Duration = .zero
    ) -> [RelayAction] {
        guard let member = members.of(request.ssrc) else { return [] }
        counters.count(cause)
        let message = ServerMessage.floorDeny(
            .init(requestID: request.requestID, cause: cause, phrase: phrase, retryAfter: retryAfter))
        members[member.connection]?.floor.remember(message, to: request.requestID)
        return [
            .send(message, to: [member.connection]),
            .note(.floorDenied(channel: name, member: member.id, requestID: request.requestID, cause)),
        ]
    }

    /// Only its first place is noted: those behind move with everyone who comes and goes before them.
    private mutating func queued(_ request: Request, _ position: Int, _ members: inout ChannelMembers) -> [RelayAction]
    {
        guard let member = members.of(request.ssrc) else { return [] }
        let place = ServerMessage.FloorQueuePosition(requestID: request.requestID, position: position)
        let told = RelayAction.send(.floorQueuePosition(place), to: [member.connection])
        guard member.floor.notedRequest != request.requestID else { return [told] }
        members[member.connection]?.floor.notedRequest = request.requestID
        counters.queued += 1
        let note = RelayMilestone.floorQueued(
            channel: name, member: member.id, requestID: request.requestID, position: position)
        return [told, .note(note)]
    }

    private mutating func revoke(
        _ request: Request, _ cause: Machine.RevokeCause, _ members: inout ChannelMembers
    ) -> [RelayAction] {
        guard let member = members.of(request.ssrc) else { return [] }
        let (wireCause, phrase): (FloorRevokeCause, String) =
            switch cause {
            case .talkTimeLimit: (.mediaBurstTooLong, "the talk-time limit was reached")
            case .noMedia: (.other, "no media arrived")
            case .heldUp: (.other, "the relay stalled, and nobody heard it")
            case .preempted: (.preempted, preemptionPhrase(members))
            case .noPermission: (.noPermission, Self.mayOnlyListen)
            }
        let told = revoke(request.requestID, wireCause, phrase, of: member)
        if case .send(let message, _) = told[0] {
            members[member.connection]?.floor.remember(message, to: request.requestID)
        }
        return seededFault("a-revocation-is-not-told") ? Array(told.dropFirst()) : told
    }

    private mutating func revoke(
        _ request: FloorRequestID, _ cause: FloorRevokeCause, _ phrase: String, of member: ChannelMember
    ) -> [RelayAction] {
        counters.count(cause)
        return [
            .send(.floorRevoke(.init(requestID: request, cause: cause, phrase: phrase)), to: [member.connection]),
            .note(.floorRevoked(channel: name, member: member.id, requestID: request, cause)),
        ]
    }

    /// By whom: the first who waits.
    private func preemptionPhrase(_ members: ChannelMembers) -> String {
        guard let next = waiting.first, let member = members.of(next.ssrc) else {
            return "somebody else takes the floor"
        }
        return next.isEmergency ? "\(member.name) has an emergency" : "\(member.name) takes the floor"
    }

    /// A member sends without the floor (TS 24.380: U: not permitted but sends media). It is reminded of that from time
    /// to time.
    mutating func remind(_ id: ConnectionID, _ members: inout ChannelMembers, at now: Instant) -> [RelayAction] {
        guard let member = members[id], let due = member.floor.nextReminder, due <= now,
            !waiting.contains(where: { $0.ssrc == member.ssrc })
        else { return [] }
        members[id]?.floor.nextReminder = now + Self.reminderInterval
        return revoke(member.floor.lastRequestID, .noPermission, "media without the floor", of: member)
    }

    private mutating func end(
        _ ssrc: SSRC, _ lastSequence: UInt16?, _ summary: Machine.Summary,
        _ members: inout ChannelMembers, _ keys: inout ChannelMediaKeys, at now: Instant
    ) -> [RelayAction] {
        guard let index = speakers.firstIndex(where: { $0.ssrc == ssrc }) else {
            preconditionFailure("a floor that was not granted ends")
        }
        let speaker = speakers.remove(at: index)
        let burst = RelayBurstSummary(
            ssrc: ssrc, reason: summary.reason, packets: summary.sequences.received, bytes: speaker.bytes,
            lost: summary.sequences.lost, listeners: members.all.count { $0.ssrc != ssrc && !$0.isSilent },
            duration: summary.firstMediaAt.map { now - $0 } ?? .zero)
        counters.note(burst)
        keys.forgetUnused(inUse: epochsInUse, at: now)
        let idle = ServerMessage.floorIdle(.init(ssrc: ssrc, lastSequence: lastSequence))
        if var member = members.of(ssrc) {
            if speaker.bytes > 0 { member.lossOfLastBurst = speaker.loss }
            member.floor.nextReminder = now + Self.reminderInterval
            member.floor.remember(idle, to: summary.request.requestID)
            members[member.connection] = member
        }
        let note = RelayAction.note(.burstEnded(channel: name, burst))
        guard !members.isEmpty, !seededFault("an-end-is-not-announced") else { return [note] }
        return [.send(idle, to: members.everyone), note]
    }

    /// Sends the new rules to all members. Their meaning for each one depends on its membership.
    private func tellRules(_ members: ChannelMembers) -> [RelayAction] {
        var told: [ServerMessage.FloorRules: [ConnectionID]] = [:]
        for member in members.all { told[rules(for: member), default: []].append(member.connection) }
        return told.mapValues { $0.sorted() }.sorted { $0.value[0] < $1.value[0] }
            .map { .send(.floorRules($0.key), to: $0.value) }
    }

    /// Those who have the floor or wait for it, and may not have it under the rules in force.
    func unpermitted(of members: ChannelMembers) -> [SSRC] {
        (waiting + holders).map(\.ssrc).filter { members.of($0).map(onlyListens) ?? false }
    }

    /// A listener reports; the talker hears of it when it makes a difference.
    mutating func tellLoss(of ssrc: SSRC, _ members: inout ChannelMembers, every interval: Duration, at now: Instant)
        -> [RelayAction]
    {
        guard let index = speakers.firstIndex(where: { $0.ssrc == ssrc }),
            speakers[index].loss.isDue(interval, at: now),
            let talker = members.of(ssrc)?.connection,
            let percent = speakers[index].loss.update(worst: members.worstLoss(of: ssrc), interval: interval, at: now)
        else { return [] }
        members[talker]?.toldLoss = percent
        return [.send(.listenerLoss(percent: percent), to: [talker])]
    }

    /// A short burst is over before listeners have reported on it: what its talker has not heard of it, it hears with its next one.
    private func tellLossOfLastBurst(to talker: inout ChannelMember, _ members: ChannelMembers) -> [RelayAction] {
        guard var loss = talker.lossOfLastBurst else { return [] }
        talker.lossOfLastBurst = nil
        let percent = loss.percent(worst: members.worstLoss(of: talker.ssrc))
        guard percent != talker.toldLoss else { return [] }
        talker.toldLoss = percent
        return [.send(.listenerLoss(percent: percent), to: [talker.connection])]
    }
}
