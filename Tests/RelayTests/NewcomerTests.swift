// Channels nearby with a code, and those whose creator is asked: who gets in, who does not, and what an attacker can try.
import Cryptography
import MonotonicTime
import Reactor
import RelayProtocol
import TestSupport
import Testing

@testable import RelayClient
@testable import RelayServer

/// A relay's rules and the rules of those who ask it, without a network between them.
private struct Gate {
    let channel: RelayChannelConfiguration
    var core: RelayCore
    var now = Instant(nanoseconds: 1_000_000_000)
    var notes: [RelayMilestone] = []

    init(_ rule: AdmissionRule) {
        channel = .open(rule)
        core = RelayCore(channels: [channel], startedAt: now)
    }

    static let pin = TestRelay.identity.pin

    func question(_ number: UInt64, code: String? = nil, name: String? = nil) -> InvitationQuestionStateMachine {
        InvitationQuestionStateMachine(
            channel: channel.id, pin: Self.pin, places: [RelayPlace(host: "192.0.2.1", port: 1)!],
            client: MemberID(PublicKeyPin.numbered(number)),
            credentials: .init(code: code.flatMap { InvitationCode($0) }, name: name.flatMap { DisplayName($0) }))
    }

    mutating func say(_ message: ClientMessage, _ id: ConnectionID) -> [RelayCore.Action] {
        noted(core.handle(.message(id, message), at: now))
    }

    mutating func noted(_ actions: [RelayCore.Action]) -> [RelayCore.Action] {
        for case .note(let note) in actions { notes.append(note) }
        return actions
    }

    /// Lets the client's rules and the relay's talk until neither has anything to say.
    mutating func run(
        _ machine: inout InvitationQuestionStateMachine, as number: UInt64
    ) -> Result<InvitationLink, InvitationQuestionError>? {
        let id = ConnectionID(number: number)
        _ = core.handle(.connected(id, .numbered(number)), at: now)
        return follow(machine.handle(.start, at: now), &machine, id)
    }

    mutating func follow(
        _ actions: [InvitationQuestionStateMachine.Action], _ machine: inout InvitationQuestionStateMachine,
        _ id: ConnectionID
    ) -> Result<InvitationLink, InvitationQuestionError>? {
        var actions = actions
        while !actions.isEmpty {
            let message: ClientMessage
            switch actions.removeFirst() {
            case .ask(_, let request): message = .invitationRequest(request)
            case .send(_, let other): message = other
            case .finish(let result): return result
            }
            for answer in say(message, id).sent(to: id) {
                actions += machine.handle(.message(place: 0, answer), at: now)
            }
        }
        return nil
    }

    /// What the relay says to a newcomer that waits.
    mutating func pass(
        _ actions: [RelayCore.Action], to machine: inout InvitationQuestionStateMachine, _ number: UInt64
    ) -> Result<InvitationLink, InvitationQuestionError>? {
        for message in noted(actions).sent(to: ConnectionID(number: number)) {
            for case .finish(let result) in machine.handle(.message(place: 0, message), at: now) { return result }
        }
        return nil
    }
}

@Suite struct LockedChannelTests {
    private var gate = Gate(.code(InvitationCode("271828")!))

    private mutating func tried(_ code: String?, as number: UInt64) -> InvitationQuestionError? {
        var machine = gate.question(number, code: code)
        guard case .failure(let error) = gate.run(&machine, as: number) else { return nil }
        return error
    }

    @Test mutating func `the right code opens, a wrong one and none do not`() throws {
        var machine = gate.question(1, code: "271 828")
        let link = try #require(gate.run(&machine, as: 1)).get()
        #expect(link.token == gate.channel.token && link.mediaKey != nil)
        #expect(tried("271829", as: 2) == .wrongCode)
        #expect(tried(nil, as: 3) == .codeNeeded)
        #expect(gate.notes == [.wrongCode(channel: gate.channel.name, member: MemberID(PublicKeyPin.numbered(2)))])
    }

