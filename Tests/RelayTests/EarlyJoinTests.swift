// Joins that are early data: what is told before the handshake is complete, and what has to wait for it.
import Cryptography
import MonotonicTime
import RelayProtocol
import TestSupport
import Testing

@testable import RelayServer

@Suite struct EarlyJoinTests {
    private let channel = RelayChannelConfiguration(
        id: ChannelID(), name: DisplayName("Yard")!, token: InvitationToken())
    private var core: RelayCore
    private let now = Instant(nanoseconds: 1_000_000_000)
    private let alice = ConnectionID(number: 1)
    private let bob = ConnectionID(number: 2)
    private let bobAgain = ConnectionID(number: 3)

    init() { core = RelayCore(channels: [channel], random: SeededGenerator(seed: 1)) }

    private func pin(_ number: UInt8) -> PublicKeyPin { PublicKeyPin([UInt8](repeating: number, count: 32))! }

    private func joinMessage(_ name: String, token: InvitationToken? = nil) -> ClientMessage {
        .join(.init(channel: channel.id, token: token ?? channel.token, displayName: DisplayName(name)!))
    }

    private mutating func join(_ id: ConnectionID, member: UInt8) -> ServerMessage.Welcome? {
        _ = core.handle(.connected(id, pin(member)), at: now)
        return welcome(core.handle(.message(id, joinMessage("Member \(member)")), at: now), to: id)
    }

    private func welcome(_ actions: [RelayCore.Action], to id: ConnectionID) -> ServerMessage.Welcome? {
        for case .send(.welcome(let welcome), to: [id]) in actions { return welcome }
        return nil
    }

    private func sent(_ actions: [RelayCore.Action], to id: ConnectionID) -> [ServerMessage] {
        actions.flatMap { action -> [ServerMessage] in
            switch action {
            case .send(let message, let to) where to.contains(id): [message]
            case .sendSeries(let series, let to): to.filter { $0.connection == id }.flatMap(series.messages(for:))
            default: []
            }
        }
    }

