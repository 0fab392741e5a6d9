// Joins that are early data: what is told before the handshake is complete, and what has to wait for it.
import MonotonicTime
import RelayProtocol
import TestSupport
import Testing

@testable import RelayServer

@Suite struct EarlyJoinTests {
    private let channel = RelayChannelConfiguration.yard()
    private var core: RelayCore
    private let now = Instant(nanoseconds: 1_000_000_000)
    private let alice = ConnectionID(number: 1)
    private let bob = ConnectionID(number: 2)
    private let bobAgain = ConnectionID(number: 3)

    init() { core = RelayCore(channels: [channel], random: SeededGenerator(seed: 1)) }

    private mutating func join(_ id: ConnectionID, member: UInt8) -> ServerMessage.Welcome? {
        core.enter(id, .numbered(member), by: channel.joinMessage("Member \(member)"), at: now).welcome(for: id)
    }

    @Test mutating func `an early join is answered at once, and nobody else notices until the handshake is complete`() {
        _ = join(alice, member: 1)
        #expect(core.handle(.greeted(bob, .numbered(2)), at: now).isEmpty)
        let early = core.handle(.message(bob, channel.joinMessage("Bob")), at: now)
        let welcome = early.welcome(for: bob)
        #expect(early.count == 1)
        #expect(welcome?.members.map(\.id) == [.numbered(1)])
        #expect(welcome?.memberID == .numbered(2))
        #expect(core.memberCount(of: channel.id) == 1)
        let entered = core.handle(.connected(bob, .numbered(2)), at: now)
        #expect(entered.sent(to: bob).isEmpty, "nothing has changed")
        guard case .memberJoined(let member)? = entered.sent(to: alice).first else {
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
        _ = core.handle(.greeted(bobAgain, .numbered(2)), at: now)
        let replayed = core.handle(.message(bobAgain, channel.joinMessage("Bob")), at: now)
        // The answer is sealed for who made the greeting; nothing else happens.
        #expect(replayed.count == 1 && replayed.welcome(for: bobAgain) != nil)
        #expect(core.handle(.disconnected(bobAgain), at: now).isEmpty)
        #expect(core.memberCount(of: channel.id) == 2)
        // And if nothing tells of its end, it is closed when its time is over.
        _ = core.handle(.greeted(bobAgain, .numbered(2)), at: now)
        _ = core.handle(.message(bobAgain, channel.joinMessage("Bob")), at: now)
        let due = core.nextDeadline ?? now
        #expect(due == now + core.limits.joinTime)
        let closed = core.handle(.deadline, at: due)
        #expect(closed.contains { if case .close(bobAgain, _, _) = $0 { true } else { false } })
        #expect(core.memberCount(of: channel.id) == 2)
    }

    @Test mutating func `a member that returns takes its own place once it is proven`() {
        _ = join(alice, member: 1)
        _ = join(bob, member: 2)
        _ = core.handle(.greeted(bobAgain, .numbered(2)), at: now)
        let early = core.handle(.message(bobAgain, channel.joinMessage("Bob")), at: now)
        #expect(early.welcome(for: bobAgain)?.members.map(\.id) == [.numbered(1)], "not itself")
        let entered = core.handle(.connected(bobAgain, .numbered(2)), at: now)
        #expect(entered.contains(.close(bob, .replaced, "the member joined on another connection")))
        #expect(core.memberCount(of: channel.id) == 2)
    }

    @Test mutating func `what has happened meanwhile is told once the handshake is complete`() {
        let first = join(alice, member: 1)
        _ = core.handle(.greeted(bob, .numbered(2)), at: now)
        let early = core.handle(.message(bob, channel.joinMessage("Bob")), at: now).welcome(for: bob)
        #expect(early?.floor == nil)
        let carol = ConnectionID(number: 9)
        _ = join(carol, member: 9)
        let request = ClientMessage.FloorRequest(
            requestID: FloorRequestID(rawValue: 1), keyID: UInt64(first?.mediaKey?.epoch ?? 0) << 48 | 1)
        _ = core.handle(.message(alice, .floorRequest(request)), at: now)
        _ = core.handle(.renewMediaKey(channel.id), at: now)
        let told = core.handle(.connected(bob, .numbered(2)), at: now).sent(to: bob)
        #expect(told.count == 3)
        #expect(
            told.contains {
                if case .memberJoined(let member) = $0 { member.id == .numbered(9) } else { false }
            })
        #expect(told.contains { if case .mediaKey = $0 { true } else { false } })
        #expect(told.contains { if case .floorTaken(let taken) = $0 { taken.ssrc == first?.ssrc } else { false } })
        _ = core.handle(.disconnected(carol), at: now)
        // The other way round: who was there is gone, and the floor is idle.
        let dave = ConnectionID(number: 10)
        _ = core.handle(.greeted(dave, .numbered(10)), at: now)
        #expect(core.handle(.message(dave, channel.joinMessage("Dave")), at: now).welcome(for: dave)?.floor != nil)
        _ = core.handle(.disconnected(alice), at: now)
        let rest = core.handle(.connected(dave, .numbered(10)), at: now).sent(to: dave)
        #expect(rest.contains(.memberLeft(.numbered(1))))
        #expect(rest.contains { if case .floorIdle = $0 { true } else { false } })
    }

    @Test mutating func `early data that is not a join ends the connection`() {
        let messages: [ClientMessage] = [
            .floorRequest(.init(requestID: FloorRequestID(rawValue: 1), keyID: 1)), .leave,
        ]
        for (number, message) in messages.enumerated() {
            let id = ConnectionID(number: UInt64(20 + number))
            _ = core.handle(.greeted(id, .numbered(2)), at: now)
            let actions = core.handle(.message(id, message), at: now)
            #expect(actions.contains { if case .close(id, .protocolViolation, _) = $0 { true } else { false } })
        }
        _ = core.handle(.greeted(bob, .numbered(2)), at: now)
        _ = core.handle(.message(bob, channel.joinMessage("Bob")), at: now)
        let second = core.handle(.message(bob, channel.joinMessage("Bob")), at: now)
        #expect(second.contains { if case .close(bob, .protocolViolation, _) = $0 { true } else { false } })
    }

    @Test mutating func `an invitation that was changed is looked at, and refused after the handshake`() {
        _ = core.handle(.greeted(bob, .numbered(2)), at: now)
        #expect(core.handle(.message(bob, channel.joinMessage("Bob", token: InvitationToken())), at: now).isEmpty)
        let refused = core.handle(.connected(bob, .numbered(2)), at: now)
        guard case .joinRefused(let refusal)? = refused.sent(to: bob).first else {
            return #expect(Bool(false), "\(refused)")
        }
        #expect(refusal.cause == .notInvited)
        #expect(core.memberCount(of: channel.id) == 0)
    }

    @Test mutating func `a client that greets and joins only later is a newcomer like any other`() {
        _ = core.handle(.greeted(bob, .numbered(2)), at: now)
        #expect(core.handle(.connected(bob, .numbered(2)), at: now).isEmpty)
        #expect(core.handle(.message(bob, channel.joinMessage("Bob")), at: now).welcome(for: bob) != nil)
        #expect(core.memberCount(of: channel.id) == 1)
    }
}
