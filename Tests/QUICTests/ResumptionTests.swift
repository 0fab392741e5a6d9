import QUIC
import Synchronization
import TestSupport
import Testing

@Suite struct ResumptionTests {
    /// Connects once and returns what the client may resume with.
    private func state(from server: Peer, to client: Peer) async throws -> ResumptionState {
        let connection = try await client.connect(to: server)
        try await client.wait("a ticket") { $0.resumption != nil }
        try await client.on { peer in
            connection.close(code: 0)
            peer.readyCount = 0
        }
        return try #require(try await client.on { $0.resumption })
    }

    /// Sends a stream and a datagram with the first packet; the connection.
    private func connectEarly(
        _ client: Peer, to server: Peer, at address: SocketAddress? = nil, _ state: ResumptionState, pin: [UInt8]? = nil
    ) async throws -> QUICConnection {
        try await client.connect(
            to: server, at: address, verification: pin.map { .pinned([$0]) }, resumption: state
        ) { connection in
            try connection.openStream().write(Array("early".utf8), finish: true)
            try connection.sendDatagram([9])
            #expect(connection.earlyData == .offered)
        }
    }

    @Test func `a returning client sends its first words with its first packet`() async throws {
        let server = try await Peer.server()
        let client = try await Peer.client()
        let state = try await state(from: server, to: client)
        try await server.wait("over") { $0.reasons.count == 1 }
        // As kept in a file.
        let restored = try #require(ResumptionState(bytes: state.bytes))
        #expect(restored == state)
        // Without an answer the client cannot go on with the handshake.
        let path = try await Forwarder(to: server.address)
        try await path.drop { direction, _ in direction == .toClient }
        let connection = try await connectEarly(client, to: server, at: path.address, restored)
        try await server.wait("early words") {
            $0.received.values.contains(Array("early".utf8)) && $0.datagrams == [[9]]
        }
        try await path.drop { _, _ in false }
        try await client.wait("ready") { $0.readyCount == 1 }
        #expect(try await client.on { _ in connection.earlyData } == .accepted)
        #expect(try await server.on { $0.earlyBytes } == Array("early".utf8))
        #expect(try await server.on { $0.earlyDatagrams } == [[9]])
        // It was shown to the owner before the handshake was complete, and its key was known.
        #expect(try await server.on { $0.acceptedEarly } == [false, true])
        #expect(try await server.on { $0.accepted[1].peerKeySHA256 } == client.identity?.keySHA256)
        try await server.wait("ready too") { $0.readyCount == 2 }
        try await client.stop()
        try await server.stop()
        path.stop()
    }

    @Test func `a server that closes on early data tells its code`() async throws {
        let server = try await Peer.server()
        let client = try await Peer.client()
        let state = try await state(from: server, to: client)
        try await server.wait("over") { $0.reasons.count == 1 }
        let isRead = Mutex(false)
        try await server.on { peer in
            peer.onBytes = { stream, _ in
                isRead.withLock { $0 = true }
                #expect(stream.isEarlyData)
                stream.connection?.close(code: 7, reason: "not so early")
                #expect(stream.connection?.isOpen == false)
            }
        }
        // Without an answer the client cannot go on with the handshake.
        let path = try await Forwarder(to: server.address)
        try await path.drop { direction, _ in direction == .toClient }
        _ = try await connectEarly(client, to: server, at: path.address, state)
        try await server.wait("early words") { _ in isRead.withLock { $0 } }
        try await path.drop { _, _ in false }
        try await client.wait("closed") { $0.reasons.count == 2 }
        #expect(try await client.on { $0.reasons[1] } == .closedByPeer(code: 7, reason: "not so early"))
        try await server.wait("closed here too") { $0.reasons.count == 2 }
        #expect(try await server.on { $0.readyCount } == 1, "it is told of nothing after that")
        try await client.stop()
        try await server.stop()
        path.stop()
    }

    @Test func `early data is taken by a restarted server that kept its keys`() async throws {
        let keys = ServerKeys.generate()
        let identity = try makeIdentity()
        let first = try await Peer.server(keys: keys, identity: identity)
        let client = try await Peer.client()
        let state = try await state(from: first, to: client)
        try await first.stop()
        let restored = try #require(ServerKeys(bytes: keys.bytes))
        let second = try await Peer.server(keys: restored, identity: identity)
        // Without an answer the handshake cannot end before the server has read them.
        let path = try await Forwarder(to: second.address)
        try await path.drop { direction, _ in direction == .toClient }
        let connection = try await connectEarly(client, to: second, at: path.address, state)
        try await second.wait("early words") { $0.earlyBytes == Array("early".utf8) }
        try await path.drop { _, _ in false }
        try await client.wait("ready") { $0.readyCount == 1 }
        #expect(try await client.on { _ in connection.earlyData } == .accepted)
        try await client.stop()
        try await second.stop()
        path.stop()
    }