    @Test mutating func `an early join is answered at once, and nobody else notices until the handshake is complete`() {
        _ = join(alice, member: 1)
        #expect(core.handle(.greeted(bob, pin(2)), at: now).isEmpty)
        let early = core.handle(.message(bob, joinMessage("Bob")), at: now)
        let welcome = welcome(early, to: bob)
        #expect(early.count == 1)
        #expect(welcome?.members.map(\.id) == [MemberID(pin(1))])
        #expect(welcome?.memberID == MemberID(pin(2)))
        #expect(core.memberCount(of: channel.id) == 1)
        let entered = core.handle(.connected(bob, pin(2)), at: now)
        #expect(sent(entered, to: bob).isEmpty, "nothing has changed")
        guard case .memberJoined(let member)? = sent(entered, to: alice).first else {
            return #expect(Bool(false), "\(entered)")
        }
        #expect(member.ssrc == welcome?.ssrc)
        #expect(
            entered.contains { action in
                if case .startMedia(bob, _, let key, let ssrc) = action {
                    key == welcome?.downlinkKey && ssrc == welcome?.ssrc
                } else {
                    false
                }
            })
        #expect(core.memberCount(of: channel.id) == 2)
        #expect(core.nextDeadline == nil)
    }

    @Test mutating func `a recorded join that somebody sends again does not throw the member out`() {
        _ = join(alice, member: 1)
        _ = join(bob, member: 2)
        _ = core.handle(.greeted(bobAgain, pin(2)), at: now)
        let replayed = core.handle(.message(bobAgain, joinMessage("Bob")), at: now)
        // The answer is sealed for who made the greeting; nothing else happens.
        #expect(replayed.count == 1 && welcome(replayed, to: bobAgain) != nil)
        #expect(core.handle(.disconnected(bobAgain), at: now).isEmpty)
        #expect(core.memberCount(of: channel.id) == 2)
        // And if nothing tells of its end, it is closed when its time is over.
        _ = core.handle(.greeted(bobAgain, pin(2)), at: now)
        _ = core.handle(.message(bobAgain, joinMessage("Bob")), at: now)
        let due = core.nextDeadline ?? now
        #expect(due == now + core.limits.joinTime)
        let closed = core.handle(.deadline, at: due)
        #expect(closed.contains { if case .close(bobAgain, _, _) = $0 { true } else { false } })
        #expect(core.memberCount(of: channel.id) == 2)
    }

    @Test mutating func `a member that returns takes its own place once it is proven`() {
        _ = join(alice, member: 1)
        _ = join(bob, member: 2)
        _ = core.handle(.greeted(bobAgain, pin(2)), at: now)
        let early = core.handle(.message(bobAgain, joinMessage("Bob")), at: now)
        #expect(welcome(early, to: bobAgain)?.members.map(\.id) == [MemberID(pin(1))], "not itself")
        let entered = core.handle(.connected(bobAgain, pin(2)), at: now)
        #expect(entered.contains(.close(bob, .replaced, "the member joined on another connection")))
        #expect(core.memberCount(of: channel.id) == 2)
    }

    @Test mutating func `what has happened meanwhile is told once the handshake is complete`() {
        let first = join(alice, member: 1)
        _ = core.handle(.greeted(bob, pin(2)), at: now)
        let early = welcome(core.handle(.message(bob, joinMessage("Bob")), at: now), to: bob)
        #expect(early?.floor == nil)
        let carol = ConnectionID(number: 9)
        _ = join(carol, member: 9)
        let request = ClientMessage.FloorRequest(
            requestID: FloorRequestID(rawValue: 1), keyID: UInt64(first?.mediaKey?.epoch ?? 0) << 48 | 1)
        _ = core.handle(.message(alice, .floorRequest(request)), at: now)
        _ = core.handle(.renewMediaKey(channel.id), at: now)
        let told = sent(core.handle(.connected(bob, pin(2)), at: now), to: bob)
        #expect(told.count == 3)
        #expect(
            told.contains { if case .memberJoined(let member) = $0 { member.id == MemberID(pin(9)) } else { false } })
        #expect(told.contains { if case .mediaKey = $0 { true } else { false } })
        #expect(told.contains { if case .floorTaken(let taken) = $0 { taken.ssrc == first?.ssrc } else { false } })
        _ = core.handle(.disconnected(carol), at: now)
        // The other way round: who was there is gone, and the floor is idle.
        let dave = ConnectionID(number: 10)
        _ = core.handle(.greeted(dave, pin(10)), at: now)
        #expect(welcome(core.handle(.message(dave, joinMessage("Dave")), at: now), to: dave)?.floor != nil)
        _ = core.handle(.disconnected(alice), at: now)
        let rest = sent(core.handle(.connected(dave, pin(10)), at: now), to: dave)
        #expect(rest.contains(.memberLeft(MemberID(pin(1)))))
        #expect(rest.contains { if case .floorIdle = $0 { true } else { false } })
    }

    @Test mutating func `early data that is no join ends the connection`() {
        let messages: [ClientMessage] = [
            .floorRequest(.init(requestID: FloorRequestID(rawValue: 1), keyID: 1)), .leave,
        ]
        for (number, message) in messages.enumerated() {
            let id = ConnectionID(number: UInt64(20 + number))
            _ = core.handle(.greeted(id, pin(2)), at: now)
            let actions = core.handle(.message(id, message), at: now)
            #expect(actions.contains { if case .close(id, .protocolViolation, _) = $0 { true } else { false } })
        }
        _ = core.handle(.greeted(bob, pin(2)), at: now)
        _ = core.handle(.message(bob, joinMessage("Bob")), at: now)
        let second = core.handle(.message(bob, joinMessage("Bob")), at: now)
        #expect(second.contains { if case .close(bob, .protocolViolation, _) = $0 { true } else { false } })
    }

    @Test mutating func `an invitation that was changed is looked at, and refused after the handshake`() {
        _ = core.handle(.greeted(bob, pin(2)), at: now)
        #expect(core.handle(.message(bob, joinMessage("Bob", token: InvitationToken())), at: now).isEmpty)
        let refused = core.handle(.connected(bob, pin(2)), at: now)
        guard case .joinRefused(let refusal)? = sent(refused, to: bob).first else {
            return #expect(Bool(false), "\(refused)")
        }
        #expect(refusal.cause == .notInvited)
        #expect(core.memberCount(of: channel.id) == 0)
    }

    @Test mutating func `a client that greets and joins only later is a newcomer like any other`() {
        _ = core.handle(.greeted(bob, pin(2)), at: now)
        #expect(core.handle(.connected(bob, pin(2)), at: now).isEmpty)
        #expect(welcome(core.handle(.message(bob, joinMessage("Bob")), at: now), to: bob) != nil)
        #expect(core.memberCount(of: channel.id) == 1)
    }
}
