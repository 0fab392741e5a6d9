// A relay that goes down in good order, and channels whose rules change while it runs. By the rules, and over sockets.
import MonotonicTime
import RelayProtocol
import TestSupport
import Testing
import Vocabulary

@testable import RelayClient
@testable import RelayServer

@Suite struct DrainingTests {
    private let yard = RelayChannelConfiguration.yard(FloorRules(hasQueue: true))
    private let gate = RelayChannelConfiguration(
        id: ChannelID(), name: DisplayName("Gate")!, token: InvitationToken())
    private var core: RelayCore
    private var now = Instant(nanoseconds: 1_000_000_000)
    private var welcomes: [ConnectionID: ServerMessage.Welcome] = [:]
    private let ids = (1...5).map { ConnectionID(number: $0) }

    /// Three on the first channel, one on the second, one that has not joined.
    init() {
        core = RelayCore(channels: [yard, gate], random: SeededGenerator(seed: 1))
        for member in 0..<5 { connect(member) }
        for member in 0..<3 { join(member, yard) }
        join(3, gate)
    }

    @discardableResult
    private mutating func connect(_ member: Int) -> [RelayCore.Action] {
        core.handle(.connected(ids[member], .numbered(member)), at: now)
    }

    private mutating func join(_ member: Int, _ channel: RelayChannelConfiguration) {
        let join = channel.joinMessage("Member \(member)")
        welcomes[ids[member]] = core.handle(.message(ids[member], join), at: now).welcome(for: ids[member])
    }

    private func keyID(_ member: Int, _ number: UInt32) -> UInt64 {
        UInt64(welcomes[ids[member]]?.mediaKey?.epoch ?? 0) << 48 | UInt64(member + 1) << 32 | UInt64(number)
    }

    private mutating func ask(_ member: Int, _ number: UInt32 = 1, priority: UInt8 = 0) -> [RelayCore.Action] {
        let request = ClientMessage.FloorRequest(
            requestID: FloorRequestID(rawValue: number), priority: priority, keyID: keyID(member, number),
            mayQueue: true)
        return core.handle(.message(ids[member], .floorRequest(request)), at: now)
    }

    private mutating func media(_ member: Int, _ sequence: UInt16) -> RelayCore.MediaDecision {
        let header = MediaPacketHeader(
            ssrc: welcomes[ids[member]]!.ssrc, sequence: sequence, marker: sequence == 1, keyID: keyID(member, 1))
        return core.media(header, bytes: [UInt8](repeating: 0, count: 100), from: ids[member], at: now).0
    }

    private mutating func release(_ member: Int, last: UInt16?) -> [RelayCore.Action] {
        let release = ClientMessage.FloorRelease(requestID: FloorRequestID(rawValue: 1), lastSequence: last)
        return core.handle(.message(ids[member], .floorRelease(release)), at: now)
    }

    private func closed(_ actions: [RelayCore.Action]) -> [ConnectionID] {
        actions.compactMap { if case .close(let id, .goingDown, _) = $0 { id } else { nil } }.sorted()
    }

    private func denials(_ actions: [RelayCore.Action]) -> [ConnectionID: FloorDenyCause] {
        var found: [ConnectionID: FloorDenyCause] = [:]
        for case .send(.floorDeny(let denial), let to) in actions { for id in to { found[id] = denial.cause } }
        return found
    }

    @Test mutating func `who hears nobody is sent away at once, and a burst is heard to its end`() {
        _ = ask(0)
        #expect(media(0, 1) == .forward(channel: 0))
        _ = ask(1)
        let actions = core.handle(.drain(to: nil), at: now)
        #expect(closed(actions) == [ids[3]])
        #expect(denials(actions) == [ids[1]: .noResources], "who waits is told")
        #expect(!core.isDrained)
        #expect(media(0, 2) == .forward(channel: 0))
        #expect(denials(ask(2)) == [ids[2]: .noResources])

        let released = release(0, last: 2)
        #expect(closed(released).isEmpty, "the end of the burst has to reach them first")
        #expect(core.nextDeadline == now + RelayCore.closingTime)
        now = now + RelayCore.closingTime
        let last = core.handle(.deadline, at: now)
        #expect(closed(last) == [ids[0], ids[1], ids[2]])
        let leaves = last.contains { if case .send(.memberLeft, _) = $0 { true } else { false } }
        #expect(!leaves, "nobody is told of others who leave with it")
        #expect(core.isDrained)
        #expect(core.nextDeadline == Instant(nanoseconds: 1_000_000_000) + core.limits.joinTime, "who has not joined")
    }