    @Test func `early data that somebody recorded is not taken again`() async throws {
        let server = try await Peer.server()
        let path = try await Forwarder(to: server.address)
        let client = try await Peer.client()
        let state = try await state(from: server, to: client)
        try await server.wait("over") { $0.reasons.count == 1 }
        // Without an answer the handshake cannot end before the server has read them.
        try await path.drop { direction, _ in direction == .toClient }
        let connection = try await client.connect(to: server, at: path.address, resumption: state) { connection in
            try connection.openStream().write(Array("early".utf8), finish: true)
        }
        try await server.wait("early words") { $0.earlyBytes == Array("early".utf8) }
        let recorded = try await path.seen
        try await path.drop { _, _ in false }
        try await server.wait("ready") { $0.readyCount == 2 }
        try await client.on { _ in connection.close(code: 0) }
        try await server.wait("over") { $0.reasons.count == 2 }
        // Once the server has forgotten the connection, the recording begins a new one.
        let known = try await server.on { $0.endpoint.statistics.packetsReceived }
        for _ in 0..<60 where try await server.on({ $0.endpoint.connectionCount }) == 0 {
            for packet in recorded { try await path.inject(packet) }
            try await Task.sleep(for: .milliseconds(50))
        }
        #expect(try await server.on { $0.endpoint.connectionCount } == 1)
        #expect(try await server.on { $0.endpoint.statistics.packetsReceived } > known)
        try await Task.sleep(for: .milliseconds(100))
        #expect(try await server.on { $0.accepted.count } == 2)
        #expect(try await server.on { $0.earlyBytes } == Array("early".utf8))
        try await client.stop()
        try await server.stop()
        path.stop()
    }

    @Test func `refused early data is sent again after the handshake`() async throws {
        let identity = try makeIdentity()
        let first = try await Peer.server(identity: identity)
        let client = try await Peer.client()
        let state = try await state(from: first, to: client)
        try await first.stop()
        // Other ticket keys: this one cannot read the ticket.
        let second = try await Peer.server(identity: identity)
        let connection = try await connectEarly(client, to: second, state)
        try await client.wait("ready") { $0.readyCount == 1 }
        try await second.wait("late words") { $0.received.values.contains(Array("early".utf8)) && !$0.ended.isEmpty }
        #expect(try await client.on { _ in connection.earlyData } == .rejected)
        #expect(try await second.on { $0.earlyBytes.isEmpty && $0.acceptedEarly == [false] })
        try await client.stop()
        try await second.stop()
    }

    @Test func `a client whose key was revoked is refused on resumption too`() async throws {
        let keys = ServerKeys.generate()
        let identity = try makeIdentity()
        let first = try await Peer.server(keys: keys, identity: identity)
        let client = try await Peer.client()
        let state = try await state(from: first, to: client)
        try await first.stop()
        let second = try await Peer.server(keys: keys, verification: .hook { _ in false }, identity: identity)
        _ = try await connectEarly(client, to: second, state)
        try await client.wait("refused") { $0.reasons.count == 2 }
        #expect(try await client.on { $0.reasons.last } == .ownKeyRejected)
        #expect(try await second.on { $0.accepted.isEmpty && $0.received.isEmpty })
        try await client.stop()
        try await second.stop()
    }

    @Test func `state of another server or damaged state is not used`() async throws {
        let other = try await Peer.server()
        let server = try await Peer.server()
        let client = try await Peer.client()
        let state = try await state(from: other, to: client)
        let connection = try await client.connect(to: server, resumption: state)
        #expect(try await client.on { _ in connection.earlyData } == .notOffered)
        try await client.wait("ready") { $0.readyCount == 1 }
        #expect(ResumptionState(bytes: []) == nil)
        #expect(ResumptionState(bytes: Array(state.bytes.dropLast())) == nil)
        #expect(ResumptionState(bytes: state.bytes + [0]) == nil)
        var generator = SeededGenerator(seed: 1)
        for _ in 0..<200 {
            var bytes = state.bytes
            let place = Int.random(in: 0..<bytes.count, using: &generator)
            bytes[place] ^= UInt8.random(in: 1...255, using: &generator)
            #expect(ResumptionState(bytes: bytes) == nil)
        }
        try await client.stop()
        try await other.stop()
        try await server.stop()
    }
}
