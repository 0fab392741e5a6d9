// Priorities, emergencies and several talkers over real sockets.
import Cryptography
import MonotonicTime
import RelayProtocol
import TestSupport
import Testing
import Vocabulary

@testable import RelayClient
@testable import RelayServer

@Suite(.serialized, .timeLimit(.minutes(2))) struct FloorEndToEndTests {
    private func relay(_ rules: FloorRules, members: [MemberID: RelayMembership]? = nil) async throws -> TestRelay {
        let channel = RelayChannelConfiguration.yard(rules)
        return try await TestRelay(channel: channel) {
            if let members { $0.roster = RelayRoster(memberships: [channel.id: members]) }
        }
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
            $0 == .floorOutlook(.unknown, emergency: .idle) ? true : nil
        }
        try await begin(bob, 2, priority: FloorPriority.emergency)
        #expect(try await alice.transmissionEnd().0 == .revoked(.preempted("Bob has an emergency")))
        await bob.client.endBurst()
        #expect(try await bob.transmissionEnd().0 == .completed)
        let (_, _, first) = try await carol.heardEnd()
        _ = try await carol.heardEnd(from: first)
        #expect(carol.heard() == [[1, 1], [2, 1]])
        try await carol.recorder.wait("the open floor") {
            $0 == .floorOutlook(.idle, emergency: .idle) ? true : nil
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

    @Test func `who waits knows its place, and has the floor once it is its turn`() async throws {
        let relay = try await relay(FloorRules(hasQueue: true))
        var clients: [TestClient] = []
        for name in ["Alice", "Bob", "Carol"] { clients.append(try await TestClient.joined(name, relay)) }
        try await begin(clients[0], 1)
        for (place, waiting) in clients.enumerated().dropFirst() {
            await waiting.client.beginBurst(priority: FloorPriority.normal)
            let (position, _) = try await waiting.recorder.wait("a place") {
                if case .floorQueued(_, let position) = $0 { position } else { nil }
            }
            #expect(position == place)
        }
        for (number, talker) in clients.enumerated() {
            if number > 0 {
                try await talker.recorder.wait("its turn") { if case .floorGranted = $0 { true } else { nil } }
                await talker.client.send(
                    OutgoingFrame(payload: [UInt8(number + 1), 1], samples: 960, capturedAt: .now))
            }
            await talker.client.endBurst()
            #expect(try await talker.transmissionEnd().0 == .completed)
        }
        let (_, _, first) = try await clients[0].heardEnd()
        _ = try await clients[0].heardEnd(from: first)
        #expect(clients[0].heard() == [[2, 1], [3, 1]])
        await relay.server.stop()
    }

    @Test func `on a channel that says by how much, a higher priority takes the floor`() async throws {
        let (one, other) = (try Identity(generating: "Alice"), try Identity(generating: "Bob"))
        let members = [
            MemberID(one.pin): RelayMembership(priority: 10), MemberID(other.pin): RelayMembership(priority: 20),
        ]
        let relay = try await relay(FloorRules(preemptionStep: 10), members: members)
        let alice = try await TestClient.joined("Alice", relay, identity: one)
        let bob = try await TestClient.joined("Bob", relay, identity: other)
        try await begin(alice, 1, priority: 10)
        try await begin(bob, 2, priority: 20)
        guard case .revoked(.preempted) = try await alice.transmissionEnd().0 else {
            return #expect(Bool(false), "\(alice.recorder.events)")
        }
        // And not the other way round.
        let before = alice.recorder.events.count
        await alice.client.beginBurst(priority: 10)
        guard case .denied(.taken) = try await alice.transmissionEnd(from: before).0 else {
            return #expect(Bool(false), "\(alice.recorder.events)")
        }
        await bob.client.endBurst()
        #expect(try await bob.transmissionEnd().0 == .completed)
        await relay.server.stop()
    }

    @Test func `on a full-duplex channel four talk at once and hear three, and the fifth is denied`() async throws {
        let relay = try await relay(FloorRules(mode: .fullDuplex))
        var clients: [TestClient] = []
        for number in 1...5 { clients.append(try await TestClient.joined("Member \(number)", relay)) }
        for number in 0..<4 { try await begin(clients[number], UInt8(number)) }
        await clients[4].client.beginBurst(priority: FloorPriority.normal)
        guard case .denied(.taken) = try await clients[4].transmissionEnd().0 else {
            return #expect(Bool(false), "\(clients[4].recorder.events)")
        }
        for client in clients.prefix(4) { await client.client.endBurst() }
        for (number, client) in clients.enumerated() {
            if number < 4 { #expect(try await client.transmissionEnd().0 == .completed) }
            var place = 0
            for _ in 0..<(number < 4 ? 3 : 4) { (_, _, place) = try await client.heardEnd(from: place) }
            #expect(Set(client.heard()) == Set((0..<4).filter { $0 != number }.map { [UInt8($0), 1] }))
        }
        await relay.server.stop()
    }
}
