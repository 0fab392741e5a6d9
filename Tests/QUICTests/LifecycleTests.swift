import Glibc
import MonotonicTime
import QUIC
import Reactor
import Synchronization
import Testing

@Suite struct LifecycleTests {
    @Test func `the peer sees code and reason of a close`() async throws {
        let (server, client, connection) = try await connectedPair()
        try await client.on { _ in
            let stream = try connection.openStream()
            try stream.write(Array("last words".utf8))
            connection.close(code: 7, reason: "going home")
            #expect(throws: QUICError.closed) { try connection.openStream() }
            #expect(throws: QUICError.closed) { try connection.sendDatagram([1]) }
            #expect(throws: QUICError.closed) { try stream.write([1]) }
        }
        try await server.wait("closed") { !$0.reasons.isEmpty }
        #expect(try await server.on { $0.reasons } == [.closedByPeer(code: 7, reason: "going home")])
        #expect(try await server.on { $0.received.values.first } == Array("last words".utf8))
        try await client.wait("closed") { !$0.reasons.isEmpty }
        #expect(try await client.on { $0.reasons } == [.closedLocally(code: 7, reason: "going home")])
        #expect(try await server.on { $0.endpoint.connectionCount } == 0)
        try await client.stop()
        try await server.stop()
    }

    @Test func `words that are too long are cut between two characters`() async throws {
        let (server, client, connection) = try await connectedPair()
        try await client.on { _ in connection.close(code: 7, reason: String(repeating: "a", count: 255) + "äöü") }
        try await server.wait("closed") { !$0.reasons.isEmpty }
        let words = String(repeating: "a", count: 255)
        #expect(try await server.on { $0.reasons } == [.closedByPeer(code: 7, reason: words)])
        try await client.stop()
        try await server.stop()
    }

    @Test func `a server may refuse a newcomer with words`() async throws {
        let server = try await Peer.server()
        try await server.on { $0.endpoint.delegate = nil }
        let refuser = Refuser()
        try await server.on { $0.endpoint.delegate = refuser }
        let client = try await Peer.client()
        _ = try await client.connect(to: server)
        try await client.wait("refused") { !$0.reasons.isEmpty }
        #expect(try await client.on { $0.reasons } == [.closedByPeer(code: 3, reason: "full")])
        try await client.stop()
        try await server.stop()
    }

    @Test func `closing an endpoint tells all peers`() async throws {
        let (server, client, _) = try await connectedPair()
        try await server.stop()
        try await client.wait("told") { !$0.reasons.isEmpty }
        #expect(try await client.on { $0.reasons } == [.closedByPeer(code: 0, reason: "")])
        #expect(server.reasons == [.endpointClosed])
        try await client.stop()
    }

    @Test func `an endpoint that closes in a call forgets what was due meanwhile`() async throws {
        let (server, client, connection) = try await connectedPair()
        let second = try await Peer.client()
        _ = try await second.connect(to: server)
        try await server.wait("both") { $0.readyCount == 2 }
        let isClosed = Flag()
        try await server.on { peer in
            let leaving = peer.accepted[1]
            peer.onBytes = { _, _ in
                // What is left of the ended connection is over before this call is.
                leaving.close(code: 0)
                peer.loop.waiting { _ = usleep(600_000) }
                peer.endpoint.close()
                isClosed.set()
            }
        }
        try await client.on { _ in try connection.openStream().write([1]) }
        try await server.wait("closed") { _ in isClosed.isSet }
        #expect(try await server.on { $0.endpoint.connectionCount } == 0)
        for client in [client, second] { try await client.stop() }
        server.loop.stop()
    }

    private final class Flag: Sendable {
        private let value = Atomic<Bool>(false)
        var isSet: Bool { value.load(ordering: .acquiring) }
        func set() { value.store(true, ordering: .releasing) }
    }

    @Test func `what was written right before an endpoint closes arrives`() async throws {
        let (server, client, connection) = try await connectedPair()
        try await client.on { client in
            let stream = try connection.openStream()
            try stream.write(Array("last words".utf8))
            try connection.sendDatagram([1, 2, 3])
            client.endpoint.close(code: 7, reason: "going home")
        }
        try await server.wait("closed") { !$0.reasons.isEmpty }
        #expect(try await server.on { $0.reasons } == [.closedByPeer(code: 7, reason: "going home")])
        #expect(try await server.on { $0.received.values.first } == Array("last words".utf8))
        #expect(try await server.on { $0.datagrams } == [[1, 2, 3]])
        client.loop.stop()
        try await server.stop()
    }

