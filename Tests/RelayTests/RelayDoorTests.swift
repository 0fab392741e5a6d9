// What a relay bounds at its door: connections of one address, and newcomers per second who need not prove theirs.
import RelayProtocol
import Testing

@testable import RelayClient
@testable import RelayServer

extension RelayServer {
    /// What the workers' sockets counted, as last asked.
    fileprivate var transportCounts: RelayStatistics.Transport {
        get async { await statistics?.transport ?? .init() }
    }
}

@Suite(.serialized, .timeLimit(.minutes(2))) struct RelayDoorTests {
    @Test(arguments: [1, 3])
    func `an address with all its connections gets no other one, those it has go on, and one that leaves makes room`(
        workers: Int
    ) async throws {
        let relay = try await TestRelay {
            $0.workers = workers
            $0.limits.connectionsPerAddress = 2
        }
        let alice = try await TestClient.joined("Alice", relay)
        let bob = try await TestClient.joined("Bob", relay)
        let carol = try await TestClient("Carol", try await relay.invitation())
        try await relay.wait { await relay.server.transportCounts.refusedForLoad > 0 }
        try await alice.isHeard(by: bob, burst: 1)
        try await bob.isHeard(by: alice, burst: 2)
        #expect(!carol.recorder.events.contains { if case .state(.ready) = $0 { true } else { false } })
        #expect(await relay.server.memberCount(of: relay.channel.id) == 2)
        try await relay.wait { await relay.server.transportCounts.accepted == 2 }
        await bob.client.leave()
        // Who is not answered asks ever more seldom, and begins anew after 10 s.
        try await carol.recorder.wait("ready", within: .seconds(40)) {
            if case .state(.ready) = $0 { true } else { nil }
        }
        try await alice.isHeard(by: carol, burst: 3)
        #expect(await relay.server.memberCount(of: relay.channel.id) == 2)
        await relay.server.stop()
    }

    @Test(arguments: [1, 3])
    func `newcomers beyond the rate prove their addresses first, and all of them get in`(workers: Int) async throws {
        let relay = try await TestRelay {
            $0.workers = workers
            $0.limits.handshakesPerSecond = 1
        }
        let link = try await relay.invitation()
        var clients: [TestClient] = []
        for number in 0..<6 { clients.append(try await TestClient("Member \(number)", link)) }
        for client in clients { try await client.untilReady() }
        try await relay.wait { await relay.server.transportCounts.retriesSent > 0 }
        #expect(await relay.server.memberCount(of: relay.channel.id) == clients.count)
        try await clients[0].isHeard(by: clients[5], burst: 1)
        await relay.server.stop()
    }
}
