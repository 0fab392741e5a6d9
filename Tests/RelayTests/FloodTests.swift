// Peers that send too much, or take nothing: what they lose, and that the others notice nothing.
import MonotonicTime
import RelayProtocol
import SFrame
import TestSupport
import Testing

@testable import RelayClient
@testable import RelayServer

extension RelayServer {
    /// Renews a channel's media key so often, in one turn of the loop: each is a message to every member.
    fileprivate func renewMediaKey(of channel: ChannelID, times: Int) {
        for _ in 0..<times { engine?.handle(.renewMediaKey(channel)) }
    }
}

@Suite(.serialized, .timeLimit(.minutes(2))) struct FloodTests {
    @Test func `a member that takes no messages is closed once too many wait for it, and the others are served`()
        async throws
    {
        let limit = 8 * 1_024
        let relay = try await TestRelay {
            $0.limits.controlBacklogBytes = limit
            // What a newcomer is told of more members than this would have to fit.
            $0.limits.membersPerChannel = 8
        }
        let alice = try await TestClient.joined("Alice", relay)
        let bob = try await TestClient.joined("Bob", relay)
        let (mallory, _) = try await RawPeer.joined("Mallory", relay, window: 4_096)
        try await mallory.stopReading()
        // As many as its window, the transport's buffer and the backlog hold, and as many again; in pieces that the others can take.
        let messageBytes = ServerMessage.mediaKey(MediaKey(epoch: 60_000)).framed().count
        let enough = 2 * (4_096 + 65_536 + limit) / messageBytes
        var sent = 0
        while await relay.server.memberCount(of: relay.channel.id) == 3 {
            try #require(sent < enough, "it is a member still, after \(sent) messages")
            await relay.server.renewMediaKey(of: relay.channel.id, times: 20)
            sent += 20
            try await Task.sleep(for: .milliseconds(4))
        }
        #expect(try await mallory.closeCode() == .internalError)
        #expect(sent * messageBytes > limit)
        try await alice.isHeard(by: bob, burst: 1)
        #expect(await relay.server.memberCount(of: relay.channel.id) == 2)
        await relay.server.stop()
    }

    @Test func `a flood of packets from who has no floor reaches nobody, and others are heard meanwhile`() async throws
    {
        let relay = try await TestRelay()
        let alice = try await TestClient.joined("Alice", relay)
        let bob = try await TestClient.joined("Bob", relay)
        let (mallory, welcome) = try await RawPeer.joined("Mallory", relay)
        let header = RTPHeader(marker: false, sequence: 1, timestamp: 0, ssrc: welcome.ssrc).bytes
        let flood =
            header + SFrameHeader(keyID: KeyID(rawValue: 5), counter: 1).bytes + [UInt8](repeating: 0, count: 900)
        let flooding = Task {
            for round in 0..<150 {
                for _ in 0..<40 { try await mallory.send(datagram: flood) }
                if round % 10 == 0 { try await mallory.send(.mediaRepair(flood)) }
                try await Task.sleep(for: .milliseconds(2))
            }
        }
        try await alice.isHeard(by: bob, burst: 2)
        try await flooding.value
        try await alice.isHeard(by: bob, burst: 3)
        let counters = await relay.server.counters
        #expect(counters.packetsForwarded == 10)
        #expect(counters.dropped(.noFloor) > 100)
        await relay.server.stop()
    }

    @Test func `a request that never ends holds up nobody but its sender`() async throws {
        let relay = try await TestRelay { $0.limits.joinTime = .seconds(2) }
        let link = try await relay.invitation()
        let alice = try await TestClient.joined("Alice", relay)
        let bob = try await TestClient.joined("Bob", relay)
        let join = ClientMessage.join(
            .init(channel: link.channel, token: link.token, displayName: DisplayName("Mallory")!)
        ).framed()
        let slow = try await RawPeer("Mallory", port: link.port, pin: link.pin)
        try await slow.send(bytes: Array(join.dropLast()))
        try await alice.isHeard(by: bob, burst: 4)
        #expect(try await slow.closeCode() == .protocolViolation)
        await relay.server.stop()
    }

    // MARK: By the rules alone

    @Test func `a talker that sends faster than anybody speaks is heard at the rate that one may speak`() throws {
        var limits = RelayLimits()
        limits.mediaBurst = 100
        limits.mediaPerSecond = 50
        let channel = RelayChannelConfiguration.yard()
        var core = RelayCore(channels: [channel], limits: limits, random: SeededGenerator(seed: 1))
        var now = Instant(nanoseconds: 1_000_000_000)
        let id = ConnectionID(number: 1)
        let entered = core.enter(id, by: channel.joinMessage("Ann"), at: now)
        let welcome = try #require(entered.welcome(for: id))
        let key = UInt64(try #require(welcome.mediaKey).epoch) << 48 | 9
        _ = core.handle(.message(id, .floorRequest(.init(requestID: .first, keyID: key))), at: now)
        var sequence: UInt16 = 0
        func send(_ count: Int) -> [MediaDrop?: Int] {
            var outcomes: [MediaDrop?: Int] = [:]
            for _ in 0..<count {
                let header = MediaPacketHeader(
                    ssrc: welcome.ssrc, sequence: sequence, marker: sequence == 0, keyID: key)
                sequence &+= 1
                let (decision, _) = core.media(header, bytes: [UInt8](repeating: 0, count: 100), from: id, at: now)
                if case .drop(let reason) = decision {
                    outcomes[reason, default: 0] += 1
                } else {
                    outcomes[nil, default: 0] += 1
                }
            }
            return outcomes
        }
        #expect(send(300) == [nil: 100, .tooFast: 200])
        now = now + .seconds(1)
        #expect(send(60) == [nil: 50, .tooFast: 10])
        // What was too fast was not counted as come: it may be sent again, as speech is spoken.
        for _ in 0..<100 {
            now = now + .milliseconds(20)
            #expect(send(1) == [nil: 1])
        }
        #expect(core.counters.dropped(.tooFast) == 210)
    }
}