    @Test mutating func `after eight wrong codes one more can be tried every 20 s, and a right one waits with them`() {
        for number in 1...8 { #expect(tried("000000", as: UInt64(number)) == .wrongCode) }
        #expect(tried("000000", as: 9) == .busy("too many wrong codes were tried"))
        #expect(tried("271828", as: 10) == .busy("too many wrong codes were tried"), "or the answer would tell")
        gate.now = gate.now + .seconds(21)
        #expect(tried("271828", as: 11) == nil)
        #expect(tried("000001", as: 12) == .wrongCode)
        #expect(tried("000002", as: 13) == .busy("too many wrong codes were tried"))
    }

    @Test mutating func `a proof counts once, on its connection, for its client`() throws {
        let (first, second) = (ConnectionID(number: 1), ConnectionID(number: 2))
        var machine = gate.question(1, code: "271828")
        guard case .ask(_, let request)? = machine.handle(.start, at: gate.now).first else { return }
        for id in [first, second] { _ = gate.core.handle(.connected(id, .numbered(id.number)), at: gate.now) }
        // Another client passes the share on: the relay's challenge is for that other one.
        let challenge = gate.say(.invitationRequest(request), second).sent(to: second)
        let actions = machine.handle(.message(place: 0, try #require(challenge.first)), at: gate.now)
        guard case .send(_, let proof)? = actions.first else { return }
        let stolen = gate.say(proof, second).sent(to: second)
        guard case .invitationRefused(let refused)? = stolen.first else {
            Issue.record("a proof that was passed on opens")
            return
        }
        #expect(refused.cause == .wrongCode)
        // The same proof again, after its own answer.
        let again = gate.say(proof, second)
        #expect(again.contains { if case .close(second, .protocolViolation, _) = $0 { true } else { false } })
    }

    @Test mutating func `a proof that nobody asked for, and a share that is none, break the protocol`() {
        let id = ConnectionID(number: 1)
        _ = gate.core.handle(.connected(id, .numbered(1)), at: gate.now)
        let unasked = gate.say(.invitationProof(.init(tag: [UInt8](repeating: 0, count: 32))), id)
        #expect(unasked.contains { if case .close(id, .protocolViolation, _) = $0 { true } else { false } })
        let other = ConnectionID(number: 2)
        _ = gate.core.handle(.connected(other, .numbered(2)), at: gate.now)
        let request = ClientMessage.InvitationRequest(
            channel: gate.channel.id, codeShare: [UInt8](repeating: 0xFF, count: 32))
        let none = gate.say(.invitationRequest(request), other)
        #expect(none.contains { if case .close(other, .protocolViolation, _) = $0 { true } else { false } })
    }

    @Test func `whoever does not know the code is told as an impostor, and learns nothing but one guess`() {
        let gate = Gate(.open)
        // It announces the channel as locked, and gives an invitation of its own to whoever comes.
        var machine = gate.question(1, code: "271828")
        _ = machine.handle(.start, at: gate.now)
        let invitation = ServerMessage.Invitation(
            token: InvitationToken(), channelName: gate.channel.name, mediaKey: nil)
        #expect(
            machine.handle(.message(place: 0, .invitation(invitation)), at: gate.now)
                == [.finish(.failure(.impostor))])
        // It takes part in the exchange with a guess of its own.
        var second = gate.question(1, code: "271828")
        guard case .ask(_, let request)? = second.handle(.start, at: gate.now).first else { return }
        var random = SecureRandom()
        let guess = InvitationCode("000000")!.proof(
            .responder, channel: gate.channel.id, relay: Gate.pin, client: MemberID(PublicKeyPin.numbered(1)),
            using: &random)
        let sent = second.handle(
            .message(place: 0, .invitationChallenge(.init(codeShare: guess.share))), at: gate.now)
        guard case .send(_, .invitationProof(let proof))? = sent.first else { return }
        let tags = guess.tags(with: request.codeShare ?? [])
        #expect(proof.tag != tags?.client)
        let false_ = ServerMessage.Invitation(
            token: InvitationToken(), channelName: gate.channel.name, mediaKey: nil, codeTag: tags?.relay)
        #expect(
            second.handle(.message(place: 0, .invitation(false_)), at: gate.now) == [.finish(.failure(.impostor))])
        // It asks for the code over and over: nothing is proved twice.
        var third = gate.question(1, code: "271828")
        _ = third.handle(.start, at: gate.now)
        #expect(
            !third.handle(.message(place: 0, .invitationChallenge(.init(codeShare: guess.share))), at: gate.now)
                .isEmpty)
        #expect(
            third.handle(.message(place: 0, .invitationChallenge(.init(codeShare: guess.share))), at: gate.now)
                .isEmpty)
    }

    @Test func `a code is six digits, however they are spaced`() {
        #expect(InvitationCode("271828")?.description == "271 828")
        #expect(InvitationCode(" 271-828 ") == InvitationCode("271828"))
        for text in ["", "27182", "2718281", "27182a", "٢٧١٨٢٨", String(repeating: " ", count: 100) + "271828"] {
            #expect(InvitationCode(text) == nil)
        }
        #expect((0..<50).allSatisfy { _ in InvitationCode(InvitationCode().digits) != nil })
    }
}

