// Channels nearby that are open to everybody: who gets their invitation, how it is asked for, and how such a channel ends.
import Cryptography
import MonotonicTime
import QUIC
import Reactor
import RelayProtocol
import TestSupport
import Testing

@testable import RelayClient
@testable import RelayServer

extension RelayChannelConfiguration {
    /// The same with another rule of admission.
    static func open(_ rule: AdmissionRule) -> RelayChannelConfiguration { open(mediaKey: MediaKey(epoch: 0), rule) }

    /// A channel that gives its invitation to whoever asks.
    static func open(
        mediaKey: MediaKey? = MediaKey(epoch: 0), _ rule: AdmissionRule = .open
    ) -> RelayChannelConfiguration {
        var channel = RelayChannelConfiguration(
            id: ChannelID(), name: DisplayName("Crane 2")!, token: InvitationToken(), isEndToEnd: mediaKey != nil)
        channel.admission = .nearby(rule, relay: TestRelay.identity.pin, mediaKey: mediaKey)
        return channel
    }
}

@Suite struct InvitationRulesTests {
    private let crane = RelayChannelConfiguration.open()
    private let yard = RelayChannelConfiguration.yard()
    private var core: RelayCore
    private let now = Instant(nanoseconds: 1_000_000_000)
    private let stranger = ConnectionID(number: 1)

    init() {
        var limits = RelayLimits()
        limits.invitationBurst = 3
        limits.invitationsPerSecond = 1
        core = RelayCore(channels: [crane, yard], limits: limits, random: SeededGenerator(seed: 1))
    }

    private mutating func ask(
        _ id: ConnectionID, _ channel: ChannelID, version: UInt32 = 1, at time: Instant? = nil
    ) -> [ServerMessage] {
        _ = core.handle(.connected(id, .numbered(id.number)), at: time ?? now)
        return core.handle(
            .message(id, .invitationRequest(.init(channel: channel, protocolVersion: version))), at: time ?? now
        ).sent(to: id)
    }

    private func refusal(_ messages: [ServerMessage]) -> InvitationRefusal? {
        for case .invitationRefused(let refused) in messages { return refused.cause }
        return nil
    }

    @Test mutating func `whoever asks gets the invitation to an open channel, and joins with it`() {
        guard case .nearby(.open, _, let key) = crane.admission else { return }
        let answer = ask(stranger, crane.id)
        #expect(answer == [.invitation(.init(token: crane.token, channelName: crane.name, mediaKey: key))])
        let joined = core.handle(.message(stranger, crane.joinMessage("Stranger")), at: now)
        #expect(joined.welcome(for: stranger) != nil)
        #expect(core.counters.invitationsGiven == 1)
    }

    @Test mutating func `a channel that is not open, and one that is not there, are refused in the same words`() {
        let closed = ask(stranger, yard.id)
        let missing = ask(ConnectionID(number: 2), ChannelID())
        #expect(refusal(closed) == .notOpen && closed == missing)
        #expect(refusal(ask(ConnectionID(number: 3), crane.id, version: 2)) == .unsupportedVersion)
        #expect(core.counters.invitationsRefused == 3)
    }

    @Test mutating func `all who ask together are given no more than the limit`() {
        for number in 1...3 {
            #expect(refusal(ask(ConnectionID(number: UInt64(number)), crane.id)) == nil)
        }
        let fourth = ask(ConnectionID(number: 4), crane.id)
        #expect(refusal(fourth) == .tooMany)
        guard case .invitationRefused(let refused)? = fourth.first else { return }
        #expect(refused.retryAfter == core.limits.invitationRetryTime)
        #expect(refusal(ask(ConnectionID(number: 5), crane.id, at: now + .seconds(1))) == nil)
    }