    @Test mutating func `a relay where nobody talks is empty at once, and lets nobody in`() {
        #expect(closed(core.handle(.drain(to: nil), at: now)) == Array(ids[0..<4]))
        #expect(core.isDrained, "who has not joined is not waited for")
        #expect(core.handle(.drain(to: nil), at: now).isEmpty)
    }

    @Test mutating func `who wants to join a relay that goes down is told why it cannot`() {
        _ = ask(0)
        _ = media(0, 1)
        _ = core.handle(.drain(to: nil), at: now)
        // One that was there already, one that comes now, and one that comes with early data.
        #expect(closed(connect(3)).isEmpty)
        let early = ConnectionID(number: 77)
        _ = core.handle(.greeted(early, .numbered(77)), at: now)
        #expect(core.handle(.message(early, yard.joinMessage("Early")), at: now).isEmpty)
        let actions =
            core.handle(.message(ids[4], yard.joinMessage("Late")), at: now)
            + core.handle(.message(ids[3], yard.joinMessage("New")), at: now)
            + core.handle(.connected(early, .numbered(77)), at: now)
        for id in [ids[4], ids[3], early] {
            #expect(
                actions.sent(to: id) == [.joinRefused(.init(cause: .relayBusy, phrase: "the relay is going down"))])
        }
        now = now + core.limits.refusalTime
        let codes = core.handle(.deadline, at: now).compactMap { action -> RelayCloseCode? in
            if case .close(_, let code, _) = action { code } else { nil }
        }
        #expect(codes == [.joinRefused, .joinRefused, .joinRefused])
    }

    @Test mutating func `a talker that goes ends the wait`() {
        _ = ask(0)
        _ = media(0, 1)
        _ = core.handle(.drain(to: nil), at: now)
        _ = core.handle(.disconnected(ids[0]), at: now)
        now = now + RelayCore.closingTime
        #expect(closed(core.handle(.deadline, at: now)) == [ids[1], ids[2]])
        #expect(core.isDrained)
    }

    @Test mutating func `members are told where to go on, and are sent there once they know`() {
        let successor = RelayPlace("next.example:4433")!
        let actions = core.handle(.drain(to: successor), at: now)
        #expect(sent(actions, { $0 == .successor(successor) }) == Array(ids[0..<4]))
        #expect(closed(actions).isEmpty)
        #expect(core.nextDeadline == now + RelayCore.closingTime)
        now = now + RelayCore.closingTime
        #expect(closed(core.handle(.deadline, at: now)) == Array(ids[0..<4]))
        #expect(core.isDrained)
    }

    @Test mutating func `who wants to talk when nobody does is answered by the next relay`() {
        let successor = RelayPlace("next.example:4433")!
        _ = ask(0)
        _ = media(0, 1)
        _ = core.handle(.drain(to: successor), at: now)
        #expect(ask(3).isEmpty)
        #expect(denials(ask(1)) == [ids[1]: .noResources], "somebody talks")
        _ = release(0, last: 1)
        #expect(ask(2).isEmpty)
        let withdrawn = ClientMessage.FloorRelease(requestID: FloorRequestID(rawValue: 1), lastSequence: nil)
        #expect(core.handle(.message(ids[2], .floorRelease(withdrawn)), at: now).isEmpty)
        now = now + RelayCore.closingTime
        #expect(closed(core.handle(.deadline, at: now)) == Array(ids[0..<4]))
        #expect(core.isDrained)
    }

    @Test mutating func `who was welcomed for early data is told where to go on, too`() {
        let successor = RelayPlace("next.example:4433")!
        let (welcomed, silent) = (ConnectionID(number: 6), ConnectionID(number: 7))
        _ = core.handle(.greeted(welcomed, .numbered(5)), at: now)
        let early = core.handle(.message(welcomed, yard.joinMessage("Member 5")), at: now)
        #expect(early.welcome(for: welcomed) != nil)
        _ = core.handle(.greeted(silent, .numbered(6)), at: now)
        let actions = core.handle(.drain(to: successor), at: now)
        #expect(actions.sent(to: welcomed) == [.successor(successor)])
        #expect(actions.sent(to: silent).isEmpty)
        let completed = core.handle(.connected(welcomed, .numbered(5)), at: now)
        #expect(closed(completed) == [welcomed])
    }

    @Test mutating func `an emergency is granted to the end`() {
        _ = ask(0)
        _ = media(0, 1)
        _ = ask(1, priority: 255)
        let actions = core.handle(.drain(to: nil), at: now)
        #expect(denials(actions).isEmpty, "it waits for the end of the word")
        let released = release(0, last: 1)
        #expect(sent(released) { if case .floorGranted = $0 { true } else { false } } == [ids[1]])
        _ = core.handle(.message(ids[1], .floorRelease(.init(requestID: .first, lastSequence: nil))), at: now)
        let again = ask(2, priority: 255)
        #expect(sent(again) { if case .floorGranted = $0 { true } else { false } } == [ids[2]])
        now = now + RelayCore.closingTime
        #expect(closed(core.handle(.deadline, at: now)).isEmpty)
        _ = core.handle(.disconnected(ids[2]), at: now)
        now = now + RelayCore.closingTime
        #expect(closed(core.handle(.deadline, at: now)) == [ids[0], ids[1]])
    }

    @Test func `the log has the end of a burst in words`() {
        let reasons: [FloorControlStateMachine.EndReason] = [
            .released, .left, .restarted, .revoked(.talkTimeLimit), .revoked(.noMedia), .revoked(.heldUp),
            .revoked(.preempted), .revoked(.noPermission),
        ]
        for reason in reasons {
            #expect(reason.words.contains(" ") || reason == .released, "\(reason.words)")
            #expect(!reason.words.contains { "(.:".contains($0) }, "\(reason.words)")
        }
        #expect(Set(reasons.map(\.words)).count == reasons.count)
    }

    // MARK: Rules

    private func sent(_ actions: [RelayCore.Action], _ match: (ServerMessage) -> Bool) -> [ConnectionID] {
        actions.flatMap { action -> [ConnectionID] in
            if case .send(let message, let to) = action, match(message) { to } else { [] }
        }
    }

    private func isRules(_ message: ServerMessage) -> Bool {
        if case .floorRules = message { true } else { false }
    }

    @Test mutating func `new rules hold once nobody talks, and everybody is told`() {
        _ = ask(0)
        _ = media(0, 1)
        let rules = FloorRules(mode: .fullDuplex)
        #expect(sent(core.handle(.setRules(rules, of: yard.id), at: now), isRules).isEmpty)
        #expect(core.channels[0].floor.rules == yard.rules)
        let actions = release(0, last: 1)
        #expect(sent(actions, isRules) == Array(ids[0..<3]), "the others' channel is as it was")
        #expect(closed(actions).isEmpty)
        #expect(core.channels[0].configuration.rules == rules && core.channels[0].floor.rules == rules)
        #expect(core.channels[0].store.limits.bursts == core.limits.burstStore.bursts * FloorRules.fullDuplexTalkers)
        for member in 0..<2 {
            let isGranted = ask(member, 2).contains { if case .send(.floorGranted, _) = $0 { true } else { false } }
            #expect(isGranted)
        }
        connect(4)
        join(4, yard)
        #expect(welcomes[ids[4]]?.floorMode == .fullDuplex)
    }

    @Test mutating func `new rules come between two bursts, and those who wait hear of them before their grants`() {
        _ = ask(0)
        _ = ask(1)
        _ = ask(2)
        _ = core.handle(.setRules(FloorRules(mode: .fullDuplex, hasQueue: true), of: yard.id), at: now)
        let messages = release(0, last: nil).compactMap { action -> ServerMessage? in
            if case .send(let message, _) = action { message } else { nil }
        }
        let told = messages.firstIndex(where: isRules)
        let granted = messages.indices.filter { if case .floorGranted = messages[$0] { true } else { false } }
        #expect(granted.count == 2)
        #expect(told != nil && granted.allSatisfy { $0 > told! })
    }

    @Test mutating func `where nobody waits any more the first who waits talks, and the others are refused`() {
        _ = ask(0)
        _ = ask(1)
        _ = ask(2)
        _ = core.handle(.setRules(FloorRules(mode: .cutIn), of: yard.id), at: now)
        let actions = release(0, last: nil)
        #expect(sent(actions) { if case .floorGranted = $0 { true } else { false } } == [ids[1]])
        #expect(denials(actions) == [ids[2]: .anotherClientHasPermission])
        let isRevoked = actions.contains { if case .send(.floorRevoke, _) = $0 { true } else { false } }
        #expect(!isRevoked)
    }

    @Test(arguments: [false, true])
    mutating func `who waits where only others may talk from now on waits for nothing`(hasQueue: Bool) {
        _ = ask(0)
        _ = ask(1)
        _ = ask(2)
        _ = core.handle(.setRules(FloorRules(mode: .listenOnly, hasQueue: hasQueue), of: yard.id), at: now)
        let actions = release(0, last: nil)
        #expect(Set(sent(actions, isRules)) == Set(ids[0..<3]))
        #expect(core.channels[0].floor.holder == nil && core.channels[0].floor.waiting.isEmpty)
        // Each is refused, or hears that what it was given is taken back.
        let refused = Set(denials(actions).keys)
        let revoked = Set(sent(actions) { if case .floorRevoke = $0 { true } else { false } })
        #expect(refused.union(revoked) == [ids[1], ids[2]])
    }

    @Test mutating func `the rules that hold already are no news, and undo a change that waits`() {
        #expect(sent(core.handle(.setRules(yard.rules, of: yard.id), at: now), isRules).isEmpty)
        _ = ask(0)
        _ = media(0, 1)
        _ = core.handle(.setRules(FloorRules(mode: .cutIn), of: yard.id), at: now)
        _ = core.handle(.setRules(yard.rules, of: yard.id), at: now)
        #expect(sent(release(0, last: 1), isRules).isEmpty)
        #expect(core.channels[0].floor.rules == yard.rules)
    }

    @Test mutating func `a member whose rights change is told, and nobody else`() {
        let member = core.channels[0].members[ids[1]]!.id
        let actions = core.handle(.readmit(member, to: yard.id, as: .init(priority: 7)), at: now)
        let rules = ServerMessage.FloorRules(
            mode: .halfDuplex, hasQueue: true, preemptionStep: 0, isListenOnly: false, priority: 7)
        #expect(actions == [.send(.floorRules(rules), to: [ids[1]])])
        #expect(core.handle(.readmit(member, to: yard.id, as: .init(priority: 7)), at: now).isEmpty)
        _ = ask(1)
        let silenced = core.handle(.readmit(member, to: yard.id, as: .init(isListenOnly: true)), at: now)
        #expect(sent(silenced, isRules) == [ids[1]])
        #expect(sent(silenced) { if case .floorRevoke = $0 { true } else { false } } == [ids[1]])
        // The others may be told something else than this one.
        let changed = core.handle(.setRules(FloorRules(), of: yard.id), at: now)
        #expect(Set(sent(changed, isRules)) == Set(ids[0..<3]))
        let kinds = changed.filter { if case .send(.floorRules, _) = $0 { true } else { false } }
        #expect(kinds.count == 2)
    }

    // MARK: Counted

    @Test mutating func `what happened on a floor is counted for its channel`() {
        _ = ask(0)
        _ = ask(0)
        _ = media(0, 1)
        _ = media(0, 4)
        _ = ask(1)
        let report = ClientMessage.ReceptionReport(
            ssrc: welcomes[ids[0]]!.ssrc, received: 90, lost: 10, highestSequence: 4, jitter: 0)
        _ = core.handle(.message(ids[2], .receptionReport(report)), at: now)
        _ = core.handle(.message(ids[2], .receptionReport(report)), at: now)
        _ = release(0, last: 4)
        now = now + .seconds(10)
        _ = core.handle(.deadline, at: now)
        let counters = core.channelStatistics[0].counters
        #expect(counters.grants == 2, "asked again, it is the same grant; then the one who waited")
        #expect(counters.queued == 1)
        #expect(counters.bursts >= 1)
        #expect(counters.packets == 2)
        #expect(counters.packetsLostUp == 2)
        #expect(counters.packetsHeard == 90)
        #expect(counters.packetsLostDown == 10)
        #expect(core.channelStatistics[1].counters == RelayChannelCounters())
        #expect(core.channelStatistics.map(\.members.count) == [3, 1])
    }

    @Test mutating func `a report that makes no sense is not counted`() {
        _ = ask(0)
        _ = media(0, 1)
        let report = ClientMessage.ReceptionReport(
            ssrc: welcomes[ids[0]]!.ssrc, received: 2_000_000_000, lost: 5, highestSequence: 4, jitter: 0)
        _ = core.handle(.message(ids[2], .receptionReport(report)), at: now)
        #expect(core.channelStatistics[0].counters.packetsHeard == 0)
        #expect(core.channelStatistics[0].counters.packetsLostDown == 0)
    }

    // MARK: Over sockets

    @Test func `a relay that is to end lets a talker finish, and its members know why`() async throws {
        let relay = try await TestRelay()
        let alice = try await TestClient.joined("Alice", relay)
        let bob = try await TestClient.joined("Bob", relay)
        await alice.client.beginBurst(priority: 0)
        try await relay.milestones.wait("the grant") { if case .floorGranted = $0 { true } else { nil } }
        let drained = Task { await relay.server.drain(for: .seconds(20)) }
        try await wait("draining") { await relay.server.statistics?.isDraining ?? true }
        #expect(await relay.server.isServing == false)
        for number in 0..<10 {
            await alice.client.send(
                OutgoingFrame(payload: TestClient.payload(1, number), samples: 960, capturedAt: .now))
        }
        await alice.client.endBurst()
        _ = try await bob.heardEnd()
        #expect(bob.heard() == (0..<10).map { TestClient.payload(1, $0) })
        await drained.value
        #expect(await relay.server.port == nil)
        _ = try await bob.recorder.wait("the relay's word") {
            if case .state(.unavailable(let error, _)) = $0, "\(error)".contains("going down") { true } else { nil }
        }
    }

    @Test func `who presses while the relay goes is heard at the next one, from the first word`() async throws {
        let relay = try await TestRelay()
        let next = try await TestRelay(channel: relay.channel, keys: relay.configuration.transportKeys)
        let place = RelayPlace("127.0.0.1:\(try #require(await next.server.port))")
        let alice = try await TestClient.joined("Alice", relay)
        let bob = try await TestClient.joined("Bob", relay)
        let drained = Task { await relay.server.drain(for: .seconds(20), to: place) }
        try await wait("draining") { await relay.server.statistics?.isDraining ?? true }
        try await alice.talk(1, frames: 60, spacing: .milliseconds(20))
        let (end, report, _) = try await alice.transmissionEnd()
        #expect(end == .completed && report.sent == 60)
        _ = try await bob.heardEnd()
        #expect(bob.heard() == (0..<60).map { TestClient.payload(1, $0) })
        await drained.value
        await next.server.stop()
    }

    @Test func `a talker that does not end is waited for no longer than that`() async throws {
        let relay = try await TestRelay()
        let alice = try await TestClient.joined("Alice", relay)
        await alice.client.beginBurst(priority: 0)
        try await relay.milestones.wait("the grant") { if case .floorGranted = $0 { true } else { nil } }
        await relay.server.drain(for: .milliseconds(50))
        #expect(await relay.server.port == nil)
        #expect(await relay.server.statistics == nil)
    }

    private func wait(_ what: String, until condition: () async -> Bool) async throws {
        let deadline = ContinuousClock.now + .seconds(20)
        while ContinuousClock.now < deadline {
            if await condition() { return }
            try await Task.sleep(for: .milliseconds(2))
        }
        throw TimedOut(description: "\(what) did not happen")
    }
}
