import MonotonicTime
import Synchronization
import Testing

@testable import QUIC

@Suite struct AdmissionTests {
    private static let home = SocketAddress("192.0.2.1", port: 40_000)!
    private static let other = SocketAddress("192.0.2.2", port: 40_000)!

    private func admission(_ change: (inout QUICServerOptions) -> Void = { _ in }) -> Admission {
        var options = QUICServerOptions(keys: .generate(), maximumConnections: 1_000, maximumHandshakes: 500)
        change(&options)
        return Admission(options)
    }

    @Test func `an address has a bound of its own and others still get in`() {
        var admission = admission { $0.maximumConnectionsPerAddress = 3 }
        for _ in 0..<3 {
            #expect(admission.judge(Self.home, isProven: true, at: .zero) == .admitted)
            admission.began(Self.home)
            admission.completed(Self.home)
        }
        #expect(admission.judge(Self.home, isProven: true, at: .zero) == .refused)
        var elsewhere = Self.home
        elsewhere.port = 50_000
        #expect(admission.judge(elsewhere, isProven: true, at: .zero) == .refused)
        #expect(admission.judge(Self.other, isProven: false, at: .zero) == .admitted)
        admission.ended(Self.home, wasComplete: true)
        #expect(admission.judge(Self.home, isProven: true, at: .zero) == .admitted)
    }

    @Test func `a network of IPv6 counts as one address`() throws {
        var admission = admission { $0.maximumConnectionsPerAddress = 1 }
        admission.began(try #require(SocketAddress("2001:db8:1:2::1", port: 1)))
        #expect(
            admission.judge(try #require(SocketAddress("2001:db8:1:2:ffff::9", port: 2)), isProven: true, at: .zero)
                == .refused)
        #expect(
            admission.judge(try #require(SocketAddress("2001:db8:1:3::1", port: 1)), isProven: true, at: .zero)
                == .admitted)
    }

    @Test func `many handshakes from one address must prove it`() {
        var admission = admission()
        for _ in 0..<Admission.unprovenHandshakesPerAddress {
            #expect(admission.judge(Self.home, isProven: false, at: .zero) == .admitted)
            admission.began(Self.home)
        }
        #expect(admission.judge(Self.home, isProven: false, at: .zero) == .mustProveAddress)
        #expect(admission.judge(Self.home, isProven: true, at: .zero) == .admitted)
        #expect(admission.judge(Self.other, isProven: false, at: .zero) == .admitted)
        admission.completed(Self.home)
        #expect(admission.judge(Self.home, isProven: false, at: .zero) == .admitted)
    }

    @Test func `too many newcomers in a second must prove their addresses`() {
        var admission = admission { $0.handshakesPerSecond = 10 }
        let start = Instant.zero + .seconds(100)
        var verdicts: [Admission.Verdict] = []
        for number in 0..<20 {
            let address = SocketAddress("198.51.100.\(number)", port: 1)!
            verdicts.append(admission.judge(address, isProven: false, at: start))
        }
        #expect(verdicts == Array(repeating: .admitted, count: 10) + Array(repeating: .mustProveAddress, count: 10))
        #expect(admission.judge(Self.home, isProven: false, at: start + .milliseconds(150)) == .admitted)
        #expect(admission.judge(Self.home, isProven: false, at: start + .milliseconds(160)) == .mustProveAddress)
    }

    @Test func `nothing is kept of connections that ended`() {
        var admission = admission()
        for number in 0..<200 {
            let address = SocketAddress("198.51.100.\(number)", port: 1)!
            admission.began(address)
            if number % 2 == 0 { admission.completed(address) }
            admission.ended(address, wasComplete: number % 2 == 0)
        }
        #expect(admission.addressCount == 0 && admission.connections == 0 && admission.handshakes == 0)
    }

    @Test func `a server sends retries when many come and lets them in`() async throws {
        var options = QUICServerOptions(keys: .generate())
        options.handshakesPerSecond = 1
        let server = try await Peer(server: options, identity: makeIdentity())
        let client = try await Peer.client()
        for _ in 0..<4 { _ = try await client.connect(to: server) }
        try await client.wait("all") { $0.readyCount == 4 }
        #expect(try await server.on { $0.endpoint.statistics.retriesSent } > 0)
        try await server.wait("complete") { $0.endpoint.group.admission.withLock { $0.handshakes } == 0 }
        #expect(try await server.on { $0.endpoint.group.admission.withLock { $0.connections } } == 4)
        try await client.stop()
        try await server.wait("gone") { $0.endpoint.connectionCount == 0 }
        #expect(try await server.on { $0.endpoint.group.admission.withLock { $0.addressCount } } == 0)
        try await server.stop()
    }

    @Test func `an address that is not proven gets at most three times what it sent`() async throws {
        // Nothing comes back to the client, so the server repeats what it has said until it gives up.
        let server = try await Peer.server { $0.handshakeTimeout = .seconds(2) }
        let path = try await Forwarder(to: server.address)
        let client = try await Peer.client { $0.handshakeTimeout = .seconds(2) }
        let counts = Counts()
        try await path.drop { direction, packet in
            counts.add(packet.count, direction)
            return direction == .toClient
        }
        _ = try await client.connect(to: server, at: path.address)
        try await server.wait("it begins") { $0.endpoint.connectionCount == 1 }
        try await server.wait("it gives up") { $0.endpoint.connectionCount == 0 }
        let (sent, received) = counts.value
        #expect(received > 0 && received <= 3 * sent, "\(received) bytes for \(sent)")
        // What no connection is behind is answered with less than came: garbage, versions, stray short headers.
        let before = counts.value
        for size in [1, 20, 41, 60, 500, 1_199, 1_200] {
            for first: UInt8 in [0x00, 0x40, 0x80, 0xC0, 0xE3] {
                var packet = [UInt8](repeating: 7, count: size)
                packet[0] = first
                counts.add(packet.count, .toServer)
                try await path.inject(packet)
            }
        }
        _ = try await server.wait("all came") { $0.endpoint.statistics.packetsReceived >= 35 }
        let after = counts.value
        #expect(after.received - before.received <= after.sent - before.sent)
        try await client.stop()
        try await server.stop()
        path.stop()
    }

    @Test func `what thousands are told does not hold up what arrives`() async throws {
        let server = try await Peer.server()
        let client = try await Peer.client()
        let connections = 2 * QUICEndpoint.flushesPerRound + 10
        for number in 1...connections {
            _ = try await client.connect(to: server)
            if number % 20 == 0 { try await server.wait("some") { $0.readyCount == number } }
        }
        try await server.wait("all") { $0.readyCount == connections }
        let sent = try await server.on { peer in
            let before = peer.endpoint.sender.packetsSent
            peer.endpoint.turn {
                for connection in peer.accepted { _ = try? connection.sendDatagram([1]) }
            }
            return peer.endpoint.sender.packetsSent - before
        }
        #expect(sent <= 2 * QUICEndpoint.flushesPerRound)
        try await client.wait("everybody in the end") { $0.datagrams.count == connections }
        try await client.stop()
        try await server.stop()
    }

    /// Bytes each way.
    private final class Counts: Sendable {
        private let counts = Mutex((sent: 0, received: 0))
        var value: (sent: Int, received: Int) { counts.withLock { $0 } }
        func add(_ bytes: Int, _ direction: Direction) {
            counts.withLock { counts in
                if direction == .toServer { counts.sent += bytes } else { counts.received += bytes }
            }
        }
    }
}
