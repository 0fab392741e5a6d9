// The relay's rules of pushes: whose a token is, where a push goes, what is kept and for how long.
import Cryptography
import MonotonicTime
import RelayProtocol
import TestSupport
import Testing
import Vocabulary

@testable import RelayServer

@Suite struct PushRegistryTests {
    private var limits = RelayLimits()
    private var registry: PushRegistry
    private var now = Instant(nanoseconds: 1_000_000_000)
    private var pushNumber: UInt64 = 0
    private let alice = MemberID(PublicKeyPin([UInt8](repeating: 1, count: 32))!)
    private let bob = MemberID(PublicKeyPin([UInt8](repeating: 2, count: 32))!)
    private let one = ConnectionID(number: 1)
    private let two = ConnectionID(number: 2)
    private let topic = PushTopic("org.example.radio.voip-ptt")!

    init() {
        limits.pushGraceTime = .zero
        registry = PushRegistry(limits: limits, startedAt: now)
    }

    private mutating func restart(_ change: (inout RelayLimits) -> Void) {
        change(&limits)
        registry = PushRegistry(limits: limits, startedAt: now)
    }

    private func token(_ number: Int) -> PushToken {
        PushToken((0..<32).map { UInt8(truncatingIfNeeded: number >> (8 * ($0 % 4))) })!
    }

    @discardableResult
    private mutating func register(
        _ number: Int, by member: MemberID? = nil, on connection: ConnectionID? = nil, topic: PushTopic? = nil
    ) -> [RelayCore.Action] {
        registry.register(
            .init(token: token(number), topic: topic ?? self.topic), by: member ?? alice, on: connection ?? one,
            at: now)
    }

    private mutating func push(
        _ number: Int, lifetime: Duration = .zero, topic: PushTopic? = nil, payload: String = "{}"
    ) -> (PushVerdict, [RelayCore.Action]) {
        pushNumber += 1
        let request = PushRequest(
            token: token(number), topic: topic ?? self.topic, payload: Array(payload.utf8), priority: 10,
            lifetime: lifetime)!
        return registry.push(request, id: PushID(rawValue: pushNumber), at: now)
    }

    private func sent(_ actions: [RelayCore.Action], to id: ConnectionID) -> [ServerMessage] {
        actions.compactMap { if case .send(let message, [id]) = $0 { message } else { nil } }
    }

    private func pushes(_ actions: [RelayCore.Action], to id: ConnectionID) -> [ServerMessage.Push] {
        sent(actions, to: id).compactMap { if case .push(let push) = $0 { push } else { nil } }
    }

    private func refusal(_ actions: [RelayCore.Action]) -> PushRefusal? {
        for case .send(.pushRefused(let refused), _) in actions { return refused.cause }
        return nil
    }

    private mutating func confirm(_ id: PushID, _ outcome: PushOutcome = .taken, from connection: ConnectionID) {
        _ = registry.receive(.init(id: id, outcome: outcome), from: connection, at: now)
    }

