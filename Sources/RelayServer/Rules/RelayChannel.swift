// One channel of a relay: its members, its floor, its media keys and its kept bursts. Pure. Part of `RelayCore`.
import MonotonicTime
import RelayProtocol

/// What a relay knows of one channel, and the rules that concern no other. What channels share comes as `RelayShared`.
///
/// After every call its owner looks again at its `upkeep`.
struct RelayChannel: Sendable {
    /// Its number among the relay's channels.
    let number: Int
    private(set) var configuration: RelayChannelConfiguration
    private(set) var members: ChannelMembers
    private(set) var floor: ChannelFloor
    /// What its bursts are sealed with, unless that is its members' own.
    private(set) var keys: ChannelMediaKeys
    /// What was said last.
    var store = BurstStore()
    /// Those who ask to become members.
    var admissions: AdmissionRequests
    private(set) var succession = ChannelSuccession()
    /// The connections of clients that are not members and get pushes only.
    private(set) var pushConnections: [MemberID: ConnectionID] = [:]
    /// Set while those on it are to go once nobody talks any more.
    private var departure: Departure?
    /// Whether nobody is granted the floor for now, because another relay may have a say: requests wait.
    private(set) var isPaused = false
    /// Those that wait, in the order in which they came, one of each connection.
    private var pausedRequests: [(id: ConnectionID, request: ClientMessage.FloorRequest)] = []
    private let limits: RelayLimits

    init(
        _ configuration: RelayChannelConfiguration, number: Int, mediaKey: MediaKey,
        timers: FloorControlStateMachine.Timers, limits: RelayLimits
    ) {
        self.number = number
        self.configuration = configuration
        self.limits = limits
        members = ChannelMembers(channel: number, limits: limits)
        floor = ChannelFloor(name: configuration.name, timers: timers, rules: configuration.rules)
        keys = ChannelMediaKeys(mediaKey, isEndToEnd: configuration.isEndToEnd)
        admissions = AdmissionRequests(channel: number, limits)
        store.adopt(configuration, limits)
    }

    var name: DisplayName { configuration.name }

    /// How those on a channel go.
    private struct Departure: Sendable {
        /// When they may, the last burst being over.
        var due: Instant
        /// Whether they go to another relay.
        let hasSuccessor: Bool
        /// Why they go, for those who ask for the floor before.
        let phrase: String
    }

    /// What its owner looks at after every call.
    struct Upkeep {
        /// What its kept bursts take in memory.
        let keptBytes: Int
        /// When `deadline` must be called, at the latest; nil while nothing is under way.
        let nextDeadline: Instant?
        /// Whether its media key has served as many bursts as one may.
        let isKeyUsedUp: Bool
    }

    /// Changes nothing. It is mutating so that the channel, with dozens of references to count, is not copied for each packet.
    mutating func upkeep() -> Upkeep {
        Upkeep(keptBytes: store.byteCount, nextDeadline: nextDeadline, isKeyUsedUp: keys.areUsedUp(limits))
    }

    /// When `deadline` must be called, at the latest; nil while nothing is under way.
    var nextDeadline: Instant? {
        let closing = floor.holder == nil ? departure?.due : nil
        return earlier(earlier(floor.nextDeadline, store.nextDeadline), earlier(members.nextDeadline, closing))
    }

    /// `nextDeadline` has come, or may have.
    mutating func deadline(at now: Instant) -> [RelayAction] {
        let actions = endOverdue(at: now)
        store.expire(at: now)
        guard let due = members.nextDeadline, due <= now else { return actions }
        return actions + members.tellNews(at: now)
    }

    /// Ends what is due on the floor. A relay that was held up may read a packet, or a message, before its timers run.
    private mutating func endOverdue(at now: Instant) -> [RelayAction] {
        guard let due = floor.nextDeadline, due <= now else { return [] }
        return apply(.deadline, at: now)
    }