    @Test mutating func `a member that asks, and early data that asks, break the protocol`() {
        _ = core.enter(stranger, .numbered(1), by: crane.joinMessage("Member"), at: now)
        let asked = core.handle(.message(stranger, .invitationRequest(.init(channel: crane.id))), at: now)
        #expect(asked.contains { if case .close(stranger, .protocolViolation, _) = $0 { true } else { false } })
        let early = ConnectionID(number: 2)
        _ = core.handle(.greeted(early, .numbered(2)), at: now)
        let refused = core.handle(.message(early, .invitationRequest(.init(channel: crane.id))), at: now)
        #expect(refused.contains { if case .close(early, .protocolViolation, _) = $0 { true } else { false } })
    }

    @Test mutating func `a channel that ends is over for its members, and gives no invitation any more`() {
        let members = (1...3).map { ConnectionID(number: UInt64($0)) }
        for id in members.prefix(2) { _ = core.enter(id, .numbered(id.number), by: crane.joinMessage("M"), at: now) }
        _ = core.enter(members[2], .numbered(3), by: yard.joinMessage("Other"), at: now)
        let actions = core.handle(.end(crane.id, "gone"), at: now)
        let closed = actions.compactMap { action -> ConnectionID? in
            if case .close(let id, .channelEnded, "gone") = action { id } else { nil }
        }
        #expect(closed.sorted() == members.dropLast())
        #expect(core.memberCount(of: crane.id) == 0 && core.memberCount(of: yard.id) == 1)
        #expect(refusal(ask(ConnectionID(number: 9), crane.id)) == .notOpen)
    }
}

@Suite struct InvitationQuestionTests {
    private let channel = ChannelID()
    private let pin = TestRelay.identity.pin
    private let now = Instant(nanoseconds: 5_000_000_000)
    private let places = (1...3).map { RelayPlace(host: "192.0.2.\($0)", port: 4_433)! }
    private let invitation = ServerMessage.Invitation(
        token: InvitationToken(), channelName: DisplayName("Crane 2")!, mediaKey: nil)

    private func machine(_ places: [RelayPlace]? = nil) -> InvitationQuestionStateMachine {
        InvitationQuestionStateMachine(channel: channel, pin: pin, places: places ?? self.places, client: .numbered(7))
    }

    private func asked(_ actions: [InvitationQuestionStateMachine.Action]) -> [Int] {
        actions.compactMap { if case .ask(let place, _) = $0 { place } else { nil } }
    }

    private func result(
        _ actions: [InvitationQuestionStateMachine.Action]
    ) -> Result<InvitationLink, InvitationQuestionError>? {
        for case .finish(let result) in actions { return result }
        return nil
    }

    @Test func `places are asked one after the other, and the first invitation counts`() throws {
        var machine = machine()
        #expect(asked(machine.handle(.start, at: now)) == [0])
        #expect(machine.nextDeadline == now + .milliseconds(250))
        #expect(asked(machine.handle(.deadline, at: now + .milliseconds(250))) == [1])
        let link = try #require(result(machine.handle(.message(place: 1, .invitation(invitation)), at: now)))
        #expect(try link.get().host == "192.0.2.2")
        #expect(try link.get().token == invitation.token && link.get().pin == pin)
        #expect(machine.nextDeadline == nil)
        #expect(machine.handle(.message(place: 0, .invitation(invitation)), at: now).isEmpty, "it is over")
        #expect(machine.handle(.deadline, at: now + .seconds(9)).isEmpty)
    }

    @Test func `a place that fails at once is followed by the next one at once`() {
        var machine = machine()
        _ = machine.handle(.start, at: now)
        #expect(asked(machine.handle(.failed(place: 0, .unreachable("x")), at: now)) == [1])
        #expect(asked(machine.handle(.failed(place: 1, .wrongKey), at: now)) == [2])
        let last = machine.handle(.failed(place: 2, .system("y")), at: now)
        #expect(result(last) == .failure(.wrongKey), "the most telling error")
    }

