import CLinux
import Glibc
import Reactor
import Synchronization
import Testing

@testable import QUIC

@Suite struct ForeignPacketTests {
    private static let packet: [UInt8] = [0x80, 111] + Array(0..<118)

    /// A trailer that tells whose it is.
    @Sendable private static func writeNumber(_ number: Int, _ datagram: UnsafeMutableRawBufferPointer) {
        datagram.storeBytes(of: UInt32(number).bigEndian, toByteOffset: datagram.count - 4, as: UInt32.self)
    }

    @Test func `a fan out reaches every ready connection with its own trailer`() async throws {
        let server = try await Peer.server()
        var clients: [Peer] = []
        for _ in 0..<5 {
            let client = try await Peer.client()
            _ = try await client.connect(to: server)
            try await client.wait("ready") { $0.readyCount == 1 }
            clients.append(client)
        }
        try await server.wait("all") { $0.readyCount == 5 }
        // More recipients than one system call takes, and one that is closed.
        let result = try await server.on { peer in
            peer.accepted[4].close(code: 0)
            let everybody = (0..<40).flatMap { _ in peer.accepted }
            return Self.packet.withUnsafeBytes { packet in
                peer.endpoint.fanOut(packet, to: everybody, trailerLength: 4, finish: Self.writeNumber)
            }
        }
        #expect(result == FanOutResult(sent: 160, failed: 0))
        let addresses = try await server.on { peer in peer.accepted.map(\.remoteAddress) }
        for client in clients {
            let own = try await client.address
            let place = try #require(addresses.firstIndex(of: own))
            guard place != 4 else { continue }
            try await client.wait("all of them") { $0.foreign.count == 40 }
            let (packets, sources) = try await client.on { ($0.foreign, $0.foreignFrom) }
            #expect(Set(sources) == [try await server.address])
            for (round, packet) in packets.enumerated() {
                #expect(packet.prefix(120) == Self.packet[...])
                #expect(packet.suffix(4) == [0, 0, 0, UInt8(round * 4 + place)])
            }
        }
        for client in clients { try await client.stop() }
        try await server.stop()
    }

    /// Hundreds of recipients, who are five clients again and again.
    @Test func `a fan out to hundreds is shared and reaches every one once`() async throws {
        let server = try await Peer.server()
        var clients: [Peer] = []
        for number in 1...5 {
            let client = try await Peer.client()
            _ = try await client.connect(to: server)
            try await server.wait("ready") { $0.readyCount == number }
            clients.append(client)
        }
        let rounds = 80
        let threads = Mutex<Set<Int32>>([])
        let (result, refused) = try await server.on { peer in
            let team = try ThreadPool(name: "help", size: 2)
            defer { team.stop() }
            peer.endpoint.helpers = team
            let everybody = (0..<rounds).flatMap { _ in peer.accepted }
            let group = FanOutGroup(everybody, trailerLength: 4) { number, datagram in
                threads.withLock { _ = $0.insert(ptt_thread_id()) }
                // Until another one has begun, however busy the machine is.
                let deadline = ContinuousClock.now + .seconds(10)
                while threads.withLock(\.count) < 2, ContinuousClock.now < deadline { sched_yield() }
                Self.writeNumber(number, datagram)
            }
            let result = Self.packet.withUnsafeBytes { peer.endpoint.fanOut($0, to: group, except: 7) }
            // No datagram has so many bytes: it is refused for each, which is told once for each, whichever thread it was.
            let long = [UInt8](repeating: 0x80, count: 65_530)
            return (result, long.withUnsafeBytes { peer.endpoint.fanOut($0, to: group) })
        }
        #expect(result == FanOutResult(sent: rounds * 5 - 1, failed: 0))
        #expect(refused == FanOutResult(sent: 0, failed: rounds * 5))
        #expect(threads.withLock(\.count) > 1)
        let addresses = try await server.on { peer in peer.accepted.map(\.remoteAddress) }
        for client in clients {
            let place = try #require(addresses.firstIndex(of: try await client.address))
            let wanted = (0..<rounds).map { $0 * 5 + place }.filter { $0 != 7 }
            try await client.wait("all of them") { $0.foreign.count == wanted.count }
            let packets = try await client.on { $0.foreign }
            #expect(packets.allSatisfy { $0.prefix(120) == Self.packet[...] })
            let numbers = packets.map { packet in packet.suffix(4).reduce(0) { $0 << 8 | Int($1) } }
            // Threads overtake each other.
            #expect(numbers.sorted() == wanted)
        }
        for client in clients { try await client.stop() }
        try await server.stop()
    }