    /// Nobody has joined it: it may get another configuration.
    mutating func reconfigure(_ configuration: RelayChannelConfiguration) {
        self.configuration = configuration
        floor.reset(name: name, rules: configuration.rules)
        keys.isEndToEnd = configuration.isEndToEnd
        store.adopt(configuration, limits)
    }

    /// It is called differently from now on.
    mutating func rename(_ name: DisplayName) {
        configuration.name = name
        floor.rename(name)
    }

    /// Whether one more may be on the channel; who is on it already takes its own place.
    func hasRoom(for member: MemberID) -> Bool {
        members.connections[member] != nil || members.count < limits.membersPerChannel
    }

    /// Makes it a member, in place of its older connection, and tells it the state of the channel.
    mutating func enter(
        _ member: ChannelMember, since early: ChannelWelcome?, _ shared: inout RelayShared, at now: Instant
    ) -> [RelayAction] {
        var actions: [RelayAction] = []
        let older = members.connections[member.id]
        if let older {
            actions.append(.close(older, .replaced, Self.joinedElsewhere))
            actions += takeOut(older, &shared, at: now)
        }
        actions += early?.news(for: member, of: self) ?? ChannelWelcome(member, to: self).actions(of: self, shared.web)
        actions += members.insert(member, &shared.notices, at: now)
        let note = RelayMilestone.memberJoined(
            channel: name, member: member.id, name: member.name, ssrc: member.ssrc, replaced: older != nil)
        return actions + [.note(note)]
    }

    private static let joinedElsewhere = "the member joined on another connection"

    /// Who talks; an older connection of the member itself does not count.
    func floorsTaken(for member: MemberID) -> [ServerMessage.FloorTaken] {
        floor.taken(by: members).filter { $0.talker != member }
    }

    /// A member's connection is gone.
    mutating func leave(_ id: ConnectionID, _ shared: inout RelayShared, at now: Instant) -> [RelayAction] {
        guard let member = members[id]?.id else { return [] }
        let actions = takeOut(id, &shared, at: now)
        if seededFault("who-has-left-is-not-told") { return actions }
        return actions + members.announceLeave(of: member, from: id, &shared.notices, at: now)
            + [.note(.memberLeft(channel: name, member: member))]
    }

    /// Ends a membership without telling anyone but of the floor, when it held it.
    private mutating func takeOut(_ id: ConnectionID, _ shared: inout RelayShared, at now: Instant) -> [RelayAction] {
        guard let ssrc = members[id]?.ssrc else { return [] }
        shared.secrets.release(ssrc)
        // Held up, the relay may hear of the end of a member whose turn has come before: all is told in the order in which it was due.
        let overdue = endOverdue(at: now)
        pausedRequests.removeAll { $0.id == id }
        return overdue + members.remove(id) + apply(.left(ssrc: ssrc), at: now) + succession.withdraw(id, configuration)
    }

    /// A member may do more, or less, from now on.
    mutating func readmit(_ id: ConnectionID, as membership: RelayMembership, at now: Instant) -> [RelayAction] {
        guard var member = members[id] else { return [] }
        let told = floor.rules(for: member)
        member.adopt(membership)
        members[id] = member
        // What it says and waits for is over.
        let actions = floor.onlyListens(member) ? apply(.silenced(ssrc: member.ssrc), at: now) : []
        let rules = floor.rules(for: member)
        return rules == told ? actions : actions + [.send(.floorRules(rules), to: [id])]
    }

    /// Lets a client in that is to be no member, in place of its older connection.
    mutating func enterForPushes(_ id: ConnectionID, _ member: MemberID) -> [RelayAction] {
        let older = pushConnections.updateValue(id, forKey: member)
        let welcome = ServerMessage.PushWelcome(channelName: name, memberID: member)
        return (older.map { [.close($0, .replaced, Self.joinedElsewhere)] } ?? [])
            + [.send(.pushWelcome(welcome), to: [id]), .note(.pushClientJoined(channel: name, member: member))]
    }

