// Priorities, emergencies and several talkers over real sockets.
import Cryptography
import MonotonicTime
import RelayProtocol
import TestSupport
import Testing

@testable import RelayClient
@testable import RelayServer

@Suite(.serialized, .timeLimit(.minutes(2))) struct FloorEndToEndTests {
    private func relay(_ rules: FloorRules) async throws -> TestRelay {
        try await TestRelay(
            channel: .yard(rules))
    }

    private func begin(_ client: TestClient, _ first: UInt8, priority: UInt8 = FloorPriority.normal) async throws {
        await client.client.beginBurst(priority: priority)
        await client.client.send(OutgoingFrame(payload: [first, 1], samples: 960, capturedAt: .now))
        try await client.recorder.wait("the grant") { if case .floorGranted = $0 { true } else { nil } }
    }

    @Test func `an emergency is heard though somebody talks, who is told why`() async throws {
        let relay = try await relay(FloorRules())
        let alice = try await TestClient.joined("Alice", relay)
        let bob = try await TestClient.joined("Bob", relay)
        let carol = try await TestClient.joined("Carol", relay)
        try await begin(alice, 1)
        try await bob.recorder.wait("a floor that is open to emergencies only") {
            $0 == .floorOutlook(.init(isOpen: false, isOpenToEmergencies: true)) ? true : nil
        }
        try await begin(bob, 2, priority: FloorPriority.emergency)
        #expect(try await alice.transmissionEnd().0 == .revoked(.preempted("Bob has an emergency")))
        await bob.client.endBurst()
        #expect(try await bob.transmissionEnd().0 == .completed)
        let (_, _, first) = try await carol.heardEnd()
        _ = try await carol.heardEnd(from: first)
        #expect(carol.heard() == [[1, 1], [2, 1]])
        try await carol.recorder.wait("the open floor") {
            $0 == .floorOutlook(.init(isOpen: true, isOpenToEmergencies: true)) ? true : nil
        }
        await relay.server.stop()
    }

    @Test func `on a full-duplex channel two talk at once, and each is heard by the other`() async throws {
        let relay = try await relay(FloorRules(mode: .fullDuplex))
        let alice = try await TestClient.joined("Alice", relay)
        let bob = try await TestClient.joined("Bob", relay)
        try await begin(alice, 1)
        try await begin(bob, 2)
        await alice.client.endBurst()
        await bob.client.endBurst()
        for client in [alice, bob] { #expect(try await client.transmissionEnd().0 == .completed) }
        for client in [alice, bob] { _ = try await client.heardEnd() }
        #expect(alice.heard() == [[2, 1]])
        #expect(bob.heard() == [[1, 1]])
        await relay.server.stop()
    }

    @Test func `where the newest wins, who presses takes the floor`() async throws {
        let relay = try await relay(FloorRules(mode: .cutIn))
        let alice = try await TestClient.joined("Alice", relay)
        let bob = try await TestClient.joined("Bob", relay)
        try await begin(alice, 1)
        try await begin(bob, 2)
        guard case .revoked(.preempted) = try await alice.transmissionEnd().0 else {
            return #expect(Bool(false), "\(alice.recorder.events)")
        }
        await bob.client.endBurst()
        #expect(try await bob.transmissionEnd().0 == .completed)
        await relay.server.stop()
    }
}
