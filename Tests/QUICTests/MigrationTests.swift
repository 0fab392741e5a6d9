import QUIC
import Testing

@Suite struct MigrationTests {
    private static let packet: [UInt8] = [0x80, 111, 0, 1, 2, 3]

    private func voice(from server: Peer) async throws -> FanOutResult {
        try await server.on { peer in
            Self.packet.withUnsafeBytes { peer.endpoint.fanOut($0, to: [peer.accepted[0]]) }
        }
    }

    @Test func `a NAT that forgets its mapping is followed once the new path is validated`() async throws {
        let server = try await Peer.server()
        let path = try await Forwarder(to: server.address)
        let client = try await Peer.client()
        let connection = try await client.connect(to: server, at: path.address)
        try await client.wait("ready") { $0.readyCount == 1 }
        try await server.wait("ready") { $0.readyCount == 1 }
        let before = try await server.on { $0.accepted[0].remoteAddress }
        for round in 1...3 {
            let port = try await path.rebind()
            try await client.on { _ in try connection.sendDatagram([UInt8(round)]) }
            try await server.wait("moved") { $0.moves.count == round }
            #expect(try await server.on { $0.accepted[0].remoteAddress } == .loopback(port: port))
            #expect(try await voice(from: server).sent == 1)
            try await client.wait("voice on the new path") { $0.foreign.count == round }
            try await server.on { try $0.accepted[0].sendDatagram([UInt8(round)]) }
            try await client.wait("datagram on the new path") { $0.datagrams.count == round }
        }
        #expect(try await server.on { $0.moves.first } == before)
        #expect(try await server.on { $0.reasons.isEmpty })
        #expect(try await client.on { $0.reasons.isEmpty && $0.moves.isEmpty })
        try await client.stop()
        try await server.stop()
        path.stop()
    }

    @Test func `an address that does not answer the challenge is not adopted`() async throws {
        let server = try await Peer.server()
        let path = try await Forwarder(to: server.address)
        let client = try await Peer.client()
        let connection = try await client.connect(to: server, at: path.address)
        try await client.wait("ready") { $0.readyCount == 1 }
        try await server.wait("ready") { $0.readyCount == 1 }
        let before = try await server.on { $0.accepted[0].remoteAddress }
        // Packets arrive from a new port, but nothing comes back through it.
        _ = try await path.rebind()
        try await path.drop { direction, _ in direction == .toClient }
        try await client.on { _ in try connection.sendDatagram([1]) }
        try await server.wait("heard") { $0.datagrams.count == 1 }
        try await Task.sleep(for: .milliseconds(100))
        #expect(try await server.on { $0.accepted[0].remoteAddress } == before)
        #expect(try await server.on { $0.moves.isEmpty })
        try await client.stop()
        try await server.stop()
        path.stop()
    }