    /// Such a client is gone.
    mutating func leavePushes(_ id: ConnectionID, _ member: MemberID) -> [RelayAction] {
        if pushConnections[member] == id { pushConnections[member] = nil }
        return []
    }

    // MARK: Messages

    /// A member says something, except what concerns pushes.
    mutating func receive(
        _ message: ClientMessage, from id: ConnectionID, _ shared: inout RelayShared, at now: Instant
    ) -> [RelayAction] {
        guard var member = members[id] else { return [] }
        switch message {
        case .floorRequest(let request):
            // Whoever asks is there and hears: media that had stopped for want of reports come again, also when the floor is another's.
            return endOverdue(at: now) + members.hears(id, at: now) + ask(request, from: id, &shared, at: now)
        case .floorRelease(let release):
            let ssrc = member.ssrc
            pausedRequests.removeAll { $0.id == id && $0.request.requestID == release.requestID }
            return apply(
                .release(ssrc: ssrc, requestID: release.requestID, lastSequence: release.lastSequence), at: now)
        case .receptionReport(let report):
            if let new = members.note(report, of: id) { floor.counters.note(heard: new.received, lost: new.lost) }
            return members.hears(id, at: now)
                + floor.tellLoss(of: report.ssrc, &members, every: limits.listenerLossInterval, at: now)
        case .repairRequest(let request):
            defer { members[id] = member }
            return store.answer(request, of: &member, &shared, at: now)
        case .burstListRequest(let request):
            defer { members[id] = member }
            return store.list(request, for: &member, &shared, at: now)
        case .burstRequest(let request):
            defer { members[id] = member }
            return store.give(request, to: &member, &shared, at: now)
        case .successionOffer: return succession.offer(member, configuration)
        case .join, .leave, .mediaRepair, .invitationRequest, .invitationProof, .pushRegister, .pushUnregister,
            .pushReceipt:
            return []
        }
    }

    /// An answer of `count` bytes could not be sent, because the connection has not read the previous ones. It is not
    /// charged to the member's limits.
    mutating func burstNotTaken(
        _ request: BurstRequestID, bytes count: Int, by id: ConnectionID, _ shared: inout RelayShared
    ) -> [RelayAction] {
        guard var member = members[id] else { return [] }
        member.burstBytes.giveBack(count)
        members[id] = member
        shared.bursts.giveBack(count)
        return shared.refuseForNow(request, to: id)
    }

    // MARK: The floor

    private mutating func ask(
        _ request: ClientMessage.FloorRequest, from id: ConnectionID, _ shared: inout RelayShared, at now: Instant
    ) -> [RelayAction] {
        guard var member = members[id] else { return [] }
        if let same = floor.request(request, of: member.ssrc) { return apply(.request(same), at: now) }
        // Asked again when it was denied, or when the burst is over: the same answer again.
        if request.requestID == member.floor.lastRequestID, request.keyID == member.floor.lastKeyID {
            return member.floor.lastAnswer.map { .send($0, to: [id]) }
        }
        guard request.requestID > member.floor.lastRequestID else {
            return shared.violates(id, "a floor request that is not newer than the last")
        }
        if isPaused, !seededFault("a-floor-that-waits-is-granted") {
            pausedRequests.removeAll { $0.id == id }
            pausedRequests.append((id, request))
            return []
        }
        // It asks the successor, when its connection is closed.
        if isSendingOn(request) { return [] }
        let isFresh = request.keyID != member.floor.lastKeyID
        member.floor.note(request)
        member.floor.nextReminder = now + ChannelFloor.reminderInterval
        members[id] = member
        let wish = ChannelFloor.Request(
            ssrc: member.ssrc, member: member.id, requestID: request.requestID, keyID: request.keyID,
            priority: member.effectivePriority(of: request.priority), mayQueue: request.mayQueue)
        if let departure, !wish.isEmergency, !seededFault("a-relay-that-drains-grants-the-floor") {
            return floor.deny(wish, .noResources, &members, departure.phrase)
        }
        guard !floor.onlyListens(member) else { return floor.deny(wish, .receiveOnly, &members) }
        guard keys.allows(UInt16(request.keyID >> 48), limits, at: now), isFresh else {
            let phrase = isFresh ? "the key id is of another epoch" : "the key id was used before"
            // It takes the place of an older one all the same.
            return apply(.withdrawn(ssrc: member.ssrc), at: now) + floor.deny(wish, .other, &members, phrase)
        }
        return apply(.request(wish), at: now)
    }

