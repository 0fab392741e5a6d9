import MonotonicTime
import QUIC
import Reactor
import Testing

@Suite struct HandshakeTests {
    @Test func `both sides learn each others key`() async throws {
        let (server, client, connection) = try await connectedPair()
        #expect(try await client.on { _ in connection.peerKeySHA256 } == server.identity?.keySHA256)
        #expect(try await server.on { $0.accepted[0].peerKeySHA256 } == client.identity?.keySHA256)
        #expect(try await server.on { $0.accepted[0].remoteAddress } == client.address)
        let roundTrip = try await client.on { _ in connection.roundTripTime }
        #expect(try #require(roundTrip) < .seconds(1))
        try await client.stop()
        try await server.stop()
    }

    @Test func `one server socket serves IPv4 and IPv6`() async throws {
        let server = try await Peer.server(bind: .any())
        let port = try await server.address.port
        for host in ["127.0.0.1", "::1"] {
            let local = try #require(SocketAddress(host, port: 0))
            let client = try await Peer.client(bind: local)
            _ = try await client.connect(to: server, at: SocketAddress(host, port: port))
            try await client.wait("ready over \(host)") { $0.readyCount == 1 }
            try await server.wait("accepted") { $0.accepted.contains { $0.remoteAddress.host == host } }
            try await client.stop()
        }
        // And a dual-stack client reaches an IPv4 server.
        let client = try await Peer.client(bind: .any())
        _ = try await client.connect(to: server, at: .loopback(port: port))
        try await client.wait("ready") { $0.readyCount == 1 }
        try await client.stop()
        try await server.stop()
    }

    @Test func `a server with another key than the pinned one is refused`() async throws {
        let server = try await Peer.server()
        let client = try await Peer.client()
        let wrong = try #require(client.identity?.keySHA256)
        _ = try await client.connect(to: server, verification: .pinned([wrong]))
        try await client.wait("refused") { !$0.reasons.isEmpty }
        let actual = try #require(server.identity?.keySHA256)
        #expect(try await client.on { $0.reasons } == [.peerKeyRejected(sha256: actual)])
        #expect(try await client.on { $0.readyCount } == 0)
        try await server.wait("counted") { $0.endpoint.statistics.handshakesFailed == 1 }
        #expect(try await server.on { $0.accepted.isEmpty })
        try await client.stop()
        try await server.stop()
    }

    @Test func `a client without a certificate is refused`() async throws {
        let server = try await Peer.server()
        let client = try await Peer(identity: nil)
        _ = try await client.connect(to: server)
        try await client.wait("refused") { !$0.reasons.isEmpty }
        #expect(try await client.on { $0.reasons } == [.ownCertificateMissing])
        #expect(try await server.on { $0.accepted.isEmpty })
        try await client.stop()
        try await server.stop()
    }

    @Test func `a client that the servers hook refuses is told`() async throws {
        let server = try await Peer.server(verification: .hook { _ in false })
        let client = try await Peer.client()
        _ = try await client.connect(to: server)
        try await client.wait("refused") { !$0.reasons.isEmpty }
        #expect(try await client.on { $0.reasons } == [.ownKeyRejected])
        #expect(try await server.on { $0.accepted.isEmpty })
        try await client.stop()
        try await server.stop()
    }

    @Test func `another application protocol is refused`() async throws {
        let server = try await Peer.server()
        let client = try await Peer.client { $0.applicationProtocol = "other/1" }
        _ = try await client.connect(to: server)
        try await client.wait("refused") { !$0.reasons.isEmpty }
        #expect(try await client.on { $0.reasons } == [.applicationProtocolMismatch])
        #expect(try await server.on { $0.accepted.isEmpty })
        try await client.stop()
        try await server.stop()
    }

    @Test func `nobody at the address is told as a handshake timeout`() async throws {
        let server = try await Peer.server()
        let nobody = try await server.address
        try await server.stop()
        let client = try await Peer.client { $0.handshakeTimeout = .milliseconds(300) }
        _ = try await client.connect(to: server, at: nobody)
        try await client.wait("given up") { !$0.reasons.isEmpty }
        #expect(try await client.on { $0.reasons } == [.handshakeTimeout])
        try await client.stop()
    }

    @Test func `a retry proves the address and its token spares the next one`() async throws {
        let server = try await Peer.server(addressValidation: .always)
        let client = try await Peer.client()
        _ = try await client.connect(to: server)
        try await client.wait("ready") { $0.readyCount == 1 && $0.resumption != nil }
        #expect(try await server.on { $0.endpoint.statistics.retriesSent } == 1)
        // The token comes in a frame of its own, so wait for a state that has it.
        try await client.wait("token") { ($0.resumption?.bytes.count ?? 0) > 0 }
        let resumption = try await client.on { $0.resumption }
        _ = try await client.connect(to: server, resumption: resumption)
        try await client.wait("ready again") { $0.readyCount == 2 }
        #expect(try await server.on { $0.endpoint.statistics.retriesSent } == 1)
        try await client.stop()
        try await server.stop()
    }

    @Test func `an endpoint that cannot work says why`() async throws {
        await #expect(throws: QUICError.serverWithoutIdentity) {
            _ = try await Peer(server: QUICServerOptions(keys: .generate()), identity: nil)
        }
        await #expect(throws: QUICError.self) {
            _ = try await Peer(identity: QUICIdentity(certificate: [1, 2, 3], privateKey: [4]))
        }
        await #expect(throws: QUICError.self) {
            _ = try await Peer(identity: nil) { $0.applicationProtocol = "" }
        }
        let taken = try await Peer.server()
        let address = try await taken.address
        await #expect(throws: QUICError.self) { _ = try await Peer(identity: nil, bind: address) }
        try await taken.stop()
    }
}
