// What those get over real sockets who are not invited, not any more, or not to talk, who repeat what others said, or end it.
import Cryptography
import Glibc
import MonotonicTime
import RelayProtocol
import SFrame
import TestSupport
import Testing
import Vocabulary

@testable import RelayClient
@testable import RelayServer

extension TestClient {
    /// Says a burst and checks that `listener` hears it: everything still works.
    func isHeard(by listener: TestClient, burst: Int) async throws {
        let (said, heard) = (recorder.events.count, listener.recorder.events.count)
        try await talk(burst, frames: 5)
        #expect(try await transmissionEnd(from: said).0 == .completed)
        let (_, _, end) = try await listener.heardEnd(from: heard)
        #expect(listener.heard(from: heard, to: end) == (0..<5).map { TestClient.payload(burst, $0) })
    }
}

extension RawPeer {
    var messages: [ServerMessage] {
        recorder.events.compactMap { if case .message(let message) = $0 { message } else { nil } }
    }
    var hearsMedia: Bool { recorder.events.contains { if case .media = $0 { true } else { false } } }

    func refusal() async throws -> ServerMessage.JoinRefused {
        try await recorder.wait("the refusal") {
            if case .message(.joinRefused(let refused)) = $0 { refused } else { nil }
        }.0
    }

    func denial(of number: UInt32) async throws -> FloorDenyCause {
        try await recorder.wait("the denial") {
            if case .message(.floorDeny(let denial)) = $0, denial.requestID.rawValue == number {
                denial.cause
            } else {
                nil
            }
        }.0
    }
}