    @Test func `the host's no is final, and silence ends after five seconds`() {
        var machine = machine()
        _ = machine.handle(.start, at: now)
        let refused = machine.handle(
            .message(place: 0, .invitationRefused(.init(cause: .notOpen, phrase: "locked"))), at: now)
        #expect(result(refused) == .failure(.notOpen("locked")))
        var silent = self.machine()
        _ = silent.handle(.start, at: now)
        var time = now
        while let due = silent.nextDeadline, due < now + .seconds(5) {
            time = due
            _ = silent.handle(.deadline, at: due)
        }
        #expect(time < now + .seconds(1), "all three are asked")
        guard case .failure(.unreachable)? = result(silent.handle(.deadline, at: now + .seconds(5))) else {
            Issue.record("no answer is unreachable")
            return
        }
    }

    @Test func `without a place, or with too many of them, it ends`() {
        var none = machine([])
        #expect(result(none.handle(.start, at: now)) == .failure(.noPlace))
        var many = machine((1...20).map { RelayPlace(host: "192.0.2.\($0)", port: 1)! })
        var count = asked(many.handle(.start, at: now)).count
        for place in 0..<20 { count += asked(many.handle(.failed(place: place, .wrongKey), at: now)).count }
        #expect(count == InvitationQuestionStateMachine.placesMaximum)
    }

    @Test func `another message than an answer is none`() {
        var machine = machine()
        _ = machine.handle(.start, at: now)
        let actions = machine.handle(
            .message(place: 0, .floorIdle(.init(ssrc: SSRC(rawValue: 1), lastSequence: nil))), at: now)
        guard case .failure(.badAnswer)? = result(actions) else {
            Issue.record("it is no answer")
            return
        }
    }
}

@Suite(.serialized, .timeLimit(.minutes(1))) struct InvitationEndToEndTests {
    private func question(
        _ relay: TestRelay, _ channel: ChannelID, pin: PublicKeyPin? = nil, at places: [RelayPlace]? = nil
    ) async throws -> (InvitationQuestion, EventLoop) {
        let link = try await relay.invitation()
        let loop = try EventLoop(name: "asker")
        return (
            InvitationQuestion(
                for: channel, at: places ?? [link.place], pin: pin ?? link.pin,
                identity: try Identity(generating: "asker"), loop: loop, logger: quietLogger("asker")), loop
        )
    }

    @Test func `a stranger asks, joins, talks end to end, and is told when the channel is deleted`() async throws {
        let relay = try await TestRelay(channel: .open())
        let own = try await relay.invitation()
        // The first place is a port that nobody listens on.
        let (question, loop) = try await question(
            relay, relay.channel.id, at: [RelayPlace(host: "127.0.0.1", port: 9)!, own.place])
        defer { loop.stop() }
        let link = try await question.ask()
        #expect(link.token == relay.channel.token && link.channelName == relay.channel.name && link.mediaKey != nil)

        let alice = try await TestClient("Alice", link)
        let bob = try await TestClient("Bob", link)
        try await alice.untilReady()
        try await bob.untilReady()
        try await alice.talk(1, frames: 10)
        let (end, report, _) = try await bob.heardEnd()
        #expect(end == .completed && report.received == 10)

        await relay.server.end(relay.channel.id, "its creator has deleted it")
        let (error, index) = try await bob.recorder.wait("the end") { event -> RelayLinkError? in
            if case .state(.unavailable(let error, retryAfter: nil)) = event { error } else { nil }
        }
        #expect(error == .channelEnded("its creator has deleted it"))
        try await Task.sleep(for: .milliseconds(600))
        #expect(
            !bob.recorder.events.dropFirst(index).contains { if case .state = $0 { true } else { false } },
            "it does not come back by itself")
        await relay.server.stop()
    }

    @Test func `a channel that is not open, and a host with another key, are told as such`() async throws {
        let relay = try await TestRelay()
        let (closed, loop) = try await question(relay, relay.channel.id)
        defer { loop.stop() }
        await #expect(throws: InvitationQuestionError.notOpen("no such channel, or it is not open to everybody")) {
            try await closed.ask()
        }
        let other = try Identity(generating: "other").pin
        let (wrong, second) = try await question(relay, relay.channel.id, pin: other)
        defer { second.stop() }
        await #expect(throws: InvitationQuestionError.wrongKey) { try await wrong.ask() }
        await relay.server.stop()
    }
}