    @Test(arguments: ["::", "0.0.0.0"])
    func `a server on every address answers from the one that was asked`(bind: String) async throws {
        let server = try await Peer.server(bind: #require(SocketAddress(bind, port: 0)))
        let port = try await server.address.port
        // The kernel alone would answer from 127.0.0.1.
        let asked = try #require(SocketAddress("127.0.0.2", port: port))
        let client = try await Peer.client()
        let connection = try await client.connect(to: server, at: asked)
        try await client.wait("ready") { $0.readyCount == 1 }
        try await server.wait("ready") { $0.readyCount == 1 }
        #expect(try await voice(from: server).sent == 1)
        try await client.wait("voice") { $0.foreign.count == 1 }
        #expect(try await client.on { $0.foreignFrom } == [asked])
        try await server.on { $0.accepted[0].close(code: 5, reason: "done") }
        try await client.wait("closed") { !$0.reasons.isEmpty }
        #expect(try await client.on { $0.reasons } == [.closedByPeer(code: 5, reason: "done")])
        _ = connection
        try await client.stop()
        try await server.stop()
    }

    @Test(arguments: [QUICConnection.MigrationKind.afterValidation, .atOnce])
    func `moving right after ANAT rebind keeps the connection`(_ kind: QUICConnection.MigrationKind) async throws {
        let server = try await Peer.server()
        let path = try await Forwarder(to: server.address)
        let client = try await Peer.client()
        let connection = try await client.connect(to: server, at: path.address)
        try await client.wait("ready") { $0.readyCount == 1 }
        // A path that changes before the server's handshake is complete is not followed (RFC 9000, section 9).
        try await server.wait("ready") { $0.readyCount == 1 }
        let stream = try await client.on { _ in try connection.openStream() }
        for round in 1...6 {
            _ = try await path.rebind()
            try await client.on { _ in try stream.write([UInt8(round)]) }
            try await client.migrate(connection, kind)
            try await server.wait("heard") { $0.received[stream.id]?.count == round || !$0.reasons.isEmpty }
        }
        #expect(try await server.on { $0.reasons } == [])
        #expect(try await client.on { $0.reasons } == [])
        try await client.stop()
        try await server.stop()
        path.stop()
    }

    @Test func `a client that moves at once sends everything by the new path`() async throws {
        let (server, client, connection) = try await connectedPair()
        let before = try await server.on { $0.accepted[0].remoteAddress }
        try await client.on { _ in try connection.sendDatagram([0]) }
        try await server.wait("there") { $0.datagrams.count == 1 }
        // Nothing is said by the application: the server must hear of it all the same, for it may be sending.
        try await client.migrate(connection, .atOnce)
        try await server.wait("moved") { $0.moves.count == 1 }
        #expect(try await server.on { $0.moves } == [before])
        try await client.wait("told") { $0.migrations == [true] }
        #expect(try await voice(from: server).sent == 1)
        try await client.wait("voice on the new path") { $0.foreign.count == 1 }
        try await client.on { _ in try connection.sendDatagram([1]) }
        try await server.wait("datagrams go on") { $0.datagrams == [[0], [1]] }
        #expect(try await client.on { $0.reasons.isEmpty })
        try await client.stop()
        try await server.stop()
    }

    @Test func `a move replaces one that is under way`() async throws {
        let server = try await Peer.server()
        let client = try await Peer.client()
        let path = try await Forwarder(to: server.address)
        let connection = try await client.connect(to: server, at: path.address)
        try await client.wait("ready") { $0.readyCount == 1 }
        try await server.wait("ready") { $0.readyCount == 1 }
        // A connection can move once its handshake is confirmed: that must not be among what is lost.
        try await client.migrate(connection, .atOnce)
        try await client.wait("moved") { $0.migrations == [true] }
        try await path.drop { _, _ in true }
        try await client.migrate(connection, .atOnce)
        try await client.migrate(connection, .atOnce)
        try await path.drop { _, _ in false }
        let stream = try await client.on { _ in try connection.openStream() }
        try await client.on { _ in try stream.write([1, 2, 3]) }
        try await server.wait("heard") { $0.received[stream.id] == [1, 2, 3] }
        try await client.wait("told of the last one only") { $0.migrations == [true, true] }
        #expect(try await client.on { $0.reasons.isEmpty })
        #expect(try await server.on { $0.reasons.isEmpty })
        try await client.stop()
        try await server.stop()
        path.stop()
    }

    @Test func `a new path that nobody answers on is told and the connection can move on`() async throws {
        let server = try await Peer.server()
        let client = try await Peer.client()
        let path = try await Forwarder(to: server.address)
        let connection = try await client.connect(to: server, at: path.address)
        try await client.wait("ready") { $0.readyCount == 1 }
        try await server.wait("ready") { $0.readyCount == 1 }
        try await client.wait("confirmed") { _ in connection.roundTripTime != nil }
        try await client.migrate(connection, .atOnce)
        try await client.wait("moved") { $0.migrations == [true] }
        try await path.drop { _, _ in true }
        try await client.migrate(connection, .atOnce)
        try await client.wait("failed") { $0.migrations == [true, false] }
        try await path.drop { _, _ in false }
        try await client.migrate(connection, .atOnce)
        try await client.wait("moved again") { $0.migrations == [true, false, true] }
        try await client.on { _ in try connection.sendDatagram([7]) }
        try await server.wait("datagrams go on") { $0.datagrams == [[7]] }
        try await client.stop()
        try await server.stop()
        path.stop()
    }

    @Test func `a connection goes on at the servers address of the other family`() async throws {
        let six = try #require(SocketAddress("::1", port: 0))
        guard NetworkRoute.toward(six) != nil else { return }
        let server = try await Peer.server(bind: .any())
        let port = try await server.address.port
        let addresses = try ["127.0.0.1", "::1"].map { try #require(SocketAddress($0, port: port)) }
        let client = try await Peer.client(bind: .any())
        let connection = try await client.connect(to: server, at: addresses[1])
        try await client.wait("ready") { $0.readyCount == 1 }
        try await server.wait("ready") { $0.readyCount == 1 }
        let stream = try await client.on { _ in try connection.openStream() }
        for round in 1...4 {
            let target = addresses[(round + 1) % 2]
            try await client.wait("moves") { _ in
                (try? connection.migrate(to: .any(), peerAt: target, .atOnce)) != nil
            }
            try await client.on { _ in try stream.write([UInt8(round)]) }
            try await client.wait("told") { $0.migrations.count == round }
            #expect(try await client.on { $0.migrations.last } == true)
            try await server.wait("heard, and followed") {
                $0.received[stream.id]?.count == round && $0.moves.count == round
            }
            #expect(try await server.on { $0.accepted[0].remoteAddress.isIPv4 } == target.isIPv4)
            #expect(try await client.on { _ in connection.remoteAddress } == target)
            #expect(try await voice(from: server).sent == 1)
            try await client.wait("voice on the new path") { $0.foreignFrom.last == target }
        }
        #expect(try await client.on { $0.reasons } == [])
        #expect(try await server.on { $0.reasons } == [])
        try await client.stop()
        try await server.stop()
    }

    @Test func `the route to an address of this machine is known`() throws {
        let route = try #require(NetworkRoute.toward(.loopback(port: 9)))
        #expect(route.source == SocketAddress("127.0.0.1", port: 0))
        #expect(route.interface == "lo")
        #expect("\(route)" == "127.0.0.1 through lo")
    }

    @Test func `a client moves to a new socket`() async throws {
        let (server, client, connection) = try await connectedPair()
        let before = try await client.address
        try await client.on { _ in try connection.sendDatagram([0]) }
        try await server.wait("there") { $0.datagrams.count == 1 }
        try await client.migrate(connection)
        try await server.wait("moved", timeout: .seconds(5)) { $0.moves.count == 1 }
        let after = try await server.on { $0.accepted[0].remoteAddress }
        #expect(after != before)
        #expect(try await voice(from: server).sent == 1)
        try await client.wait("voice on the new path") { $0.foreign.count == 1 }
        try await client.on { _ in
            let stream = try connection.openStream()
            try stream.write([1, 2, 3], finish: true)
        }
        try await server.wait("streams go on") { $0.received.values.contains([1, 2, 3]) }
        #expect(try await client.on { _ in connection.isReady })
        try await client.on { _ -> Void in
            #expect(throws: QUICError.self) { try connection.migrate(to: SocketAddress("::1", port: 0) ?? .any()) }
        }
        try await server.on { peer -> Void in
            #expect(throws: QUICError.invalidState("only a client can move a connection")) {
                try peer.accepted[0].migrate(to: .loopback())
            }
        }
        try await client.stop()
        try await server.stop()
    }
}