    @Test mutating func `a push for a connected token goes out at once, with what it carries`() throws {
        #expect(sent(register(1), to: one) == [.pushRegistered(token(1))])
        let (verdict, actions) = push(1, lifetime: .seconds(7), payload: #"{"activeSpeaker":"Ann"}"#)
        #expect(verdict == .accepted(.sent))
        let push = try #require(pushes(actions, to: one).first)
        #expect(push.token == token(1))
        #expect(push.payload == Array(#"{"activeSpeaker":"Ann"}"#.utf8))
        #expect(push.priority == 10)
        #expect(push.lifetime == .seconds(7))
    }

    @Test mutating func `a token nobody registered is unknown, and may only be late right after the start`() {
        #expect(push(1).0 == .unknownToken)
        restart { $0.pushGraceTime = .seconds(30) }
        #expect(push(1).0 == .unavailable)
        now = now + .seconds(29)
        #expect(push(1).0 == .unavailable)
        now = now + .seconds(1)
        #expect(push(1).0 == .unknownToken)
    }

    @Test mutating func `a dead token tells when it died, and never lives again`() {
        register(1)
        now = now + .seconds(5)
        let died = now
        _ = registry.unregister(token(1), by: bob, at: now)
        #expect(push(1).0 == .accepted(.sent), "another member's word does not count")
        _ = registry.unregister(token(1), by: alice, at: now)
        now = now + .seconds(100)
        #expect(push(1).0 == .unregistered(at: died))
        #expect(refusal(register(1)) == .dead)
        #expect(push(1).0 == .unregistered(at: died))
    }

    @Test mutating func `a token is the member's who came first`() {
        register(1)
        #expect(refusal(register(1, by: bob, on: two)) == .taken)
        #expect(pushes(push(1).1, to: one).count == 1)
        registry.disconnected(one, of: alice, at: now)
        #expect(refusal(register(1, by: bob, on: two)) == .taken, "also while it is not connected")
    }

    @Test mutating func `a topic that is not for push to talk, or another one, is told`() {
        #expect(refusal(register(1, topic: PushTopic("org.example.radio")!)) == .malformed)
        #expect(push(1).0 == .unknownToken)
        register(2)
        #expect(push(2, topic: PushTopic("org.example.other.voip-ptt")!).0 == .otherTopic)
    }

    @Test mutating func `without a lifetime a push is never late`() {
        register(1)
        registry.disconnected(one, of: alice, at: now)
        #expect(push(1).0 == .accepted(.dropped))
        #expect(registry.keptPushCount == 0)
        #expect(pushes(register(1, on: two), to: two).isEmpty)
    }

    @Test mutating func `with a lifetime the newest waits, and comes with the time that is left`() throws {
        register(1)
        registry.disconnected(one, of: alice, at: now)
        #expect(push(1, lifetime: .seconds(60), payload: #"{"n":1}"#).0 == .accepted(.kept))
        #expect(push(1, lifetime: .seconds(60), payload: #"{"n":2}"#).0 == .accepted(.kept))
        #expect(registry.keptPushCount == 1)
        now = now + .seconds(20)
        let late = pushes(register(1, on: two), to: two)
        #expect(late.map(\.payload) == [Array(#"{"n":2}"#.utf8)])
        #expect(late.first?.lifetime == .seconds(40))
        #expect(pushes(register(1, on: two), to: two).isEmpty, "it is on its way")
        confirm(try #require(late.first).id, from: two)
        #expect(registry.keptPushCount == 0)
        #expect(pushes(register(1, on: one), to: one).isEmpty)
    }

    @Test mutating func `after its lifetime a push is gone`() {
        register(1)
        registry.disconnected(one, of: alice, at: now)
        _ = push(1, lifetime: .seconds(60))
        now = now + .seconds(60)
        #expect(pushes(register(1, on: two), to: two).isEmpty)
        #expect(registry.keptPushCount == 0)
    }

    @Test mutating func `a push that was sent and not confirmed goes out again under its number`() {
        register(1)
        let first = pushes(push(1, lifetime: .seconds(60)).1, to: one)
        registry.disconnected(one, of: alice, at: now)
        now = now + .seconds(1)
        let again = pushes(register(1, on: two), to: two)
        #expect(again.map(\.id) == first.map(\.id))
        #expect(again.count == 1)
    }

    @Test mutating func `a client that does not know the token any more makes it dead`() {
        register(1)
        let id = pushes(push(1).1, to: one)[0].id
        confirm(id, .unknownToken, from: two)
        #expect(push(1).0 == .accepted(.sent), "only who was asked may answer")
        confirm(id, .unknownToken, from: one)
        #expect(push(1).0 == .unregistered(at: now))
    }

    @Test mutating func `a member has so many tokens, of which forgotten ones make room`() {
        for number in 1...8 { register(number, on: number <= 4 ? one : two) }
        #expect(refusal(register(9)) == .tooMany)
        register(3)
        #expect(registry.tokenCount == 8)
        registry.disconnected(two, of: alice, at: now)
        #expect(refusal(register(9)) == nil)
        #expect(push(5).0 == .unregistered(at: now), "the oldest of those that are not connected")
        #expect(push(6).0 == .accepted(.dropped))
        #expect(refusal(register(1, by: bob)) == .taken)
        #expect(refusal(register(10, by: bob)) == nil, "others have their own")
    }

    @Test mutating func `the relay has so many tokens, of which the longest forgotten makes room`() {
        restart { $0.pushTokens = 3 }
        register(1)
        register(2)
        register(3, by: bob, on: two)
        #expect(refusal(register(4)) == .relayFull)
        registry.disconnected(two, of: bob, at: now)
        now = now + .seconds(1)
        registry.disconnected(one, of: alice, at: now)
        #expect(refusal(register(4, on: ConnectionID(number: 3))) == nil)
        #expect(push(3).0 == .unregistered(at: now))
        #expect(registry.tokenCount == 3)
    }

    @Test mutating func `dead tokens are forgotten, the oldest first`() {
        restart { $0.deadPushTokens = 3 }
        for number in 1...5 {
            register(number)
            _ = registry.unregister(token(number), by: alice, at: now)
        }
        #expect((1...5).map { push($0).0 == .unknownToken } == [true, true, false, false, false])
    }

    @Test mutating func `one token is pushed to only so fast`() {
        register(1)
        register(2, by: bob, on: two)
        for _ in 0..<limits.pushBurst { #expect(push(1).0 == .accepted(.sent)) }
        #expect(push(1).0 == .tooMany)
        #expect(push(2).0 == .accepted(.sent))
        now = now + .milliseconds(250)
        #expect(push(1).0 == .accepted(.sent))
        #expect(push(1).0 == .tooMany)
    }

    @Test mutating func `a client that confirms nothing gets no more`() {
        restart {
            $0.pushBurst = 1_000
            $0.pushesUnconfirmed = 4
        }
        register(1)
        register(2)
        let ids = (0..<4).flatMap { pushes(push(1 + $0 % 2).1, to: one) }.map(\.id)
        #expect(ids.count == 4)
        #expect(push(1).0 == .tooMany)
        confirm(ids[0], from: one)
        confirm(ids[0], from: one)
        #expect(push(1).0 == .accepted(.sent))
        #expect(push(2).0 == .tooMany)
        registry.disconnected(one, of: alice, at: now)
        register(1, on: two)
        #expect(push(1).0 == .accepted(.sent), "what was not confirmed went with the connection")
    }

    @Test mutating func `the relay keeps so many pushes, and those that are over make room`() {
        restart { $0.pushesKept = 2 }
        for number in 1...3 { register(number) }
        registry.disconnected(one, of: alice, at: now)
        #expect(push(1, lifetime: .seconds(1)).0 == .accepted(.kept))
        #expect(push(2, lifetime: .seconds(100)).0 == .accepted(.kept))
        #expect(push(3, lifetime: .seconds(100)).0 == .unavailable)
        #expect(push(2, lifetime: .seconds(100)).0 == .accepted(.kept))
        now = now + .seconds(1)
        #expect(push(3, lifetime: .seconds(100)).0 == .accepted(.kept))
        #expect(registry.keptPushCount == 2)
    }

    @Test mutating func `whatever happens, bounds hold and every push has one fate`() {
        var random = SeededGenerator()
        restart {
            $0.pushTokens = 12
            $0.deadPushTokens = 5
            $0.pushesKept = 4
            $0.pushTokensPerMember = 3
            $0.pushesUnconfirmed = 3
        }
        let members = (0..<6).map { MemberID(PublicKeyPin([UInt8](repeating: $0, count: 32))!) }
        // A connection has one member, as in life.
        var connections: [(id: ConnectionID, member: Int)] = []
        var next: UInt64 = 10
        var owed: [(ConnectionID, PushID)] = []
        var owner: [PushToken: MemberID] = [:]
        for _ in 0..<30_000 {
            now = now + .milliseconds(Int.random(in: 0...400, using: &random))
            var actions: [RelayCore.Action] = []
            let number = Int.random(in: 0..<40, using: &random)
            switch Int.random(in: 0..<10, using: &random) {
            case 0:
                next += 1
                connections.append((ConnectionID(number: next), Int.random(in: 0..<6, using: &random)))
            case 1:
                guard !connections.isEmpty else { continue }
                let gone = connections.remove(at: Int.random(in: connections.indices, using: &random))
                registry.disconnected(gone.id, of: members[gone.member], at: now)
                owed.removeAll { $0.0 == gone.id }
            case 2...4:
                guard let connection = connections.randomElement(using: &random) else { continue }
                actions = register(number, by: members[connection.member], on: connection.id)
                let answers = sent(actions, to: connection.id).filter { if case .push = $0 { false } else { true } }
                #expect(answers.count == 1, "one answer to each registration")
                if refusal(actions) == nil {
                    #expect([nil, members[connection.member]].contains(owner[token(number)]))
                    owner[token(number)] = members[connection.member]
                }
            case 5:
                let member = members[Int.random(in: 0..<6, using: &random)]
                actions = registry.unregister(token(number), by: member, at: now)
            case 6:
                guard let (connection, id) = owed.randomElement(using: &random) else { continue }
                actions = registry.receive(
                    .init(id: id, outcome: random.chance(20) ? .unknownToken : .taken), from: connection, at: now)
                owed.removeAll { $0.1 == id && $0.0 == connection }
            default:
                let (verdict, sent) = push(number, lifetime: random.chance(50) ? .zero : .seconds(5))
                actions = sent
                let out = sent.count { if case .send = $0 { true } else { false } }
                #expect(out == (verdict == .accepted(.sent) ? 1 : 0))
            }
            for case .note(.pushTokenDead(_, let dead)) in actions { owner[dead] = nil }
            for case .send(.push(let push), let recipients) in actions {
                let connection = recipients[0]
                #expect(recipients.count == 1)
                let member = connections.first { $0.id == connection }.map { members[$0.member] }
                #expect(member == owner[push.token], "a push goes to the token's member")
                owed.append((connection, push.id))
                #expect(owed.count { $0.0 == connection } <= limits.pushesUnconfirmed + limits.pushTokensPerMember)
            }
            #expect(registry.tokenCount == owner.count)
            #expect(registry.tokenCount <= limits.pushTokens)
            #expect(registry.keptPushCount <= limits.pushesKept)
        }
    }
}
