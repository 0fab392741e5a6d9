// Streams of which one direction is abandoned, and the keys that peers may have.
import CNgtcp2
import Testing

@testable import QUIC

@Suite struct AbandonedStreamTests {
    /// Opens a stream, has the server write on it, and does something to the client's end of it.
    private func afterOpening(_ body: @escaping @Sendable (OpaquePointer, Int64) -> Int32) async throws -> [Int64] {
        let (server, client, connection) = try await connectedPair()
        let stream = try await client.on { _ in
            let stream = try connection.openStream()
            try stream.write([1, 2, 3])
            return stream
        }
        try await server.wait("opened") { $0.received[stream.id] == [1, 2, 3] }
        try await server.on { try $0.streams[0].write([4, 5, 6]) }
        try await client.wait("answered") { $0.received[stream.id] == [4, 5, 6] }
        #expect(try await server.on { $0.abandoned.isEmpty })
        try await client.on { peer in
            guard let conn = connection.conn else { return }
            #expect(body(conn, stream.id) == 0)
            peer.endpoint.markDirty(connection)
        }
        try await server.wait("told") { !$0.abandoned.isEmpty }
        // The connection lives on.
        _ = try await client.on { _ in try connection.sendDatagram([7]) }
        try await server.wait("a datagram") { $0.datagrams == [[7]] }
        let abandoned = try await server.on { $0.abandoned }
        #expect(try await server.on { $0.reasons.isEmpty })
        try await client.stop()
        try await server.stop()
        return abandoned
    }

    @Test func `a peer that takes no more is noticed before the next write`() async throws {
        #expect(try await afterOpening { ptt_shutdown_stream_read($0, $1, 42) } == [0])
    }

    @Test func `a peer that sends no more by a reset is noticed`() async throws {
        #expect(try await afterOpening { ptt_shutdown_stream_write($0, $1, 42) } == [0])
    }

    @Test(arguments: KeyKind.all) func `a peer may have a key of this kind`(_ kind: KeyKind) async throws {
        let server = try await Peer.server(identity: makeIdentity(kind))
        let client = try await Peer.client(identity: makeIdentity(kind))
        _ = try await client.connect(to: server)
        try await client.wait("ready") { $0.readyCount == 1 }
        try await server.wait("ready") { $0.readyCount == 1 }
        #expect(try await server.on { $0.accepted[0].peerKeySHA256 } == client.identity?.keySHA256)
        try await client.stop()
        try await server.stop()
    }
}
