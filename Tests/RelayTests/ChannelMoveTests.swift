// Channels that go to another relay of the cluster, and members that are sent to the one that serves theirs.
import MonotonicTime
import RelayProtocol
import TestSupport
import Testing

@testable import RelayClient
@testable import RelayServer

@Suite struct ChannelMoveTests {
    private static let next = RelayPlace("next.example:4433")!
    private let yard = RelayChannelConfiguration.yard(FloorRules(hasQueue: true))
    private let gate = RelayChannelConfiguration(
        id: ChannelID(), name: DisplayName("Gate")!, token: InvitationToken())
    private var core: RelayCore
    private var now = Instant(nanoseconds: 1_000_000_000)
    private var welcomes: [ConnectionID: ServerMessage.Welcome] = [:]
    private let ids = (1...4).map { ConnectionID(number: $0) }

    /// Two on each channel.
    init() {
        core = RelayCore(channels: [yard, gate], random: SeededGenerator(seed: 1))
        for member in 0..<4 { join(member, member < 2 ? yard : gate) }
    }

    private mutating func join(_ member: Int, _ channel: RelayChannelConfiguration) {
        welcomes[ids[member]] =
            core.enter(ids[member], by: channel.joinMessage("Member \(member)"), at: now).welcome(for: ids[member])
    }

    private mutating func ask(_ member: Int, _ number: UInt32 = 1, priority: UInt8 = 0) -> [RelayCore.Action] {
        let keyID =
            UInt64(welcomes[ids[member]]?.mediaKey?.epoch ?? 0) << 48 | UInt64(member + 1) << 32 | UInt64(number)
        let request = ClientMessage.FloorRequest(
            requestID: FloorRequestID(rawValue: number), priority: priority, keyID: keyID, mayQueue: true)
        return core.handle(.message(ids[member], .floorRequest(request)), at: now)
    }

    private mutating func release(_ member: Int, _ number: UInt32 = 1) -> [RelayCore.Action] {
        let release = ClientMessage.FloorRelease(requestID: FloorRequestID(rawValue: number), lastSequence: nil)
        return core.handle(.message(ids[member], .floorRelease(release)), at: now)
    }

    private func granted(_ actions: [RelayCore.Action]) -> [ConnectionID] {
        ids.filter { id in actions.sent(to: id).contains { if case .floorGranted = $0 { true } else { false } } }
    }

    private func denials(_ actions: [RelayCore.Action], of member: Int) -> [String] {
        actions.sent(to: ids[member]).compactMap { if case .floorDeny(let denial) = $0 { denial.phrase } else { nil } }
    }

    private func closed(_ actions: [RelayCore.Action]) -> [ConnectionID] {
        actions.compactMap { if case .close(let id, .goingDown, RelayCore.moves) = $0 { id } else { nil } }
    }