    private mutating func apply(_ event: FloorControlStateMachine.Event, at now: Instant) -> [RelayAction] {
        var actions: [RelayAction] = []
        var isChanged = false
        for action in floor.handle(event, at: now) {
            actions += floor.carryOut(action, &members, &keys, at: now)
            switch action {
            case .idle(let ssrc, _, _):
                store.end(ssrc, at: now)
                departure?.due = now + RelayCore.closingTime
            case .rules(let rules):
                configuration.rules = rules
                store.adopt(configuration, limits)
                isChanged = true
            default: break
            }
        }
        guard isChanged else { return actions }
        return floor.unpermitted(of: members).reduce(actions) { $0 + apply(.silenced(ssrc: $1), at: now) }
    }

    /// Gets other rules as soon as nobody talks.
    mutating func set(_ rules: FloorRules, at now: Instant) -> [RelayAction] { apply(.rules(rules), at: now) }

    /// Of its bursts others are kept from now on.
    mutating func set(_ retention: BurstRetention, at now: Instant) -> [RelayAction] {
        configuration.retention = retention
        store.set(retention, at: now)
        return []
    }

    // MARK: Moves

    /// Whether somebody talks, or waits for it.
    var isBusy: Bool { floor.holder != nil || !floor.waiting.isEmpty }

    /// Requests for the floor wait until `resume`, or until the members have gone to another relay.
    mutating func pause() { isPaused = true }

    /// The requests that wait are looked at, and all further ones at once.
    mutating func resume(_ shared: inout RelayShared, at now: Instant) -> [RelayAction] {
        isPaused = false
        return exchange(&pausedRequests, with: []).flatMap { ask($0.request, from: $0.id, &shared, at: now) }
    }

    /// Decides on a packet of a member; it is kept when it is forwarded.
    mutating func media(
        _ packet: MediaPacketHeader, _ bytes: [UInt8], isRepaired: Bool, from id: ConnectionID,
        _ counters: inout RelayCounters, at now: Instant
    ) -> (RelayCore.MediaDecision, [RelayAction]) {
        if let refusal = members.refuse(packet.ssrc, from: id, at: now) { return (counters.drop(refusal), []) }
        var actions = endOverdue(at: now)
        switch floor.media(packet, at: now) {
        case .drop(let reason):
            guard reason == .afterRelease || !store.has(packet.sequence, of: packet.burst) else {
                // Talkers send the end of a burst again in doubt: it comes twice, maybe behind the end of the burst, or in the next one.
                counters.packetsSpare += 1
                return (.drop(.duplicate), actions)
            }
            if reason == .noFloor { actions += floor.remind(id, &members, at: now) }
            return (counters.drop(reason), actions)
        case .forward(let isFirst, let endsBurst):
            counters.packetsForwarded += 1
            floor.noteForwarded(packet.ssrc, bytes: bytes.count, isRepaired: isRepaired)
            if !store.isKeeping(packet.burst), let talker = members[id] {
                store.begin(packet.burst, of: talker.id, named: talker.name, at: now)
            }
            store.keep(bytes, of: packet.burst, sequence: packet.sequence, at: now)
            if isFirst {
                actions.append(.note(.firstPacket(channel: name, ssrc: packet.ssrc, sequence: packet.sequence)))
                actions += members.beginListening(to: packet.ssrc, at: now)
            }
            if now >= members.nextReportCheck {
                for silent in members.stopSilent(after: limits.reportTimeout, but: floor, at: now) {
                    counters.listenersStopped += 1
                    actions.append(.stopMedia(silent.connection, channel: number))
                    actions.append(.note(.listenerSilent(channel: name, member: silent.id)))
                }
            }
            if endsBurst { actions += apply(.deadline, at: now) }
            return (.forward(channel: number), actions)
        }
    }

