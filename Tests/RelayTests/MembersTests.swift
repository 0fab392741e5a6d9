// Members of a relay's channels: who is let in, who is not any more, and what is told of it. By the rules alone.
import MonotonicTime
import RelayProtocol
import TestSupport
import Testing

@testable import RelayServer

@Suite struct MembersTests {
    private let channel = RelayChannelConfiguration.yard()
    private let invitation = InvitationToken()
    private let now = Instant(nanoseconds: 1_000_000_000)
    private var core: RelayCore
    private let alice = ConnectionID(number: 1)
    private let bob = ConnectionID(number: 2)
    private let bobAgain = ConnectionID(number: 3)

    init() {
        core = RelayCore(channels: [channel], roster: RelayRoster(memberships: [:]), random: SeededGenerator(seed: 1))
    }

    private func joinMessage(isPushOnly: Bool = false) -> ClientMessage {
        channel.joinMessage("Somebody", token: invitation, isPushOnly: isPushOnly)
    }

    private func enrolment(_ actions: [RelayCore.Action]) -> RelayEnrolment? {
        for case .enrol(_, let enrolment) in actions { return enrolment }
        return nil
    }

    private func refusal(_ actions: [RelayCore.Action], to id: ConnectionID) -> JoinRefusal? {
        for case .joinRefused(let refused) in actions.sent(to: id) { return refused.cause }
        return nil
    }

    private func closed(_ actions: [RelayCore.Action], _ id: ConnectionID) -> RelayCloseCode? {
        for case .close(id, let code, _) in actions { return code }
        return nil
    }

    /// Joins as a member, whom the first time the answer `membership` makes one.
    @discardableResult
    private mutating func join(
        _ id: ConnectionID, _ number: UInt8, as membership: RelayMembership = .init()
    ) -> [RelayCore.Action] {
        let actions = core.enter(id, .numbered(number), by: joinMessage(), at: now)
        guard let asked = enrolment(actions) else { return actions }
        return core.handle(.enrolled(id, asked, .admitted(membership)), at: now)
    }