    @Test mutating func `members of a quiet channel are sent on, and the others stay`() {
        #expect(core.pause([yard.id, gate.id], at: now) == [])
        let actions = core.handle(.move([yard.id], to: Self.next), at: now)
        for id in ids.prefix(2) { #expect(actions.sent(to: id) == [.successor(Self.next)]) }
        for id in ids.suffix(2) { #expect(actions.sent(to: id).isEmpty) }
        #expect(closed(actions).isEmpty, "the message has to arrive")
        now = now + RelayCore.closingTime
        let end = core.handle(.deadline, at: now)
        #expect(closed(end) == Array(ids.prefix(2)) && end.contains(.moved(yard.id)))
        #expect(core.channelConfigurations.map(\.id) == [gate.id])
        #expect(core.memberCount(of: gate.id) == 2)
    }

    @Test mutating func `a burst goes on to its end, and its channel is gone afterwards`() {
        #expect(granted(ask(0)) == [ids[0]])
        #expect(core.pause([yard.id, gate.id], at: now) == [yard.id])
        _ = core.handle(.move([yard.id, gate.id], to: Self.next), at: now)
        now = now + .seconds(2)
        #expect(closed(core.handle(.deadline, at: now)) == Array(ids.suffix(2)))
        #expect(core.memberCount(of: yard.id) == 2)
        _ = release(0)
        now = now + RelayCore.closingTime
        let end = core.handle(.deadline, at: now)
        #expect(closed(end) == Array(ids.prefix(2)) && end.contains(.moved(yard.id)))
        #expect(core.channelConfigurations.isEmpty)
    }

    @Test mutating func `who is denied the floor of a channel that moves reads that it moves`() {
        #expect(granted(ask(0)) == [ids[0]])
        #expect(granted(ask(1)).isEmpty)
        #expect(core.pause([yard.id], at: now) == [yard.id])
        let moved = core.handle(.move([yard.id], to: Self.next), at: now)
        #expect(denials(moved, of: 1) == [RelayCore.moves], "who waits")
        #expect(denials(ask(1, 2), of: 1) == [RelayCore.moves], "who presses during the burst")
        // The relay goes on, until it goes down.
        #expect(granted(ask(2)) == [ids[2]])
        _ = core.handle(.drain(to: nil), at: now)
        #expect(denials(ask(3), of: 3) == [RelayCore.goingDown])
    }

    @Test mutating func `nobody is granted the floor of a channel that is paused, whatever the priority`() {
        _ = core.pause([yard.id], at: now)
        for priority: UInt8 in [0, 255] { #expect(ask(0, UInt32(priority) + 1, priority: priority).isEmpty) }
        #expect(granted(ask(2)) == [ids[2]], "another channel")
        // It goes on here after all: the last request of each member counts.
        let actions = core.handle(.resume([yard.id]), at: now)
        #expect(granted(actions) == [ids[0]])
        #expect(granted(release(0, 256)) == [])
        #expect(granted(ask(1)) == [ids[1]])
    }

    @Test mutating func `who gives up while the channel is paused is not granted the floor afterwards`() {
        _ = core.pause([yard.id], at: now)
        _ = ask(0)
        _ = ask(1)
        _ = release(0)
        _ = core.handle(.disconnected(ids[1]), at: now)
        #expect(granted(core.handle(.resume([yard.id]), at: now)).isEmpty)
    }

    @Test mutating func `a channel that is taken over may be paused from the beginning`() {
        let post = RelayChannelConfiguration.yard()
        let member = MemberID.numbered(9)
        let isServed = core.serve(post, members: [member: RelayMembership(isRevoked: true)], isPaused: true)
        #expect(isServed)
        let id = ConnectionID(number: 9)
        let refused = core.enter(id, .numbered(9), by: post.joinMessage("Removed"), at: now)
        #expect(
            refused.sent(to: id).contains {
                if case .joinRefused(let refusal) = $0 { refusal.cause == .revoked } else { false }
            })
        let guest = ConnectionID(number: 10)
        let welcome = core.enter(guest, .numbered(10), by: post.joinMessage("Guest"), at: now).welcome(for: guest)
        let epoch = UInt64(welcome?.mediaKey?.epoch ?? 0)
        let request = ClientMessage.FloorRequest(requestID: .first, priority: 0, keyID: epoch << 48 | 7, mayQueue: true)
        #expect(core.handle(.message(guest, .floorRequest(request)), at: now).isEmpty)
        let actions = core.handle(.resume([post.id]), at: now)
        #expect(actions.sent(to: guest).contains { if case .floorGranted = $0 { true } else { false } })
    }

    // MARK: Where channels are

    private func places(_ channel: ChannelID, _ place: ChannelPlaces.Place) -> ChannelPlaces {
        var shares = Array(repeating: ChannelPlaces.Place.here, count: ChannelID.shareCount)
        shares[channel.share()] = place
        return ChannelPlaces(shares: shares)
    }

    @Test mutating func `who asks for a channel of another relay is sent there, with early data too`() {
        let other = RelayChannelConfiguration.yard()
        _ = core.handle(.setPlaces(places(other.id, .elsewhere(Self.next))), at: now)
        for (number, isEarly) in [(20, false), (21, true)] {
            let id = ConnectionID(number: UInt64(number))
            let event: RelayCore.Event =
                isEarly ? .greeted(id, .numbered(number)) : .connected(id, .numbered(number))
            _ = core.handle(event, at: now)
            let actions = core.handle(.message(id, other.joinMessage("Guest")), at: now)
            #expect(actions.sent(to: id) == [.successor(Self.next)])
        }
        #expect(core.counters.joinsSentOn == 2 && core.counters.joinsRefused == 0)
        now = now + core.limits.refusalTime
        let late = core.handle(.deadline, at: now)
        #expect(
            late.contains { if case .close(ConnectionID(number: 20), _, _) = $0 { true } else { false } },
            "who does not go")
    }

    @Test mutating func `a channel without a relay is a matter of time`() {
        let other = RelayChannelConfiguration.yard()
        _ = core.handle(.setPlaces(places(other.id, .nowhere)), at: now)
        let id = ConnectionID(number: 20)
        let actions = core.enter(id, by: other.joinMessage("Guest"), at: now)
        #expect(
            actions.sent(to: id).contains {
                if case .joinRefused(let refusal) = $0 { refusal.cause.isTemporary } else { false }
            })
    }