@Suite(.serialized, .timeLimit(.minutes(2))) struct IntruderTests {
    private func packet(_ ssrc: SSRC, _ mediaKey: MediaKey, key: UInt64, sequence: UInt16) throws -> [UInt8] {
        let header = RTPHeader(marker: false, sequence: sequence, timestamp: 0, ssrc: ssrc).bytes
        let sealer = try SFrameSealer(baseKey: mediaKey.baseKey, keyID: KeyID(rawValue: key))
        return header + (try sealer.seal([UInt8](repeating: 7, count: 60), metadata: header))
    }

    @Test func `who is not invited hears nothing, and learns nothing of the channel`() async throws {
        let relay = try await TestRelay { $0.limits.refusalTime = .seconds(30) }
        let link = try await relay.invitation()
        let alice = try await TestClient.joined("Alice", relay)
        let bob = try await TestClient.joined("Bob", relay)
        let silent = try await RawPeer("Silent", port: link.port, pin: link.pin)
        var strangers: [RawPeer] = []
        for (channel, token) in [(link.channel, InvitationToken()), (ChannelID(), link.token)] {
            let stranger = try await RawPeer("Mallory", port: link.port, pin: link.pin)
            try await stranger.send(.join(.init(channel: channel, token: token, displayName: DisplayName("Mallory")!)))
            let refusal = try await stranger.refusal()
            #expect(refusal.cause == .notInvited)
            strangers.append(stranger)
            // It goes on as if it were a member.
            let media = try packet(SSRC(rawValue: 1), MediaKey(epoch: 0), key: 5, sequence: 1)
            try await stranger.send(.floorRequest(.init(requestID: .first, priority: 255, keyID: 5)))
            try await stranger.send(.mediaRepair(media))
            try await stranger.send(datagram: media)
            let asked = ClientMessage.repairRequest(
                .init(id: 1, ssrc: SSRC(rawValue: 1), keyID: 5, ranges: [.init(first: 0, last: 999)]))
            try await stranger.send(asked)
            try await stranger.send(datagram: Array(asked.framed().dropFirst(4)))
            try await stranger.send(.burstListRequest(.init(rawValue: 1)))
            let burst = BurstName(ssrc: SSRC(rawValue: 1), keyID: 5)
            try await stranger.send(.burstRequest(.init(id: .init(rawValue: 2), burst: burst)))
        }
        // Whether there is such a channel is not told.
        #expect(strangers[0].messages == strangers[1].messages)
        try await alice.isHeard(by: bob, burst: 1)
        for stranger in strangers {
            #expect(stranger.messages.count == 1 && !stranger.hearsMedia)
        }
        #expect(silent.messages.isEmpty && !silent.hearsMedia)
        let counters = await relay.server.counters
        #expect(counters.packetsForwarded == 5 && counters.dropped(.notJoined) >= 2)
        #expect(counters.repairsAnswered == 0 && counters.burstsAnswered == 0)
        #expect(await relay.server.memberCount(of: link.channel) == 2)
        await relay.server.stop()
    }

    @Test func `a request in a datagram before the join closes who sent it`() async throws {
        let relay = try await TestRelay()
        let link = try await relay.invitation()
        let mallory = try await RawPeer("Mallory", port: link.port, pin: link.pin)
        let asked = ClientMessage.repairRequest(
            .init(id: 1, ssrc: SSRC(rawValue: 1), keyID: 5, ranges: [.init(first: 0, last: 9)]))
        try await mallory.send(datagram: Array(asked.framed().dropFirst(4)))
        #expect(try await mallory.closeCode() == .protocolViolation)
        await relay.server.stop()
    }

    @Test func `a removed member is out at once, cannot come back, and cannot read what is said from then on`()
        async throws
    {
        let relay = try await TestRelay()
        let link = try await relay.invitation()
        let network = try await TestNetwork(to: link.port)
        let alice = try await TestClient.joined("Alice", relay)
        let bob = try await TestClient("Bob", link.through(network))
        try await bob.untilReady()
        let identity = try Identity(generating: "Mallory")
        let (mallory, welcome) = try await RawPeer.joined("Mallory", relay, identity: identity)
        let key = try #require(welcome.mediaKey)
        // It has a tap on Bob's line.
        let tap = Recorder<[UInt8]>()
        await network.meddle { packet in
            if RTPHeader.isRTP(firstByte: packet[0]) { tap.record(packet) }
            return [packet]
        }
        await relay.server.revoke([welcome.memberID], from: link.channel)
        #expect(try await mallory.closeCode() == .revoked)
        // The new key comes right behind this.
        try await alice.recorder.wait("the leave") { if case .memberLeft = $0 { true } else { nil } }
        try await alice.isHeard(by: bob, burst: 2)
        #expect(!mallory.hearsMedia)
        #expect(tap.events.count >= 5)
        for packet in tap.events {
            var opener = SFrameOpener()
            opener.setEpoch(key.epoch, baseKey: key.baseKey, at: .now)
            let body = packet.dropLast(MediaTrailer.byteCount)
            let (header, frame) = (Array(body.prefix(RTPHeader.byteCount)), Array(body.dropFirst(RTPHeader.byteCount)))
            #expect(throws: SFrameError.self) { try opener.open(frame, metadata: header, at: .now) }
        }
        let again = try await RawPeer("Mallory", port: link.port, pin: link.pin, identity: identity)
        try await again.send(.join(.init(channel: link.channel, token: link.token, displayName: DisplayName("Ann")!)))
        #expect(try await again.refusal().cause == .revoked)
        #expect(try await again.closeCode() == .joinRefused)
        withExtendedLifetime(network) {}
        await relay.server.stop()
    }

    @Test func `who may only listen hears, and is not heard, whatever it sends`() async throws {
        let (one, other, quiet) = (
            try Identity(generating: "Alice"), try Identity(generating: "Bob"), try Identity(generating: "Mallory")
        )
        let id = ChannelID()
        let channel = RelayChannelConfiguration(id: id, name: DisplayName("Yard")!, token: InvitationToken())
        let members = [one, other, quiet].map { (MemberID($0.pin), RelayMembership()) }
        var memberships = Dictionary(uniqueKeysWithValues: members)
        memberships[MemberID(quiet.pin)]?.isListenOnly = true
        let roster = RelayRoster(memberships: [id: memberships])
        let relay = try await TestRelay(channel: channel) { $0.roster = roster }
        let alice = try await TestClient.joined("Alice", relay, identity: one)
        let bob = try await TestClient.joined("Bob", relay, identity: other)
        let (mallory, welcome) = try await RawPeer.joined("Mallory", relay, identity: quiet)
        #expect(welcome.isListenOnly)
        let mediaKey = try #require(welcome.mediaKey)
        let key = UInt64(mediaKey.epoch) << 48 | 5
        for (number, priority) in [(1, 0), (2, 254), (3, 255)] as [(UInt32, UInt8)] {
            try await mallory.send(
                .floorRequest(
                    .init(
                        requestID: .init(rawValue: number), priority: priority, keyID: key + UInt64(number),
                        mayQueue: true)))
            #expect(try await mallory.denial(of: number) == .receiveOnly)
            let media = try packet(welcome.ssrc, mediaKey, key: key + UInt64(number), sequence: UInt16(number))
            try await mallory.send(datagram: media)
            try await mallory.send(.mediaRepair(media))
        }
        for _ in 0..<1_000 where await relay.server.counters.dropped(.noFloor) < 6 {
            try await Task.sleep(for: .milliseconds(5))
        }
        let heard = bob.recorder.events.count
        try await alice.isHeard(by: bob, burst: 3)
        #expect(bob.heard(from: heard).count == 5)
        try await mallory.recorder.wait("Alice's voice") { if case .media = $0 { true } else { nil } }
        let counters = await relay.server.counters
        #expect(counters.packetsForwarded == 5 && counters.dropped(.noFloor) == 6)
        await relay.server.stop()
    }

    @Test func `a recorded conversation that is sent again is heard by nobody, and takes no floor`() async throws {
        let relay = try await TestRelay()
        let link = try await relay.invitation()
        let network = try await TestNetwork(to: link.port)
        try await network.record()
        let alice = try await TestClient("Alice", link.through(network))
        try await alice.untilReady()
        let bob = try await TestClient.joined("Bob", relay)
        try await alice.isHeard(by: bob, burst: 4)
        let before = await relay.server.counters
        let heard = bob.recorder.events.count
        // Once from where Alice is, and once from elsewhere.
        let (foreign, _) = try TestNetwork.socket()
        defer { close(foreign) }
        #expect(try await network.replay() > 10)
        _ = try await network.replay(through: foreign)
        try await alice.isHeard(by: bob, burst: 5)
        let after = await relay.server.counters
        #expect(after.packetsForwarded - before.packetsForwarded == 5)
        #expect(after.protocolViolations == 0)
        #expect(await relay.server.memberCount(of: link.channel) == 2)
        #expect(bob.heard(from: heard) == (0..<5).map { TestClient.payload(5, $0) })
        withExtendedLifetime(network) {}
        await relay.server.stop()
    }

    @Test func `a member cannot end another's burst, nor speak under its key`() async throws {
        let relay = try await TestRelay()
        let alice = try await TestClient.joined("Alice", relay)
        let bob = try await TestClient.joined("Bob", relay)
        let (mallory, welcome) = try await RawPeer.joined("Mallory", relay)
        let mediaKey = try #require(welcome.mediaKey)
        await alice.client.beginBurst(priority: 0)
        await alice.client.send(OutgoingFrame(payload: TestClient.payload(1, 0), samples: 960, capturedAt: .now))
        let (taken, _) = try await mallory.recorder.wait("Alice's floor") {
            if case .message(.floorTaken(let taken)) = $0 { taken } else { nil }
        }
        // Alice's request was her first one.
        for last in [nil, 0, UInt16.max] as [UInt16?] {
            try await mallory.send(.floorRelease(.init(requestID: .first, lastSequence: last)))
        }
        let report = ClientMessage.ReceptionReport(
            ssrc: taken.ssrc, received: 1, lost: .max, highestSequence: .max, jitter: .max)
        try await mallory.send(.receptionReport(report))
        try await mallory.send(.floorRequest(.init(requestID: .init(rawValue: 7), priority: 254, keyID: taken.keyID)))
        #expect(try await mallory.denial(of: 7) == .anotherClientHasPermission)
        // Under Alice's key id, as herself and as Alice.
        for ssrc in [welcome.ssrc, taken.ssrc] {
            let header = RTPHeader(marker: false, sequence: 1, timestamp: 0, ssrc: ssrc).bytes
            let sealer = try SFrameSealer(baseKey: mediaKey.baseKey, keyID: KeyID(rawValue: taken.keyID))
            let forged = header + (try sealer.seal([UInt8](repeating: 7, count: 60), metadata: header))
            try await mallory.send(datagram: forged)
            try await mallory.send(.mediaRepair(forged))
        }
        // Its answer comes after all that.
        try await mallory.send(.floorRequest(.init(requestID: .init(rawValue: 8), keyID: taken.keyID)))
        _ = try await mallory.denial(of: 8)
        for number in 1..<5 {
            await alice.client.send(
                OutgoingFrame(payload: TestClient.payload(1, number), samples: 960, capturedAt: .now))
        }
        await alice.client.endBurst()
        #expect(try await alice.transmissionEnd().0 == .completed)
        _ = try await bob.heardEnd()
        #expect(bob.heard() == (0..<5).map { TestClient.payload(1, $0) })
        #expect(await relay.server.counters.packetsForwarded == 5)
        await relay.server.stop()
    }
}