    /// Gives the members a new media key, unless they have their own. `roster`: the members of the channel, if known.
    mutating func renewMediaKey(
        _ roster: [MemberID: RelayMembership], _ shared: inout RelayShared, at now: Instant
    ) -> [RelayAction] {
        guard !configuration.isEndToEnd else { return [] }
        let key = shared.secrets.mediaKey(epoch: keys.present.epoch &+ 1)
        keys.renew(
            key, keepingPrevious: limits.previousEpochTime, inUse: floor.epochsInUse, connected: members.connections,
            roster: roster, at: now)
        let note = RelayAction.note(.mediaKeyRenewed(channel: name, epoch: key.epoch))
        guard !members.isEmpty, !seededFault("a-new-key-is-not-told") else { return [note] }
        return [.send(.mediaKey(key), to: members.everyone), note]
    }

    // MARK: Ends

    /// Whether nobody is on it, nor gets pushes.
    var isDeserted: Bool { members.isEmpty && pushConnections.isEmpty }

    /// Whether its members are to go, and nobody talks any more.
    func isClosing(at now: Instant) -> Bool { floor.holder == nil && departure.map { $0.due <= now } ?? false }

    /// Those on it are to go once nobody talks and they know the successor. Only emergencies are granted the floor from now on;
    /// others who ask for it, or wait for it, read `phrase`.
    mutating func drain(to successor: RelayPlace?, _ phrase: String, at now: Instant) -> [RelayAction] {
        // Held up, the relay may be told to drain after the turn of somebody who waits has come.
        var actions = endOverdue(at: now)
        departure = Departure(
            due: successor == nil || isDeserted ? now : now + RelayCore.closingTime, hasSuccessor: successor != nil,
            phrase: phrase)
        if let successor, !isDeserted { actions.append(.send(.successor(successor), to: everyone)) }
        // From behind, so that nobody moves up only to be turned away.
        for request in floor.waiting.reversed() where !request.isEmergency {
            actions += apply(.withdrawn(ssrc: request.ssrc), at: now)
            actions += floor.deny(request, .noResources, &members, phrase)
        }
        return actions
    }

    /// Whether who asks for the floor is to ask the successor: here nobody talks any more, and all are about to go there.
    private func isSendingOn(_ request: ClientMessage.FloorRequest) -> Bool {
        departure?.hasSuccessor == true && floor.holder == nil && request.priority != FloorRules.emergency
            && !seededFault("a-relay-that-drains-grants-the-floor")
    }

    /// The connections of its members and then of those who get pushes.
    private var everyone: [ConnectionID] { members.everyone + pushConnections.values.sorted() }

    /// It ends for everybody: nothing of its members and bursts is left.
    ///
    /// - Returns: The connections to close.
    mutating func empty(_ shared: inout RelayShared) -> [ConnectionID] {
        let gone = everyone
        for member in members.all { shared.secrets.release(member.ssrc) }
        members.removeAll()
        pushConnections = [:]
        floor.reset(name: name, rules: floor.rules)
        store.removeAll()
        succession = ChannelSuccession()
        departure = nil
        (isPaused, pausedRequests) = (false, [])
        return gone
    }

    /// Its invitation is given to nobody any more.
    mutating func refuseNewcomers(_ shared: inout RelayShared, at now: Instant) -> [RelayAction] {
        let actions = admissions.end(configuration, &shared, at: now)
        configuration.admission = .invited
        return actions
    }
}