@Suite struct AskingChannelTests {
    private var gate = Gate(.ask)

    private func member(_ number: UInt64) -> MemberID { MemberID(PublicKeyPin.numbered(number)) }

    private mutating func decide(_ isAdmitted: Bool, _ number: UInt64) -> [RelayCore.Action] {
        gate.core.handle(.admit(isAdmitted, member(number), to: gate.channel.id), at: gate.now)
    }

    @Test mutating func `whom the creator admits gets in, and is not asked about again`() throws {
        var machine = gate.question(1, name: "Anna")
        #expect(gate.run(&machine, as: 1) == nil, "it waits")
        #expect(
            gate.notes == [.joinPending(channel: gate.channel.name, member: member(1), name: DisplayName("Anna")!)])
        let link = try #require(gate.pass(decide(true, 1), to: &machine, 1)).get()
        #expect(link.token == gate.channel.token)
        #expect(gate.notes.last == .joinSettled(channel: gate.channel.name, member: member(1), .admitted))
        #expect(decide(false, 1).isEmpty, "it is decided")
        _ = gate.core.handle(.disconnected(ConnectionID(number: 1)), at: gate.now)
        var again = gate.question(1, name: "Anna")
        #expect(gate.run(&again, as: 1) != nil)
    }

    @Test mutating func `a no, and no answer, are told; nobody is asked about somebody without a name`() {
        var refused = gate.question(1, name: "Anna")
        _ = gate.run(&refused, as: 1)
        #expect(gate.pass(decide(false, 1), to: &refused, 1) == .failure(.notAdmitted("the creator refused")))
        var silent = gate.question(2, name: "Bert")
        _ = gate.run(&silent, as: 2)
        #expect(gate.core.nextDeadline == gate.now + .seconds(10), "the first one may still join")
        gate.now = gate.now + .seconds(60)
        let actions = gate.core.handle(.deadline, at: gate.now)
        #expect(gate.pass(actions, to: &silent, 2) == .failure(.notAdmitted("the creator did not answer")))
        #expect(gate.notes.last == .joinSettled(channel: gate.channel.name, member: member(2), .unanswered))
        var nameless = gate.question(3)
        guard case .failure(.notAdmitted)? = gate.run(&nameless, as: 3) else {
            Issue.record("somebody without a name is asked about")
            return
        }
    }

    @Test mutating func `who goes away is asked about no more, and who asks at two addresses is one newcomer`() {
        var first = gate.question(1, name: "Anna")
        _ = gate.run(&first, as: 1)
        let second = ConnectionID(number: 2)
        _ = gate.core.handle(.connected(second, .numbered(1)), at: gate.now)
        let request = ClientMessage.InvitationRequest(channel: gate.channel.id, name: DisplayName("Anna"))
        #expect(gate.say(.invitationRequest(request), second).sent(to: second).count == 1)
        #expect(gate.notes.count == 1)
        _ = gate.noted(gate.core.handle(.disconnected(second), at: gate.now))
        #expect(gate.notes.count == 1, "it still waits at the other one")
        _ = gate.noted(gate.core.handle(.disconnected(ConnectionID(number: 1)), at: gate.now))
        #expect(gate.notes.last == .joinSettled(channel: gate.channel.name, member: member(1), .gone))
        #expect(decide(true, 1).isEmpty)
    }

    @Test mutating func `no more than sixteen wait, and the end of the channel is told to them`() {
        for number in UInt64(1)...16 {
            var machine = gate.question(number, name: "N \(number)")
            #expect(gate.run(&machine, as: number) == nil)
        }
        var more = gate.question(17, name: "N 17")
        #expect(gate.run(&more, as: 17) == .failure(.busy("too many members wait for the creator's answer")))
        let ended = gate.core.handle(.end(gate.channel.id, "deleted"), at: gate.now)
        for number in UInt64(1)...16 {
            guard case .invitationRefused(let refused)? = ended.sent(to: ConnectionID(number: number)).first else {
                Issue.record("one is not told")
                return
            }
            #expect(refused.cause == .notOpen)
        }
    }

    @Test mutating func `the question waits longer than the person at the host may take, and can be given up`() {
        var machine = gate.question(1, name: "Anna")
        _ = gate.run(&machine, as: 1)
        #expect(machine.nextDeadline == gate.now + .seconds(65))
        #expect(machine.handle(.cancel, at: gate.now) == [.finish(.failure(.cancelled))])
        #expect(machine.handle(.cancel, at: gate.now).isEmpty)
    }

    @Test mutating func `a question that is given up before it began is not asked`() {
        var machine = gate.question(1, name: "Anna")
        #expect(machine.handle(.cancel, at: gate.now).isEmpty)
        #expect(machine.handle(.start, at: gate.now) == [.finish(.failure(.cancelled))])
        #expect(machine.nextDeadline == nil)
    }
}