    @Test func `a group follows who comes goes and moves`() async throws {
        let server = try await Peer.server()
        var clients: [Peer] = []
        var connections: [QUICConnection] = []
        for number in 1...3 {
            let client = try await Peer.client()
            connections.append(try await client.connect(to: server))
            try await server.wait("ready") { $0.readyCount == number }
            clients.append(client)
        }
        let group = try await server.on { Group($0.accepted) }
        func send(except excluded: Int? = nil) async throws -> FanOutResult {
            try await server.on { peer in
                Self.packet.withUnsafeBytes { peer.endpoint.fanOut($0, to: group.fanOut, except: excluded) }
            }
        }
        #expect(try await send(except: 1) == FanOutResult(sent: 2, failed: 0))
        #expect(try await send(except: 0).sent == 2)
        #expect(try await send(except: 2).sent == 2)
        for client in clients { try await client.wait("two of three") { $0.foreign.count == 2 } }
        for (number, client) in clients.enumerated() {
            let trailers = try await client.on { $0.foreign.map { $0.suffix(4) } }
            #expect(trailers.allSatisfy { $0 == [0, 0, 0, UInt8(number)] })
        }
        // Its next packet goes to where it has moved.
        try await clients[0].migrate(connections[0])
        try await server.wait("moved") { $0.moves.count == 1 }
        try await server.on { peer in
            group.fanOut.replace(at: 0, by: try #require(peer.accepted[0].fanOutPath))
        }
        #expect(try await send().sent == 3)
        try await clients[0].wait("at the new address") { $0.foreign.count == 3 }
        // Who is gone has no path; those behind it keep theirs.
        let leaving = connections[1]
        try await clients[1].on { _ in leaving.close(code: 0) }
        try await server.wait("closed") { $0.reasons.count == 1 }
        try await server.on { peer in
            #expect(peer.accepted[1].fanOutPath == nil)
            group.fanOut.remove(at: 1)
        }
        #expect(try await send() == FanOutResult(sent: 2, failed: 0))
        #expect(try await send(except: 1) == FanOutResult(sent: 1, failed: 0))
        try await clients[2].wait("its fourth") { $0.foreign.count == 4 }
        #expect(try await clients[2].on { $0.foreign.map { $0[$0.count - 1] } } == [2, 2, 2, 1])
        for client in clients { try await client.stop() }
        try await server.stop()
    }

    /// Lives on the server's loop.
    private final class Group: @unchecked Sendable {
        let fanOut: FanOutGroup
        init(_ connections: [QUICConnection]) {
            fanOut = FanOutGroup(connections, trailerLength: 4, finish: ForeignPacketTests.writeNumber)
        }
    }

    @Test func `nothing is sent before the handshake is complete`() async throws {
        let server = try await Peer.server()
        let path = try await Forwarder(to: server.address)
        let client = try await Peer.client()
        try await path.drop { direction, _ in direction == .toClient }
        let connection = try await client.connect(to: server, at: path.address)
        try await server.wait("a handshake") { $0.endpoint.connectionCount == 1 }
        let result = try await client.on { peer in
            Self.packet.withUnsafeBytes { peer.endpoint.fanOut($0, to: [connection]) }
        }
        #expect(result == FanOutResult())
        try await client.stop()
        try await server.stop()
        path.stop()
    }

    @Test func `packets are told apart by their first byte`() async throws {
        let (server, client, connection) = try await connectedPair()
        try await client.on { peer in
            for first: UInt8 in [128, 144, 191] {
                let packet = [first, 1, 2]
                #expect(packet.withUnsafeBytes { peer.endpoint.fanOut($0, to: [connection]) }.sent == 1)
            }
        }
        try await server.wait("three") { $0.foreign.count == 3 }
        let from = try await client.address
        #expect(try await server.on { $0.foreign } == [[128, 1, 2], [144, 1, 2], [191, 1, 2]])
        #expect(try await server.on { $0.foreignFrom } == [from, from, from])
        // Voice and QUIC go on side by side.
        try await client.on { _ in try connection.sendDatagram([5]) }
        try await server.wait("QUIC as well") { $0.datagrams == [[5]] }
        try await client.stop()
        try await server.stop()
    }

    @Test func `an address that cannot be reached is counted and others still get theirs`() async throws {
        let server = try await Peer.server(bind: .any())
        let clients = [try await Peer.client(), try await Peer.client()]
        let port = try await server.address.port
        for client in clients {
            _ = try await client.connect(to: server, at: .loopback(port: port))
            try await client.wait("ready") { $0.readyCount == 1 }
        }
        try await server.wait("both") { $0.readyCount == 2 }
        // The kernel refuses packets of more than 64 KiB; that is an error for each of them.
        let result = try await server.on { peer in
            let long = [UInt8](repeating: 0x80, count: 65_530)
            return long.withUnsafeBytes { peer.endpoint.fanOut($0, to: peer.accepted) }
        }
        #expect(result == FanOutResult(sent: 0, failed: 2))
        for client in clients { try await client.stop() }
        try await server.stop()
    }
}
