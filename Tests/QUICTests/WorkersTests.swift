// Several endpoints on one port: each packet finds the one that has its connection, wherever the client has moved to.
import QUIC
import Testing

@Suite struct WorkersTests {
    private static let workers = 4
    private static let clients = 12

    /// Servers on one port, in the order of their numbers.
    private func servers(
        _ change: (inout QUICServerOptions) -> Void = { _ in }
    ) async throws -> [Peer] {
        var options = QUICServerOptions(keys: .generate(), addressValidation: .never)
        change(&options)
        options.group = QUICServerGroup(options)
        let identity = try makeIdentity()
        let first = try await Peer(server: options, identity: identity)
        try await first.on { try $0.endpoint.shareAddress() }
        let address = try await first.address
        var servers = [first]
        for number in 1..<Self.workers {
            options.worker = UInt16(number)
            servers.append(try await Peer(server: options, identity: identity, bind: address, reusePort: true))
        }
        try await first.on { try $0.endpoint.steerByConnectionID(of: Self.workers) }
        return servers
    }

    private func counts(_ servers: [Peer], _ count: @escaping @Sendable (Peer) -> Int) async throws -> [Int] {
        var result: [Int] = []
        for server in servers { result.append(try await server.on(count)) }
        return result
    }

    private func stop(_ peers: [Peer]) async throws {
        for peer in peers { try await peer.stop() }
    }

    @Test func `connections are shared out and stay where they are when clients move`() async throws {
        let servers = try await servers()
        var clients: [(Peer, QUICConnection)] = []
        for _ in 0..<Self.clients {
            let client = try await Peer.client()
            clients.append((client, try await client.connect(to: servers[0])))
        }
        for (client, _) in clients { try await client.wait("ready") { $0.readyCount == 1 } }
        // A client is ready before its server has heard the last of the handshake.
        let deadline = ContinuousClock.now + .seconds(20)
        while try await counts(servers, { $0.readyCount }).reduce(0, +) < Self.clients {
            try #require(ContinuousClock.now < deadline)
            try await Task.sleep(for: .milliseconds(5))
        }
        let accepted = try await counts(servers) { $0.accepted.count }
        #expect(accepted.reduce(0, +) == Self.clients)
        #expect(accepted.count { $0 > 0 } > 1, "\(accepted)")
        // From another port the hash of the addresses would lead to another one three times of four.
        let moves = 3
        for move in 1...moves {
            for (client, connection) in clients {
                try await client.migrate(connection)
                try await client.wait("moved") { $0.migrations.count == move }
                try await client.on { _ in try connection.sendDatagram([UInt8(move)]) }
            }
        }
        for (number, server) in servers.enumerated() {
            try await server.wait("what was said after moving") { $0.datagrams.count == moves * accepted[number] }
        }
        #expect(try await counts(servers) { $0.moves.count } == accepted.map { $0 * moves })
        #expect(
            try await counts(servers) { $0.endpoint.statistics.strayPackets }
                == Array(repeating: 0, count: Self.workers))
        #expect(try await counts(servers) { $0.reasons.count }.reduce(0, +) == 0)
        try await stop(clients.map(\.0) + servers)
    }

    @Test func `a server that does not share the address is told that it is taken`() async throws {
        let servers = try await servers()
        let address = try await servers[0].address
        await #expect(throws: QUICError.self) {
            _ = try await Peer(
                server: QUICServerOptions(keys: .generate()), identity: makeIdentity(), bind: address)
        }
        try await stop(servers)
    }

    @Test func `the bounds are those of all together`() async throws {
        let servers = try await servers { $0.maximumConnectionsPerAddress = 3 }
        var clients: [Peer] = []
        for _ in 0..<Self.clients {
            let client = try await Peer.client()
            _ = try await client.connect(to: servers[0])
            clients.append(client)
        }
        // The others are not answered, and go on asking.
        let deadline = ContinuousClock.now + .seconds(20)
        while try await counts(servers, { $0.endpoint.statistics.refusedForLoad }).reduce(0, +) < Self.clients - 3 {
            try #require(ContinuousClock.now < deadline)
            try await Task.sleep(for: .milliseconds(5))
        }
        #expect(try await counts(servers) { $0.endpoint.connectionCount }.reduce(0, +) == 3)
        try await stop(clients + servers)
    }

    @Test func `a client of a server that is gone hears so from any worker`() async throws {
        // The number of a worker that there is none of any more.
        let keys = ServerKeys.generate()
        let identity = try makeIdentity()
        let former = try await Peer(
            server: QUICServerOptions(keys: keys, addressValidation: .never, worker: 9), identity: identity)
        let client = try await Peer.client()
        let path = try await Forwarder(to: former.address)
        let connection = try await client.connect(to: former, at: path.address)
        try await client.wait("ready") { $0.readyCount == 1 }
        try await former.wait("ready") { $0.readyCount == 1 }
        let servers = try await servers { $0.keys = keys }
        try await path.redirect(to: servers[0].address)
        try await client.on { _ in try connection.sendDatagram([UInt8](repeating: 1, count: 100)) }
        try await client.wait("the reset") { $0.reasons == [.statelessReset] }
        try await stop([client, former] + servers)
        path.stop()
    }
}
