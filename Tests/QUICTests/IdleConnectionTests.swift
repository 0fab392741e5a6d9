import CGnuTLS
import CLinux
import CNgtcp2
import MonotonicTime
import Reactor
import TestSupport
import Testing

@testable import QUIC

/// A server's connections that have nothing to do, and what is freed after the handshake.
@Suite struct IdleConnectionTests {
    /// Has the server's connections leave their memory, as others that enter would.
    private func leave(_ server: Peer) async throws {
        try await server.wait("confirmed") { $0.accepted.allSatisfy { $0.session == nil } }
        try await server.on { for connection in $0.accepted { connection.memory?.leave() } }
    }

    private func exchange(_ server: Peer, _ client: Peer, _ connection: QUICConnection, _ marker: [UInt8]) async throws
    {
        try await client.on { _ in try connection.sendDatagram(marker) }
        try await server.wait("to the server") { $0.datagrams.last == marker }
        try await server.on { try $0.accepted[0].sendDatagram(marker) }
        try await client.wait("to the client") { $0.datagrams.last == marker }
    }

    @Test func `a connection that was not there comes back for what comes and for what is sent`() async throws {
        let (server, client, connection) = try await connectedPair()
        try await exchange(server, client, connection, [1])
        try await leave(server)
        #expect(try await server.on { $0.accepted[0].isOpen && $0.accepted[0].memory?.isThere == false })
        try await exchange(server, client, connection, [2])
        #expect(try await server.on { $0.accepted[0].memory?.isThere == true })
        // Streams in both directions, more than one packet each.
        try await leave(server)
        let message = (0..<20_000).map { UInt8(truncatingIfNeeded: $0 &* 31) }
        let up = try await client.on { _ in
            let stream = try connection.openStream()
            try stream.write(message)
            return stream.id
        }
        try await server.wait("up") { $0.received[up] == message }
        try await leave(server)
        let down = try await server.on { peer in
            let stream = try peer.accepted[0].openStream()
            try stream.write(message)
            return stream.id
        }
        try await client.wait("down") { $0.received[down] == message }
        try await leave(server)
        try await server.on { $0.accepted[0].close(code: 9, reason: "enough") }
        try await client.wait("closed") { !$0.reasons.isEmpty }
        #expect(try await client.on { $0.reasons } == [.closedByPeer(code: 9, reason: "enough")])
        #expect(try await server.on { $0.accepted[0].memory == nil })
        try await client.stop()
        try await server.stop()
    }

    @Test func `a connection that was not there answers keep-alives, moves with its client and hears of its end`()
        async throws
    {
        let (server, client, connection) = try await connectedPair(keepAlive: .milliseconds(50)) {
            $0.idleTimeout = .seconds(4)
        }
        for _ in 0..<5 {
            try await leave(server)
            try await server.wait("a keep-alive came") { $0.accepted[0].memory?.isThere == true }
        }
        try await leave(server)
        try await client.migrate(connection)
        try await server.wait("moved") { $0.moves.count == 1 }
        try await leave(server)
        try await exchange(server, client, connection, [3])
        // Nobody says anything more: the idle time-out finds it where it is.
        try await client.on { _ in connection.keepAlive = nil }
        try await leave(server)
        try await server.wait("timed out") { $0.reasons == [.idleTimeout] }
        try await client.stop()
        try await server.stop()
    }

    @Test func `more connections than there are places talk in turn, leave and come back`() async throws {
        let server = try await Peer.server()
        try await server.on { peer in
            // What comes goes back.
            peer.onBytes = { stream, bytes in try? stream.write(bytes) }
        }
        let client = try await Peer.client()
        var connections: [QUICConnection] = []
        for _ in 0..<80 { connections.append(try await client.connect(to: server)) }
        try await client.wait("ready") { $0.readyCount == 80 }
        let ids = try await client.on { [connections] _ in
            try connections.map { connection in
                let stream = try connection.openStream()
                stream.context = connection
                return stream.id
            }
        }
        #expect(ids.allSatisfy { $0 == 0 })
        for round in 0..<4 {
            let marker = (0..<3_000).map { UInt8(truncatingIfNeeded: $0 + round) }
            try await client.on { [connections] peer in
                peer.received = [:]
                for connection in connections { try connection.streams[0]?.write(marker) }
            }
            // All have stream 0: together they get all that was sent.
            try await client.wait("echo \(round)") { $0.received[0]?.count == 80 * marker.count }
            let sum = try await client.on { $0.received[0]?.reduce(0) { $0 + Int($1) } }
            #expect(sum == 80 * marker.reduce(0) { $0 + Int($1) })
        }
        #expect(try await server.on { $0.accepted.count { $0.memory?.isThere == false } } > 0)
        #expect(try await server.on { $0.accepted.allSatisfy { ($0.memory?.keptByteCount ?? 0) < 40_000 } })
        try await client.stop()
        try await server.wait("all are gone") { $0.reasons.count == 80 }
        try await server.stop()
    }

    @Test func `connections that are not there are told when the endpoint closes`() async throws {
        let (server, client, _) = try await connectedPair()
        try await leave(server)
        try await server.stop()
        try await client.wait("told") { !$0.reasons.isEmpty }
        #expect(try await client.on { $0.reasons } == [.closedByPeer(code: 0, reason: "")])
        try await client.stop()
    }

    @Test func `keys are renewed without the TLS session`() async throws {
        let (server, client, connection) = try await connectedPair()
        try await exchange(server, client, connection, [1])
        for round in 2..<6 as Range<UInt8> {
            try await leave(server)
            // The side that begins must have had its last keys confirmed for three probe time-outs.
            try await client.wait("new keys") { peer in
                guard let conn = connection.conn else { return false }
                let status = ngtcp2_conn_initiate_key_update(conn, peer.endpoint.timestamp())
                peer.endpoint.markDirty(connection)
                return status == 0
            }
            try await exchange(server, client, connection, [round])
        }
        #expect(try await server.on { $0.accepted[0].session == nil && $0.reasons.isEmpty })
        try await client.stop()
        try await server.stop()
    }

    @Test func `a client that says more of TLS after its handshake is refused`() async throws {
        let (server, client, connection) = try await connectedPair()
        try await server.wait("confirmed") { $0.accepted.first?.session == nil }
        try await client.on { peer in
            // KeyUpdate, which QUIC forbids.
            let message: [UInt8] = [24, 0, 0, 1, 0]
            #expect(ngtcp2_conn_submit_crypto_data(connection.conn, .init(2), message, message.count) == 0)
            peer.endpoint.markDirty(connection)
        }
        try await client.wait("closed") { !$0.reasons.isEmpty }
        #expect(try await client.on { $0.reasons } == [.tlsAlert(10, fromPeer: true)])
        #expect(try await server.on { $0.reasons } == [.tlsAlert(10, fromPeer: false)])
        try await client.stop()
        try await server.stop()
    }
}
