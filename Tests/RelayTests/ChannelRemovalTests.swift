// Channels that are removed and renamed while the relay runs: nothing of one is left, and nothing of it reaches the next. By the rules.
import MonotonicTime
import RelayProtocol
import TestSupport
import Testing

@testable import RelayServer

@Suite struct ChannelRemovalTests {
    private let channel = RelayChannelConfiguration.yard()
    private let other = RelayChannelConfiguration(
        id: ChannelID(), name: DisplayName("Gate")!, token: InvitationToken())
    private let now = Instant(nanoseconds: 1_000_000_000)
    private let alice = ConnectionID(number: 1)
    private let bob = ConnectionID(number: 2)
    private let carol = ConnectionID(number: 3)
    private var core: RelayCore

    init() { core = RelayCore(channels: [channel, other], random: SeededGenerator(seed: 1)) }

    private func closed(_ actions: [RelayCore.Action], _ id: ConnectionID) -> RelayCloseCode? {
        for case .close(id, let code, "removed") in actions { return code }
        return nil
    }

    private mutating func remove(_ channel: RelayChannelConfiguration) -> [RelayCore.Action] {
        core.handle(.removeChannel(channel.id, "removed"), at: now)
    }

    @Test mutating func `members of a removed channel are told that it has ended, and the others notice nothing`() {
        _ = core.enter(alice, by: channel.joinMessage("Alice"), at: now)
        _ = core.enter(bob, by: channel.joinMessage("Bob", isPushOnly: true), at: now)
        _ = core.enter(carol, by: other.joinMessage("Carol"), at: now)
        let actions = remove(channel)
        #expect(closed(actions, alice) == .channelEnded && closed(actions, bob) == .channelEnded)
        #expect(closed(actions, carol) == nil && actions.sent(to: carol).isEmpty)
        #expect(core.channelConfigurations == [other] && core.channelStatistics.map(\.id) == [other.id])
        #expect(core.connectedMembers(of: channel.id) == nil && core.statistics(of: channel.id) == nil)
        #expect(core.memberCount(of: other.id) == 1)
        let removedAgain = remove(channel)
        #expect(removedAgain.isEmpty, "it is gone already")
        let again = core.enter(alice, by: channel.joinMessage("Alice"), at: now)
        #expect(again.welcome(for: alice) == nil && !again.sent(to: alice).isEmpty)
    }

    @Test mutating func `the number of a removed channel is used again, and nothing of the old one is in the new one`()
    {
        _ = core.enter(alice, by: channel.joinMessage("Alice"), at: now)
        // Its handshake ends after the channel is another one.
        _ = core.handle(.greeted(bob, .numbered(2)), at: now)
        let early = core.handle(.message(bob, channel.joinMessage("Bob")), at: now)
        #expect(early.welcome(for: bob) != nil)
        let removed = remove(channel)
        #expect(closed(removed, bob) == .channelEnded)
        let next = RelayChannelConfiguration(id: ChannelID(), name: DisplayName("Next")!, token: InvitationToken())
        let isServed = core.serve(next)
        #expect(isServed && core.channels.count == 2, "no place is wasted")
        let late = core.handle(.connected(bob, .numbered(2)), at: now)
        #expect(late.welcome(for: bob) == nil)
        #expect(core.memberCount(of: next.id) == 0)
        let welcome = core.enter(carol, by: next.joinMessage("Carol"), at: now).welcome(for: carol)
        #expect(welcome?.members.isEmpty == true && welcome?.channelName == next.name)
        let gone = core.enter(alice, by: channel.joinMessage("Alice"), at: now)
        #expect(gone.welcome(for: alice) == nil)
    }

    @Test mutating func `as many channels come and go as one likes, and the limit counts those that are there`() {
        var limits = RelayLimits()
        limits.channels = 2
        core = RelayCore(channels: [channel, other], limits: limits, random: SeededGenerator(seed: 1))
        for number in 0..<100 {
            let next = RelayChannelConfiguration(
                id: ChannelID(), name: DisplayName("\(number)")!, token: InvitationToken())
            let isTooMany = !core.serve(next)
            _ = remove(core.channelConfigurations[0])
            let isServed = core.serve(next)
            #expect(isTooMany && isServed && core.channels.count == 2)
        }
    }

    @Test mutating func `a talker of a removed channel has no floor any more, and its packets go to nobody`() throws {
        _ = core.enter(alice, by: channel.joinMessage("Alice"), at: now)
        let welcome = try #require(
            core.enter(bob, by: channel.joinMessage("Bob"), at: now).welcome(for: bob))
        let key = UInt64(try #require(welcome.mediaKey).epoch) << 48 | 1
        let wish = ClientMessage.FloorRequest(requestID: .first, keyID: key)
        _ = core.handle(.message(bob, .floorRequest(wish)), at: now)
        let packet = packetOnTheWire(1, ssrc: welcome.ssrc, keyID: key, isFirst: true)
        guard case .forward = core.media(packet, from: bob, at: now).0 else { return #expect(Bool(false)) }
        #expect(core.keptBytes > 0)
        _ = remove(channel)
        #expect(core.keptBytes == 0)
        let decision = core.media(packet, from: bob, at: now).0
        #expect(decision == .drop(.notJoined))
        #expect(core.nextDeadline == nil, "nothing is due on a channel that is gone")
    }

    @Test mutating func `a renamed channel keeps its members, and those who join read the new name`() {
        _ = core.enter(alice, by: channel.joinMessage("Alice"), at: now)
        let renaming = core.handle(.renameChannel(channel.id, to: DisplayName("Square")!), at: now)
        #expect(renaming.isEmpty)
        #expect(core.memberCount(of: channel.id) == 1)
        #expect(core.configuration(of: channel.id)?.name.text == "Square")
        let welcome = core.enter(bob, by: channel.joinMessage("Bob"), at: now).welcome(for: bob)
        #expect(welcome?.channelName.text == "Square" && welcome?.members.map(\.id) == [.numbered(1)])
    }
}
