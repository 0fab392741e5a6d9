// The rules of the relay: who is let in, what is forwarded, what is refused.
import MonotonicTime
import RelayProtocol
import TestSupport
import Testing

@testable import RelayServer

@Suite struct RelayCoreTests {
    private let channel = RelayChannelConfiguration.yard()
    private var core: RelayCore
    private var now = Instant(nanoseconds: 1_000_000_000)
    private let alice = ConnectionID(number: 1)
    private let bob = ConnectionID(number: 2)

    init() { core = RelayCore(channels: [channel], random: SeededGenerator(seed: 1)) }

    @discardableResult
    private mutating func join(_ id: ConnectionID, member: UInt64? = nil) -> (ServerMessage.Welcome, [RelayCore.Action])
    {
        #expect(core.handle(.connected(id, .numbered(member ?? id.number)), at: now).isEmpty)
        let actions = core.handle(.message(id, channel.joinMessage("Member \(id)")), at: now)
        guard let welcome = actions.welcome(for: id) else { fatalError("not welcome: \(actions)") }
        return (welcome, actions)
    }

    private func closed(_ actions: [RelayCore.Action]) -> [ConnectionID: RelayCloseCode] {
        var codes: [ConnectionID: RelayCloseCode] = [:]
        for case .close(let id, let code, _) in actions { codes[id] = code }
        return codes
    }

    private func keyID(_ welcome: ServerMessage.Welcome, _ number: UInt64) -> UInt64 {
        UInt64(welcome.mediaKey!.epoch) << 48 | number
    }

    private mutating func request(
        _ id: ConnectionID, _ welcome: ServerMessage.Welcome, _ number: UInt32, key: UInt64? = nil
    ) -> [RelayCore.Action] {
        let message = ClientMessage.floorRequest(
            .init(
                requestID: FloorRequestID(rawValue: number),
                keyID: key ?? keyID(welcome, id.number << 32 | UInt64(number))))
        return core.handle(.message(id, message), at: now)
    }

    private mutating func media(
        _ id: ConnectionID, _ welcome: ServerMessage.Welcome, _ sequence: UInt16, request number: UInt64 = 1,
        ssrc: SSRC? = nil
    ) -> (RelayCore.MediaDecision, [RelayCore.Action]) {
        core.media(
            MediaPacketHeader(
                ssrc: ssrc ?? welcome.ssrc, sequence: sequence, marker: true,
                keyID: keyID(welcome, id.number << 32 | number)),
            bytes: [UInt8](repeating: 0, count: 100), from: id, at: now)
    }

    @Test mutating func `a member is welcomed with all it needs, and the others hear of it`() {
        let (first, _) = join(alice)
        #expect(first.members.isEmpty)
        #expect(first.floor == nil)
        #expect(first.mediaKey?.baseKey.count == 32)
        #expect(core.nextDeadline == nil)
        let (second, actions) = join(bob)
        #expect(second.members.map(\.id) == [.numbered(1)])
        #expect(second.ssrc != first.ssrc)
        #expect(second.downlinkKey != first.downlinkKey)
        #expect(second.mediaKey == first.mediaKey)
        let joined = ServerMessage.Member(
            id: .numbered(2), displayName: DisplayName("Member 2")!, ssrc: second.ssrc)
        #expect(actions.sent(to: alice) == [.memberJoined(joined)])
        let left = core.handle(.disconnected(bob), at: now)
        #expect(left.sent(to: alice) == [.memberLeft(.numbered(2))])
        #expect(core.memberCount(of: channel.id) == 1)
    }

    @Test mutating func `who comes in the middle of a burst knows who talks`() {
        let (welcome, _) = join(alice)
        _ = request(alice, welcome, 1)
        let (late, _) = join(bob)
        #expect(late.floor?.ssrc == welcome.ssrc)
        #expect(late.floor?.keyID == keyID(welcome, 1 << 32 | 1))
        #expect(late.members.first?.id == late.floor?.talker)
    }