@Suite(.serialized, .timeLimit(.minutes(1))) struct NewcomerEndToEndTests {
    private func question(
        _ relay: TestRelay, _ credentials: InvitationCredentials
    ) async throws -> (InvitationQuestion, EventLoop) {
        let link = try await relay.invitation()
        let loop = try EventLoop(name: "asker")
        return (
            InvitationQuestion(
                for: relay.channel.id, at: [link.place], pin: link.pin, with: credentials,
                identity: try Identity(generating: "asker"), loop: loop, logger: quietLogger("asker")), loop
        )
    }

    @Test func `over a real connection the right code opens, and a wrong one does not`() async throws {
        let code = try #require(InvitationCode("271828"))
        let relay = try await TestRelay(channel: .open(.code(code)))
        let (right, loop) = try await question(relay, .init(code: code))
        defer { loop.stop() }
        #expect(try await right.ask().token == relay.channel.token)
        let (wrong, second) = try await question(relay, .init(code: InvitationCode("271829")))
        defer { second.stop() }
        await #expect(throws: InvitationQuestionError.wrongCode) { try await wrong.ask() }
        await relay.server.stop()
    }

    @Test func `over a real connection a newcomer waits until it is admitted, or gives up`() async throws {
        let relay = try await TestRelay(channel: .open(.ask))
        let (server, channel) = (relay.server, relay.channel.id)
        let (asker, asking) = AsyncStream.makeStream(of: MemberID.self)
        await server.setMilestoneHandler { milestone, _ in
            if case .joinPending(_, let member, _) = milestone { asking.yield(member) }
        }
        var askers = asker.makeAsyncIterator()
        let (patient, loop) = try await question(relay, .init(name: DisplayName("Anna")))
        defer { loop.stop() }
        async let link = patient.ask()
        let member = try #require(await askers.next())
        await server.admit(true, member, to: channel)
        #expect(try await link.token == relay.channel.token)
        let (hasty, second) = try await question(relay, .init(name: DisplayName("Bert")))
        defer { second.stop() }
        let none = Task { () -> InvitationQuestionError? in
            do throws(InvitationQuestionError) { _ = try await hasty.ask() } catch { return error }
            return nil
        }
        _ = await askers.next()
        hasty.cancel()
        #expect(await none.value == .cancelled)
        await server.stop()
    }
}
