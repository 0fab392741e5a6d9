// What a relay and its clients do with what nobody should send them: nothing, and a counter.
import Cryptography
import Glibc
import MonotonicTime
import QUIC
import RelayProtocol
import SFrame
import TestSupport
import Testing
import Vocabulary

@testable import RelayClient
@testable import RelayServer

@Suite(.serialized, .timeLimit(.minutes(2))) struct RelayHostileTests {
    /// Says a burst from one client to another and checks that it arrives: everything still works.
    private func check(_ talker: TestClient, _ listener: TestClient, burst: Int) async throws {
        let (said, heard) = (talker.recorder.events.count, listener.recorder.events.count)
        try await talker.talk(burst, frames: 5)
        #expect(try await talker.transmissionEnd(from: said).0 == .completed)
        let (_, _, end) = try await listener.heardEnd(from: heard)
        #expect(listener.heard(from: heard, to: end) == (0..<5).map { TestClient.payload(burst, $0) })
    }

    private func media(
        _ welcome: ServerMessage.Welcome, key: UInt64, sequence: UInt16, ssrc: SSRC? = nil, size: Int = 60
    ) throws -> [UInt8] {
        let header = RTPHeader(
            marker: false, sequence: sequence, timestamp: UInt32(sequence) * 960, ssrc: ssrc ?? welcome.ssrc
        ).bytes
        let sealer = try SFrameSealer(baseKey: welcome.mediaKey!.baseKey, keyID: KeyID(rawValue: key))
        return header + (try sealer.seal([UInt8](repeating: 7, count: size), metadata: header))
    }

    /// A thousand messages of a kind that this version does not have: field 99, a number.
    private static let unknownMessages = (0..<1_000).flatMap { _ in [0, 0, 0, 3, 0x98, 0x06, 0x01] as [UInt8] }

    @Test func `a client that takes no datagrams is told so, and one whose media do not fit`() async throws {
        let relay = try await TestRelay()
        let link = try await relay.invitation()
        for maximum in [0, 1_196] {
            let peer = try await RawPeer("Deaf", port: link.port, pin: link.pin, maximumDatagram: maximum)
            try await peer.send(
                .join(.init(channel: link.channel, token: link.token, displayName: DisplayName("Deaf")!)))
            let (refusal, _) = try await peer.recorder.wait("the refusal") {
                if case .message(.joinRefused(let refusal)) = $0 { refusal } else { nil }
            }
            #expect(refusal.cause == .unsupportedVersion, "\(maximum)")
            #expect(try await peer.closeCode() == .joinRefused)
        }
        let peer = try await RawPeer("Hears", port: link.port, pin: link.pin, maximumDatagram: 1_197)
        try await peer.send(.join(.init(channel: link.channel, token: link.token, displayName: DisplayName("Hears")!)))
        try await peer.recorder.wait("the welcome") { if case .message(.welcome) = $0 { true } else { nil } }
        // The relay itself takes whatever a packet holds: what is too long is dropped, and closes nothing.
        #expect(try await peer.relayDatagramFrameSize() == 65_535)
        #expect(try await peer.availableStreams() == 0, "one stream, and that is open")
        await relay.server.stop()
    }

    @Test func `early data that are no join close the connection with the documented code`() async throws {
        let relay = try await TestRelay()
        let link = try await relay.invitation()
        let identity = try Identity(generating: "Mallory")
        let (first, _) = try await RawPeer.joined("Mallory", relay, identity: identity)
        let release = ClientMessage.floorRelease(.init(requestID: .first, lastSequence: 1)).framed()
        for early in [release, [0xFF, 0xFF, 0xFF, 0xFF], [0, 0, 0, 3, 0xFF, 0xFF, 0xFF]] as [[UInt8]] {
            let (ticket, _) = try await first.recorder.wait("a ticket") {
                if case .ticket(let ticket) = $0 { ticket } else { nil }
            }
            let peer = try await RawPeer(
                "Mallory", port: link.port, pin: link.pin, identity: identity, resumption: ticket, early: early)
            #expect(try await peer.earlyData() == .accepted)
            #expect(try await peer.closeCode() == .protocolViolation, "\(early)")
            try await peer.close()
        }
        try await first.close()
        await relay.server.stop()
    }

    @Test func `what is no message closes the connection that sent it, and no other`() async throws {
        let relay = try await TestRelay()
        let link = try await relay.invitation()
        let alice = try await TestClient.joined("Alice", relay)
        let bob = try await TestClient.joined("Bob", relay)
        let join = ClientMessage.join(
            .init(channel: link.channel, token: link.token, displayName: DisplayName("Mallory")!)
        ).framed()
        let release = ClientMessage.floorRelease(.init(requestID: .first, lastSequence: 1)).framed()
        let floods: [[UInt8]] = [
            [0xFF, 0xFF, 0xFF, 0xFF], [0, 0, 0, 0], [0, 0, 0, 3, 0xFF, 0xFF, 0xFF], [0, 0, 0x40, 1],
            release, join + join, join + [0, 0, 0, 2, 0x0A, 0x05],
            join + [UInt8]((0..<100).flatMap { _ in release }),
        ]
        for (number, bytes) in (floods + [join + Self.unknownMessages]).enumerated() {
            let mallory = try await RawPeer("Mallory", port: link.port, pin: link.pin)
            try await mallory.send(bytes: bytes)
            #expect(try await mallory.closeCode() == .protocolViolation, "flood \(number)")
            try await mallory.close()
        }
        let second = try await RawPeer("Mallory", port: link.port, pin: link.pin)
        // The relay allows no second stream at all.
        await #expect(throws: (any Error).self) { try await second.openSecondStream() }
        try await second.close()
        #expect(await relay.server.counters.protocolViolations == floods.count + 1)
        try await check(alice, bob, burst: 1)
        await relay.server.stop()
    }

    @Test func `random bytes on the control stream and in datagrams harm nobody`() async throws {
        let seed = SeededGenerator.seed()
        var random = SeededGenerator(seed: seed)
        let relay = try await TestRelay()
        let link = try await relay.invitation()
        let alice = try await TestClient.joined("Alice", relay)
        let bob = try await TestClient.joined("Bob", relay)
        for _ in 0..<40 {
            let mallory = try await RawPeer("Mallory", port: link.port, pin: link.pin)
            let size = Int.random(in: 1...300, using: &random)
            var bytes = (0..<size).map { _ in UInt8.random(in: 0...255, using: &random) }
            if random.chance(70) { bytes = [0, 0, UInt8(size >> 8), UInt8(size & 255)] + bytes }
            for _ in 0..<5 {
                let length = Int.random(in: 0...1_000, using: &random)
                var datagram = (0..<length).map { _ in UInt8.random(in: 0...255, using: &random) }
                if random.chance(70), length > 2 { (datagram[0], datagram[1]) = (0x80, 111) }
                try await mallory.send(datagram: datagram)
            }
            try await Task.sleep(for: .milliseconds(15))
            try await mallory.send(bytes: bytes)
            try await Task.sleep(for: .milliseconds(15))
            try await mallory.close()
        }
        try await check(alice, bob, burst: 2)
        let counters = await relay.server.counters
        #expect(counters.dropped(.notJoined) + counters.dropped(.malformed) > 50)
        #expect(await relay.server.memberCount(of: relay.channel.id) == 2)
        await relay.server.stop()
    }

    @Test func `media without the floor, of another member or key, too long or twice are not forwarded`() async throws {
        let relay = try await TestRelay()
        let bob = try await TestClient.joined("Bob", relay)
        let (mallory, welcome) = try await RawPeer.joined("Mallory", relay)
        let key = UInt64(welcome.mediaKey!.epoch) << 48 | 77
        try await mallory.send(datagram: try media(welcome, key: key, sequence: 1))
        // Now with the floor.
        try await mallory.send(.floorRequest(.init(requestID: .first, keyID: key)))
        try await mallory.recorder.wait("the grant") { if case .message(.floorGranted) = $0 { true } else { nil } }
        let good = try media(welcome, key: key, sequence: 2)
        try await mallory.send(datagram: good)
        try await mallory.send(datagram: good)
        try await mallory.send(datagram: try media(welcome, key: key + 1, sequence: 3))
        try await mallory.send(datagram: try media(welcome, key: key, sequence: 4, ssrc: SSRC(rawValue: 1)))
        try await mallory.send(datagram: Array(good.prefix(20)))
        try await mallory.send(datagram: [])
        try await mallory.send(.floorRelease(.init(requestID: .first, lastSequence: 2)))
        let (_, report, _) = try await bob.heardEnd()
        #expect(report.received == 1)
        #expect(bob.heard() == [[UInt8](repeating: 7, count: 60)])
        let counters = await relay.server.counters
        #expect(counters.packetsForwarded == 1)
        #expect(counters.dropped(.noFloor) == 1)
        #expect(counters.packetsSpare == 1 && counters.dropped(.duplicate) == 0)
        #expect(counters.dropped(.wrongKeyID) == 1)
        #expect(counters.dropped(.foreignSource) == 1)
        #expect(counters.dropped(.malformed) == 2)
        await relay.server.stop()
    }

    @Test func `a datagram over the relay's limit is dropped, and the burst goes on`() async throws {
        let relay = try await TestRelay { $0.limits.datagramBytes = 200 }
        let bob = try await TestClient.joined("Bob", relay)
        let (mallory, welcome) = try await RawPeer.joined("Mallory", relay)
        let key = UInt64(welcome.mediaKey!.epoch) << 48 | 78
        try await mallory.send(.floorRequest(.init(requestID: .first, keyID: key)))
        try await mallory.recorder.wait("the grant") { if case .message(.floorGranted) = $0 { true } else { nil } }
        try await mallory.send(datagram: try media(welcome, key: key, sequence: 1, size: 400))
        try await mallory.send(datagram: try media(welcome, key: key, sequence: 2))
        try await mallory.send(.floorRelease(.init(requestID: .first, lastSequence: 2)))
        #expect(try await bob.heardEnd().1.received == 1)
        #expect(await relay.server.counters.dropped(.malformed) == 1)
        await relay.server.stop()
    }

    @Test func `forged, altered and replayed packets to a listener are not played`() async throws {
        let relay = try await TestRelay()
        let link = try await relay.invitation()
        // Between the relay and Bob sits who forges: he sees Bob's packets and sends his own from the relay's address.
        let network = try await TestNetwork(to: link.port)
        let alice = try await TestClient.joined("Alice", relay)
        let bob = try await TestClient("Bob", link.through(network))
        try await bob.untilReady()
        await network.meddle { packet in
            guard RTPHeader.isRTP(firstByte: packet[0]) else { return [packet] }
            var altered = packet
            altered[packet.count / 2] ^= 1
            var forged = packet
            forged[2] ^= 0x40
            let noTrailer = Array(packet.dropLast(16))
            let short = Array(packet.prefix(13))
            let otherSource = Array(packet[..<8]) + [1, 2, 3, 4] + Array(packet[12...])
            return [altered, forged, noTrailer, short, otherSource, packet, packet, packet]
        }
        try await alice.talk(1, frames: 10)
        let (_, report, _) = try await bob.heardEnd()
        #expect(report.received == 10)
        #expect(bob.heard() == (0..<10).map { TestClient.payload(1, $0) })
        #expect(await bob.client.counters.dropped == [.notAuthentic: 70])
        withExtendedLifetime(network) {}
        await relay.server.stop()
    }

    @Test func `packets from another address than the relay's are not looked at`() async throws {
        let relay = try await TestRelay()
        let link = try await relay.invitation()
        let network = try await TestNetwork(to: link.port)
        let alice = try await TestClient.joined("Alice", relay)
        let bob = try await TestClient("Bob", link.through(network))
        try await bob.untilReady()
        // The genuine packets arrive only by way of a foreign socket.
        let (foreign, _) = try TestNetwork.socket()
        defer { close(foreign) }
        await network.divert(through: foreign) { RTPHeader.isRTP(firstByte: $0) }
        try await alice.talk(1, frames: 5)
        try await bob.recorder.wait("the floor's end") { $0 == .floorIdle ? true : nil }
        try await Task.sleep(for: .milliseconds(50))
        // What was heard was asked for, and came over QUIC.
        let asFirstSent = bob.recorder.events.contains {
            if case .frame(let frame) = $0 { !frame.isRepaired } else { false }
        }
        #expect(!asFirstSent)
        #expect(await bob.client.counters.dropped.isEmpty)
        withExtendedLifetime(network) {}
        await relay.server.stop()
    }

    @Test func `a member that knows the channel's key cannot speak as another`() async throws {
        let relay = try await TestRelay()
        let alice = try await TestClient.joined("Alice", relay)
        let bob = try await TestClient.joined("Bob", relay)
        let (mallory, welcome) = try await RawPeer.joined("Mallory", relay)
        await alice.client.beginBurst(priority: 0)
        let (taken, _) = try await mallory.recorder.wait("Alice's floor") {
            if case .message(.floorTaken(let taken)) = $0 { taken } else { nil }
        }
        // Everything right but the sender.
        for sequence in UInt16(0)..<20 {
            try await mallory.send(
                datagram: try media(welcome, key: taken.keyID, sequence: sequence, ssrc: taken.ssrc))
        }
        // While Alice has the floor.
        for _ in 0..<500 where await relay.server.counters.dropped(.foreignSource) < 20 {
            try await Task.sleep(for: .milliseconds(10))
        }
        #expect(await relay.server.counters.dropped(.foreignSource) == 20)
        await alice.client.send(OutgoingFrame(payload: TestClient.payload(3, 0), samples: 960, capturedAt: .now))
        await alice.client.endBurst()
        _ = try await bob.heardEnd()
        #expect(bob.heard() == [TestClient.payload(3, 0)])
        await relay.server.stop()
    }

    enum StreamEnd: CaseIterable { case finished, reset, notTaken }

    @Test(arguments: StreamEnd.allCases)
    func `closing the control stream is leaving: in good order, by a reset, or by taking nothing more`(
        how: StreamEnd
    ) async throws {
        let relay = try await TestRelay()
        let bob = try await TestClient.joined("Bob", relay)
        let (mallory, welcome) = try await RawPeer.joined("Mallory", relay)
        let key = UInt64(welcome.mediaKey!.epoch) << 48 | 79
        try await mallory.send(.floorRequest(.init(requestID: .first, keyID: key)))
        try await mallory.recorder.wait("the grant") { if case .message(.floorGranted) = $0 { true } else { nil } }
        switch how {
        case .finished: try await mallory.finish()
        case .reset: try await mallory.reset()
        case .notTaken: try await mallory.stopTaking()
        }
        try await bob.recorder.wait("the leave") { if case .memberLeft = $0 { true } else { nil } }
        try await bob.recorder.wait("the floor's end") { $0 == .floorIdle ? true : nil }
        #expect(try await mallory.closeCode() == RelayCloseCode.none)
        await relay.server.stop()
    }
}