    @Test mutating func `a channel that the records of the cluster may have is asked for`() {
        core = RelayCore(channels: [yard], roster: RelayRoster(memberships: [:]), random: SeededGenerator(seed: 1))
        let other = RelayChannelConfiguration.yard()
        _ = core.handle(.setPlaces(places(other.id, .here)), at: now)
        let id = ConnectionID(number: 20)
        let actions = core.enter(id, by: other.joinMessage("Guest"), at: now)
        guard case .enrol(id, let enrolment)? = actions.first else {
            Issue.record("\(actions)")
            return
        }
        let answer = core.handle(.enrolled(id, enrolment, .admitted(RelayMembership())), at: now)
        #expect(
            answer.sent(to: id).contains {
                if case .joinRefused(let refusal) = $0 { refusal.cause == .relayBusy } else { false }
            })
    }

    @Test func `channels are spread evenly over the shares`() {
        var generator = SeededGenerator(seed: 5)
        var counts = Array(repeating: 0, count: ChannelID.shareCount)
        for _ in 0..<64_000 {
            let bytes = (0..<16).map { _ in UInt8.random(in: 0...255, using: &generator) }
            counts[ChannelID(bytes: bytes)!.share()] += 1
        }
        #expect(counts.min()! > 850 && counts.max()! < 1_150)
        // What all relays of a cluster have to agree on, so that it never changes.
        #expect(ChannelID("00112233-4455-6677-8899-aabbccddeeff")!.share() == Self.knownShare)
    }

    /// FNV-1a of the bytes 00 11 … ff, folded, modulo 64.
    private static let knownShare = 63

    // MARK: The client

    private func client() throws -> RelayClientCore {
        let link = try InvitationLink(
            host: "relay.example", port: 1, channelName: DisplayName("c")!, channel: ChannelID(),
            token: InvitationToken(), pin: .numbered(1))
        var core = RelayClientCore(invitation: link, displayName: DisplayName("c")!, timestampAtZero: 7)
        _ = core.handle(.join, at: now)
        _ = core.handle(.connected, at: now)
        return core
    }

    @Test func `a client goes at once where it is sent, without a word to its user`() throws {
        var core = try client()
        let actions = core.handle(.message(.successor(Self.next)), at: now)
        #expect(actions == [.close(.none), .connect])
        #expect(core.relay.place == Self.next)
        // Where nobody is, the place of the link has its turn.
        _ = core.handle(.connectionEnded(.unreachable("no answer")), at: now + .seconds(1))
        _ = core.handle(.deadline, at: now + .seconds(2))
        #expect(core.relay.place.host == "relay.example")
    }

    @Test func `a client that is sent in circles waits`() throws {
        var core = try client()
        let back = RelayPlace("relay.example:1")!
        for number in 0..<RelayClientStateMachine.timesSentOnMaximum {
            let actions = core.handle(.message(.successor(number % 2 == 0 ? Self.next : back)), at: now)
            #expect(actions.contains(.connect))
            _ = core.handle(.connected, at: now)
        }
        let actions = core.handle(.message(.successor(Self.next)), at: now)
        #expect(!actions.contains(.connect))
        let wait = actions.compactMap { if case .tell(.state(.unavailable(_, let wait))) = $0 { wait } else { nil } }
        #expect(wait == [.milliseconds(250)])
        #expect(core.handle(.deadline, at: now + .milliseconds(250)).contains(.connect))
    }
}
