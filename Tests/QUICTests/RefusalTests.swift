// What a host answers in place of a process that has ended.
import Glibc
import QUIC
import Testing

@testable import QUIC

@Suite(.timeLimit(.minutes(1))) struct RefusalTests {
    /// A UDP port, open while it lives.
    private final class Port {
        let descriptor: Int32
        let address: SocketAddress

        init(_ address: SocketAddress) throws {
            let socket = try UDPSocket(address, reusePort: false, bufferSize: 1 << 16)
            descriptor = dup(socket.descriptor)
            self.address = socket.localAddress
        }

        deinit { close(descriptor) }

        /// The packets that have come.
        func packets() -> [[UInt8]] {
            var found: [[UInt8]] = []
            var buffer = [UInt8](repeating: 0, count: 2_048)
            while case let count = recv(descriptor, &buffer, buffer.count, 0), count >= 0 {
                found.append(Array(buffer.prefix(count)))
            }
            return found
        }
    }

    private static func closedPort(_ address: SocketAddress) throws -> SocketAddress { try Port(address).address }

    @Test(arguments: ["127.0.0.1", "::1"], [SocketAddress.any(), nil])
    func `a connection to a port that nobody has is told so, and goes on`(host: String, bind: SocketAddress?)
        async throws
    {
        let host = try #require(SocketAddress(host, port: 0))
        let client = try await Peer.client(bind: bind ?? host)
        let server = try await Peer.server()
        let address = try Self.closedPort(host)
        let connection = try await client.connect(to: server, at: address)
        try await client.wait("told", timeout: .seconds(5)) { $0.refusals > 0 }
        try await client.on { #expect($0.reasons.isEmpty && connection.isOpen) }
        try await client.stop()
        try await server.stop()
    }

    @Test func `a process that is silent refuses nothing`() async throws {
        let host = SocketAddress.loopback()
        let silent = try Port(host)
        let client = try await Peer.client()
        let server = try await Peer.server()
        _ = try await client.connect(to: server, at: silent.address)
        try await Task.sleep(for: .milliseconds(400))
        try await client.on { #expect($0.refusals == 0) }
        #expect(!silent.packets().isEmpty)
        try await client.stop()
        try await server.stop()
    }

    @Test func `a ready connection is told at its next packet, and of its own peer only`() async throws {
        let client = try await Peer.client()
        let (first, second) = (try await Peer.server(), try await Peer.server())
        let network = try await Forwarder(to: try await first.address)
        let lost = try await client.connect(to: first, at: network.address)
        let kept = try await client.connect(to: second)
        try await client.wait("both are ready") { $0.readyCount == 2 }
        network.stop()
        try await client.on { peer in
            for connection in [lost, kept] { _ = try connection.sendDatagram([1, 2, 3]) }
        }
        try await client.wait("told", timeout: .seconds(5)) { $0.refusals > 0 }
        try await client.wait("acknowledged", timeout: .seconds(5)) { !$0.acknowledged.isEmpty }
        try await client.on { peer in
            #expect(lost.isOpen && kept.isOpen && peer.reasons.isEmpty)
            lost.close(code: 0, reason: "")
        }
        try await client.wait("closed") { !$0.reasons.isEmpty }
        let refusals = try await client.on { $0.refusals }
        try await client.on { _ in _ = try kept.sendDatagram([4]) }
        try await client.wait("acknowledged", timeout: .seconds(5)) { $0.acknowledged.count == 2 }
        try await client.on { #expect($0.refusals == refusals) }
        try await client.stop()
        try await first.stop()
        try await second.stop()
    }

    /// Waits until a connection has nothing to send or to acknowledge: from then on its endpoint sends what it is told to, and no more.
    private func untilQuiet(_ connection: QUICConnection, of client: Peer) async throws {
        let deadline = ContinuousClock.now + .seconds(20)
        var (sent, since) = (0, ContinuousClock.now)
        while ContinuousClock.now - since < .milliseconds(300) {
            try #require(ContinuousClock.now < deadline, "it never becomes quiet")
            let (count, isQuiet) = try await client.on { ($0.endpoint.sender.packetsSent, connection.isQuiet) }
            if count != sent || !isQuiet { (sent, since) = (count, ContinuousClock.now) }
            try await Task.sleep(for: .milliseconds(5))
        }
    }

    @Test(arguments: [SocketAddress.any(), .loopback()])
    func `a connection is told by what the host quotes of a packet beside QUIC, too`(bind: SocketAddress) async throws {
        let client = try await Peer.client(bind: bind)
        let server = try await Peer.server()
        let network = try await Forwarder(to: try await server.address)
        let connection = try await client.connect(to: server, at: network.address)
        try await client.wait("the client is ready") { $0.readyCount == 1 }
        try await server.wait("the server is ready") { $0.readyCount == 1 }
        // There is no keep-alive, so only what goes beside QUIC can be quoted.
        try await untilQuiet(connection, of: client)
        network.stop()
        let packet: [UInt8] = [0x80, 111] + Array(0..<118)
        let sent = try await client.on { peer in
            connection.send(foreign: packet)
            return peer.endpoint.sender.packetsSent
        }
        try await client.wait("told", timeout: .seconds(5)) { $0.refusals > 0 }
        let (sentInAll, isOpen) = try await client.on { ($0.endpoint.sender.packetsSent, connection.isOpen) }
        #expect(sentInAll == sent, "no packet of QUIC went that could have been quoted")
        #expect(isOpen)
        // Who does not see its packets knows no source of them, and cannot make up such an answer.
        let forged = [packet.map { $0 ^ 1 }, Array(packet.prefix(11))]
        let (isOwn, taken) = try await client.on { _ in
            (connection.sends(packet), forged.filter { connection.sends($0) })
        }
        #expect(isOwn && taken.isEmpty)
        try await client.stop()
        try await server.stop()
    }

    @Test func `an answer costs no packet that is sent after it`() async throws {
        let host = SocketAddress.loopback()
        let socket = try UDPSocket(host, reusePort: false, bufferSize: 1 << 16, reportsErrors: true)
        let (open, closed) = (try Port(host), try Self.closedPort(host))
        let sender = PacketSender()
        func send(_ bytes: [UInt8], to address: SocketAddress) {
            var storage = sockaddr_storage()
            let length = address.encode(family: socket.family, into: &storage)
            withUnsafeMutablePointer(to: &storage) { storage in
                bytes.withUnsafeBytes {
                    sender.send(
                        $0, on: socket, from: nil,
                        to: NetworkEnd(address: UnsafeMutableRawPointer(storage), length: length))
                }
            }
            sender.send()
        }
        for number in 0..<20 as Range<UInt8> {
            send([0], to: closed)
            try await Task.sleep(for: .milliseconds(2))
            send([number], to: open.address)
        }
        #expect(open.packets() == (0..<20).map { [$0] })
        #expect(sender.packetsFailed == 0)
        var errors: [Int32] = []
        while let error = socket.nextError() {
            errors.append(error.code)
            #expect(error.destination == closed && error.packet == [0])
        }
        #expect(!errors.isEmpty && errors.allSatisfy { $0 == ECONNREFUSED })
    }
}