    @Test
    mutating func `a new device hears nothing of the channel until it is written down, and is known by its key then`() {
        _ = core.handle(.connected(bob, .numbered(2)), at: now)
        let asked = core.handle(.message(bob, joinMessage()), at: now)
        #expect(asked.count == 1)
        #expect(
            enrolment(asked)
                == RelayEnrolment(
                    channel: channel.id, token: invitation, member: .numbered(2), name: DisplayName("Somebody")!))
        #expect(core.memberCount(of: channel.id) == 0)
        let answered = core.handle(
            .enrolled(bob, enrolment(asked)!, .admitted(.init(priority: 7, isListenOnly: true))), at: now)
        #expect(answered.welcome(for: bob) != nil)
        #expect(core.channels[0].members[bob]?.priority == 7)
        #expect(core.channels[0].members[bob]?.isListenOnly == true)
        // The second time nobody is asked.
        let again = join(bobAgain, 2)
        #expect(enrolment(again) == nil && again.welcome(for: bobAgain) != nil)
        #expect(core.channels[0].members[bobAgain]?.priority == 7)
    }

    @Test(arguments: [JoinRefusal.notInvited, .revoked, .channelFull])
    mutating func `who is not invited is told so, and is closed`(cause: JoinRefusal) {
        _ = core.handle(.connected(bob, .numbered(2)), at: now)
        let asked = core.handle(.message(bob, joinMessage()), at: now)
        let answered = core.handle(.enrolled(bob, enrolment(asked)!, .refused(cause, "no")), at: now)
        #expect(refusal(answered, to: bob) == cause)
        #expect(core.memberCount(of: channel.id) == 0)
        #expect(closed(core.handle(.deadline, at: now + core.limits.refusalTime), bob) == .joinRefused)
    }

    @Test mutating func `who has gone before the answer is a member all the same, and who talks before it is closed`() {
        _ = core.handle(.connected(bob, .numbered(2)), at: now)
        let asked = core.handle(.message(bob, joinMessage()), at: now)
        _ = core.handle(.disconnected(bob), at: now)
        let answered = core.handle(.enrolled(bob, enrolment(asked)!, .admitted(.init())), at: now)
        #expect(answered.sent(to: bob).isEmpty)
        #expect(join(bobAgain, 2).welcome(for: bobAgain) != nil)
        _ = core.handle(.connected(alice, .numbered(1)), at: now)
        _ = core.handle(.message(alice, joinMessage()), at: now)
        #expect(closed(core.handle(.message(alice, joinMessage()), at: now), alice) == .protocolViolation)
    }

    @Test mutating func `enrolments are bounded, and one that takes too long is refused for now`() {
        var limits = RelayLimits()
        limits.enrolments = 1
        core = RelayCore(channels: [channel], limits: limits, roster: RelayRoster(memberships: [:]))
        _ = core.handle(.connected(alice, .numbered(1)), at: now)
        let asked = core.handle(.message(alice, joinMessage()), at: now)
        _ = core.handle(.connected(bob, .numbered(2)), at: now)
        #expect(refusal(core.handle(.message(bob, joinMessage()), at: now), to: bob) == .relayBusy)
        let late = core.handle(.deadline, at: now + limits.joinTime)
        #expect(refusal(late, to: alice) == .relayBusy)
        _ = core.handle(.enrolled(alice, enrolment(asked)!, .admitted(.init())), at: now)
        #expect(enrolment(join(bobAgain, 3)) == nil, "there is room for another one")
        #expect(core.memberCount(of: channel.id) == 1)
    }

    @Test mutating func `a removed member is closed at once, the others get a new key, and no link lets it in again`() {
        join(alice, 1)
        let before = join(bob, 2).welcome(for: bob)?.mediaKey
        let actions = core.handle(.revoke([.numbered(2)], from: channel.id), at: now)
        #expect(closed(actions, bob) == .revoked)
        var renewed: MediaKey?
        for case .mediaKey(let key) in actions.sent(to: alice) { renewed = key }
        #expect(renewed != nil && renewed != before)
        #expect(actions.sent(to: alice).contains(.memberLeft(.numbered(2))))
        #expect(!actions.sent(to: bob).contains { if case .mediaKey = $0 { true } else { false } })
        let again = join(bobAgain, 2)
        #expect(refusal(again, to: bobAgain) == .revoked)
        #expect(core.memberCount(of: channel.id) == 1)
    }

    @Test mutating func `several members are removed at once, with one new key for those who stay`() {
        join(alice, 1)
        let epoch = join(bob, 2).welcome(for: bob)!.mediaKey!.epoch
        join(bobAgain, 3)
        #expect(core.connectedMembers(of: channel.id)?[.numbered(3)]?.text == "Somebody")
        let actions = core.handle(.revoke([.numbered(2), .numbered(3), .numbered(9)], from: channel.id), at: now)
        #expect(closed(actions, bob) == .revoked && closed(actions, bobAgain) == .revoked)
        let keys = actions.sent(to: alice).compactMap { if case .mediaKey(let key) = $0 { key.epoch } else { nil } }
        #expect(keys == [epoch + 1])
        #expect(
            core.connectedMembers(of: channel.id)?.keys.sorted { $0.description < $1.description } == [.numbered(1)])
        let later = ConnectionID(number: 4)
        for number in [2, 3, 9] as [UInt8] {
            #expect(refusal(join(later, number), to: later) == .revoked)
            _ = core.handle(.disconnected(later), at: now)
        }
        #expect(core.handle(.revoke([], from: channel.id), at: now).isEmpty)
    }

    @Test mutating func `a removed member that holds the floor loses it, and the next one is granted it`() {
        join(alice, 1)
        let epoch = join(bob, 2).welcome(for: bob)!.mediaKey!.epoch
        let wish = ClientMessage.FloorRequest(
            requestID: .first, priority: 0, keyID: UInt64(epoch) << 48 | 1, mayQueue: false)
        let granted = core.handle(.message(bob, .floorRequest(wish)), at: now)
        #expect(granted.sent(to: bob).contains { if case .floorGranted = $0 { true } else { false } })
        let actions = core.handle(.revoke([.numbered(2)], from: channel.id), at: now)
        #expect(actions.sent(to: alice).contains { if case .floorIdle = $0 { true } else { false } })
        let next = ClientMessage.FloorRequest(
            requestID: .first, priority: 0, keyID: UInt64(epoch &+ 1) << 48 | 2, mayQueue: false)
        let taken = core.handle(.message(alice, .floorRequest(next)), at: now)
        #expect(taken.sent(to: alice).contains { if case .floorGranted = $0 { true } else { false } })
    }

    @Test
    mutating func `a removed member that returns with early data is not welcomed, also when it was before the removal`()
    {
        join(alice, 1)
        join(bob, 2)
        _ = core.handle(.disconnected(bob), at: now)
        // Welcomed early, then removed: closed before its handshake is complete.
        _ = core.handle(.greeted(bobAgain, .numbered(2)), at: now)
        #expect(core.handle(.message(bobAgain, joinMessage()), at: now).welcome(for: bobAgain) != nil)
        #expect(closed(core.handle(.revoke([.numbered(2)], from: channel.id), at: now), bobAgain) == .revoked)
        #expect(
            core.handle(.connected(bobAgain, .numbered(2)), at: now).isEmpty, "a new connection that has not joined")
        _ = core.handle(.disconnected(bobAgain), at: now)
        // Removed, then greeting: nothing is told before the handshake, and then the refusal.
        let later = ConnectionID(number: 4)
        _ = core.handle(.greeted(later, .numbered(2)), at: now)
        #expect(core.handle(.message(later, joinMessage()), at: now).isEmpty)
        #expect(refusal(core.handle(.connected(later, .numbered(2)), at: now), to: later) == .revoked)
        #expect(core.memberCount(of: channel.id) == 1)
    }

    @Test mutating func `a removal that comes before the enrolment's answer stands`() {
        _ = core.handle(.connected(bob, .numbered(2)), at: now)
        let asked = core.handle(.message(bob, joinMessage()), at: now)
        #expect(closed(core.handle(.revoke([.numbered(2)], from: channel.id), at: now), bob) == .revoked)
        let answered = core.handle(.enrolled(bob, enrolment(asked)!, .admitted(.init())), at: now)
        #expect(answered.welcome(for: bob) == nil)
        #expect(refusal(join(bobAgain, 2), to: bobAgain) == .revoked)
    }

    @Test
    mutating func `an enrolment that is answered after its channel was removed makes nobody a member of the next one`()
    {
        let asked = core.enter(bob, .numbered(2), by: joinMessage(), at: now)
        _ = core.handle(.removeChannel(channel.id, "removed"), at: now)
        let answered = core.handle(.enrolled(bob, enrolment(asked)!, .admitted(.init())), at: now)
        #expect(refusal(answered, to: bob) == .notInvited)
        // The records may have removed the member meanwhile.
        let isServed = core.serve(channel)
        #expect(isServed)
        let again = core.enter(bobAgain, .numbered(2), by: joinMessage(), at: now)
        #expect(enrolment(again) != nil && again.welcome(for: bobAgain) == nil)
    }

    @Test mutating func `a client that takes pushes only is removed, too`() {
        _ = core.handle(.connected(bob, .numbered(2)), at: now)
        let asked = core.handle(.message(bob, joinMessage(isPushOnly: true)), at: now)
        let answered = core.handle(.enrolled(bob, enrolment(asked)!, .admitted(.init())), at: now)
        #expect(answered.sent(to: bob).contains { if case .pushWelcome = $0 { true } else { false } })
        #expect(closed(core.handle(.revoke([.numbered(2)], from: channel.id), at: now), bob) == .revoked)
    }

    @Test mutating func `a member that is let in again has the rights it is given, also while it is connected`() {
        join(bob, 2)
        _ = core.handle(.readmit(.numbered(2), to: channel.id, as: .init(priority: 9, isListenOnly: true)), at: now)
        #expect(core.channels[0].members[bob]?.priority == 9)
        _ = core.handle(.revoke([.numbered(2)], from: channel.id), at: now)
        _ = core.handle(.readmit(.numbered(2), to: channel.id, as: .init()), at: now)
        #expect(join(bobAgain, 2).welcome(for: bobAgain) != nil)
        #expect(core.channels[0].members[bobAgain]?.isListenOnly == false)
    }

    @Test
    mutating func `an end-to-end channel's key is never the relay's: none is given, none renewed, epoch 0 may talk`() {
        var own = channel
        own.isEndToEnd = true
        core = RelayCore(channels: [own], roster: RelayRoster(memberships: [:]), random: SeededGenerator(seed: 2))
        join(alice, 1)
        let welcome = join(bob, 2).welcome(for: bob)
        #expect(welcome != nil && welcome?.mediaKey == nil)
        let wish = ClientMessage.FloorRequest(requestID: .first, priority: 0, keyID: 77, mayQueue: false)
        #expect(
            core.handle(.message(alice, .floorRequest(wish)), at: now).sent(to: alice).contains {
                if case .floorGranted = $0 { true } else { false }
            })
        let actions = core.handle(.revoke([.numbered(2)], from: channel.id), at: now)
        #expect(!actions.contains { if case .send(.mediaKey, _) = $0 { true } else { false } })
    }

    @Test mutating func `a channel is added while others are served, up to the limit`() {
        let other = RelayChannelConfiguration(id: ChannelID(), name: DisplayName("Other")!, token: InvitationToken())
        let first = core.serve(other)
        let second = core.serve(other)
        #expect(first && second && core.channels.count == 2)
        join(alice, 1)
        var changed = channel
        changed.isEndToEnd = true
        let isChanged = core.serve(changed)
        #expect(!isChanged, "members are on it")
        var limits = RelayLimits()
        limits.channels = 1
        core = RelayCore(channels: [channel], limits: limits)
        let isServed = core.serve(other)
        #expect(!isServed)
    }
}