    @Test func `silence ends a connection after the idle timeout`() async throws {
        let start = Instant.now
        let (server, client, _) = try await connectedPair { $0.idleTimeout = .seconds(3) }
        try await client.wait("idle") { !$0.reasons.isEmpty }
        try await server.wait("idle") { !$0.reasons.isEmpty }
        #expect(try await client.on { $0.reasons } == [.idleTimeout])
        #expect(try await server.on { $0.reasons } == [.idleTimeout])
        #expect(Instant.now - start >= .seconds(3))
        try await client.stop()
        try await server.stop()
    }

    @Test func `keep alive outlasts the idle timeout`() async throws {
        let (server, client, connection) = try await connectedPair(keepAlive: .milliseconds(500)) {
            $0.idleTimeout = .seconds(4)
        }
        try await Task.sleep(for: .seconds(6))
        #expect(try await client.on { $0.reasons.isEmpty && connection.isReady })
        #expect(try await server.on { $0.reasons.isEmpty })
        try await client.stop()
        try await server.stop()
    }

    @Test func `a server that vanishes is noticed`() async throws {
        let server = try await Peer.server()
        let path = try await Forwarder(to: server.address)
        let client = try await Peer.client { $0.idleTimeout = .milliseconds(800) }
        let connection = try await client.connect(to: server, at: path.address, keepAlive: .milliseconds(200))
        try await client.wait("ready") { $0.readyCount == 1 }
        try await path.drop { _, _ in true }
        try await client.on { _ in try connection.sendDatagram([1]) }
        try await client.wait("noticed") { !$0.reasons.isEmpty }
        #expect(try await client.on { $0.reasons } == [.idleTimeout])
        try await client.stop()
        try await server.stop()
        path.stop()
    }

    @Test func `a server that restarted says so by stateless reset`() async throws {
        let keys = ServerKeys.generate()
        let identity = try makeIdentity()
        let first = try await Peer.server(keys: keys, identity: identity)
        let path = try await Forwarder(to: first.address)
        let client = try await Peer.client()
        let connection = try await client.connect(to: first, at: path.address)
        try await client.wait("ready") { $0.readyCount == 1 }
        try await first.wait("ready") { $0.readyCount == 1 }
        // The first server's farewell does not get through; another one has its keys, but not the connection.
        try await path.drop { _, _ in true }
        try await first.stop()
        let second = try await Peer.server(keys: keys, identity: identity)
        try await path.redirect(to: second.address)
        try await path.drop { _, _ in false }
        try await client.on { _ in try connection.sendDatagram([UInt8](repeating: 0, count: 100)) }
        try await client.wait("told") { !$0.reasons.isEmpty }
        #expect(try await client.on { $0.reasons } == [.statelessReset])
        #expect(try await second.on { $0.endpoint.statistics.resetsSent } >= 1)
        try await client.stop()
        try await second.stop()
        path.stop()
    }

    @Test(arguments: [true, false])
    func `a client that says nothing but PING hears that the server was restarted`(isSetLater: Bool) async throws {
        let keys = ServerKeys.generate()
        let identity = try makeIdentity()
        let first = try await Peer.server(keys: keys, identity: identity)
        let path = try await Forwarder(to: first.address)
        let client = try await Peer.client()
        let connection = try await client.connect(
            to: first, at: path.address, keepAlive: isSetLater ? .seconds(20) : .milliseconds(300))
        try await client.wait("ready") { $0.readyCount == 1 }
        try await first.wait("ready") { $0.readyCount == 1 }
        // The question is acknowledged: nothing of the client's is unanswered, as far as its transport knows.
        try await client.on { _ in try connection.openStream().write([1]) }
        try await first.wait("asked") { !$0.received.isEmpty }
        try await Task.sleep(for: .milliseconds(200))
        try await path.drop { _, _ in true }
        try await first.stop()
        let second = try await Peer.server(keys: keys, identity: identity)
        try await path.redirect(to: second.address)
        try await path.drop { _, _ in false }
        let start = Instant.now
        if isSetLater { try await client.on { _ in connection.keepAlive = .milliseconds(300) } }
        try await client.wait("told") { !$0.reasons.isEmpty }
        #expect(try await client.on { $0.reasons } == [.statelessReset])
        #expect(Instant.now - start < .seconds(10))
        try await client.stop()
        try await second.stop()
        path.stop()
    }

    private final class Refuser: QUICEndpointDelegate, @unchecked Sendable {
        func endpoint(_ endpoint: QUICEndpoint, didAccept connection: QUICConnection) {
            connection.close(code: 3, reason: "full")
        }
    }
}