    @Test mutating func `a wrong token, an unknown channel and another version are refused, and closed a little later`()
    {
        let messages: [(ClientMessage, JoinRefusal)] = [
            (channel.joinMessage("x", token: InvitationToken()), .notInvited),
            (.join(.init(channel: ChannelID(), token: channel.token, displayName: DisplayName("x")!)), .notInvited),
            (
                .join(
                    .init(
                        channel: channel.id, token: channel.token, displayName: DisplayName("x")!,
                        protocolVersion: 99)), .unsupportedVersion
            ),
        ]
        for (number, (message, cause)) in messages.enumerated() {
            let id = ConnectionID(number: UInt64(10 + number))
            _ = core.handle(.connected(id, .numbered(9)), at: now)
            let actions = core.handle(.message(id, message), at: now)
            guard case .joinRefused(let refusal)? = actions.sent(to: id).first else {
                return #expect(Bool(false), "\(actions)")
            }
            #expect(refusal.cause == cause)
            #expect(closed(actions).isEmpty, "it must be able to read why")
            #expect(core.handle(.message(id, channel.joinMessage("again")), at: now).isEmpty)
            now = now + .seconds(1)
            #expect(closed(core.handle(.deadline, at: now)) == [id: .joinRefused])
        }
        #expect(core.counters.joinsRefused == 3)
        #expect(core.memberCount(of: channel.id) == 0)
        #expect(core.nextDeadline == nil)
    }

    @Test mutating func `who does not join in time, or talks before it, is closed`() {
        _ = core.handle(.connected(alice, .numbered(1)), at: now)
        #expect(core.nextDeadline == now + .seconds(10))
        #expect(closed(core.handle(.deadline, at: now + .seconds(10))) == [alice: .protocolViolation])
        _ = core.handle(.connected(bob, .numbered(2)), at: now)
        let release = ClientMessage.floorRelease(.init(requestID: .first, lastSequence: nil))
        #expect(closed(core.handle(.message(bob, release), at: now)) == [bob: .protocolViolation])
        #expect(core.counters.protocolViolations == 2)
    }

    @Test mutating func `a newer connection replaces the older one and ends its burst`() {
        let (welcome, _) = join(alice)
        join(bob)
        _ = request(alice, welcome, 1)
        let again = ConnectionID(number: 3)
        let (new, actions) = join(again, member: 1)
        #expect(closed(actions) == [alice: .replaced])
        #expect(new.ssrc != welcome.ssrc)
        #expect(new.floor == nil)
        let told = actions.sent(to: bob)
        #expect(told.first == .floorIdle(.init(ssrc: welcome.ssrc, lastSequence: nil)))
        #expect(
            told.last
                == .memberJoined(.init(id: .numbered(1), displayName: DisplayName("Member 3")!, ssrc: new.ssrc)))
        #expect(!told.contains(.memberLeft(.numbered(1))))
        #expect(core.handle(.disconnected(alice), at: now).isEmpty)
        #expect(core.memberCount(of: channel.id) == 2)
    }

    @Test mutating func `a full channel refuses, but not a member that comes back`() {
        var limits = RelayLimits()
        limits.membersPerChannel = 1
        core = RelayCore(channels: [channel], limits: limits)
        join(alice)
        _ = core.handle(.connected(bob, .numbered(2)), at: now)
        let actions = core.handle(.message(bob, channel.joinMessage("Bob")), at: now)
        guard case .joinRefused(let refusal)? = actions.sent(to: bob).first else {
            return #expect(Bool(false), "\(actions)")
        }
        #expect(refusal.cause == .channelFull)
        join(ConnectionID(number: 3), member: 1)
    }

    @Test mutating func `a full relay says so to who wants to join, and not to who comes back`() {
        var limits = RelayLimits()
        limits.connections = 1
        core = RelayCore(channels: [channel], limits: limits)
        join(alice)
        _ = core.handle(.connected(bob, .numbered(2)), at: now)
        let actions = core.handle(.message(bob, channel.joinMessage("Bob")), at: now)
        #expect(actions.sent(to: bob) == [.joinRefused(.init(cause: .relayBusy, phrase: "the relay is full"))])
        now = now + limits.refusalTime
        #expect(closed(core.handle(.deadline, at: now)) == [bob: .joinRefused])
        join(ConnectionID(number: 3), member: 1)
        #expect(core.memberCount(of: channel.id) == 1)
    }

    @Test mutating func `of connections beyond the limit only so many are told why`() {
        var limits = RelayLimits()
        limits.connections = 1
        core = RelayCore(channels: [channel], limits: limits)
        for number in 0..<UInt64(1 + limits.connectionsRefused) {
            #expect(core.handle(.connected(ConnectionID(number: 10 + number), .numbered(number)), at: now).isEmpty)
        }
        #expect(closed(core.handle(.connected(bob, .numbered(2)), at: now)) == [bob: .goingDown])
    }

    @Test mutating func `a client that has not joined in time is closed as one that breaks the protocol`() {
        _ = core.handle(.connected(alice, .numbered(1)), at: now)
        now = now + .seconds(10)
        #expect(closed(core.handle(.deadline, at: now)) == [alice: .protocolViolation])
    }

    @Test mutating func `a client without datagrams is told why it cannot be a member, and may have pushes`() {
        core = RelayCore(channels: [channel], acceptsPushes: true, random: SeededGenerator(seed: 1))
        _ = core.handle(.connected(alice, .numbered(1), carriesMedia: false), at: now)
        let join = channel.joinMessage("Alice")
        guard case .joinRefused(let refusal)? = core.handle(.message(alice, join), at: now).sent(to: alice).first else {
            return #expect(Bool(false), "let in")
        }
        #expect(refusal.cause == .unsupportedVersion && refusal.phrase.contains("max_datagram_frame_size"))
        // Not as early data either.
        _ = core.handle(.greeted(bob, .numbered(2), carriesMedia: false), at: now)
        #expect(core.handle(.message(bob, join), at: now).isEmpty)
        let confirmed = core.handle(.connected(bob, .numbered(2), carriesMedia: false), at: now)
        #expect(confirmed.sent(to: bob) == [.joinRefused(refusal)])
        let pushes = ConnectionID(number: 3)
        _ = core.handle(.connected(pushes, .numbered(3), carriesMedia: false), at: now)
        let pushJoin = channel.joinMessage("Pushes", isPushOnly: true)
        let isWelcome = core.handle(.message(pushes, pushJoin), at: now).sent(to: pushes).contains {
            if case .pushWelcome = $0 { true } else { false }
        }
        #expect(isWelcome)
    }

    @Test mutating func `messages of unknown kinds count as messages`() {
        join(alice)
        for _ in 0..<(core.limits.messageBurst - 1) {
            #expect(core.handle(.unknownMessage(alice), at: now).isEmpty)
        }
        #expect(closed(core.handle(.unknownMessage(alice), at: now)) == [alice: .protocolViolation])
        #expect(core.counters.messagesUnknown == core.limits.messageBurst)
        #expect(core.handle(.unknownMessage(alice), at: now).isEmpty)
    }

    @Test mutating func `a request that was denied, or whose burst is over, is answered as before when it comes again`()
    {
        let (welcome, _) = join(alice)
        let (other, _) = join(bob)
        _ = request(alice, welcome, 1)
        let denied = request(bob, other, 1).sent(to: bob)
        #expect(request(bob, other, 1).sent(to: bob) == denied)
        _ = media(alice, welcome, 7)
        let release = ClientMessage.floorRelease(.init(requestID: .first, lastSequence: 7))
        _ = core.handle(.message(alice, release), at: now)
        // The floor is idle, and yet it stays denied: the client gave up.
        #expect(request(bob, other, 1).sent(to: bob) == denied)
        let idle = ServerMessage.floorIdle(.init(ssrc: welcome.ssrc, lastSequence: 7))
        #expect(request(alice, welcome, 1).sent(to: alice) == [idle])
        #expect(core.channels[0].floor.holder == nil)
        // One that was revoked.
        _ = request(alice, welcome, 2)
        now = now + .seconds(5)
        let revoked = core.handle(.deadline, at: now).sent(to: alice)
        #expect(revoked.count == 2)
        #expect(request(alice, welcome, 2).sent(to: alice) == revoked)
        // What is not the same request is none.
        #expect(closed(request(alice, welcome, 2, key: keyID(welcome, 99))) == [alice: .protocolViolation])
        #expect(closed(request(bob, other, 1, key: keyID(other, 99))) == [bob: .protocolViolation])
    }

    @Test mutating func `a request whose burst's time has passed unnoticed is not granted again`() {
        let (welcome, _) = join(alice)
        _ = request(alice, welcome, 1)
        now = now + .seconds(8)
        let again = request(alice, welcome, 1).sent(to: alice)
        #expect(!again.contains { if case .floorGranted = $0 { true } else { false } })
        #expect(again.contains { if case .floorRevoke = $0 { true } else { false } })
        #expect(core.channels[0].floor.holder == nil)
    }

    @Test func `a packet whose SFrame has no room for its tag is none`() {
        let header = RTPHeader(marker: true, sequence: 1, timestamp: 0, ssrc: SSRC(rawValue: 7)).bytes
        // 17 bytes of header, of which the last ones look like a key id and a counter of 8 bytes each.
        let long = [UInt8(0xFF)] + [UInt8](repeating: 1, count: 16)
        for (size, isMedia) in [(0, false), (15, false), (16, false), (17, true), (60, true)] {
            let packet = header + long + [UInt8](repeating: 2, count: size)
            #expect((packet.withUnsafeBytes { MediaPacketHeader(parsing: $0) } != nil) == isMedia, "\(size)")
        }
    }

    @Test mutating func `the floor goes to one, and the others are told who it is`() {
        let (welcome, _) = join(alice)
        let (other, _) = join(bob)
        let actions = request(alice, welcome, 1)
        #expect(
            actions.sent(to: alice) == [.floorGranted(.init(requestID: .first, duration: .seconds(60)))])
        #expect(
            actions.sent(to: bob) == [
                .floorTaken(
                    .init(talker: .numbered(1), ssrc: welcome.ssrc, keyID: keyID(welcome, 1 << 32 | 1)))
            ])
        guard case .floorDeny(let denial)? = request(bob, other, 1).sent(to: bob).first else {
            return #expect(Bool(false))
        }
        #expect(denial.cause == .anotherClientHasPermission)
        #expect(denial.phrase == "Member 1 is talking")
    }

    @Test mutating func `only the holder's own packets under the bound key are forwarded`() {
        let (welcome, _) = join(alice)
        let (other, _) = join(bob)
        #expect(media(alice, welcome, 1).0 == .drop(.noFloor))
        _ = request(alice, welcome, 1)
        #expect(media(alice, welcome, 1).0 == .forward(channel: 0))
        #expect(media(alice, welcome, 1).0 == .drop(.duplicate))
        #expect(media(alice, welcome, 2, request: 2).0 == .drop(.wrongKeyID))
        #expect(media(bob, other, 1).0 == .drop(.noFloor))
        #expect(media(bob, welcome, 2).0 == .drop(.foreignSource), "the source of another member")
        #expect(media(alice, other, 2).0 == .drop(.foreignSource))
        #expect(media(ConnectionID(number: 99), welcome, 2).0 == .drop(.notJoined))
        #expect(core.counters.packetsForwarded == 1)
        #expect(core.counters.droppedTotal == 6 && core.counters.packetsSpare == 1)
    }

    @Test mutating func `a key id of another epoch, or used before, is not granted`() {
        let (welcome, _) = join(alice)
        for (number, key) in [(1, keyID(welcome, 5) ^ 1 << 50), (2, keyID(welcome, 6)), (3, keyID(welcome, 6))] {
            let actions = request(alice, welcome, UInt32(number), key: key)
            if number == 2 {
                guard case .floorGranted? = actions.sent(to: alice).first else { return #expect(Bool(false)) }
                _ = core.handle(
                    .message(alice, .floorRelease(.init(requestID: .first.next, lastSequence: nil))), at: now)
            } else {
                guard case .floorDeny(let denial)? = actions.sent(to: alice).first else {
                    return #expect(Bool(false), "\(actions)")
                }
                #expect(denial.cause == .other)
            }
        }
    }

    @Test mutating func `a request that is not newer than the last breaks the protocol`() {
        let (welcome, _) = join(alice)
        _ = request(alice, welcome, 5)
        #expect(closed(request(alice, welcome, 5)).isEmpty, "the same request again is answered again")
        #expect(closed(request(alice, welcome, 4)) == [alice: .protocolViolation])
    }

    @Test mutating func `too many messages close the connection that sends them, and only that`() {
        join(alice)
        join(bob)
        let report = ClientMessage.receptionReport(
            .init(ssrc: SSRC(rawValue: 1), received: 0, lost: 0, highestSequence: 0, jitter: 0))
        var codes: [ConnectionID: RelayCloseCode] = [:]
        for _ in 0..<100 { codes.merge(closed(core.handle(.message(alice, report), at: now))) { _, new in new } }
        #expect(codes == [alice: .protocolViolation])
        for _ in 0..<1_000 {
            now = now + .milliseconds(40)
            #expect(closed(core.handle(.message(bob, report), at: now)).isEmpty)
        }
    }

    @Test mutating func `a listener that does not report gets no more media until it does`() {
        let (welcome, _) = join(alice)
        let (other, _) = join(bob)
        _ = request(alice, welcome, 1)
        var stopped: [Int] = []
        for number in 0..<600 {
            let (_, actions) = media(alice, welcome, UInt16(number))
            if actions.contains(.stopMedia(bob, channel: 0)) { stopped.append(number) }
            now = now + .milliseconds(20)
        }
        #expect(stopped.count == 1)
        #expect((500...551).contains(stopped[0]), "10 s are 500 packets; looked at once a second")
        #expect(core.counters.listenersStopped == 1)
        let report = ClientMessage.receptionReport(
            .init(ssrc: welcome.ssrc, received: 1, lost: 0, highestSequence: 1, jitter: 0))
        #expect(
            core.handle(.message(bob, report), at: now).first
                == .startMedia(bob, channel: 0, key: other.downlinkKey, ssrc: other.ssrc))
        for number in 600..<700 {
            let (_, actions) = media(alice, welcome, UInt16(number))
            #expect(actions.isEmpty)
            now = now + .milliseconds(20)
        }
    }

    @Test mutating func `a renewed media key goes to everyone, and the epoch before it is granted for ten seconds`() {
        let (welcome, _) = join(alice)
        join(bob)
        let actions = core.handle(.renewMediaKey(channel.id), at: now)
        guard case .mediaKey(let key)? = actions.sent(to: bob).first else { return #expect(Bool(false)) }
        #expect(key.epoch == welcome.mediaKey!.epoch &+ 1)
        #expect(key.baseKey != welcome.mediaKey!.baseKey)
        guard case .floorGranted? = request(alice, welcome, 1).sent(to: alice).first else {
            return #expect(Bool(false))
        }
        _ = core.handle(.message(alice, .floorRelease(.init(requestID: .first, lastSequence: nil))), at: now)
        now = now + .seconds(10)
        guard case .floorDeny? = request(alice, welcome, 2).sent(to: alice).first else {
            return #expect(Bool(false))
        }
    }

    @Test mutating func `64 wait for the floor, and the next one is told that too many do`() {
        let queued = RelayChannelConfiguration(
            id: channel.id, name: channel.name, token: channel.token, rules: FloorRules(hasQueue: true))
        core = RelayCore(channels: [queued], random: SeededGenerator(seed: 1))
        // The first one talks, 64 wait.
        for number in 1...66 {
            let id = ConnectionID(number: UInt64(number))
            let (welcome, _) = join(id, member: UInt64(number))
            let asked = ClientMessage.floorRequest(
                .init(requestID: .first, keyID: keyID(welcome, UInt64(number)), mayQueue: true))
            switch (number, core.handle(.message(id, asked), at: now).sent(to: id).first) {
            case (1, .floorGranted): break
            case (66, .floorDeny(let refusal)): #expect(refusal.cause == .queueFull)
            case (2...65, .floorQueuePosition(let place)): #expect(place.position == number - 1)
            case (_, let answer): Issue.record("\(number) was answered \(String(describing: answer))")
            }
        }
    }

    @Test mutating func `going down tells every connection and lets nobody in`() {
        join(alice)
        _ = core.handle(.connected(bob, .numbered(2)), at: now)
        #expect(closed(core.handle(.shutDown, at: now)) == [alice: .goingDown, bob: .goingDown])
        #expect(closed(core.handle(.connected(ConnectionID(number: 3), .numbered(3)), at: now)).count == 1)
        #expect(core.nextDeadline == nil)
    }

    @Test mutating func `a welcome names at most 64 members and the others follow`() {
        for number in 1...100 { join(ConnectionID(number: UInt64(number)), member: UInt64(number)) }
        let (welcome, actions) = join(ConnectionID(number: 101), member: 101)
        #expect(welcome.members.count == 64)
        let followed = actions.sent(to: ConnectionID(number: 101)).count {
            if case .memberJoined = $0 { true } else { false }
        }
        #expect(followed == 36)
        #expect(ServerMessage.welcome(welcome).framed().count < 16_384)
    }
}
