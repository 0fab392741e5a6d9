import CGnuTLS
import CLinux
import CNgtcp2
import Glibc
import MonotonicTime
import QUIC
import Reactor
import TestSupport
import Testing

@Suite struct RobustnessTests {
    /// Whether the connection still carries something both ways.
    private func stillWorks(_ server: Peer, _ client: Peer, _ connection: QUICConnection) async throws {
        let marker = Array("still here".utf8)
        let (before, after) = (try await server.on { $0.datagrams.count }, try await client.on { $0.datagrams.count })
        try await client.on { _ in try connection.sendDatagram(marker) }
        try await server.wait("to the server") { $0.datagrams.count > before && $0.datagrams.last == marker }
        try await server.on { try $0.accepted[0].sendDatagram(marker) }
        try await client.wait("to the client") { $0.datagrams.count > after && $0.datagrams.last == marker }
        #expect(try await client.on { $0.reasons.isEmpty })
    }

    @Test(arguments: [1, 2, 3] as [UInt64])
    func `garbage and spoiled packets disturb nobody`(seed: UInt64) async throws {
        let server = try await Peer.server()
        let path = try await Forwarder(to: server.address)
        let client = try await Peer.client()
        let connection = try await client.connect(to: server, at: path.address)
        try await client.wait("ready") { $0.readyCount == 1 }
        try await server.wait("ready") { $0.readyCount == 1 }
        try await client.on { _ in
            let stream = try connection.openStream()
            try stream.write(Array(repeating: 7, count: 5_000))
            for _ in 0..<20 { try connection.sendDatagram(Array(repeating: 8, count: 100)) }
        }
        try await server.wait("traffic") { $0.datagrams.count == 20 }
        let real = try await path.seen
        var generator = SeededGenerator(seed: seed)
        for round in 0..<4_000 {
            var packet: [UInt8]
            if round.isMultiple(of: 3) {
                let length = Int.random(in: 0...1_500, using: &generator)
                packet = (0..<length).map { _ in UInt8.random(in: 0...255, using: &generator) }
            } else {
                packet = real[Int.random(in: 0..<real.count, using: &generator)]
                if Bool.random(using: &generator) {
                    packet.removeLast(Int.random(in: 0...packet.count, using: &generator))
                }
                for _ in 0..<Int.random(in: 0...4, using: &generator) where !packet.isEmpty {
                    packet[Int.random(in: 0..<packet.count, using: &generator)] ^=
                        1 << UInt8.random(in: 0...7, using: &generator)
                }
            }
            try await path.inject(packet, round.isMultiple(of: 2) ? .toServer : .toClient)
        }
        try await stillWorks(server, client, connection)
        let (malformed, stray) = try await server.on {
            ($0.endpoint.statistics.malformedPackets, $0.endpoint.statistics.strayPackets)
        }
        #expect(malformed > 0 && stray > 0, "seed \(seed)")
        try await client.stop()
        try await server.stop()
        path.stop()
    }

    @Test func `who spoofs the servers address ends no connection`() async throws {
        let server = try await Peer.server()
        let path = try await Forwarder(to: server.address)
        let client = try await Peer.client()
        try await path.recordAnswers()
        let connection = try await client.connect(to: server, at: path.address)
        try await client.wait("ready") { $0.readyCount == 1 }
        try await server.wait("ready") { $0.readyCount == 1 }
        let answers = try await path.answers
        let long = try #require(answers.first { $0.count > 50 && $0[0] >= 0xC0 })
        // The ids as they are on the wire: both lengths and both ids.
        let ids = long[5..<(7 + Int(long[5]) + Int(long[6 + Int(long[5])]))]
        var generator = SeededGenerator(seed: 7)
        // A client without a connection would take the first two as they are.
        var forged: [[UInt8]] = [
            [0xC0, 0, 0, 0, 0] + ids + [0x1A, 0x2A, 0x3A, 0x4A],
            [0xF0, 0, 0, 0, 1] + ids + generator.bytes(40),
        ]
        // Stateless resets, whose token nobody can guess.
        for length in [21, 43, 100, 1_200] { forged.append([0x41] + generator.bytes(length - 1)) }
        for packet in forged + answers + answers.reversed() { try await path.inject(packet, .toClient) }
        try await stillWorks(server, client, connection)
        try await client.stop()
        try await server.stop()
        path.stop()
    }

    @Test func `garbage from strangers leaves no connections behind`() async throws {
        let (server, client, connection) = try await connectedPair { $0.handshakeTimeout = .seconds(3) }
        let target = try await server.address
        // First packets of clients that never go on, and spoiled ones.
        let stranger = try await Forwarder(to: target)
        let quiet = try await Peer.client { $0.handshakeTimeout = .seconds(2) }
        try await stranger.drop { direction, _ in direction == .toClient }
        for _ in 0..<20 { _ = try await quiet.connect(to: server, at: stranger.address) }
        try await server.wait("handshakes") { $0.endpoint.connectionCount > 10 }
        var generator = SeededGenerator(seed: 4)
        for packet in try await stranger.seen {
            for _ in 0..<50 {
                var spoiled = packet
                for _ in 0..<3 {
                    spoiled[Int.random(in: 0..<min(64, spoiled.count), using: &generator)] =
                        UInt8.random(in: 0...255, using: &generator)
                }
                try await stranger.inject(spoiled)
            }
        }
        try await stillWorks(server, client, connection)
        try await server.wait("given up") { $0.endpoint.connectionCount == 1 }
        try await client.stop()
        try await quiet.stop()
        try await server.stop()
        stranger.stop()
    }

    @Test(arguments: [5, 6] as [UInt64])
    func `loss and duplicates only delay a stream`(seed: UInt64) async throws {
        let server = try await Peer.server()
        let path = try await Forwarder(to: server.address)
        let client = try await Peer.client()
        nonisolated(unsafe) var generator = SeededGenerator(seed: seed)
        try await path.drop { _, _ in Int.random(in: 0..<100, using: &generator) < 10 }
        let connection = try await client.connect(to: server, at: path.address)
        try await client.wait("ready") { $0.readyCount == 1 }
        let payload = (0..<300_000).map { UInt8(truncatingIfNeeded: $0 &* 7) }
        let id = try await client.on { peer in
            let stream = try connection.openStream()
            peer.outgoing[stream.id] = payload[...]
            peer.pump(stream)
            return stream.id
        }
        try await server.wait("all of it", timeout: .seconds(60)) { $0.ended.contains(id) }
        #expect(try await server.on { $0.received[id] == payload }, "seed \(seed)")
        try await client.stop()
        try await server.stop()
        path.stop()
    }

    @Test func `a server beyond its limit does not answer newcomers`() async throws {
        let options = QUICServerOptions(keys: .generate(), maximumConnections: 2)
        let server = try await Peer(server: options, identity: makeIdentity())
        var clients: [Peer] = []
        for _ in 0..<3 {
            let client = try await Peer.client { $0.handshakeTimeout = .seconds(2) }
            _ = try await client.connect(to: server)
            try await client.wait("an answer or none") { $0.readyCount == 1 || !$0.reasons.isEmpty }
            clients.append(client)
        }
        #expect(try await clients[2].on { $0.reasons } == [.handshakeTimeout])
        #expect(try await server.on { $0.endpoint.statistics.refusedForLoad } > 0)
        for client in clients { try await client.stop() }
        try await server.stop()
    }

    @Test func `unknown versions are answered by version negotiation`() async throws {
        let server = try await Peer.server()
        let path = try await Forwarder(to: server.address)
        let listener = try await Peer.client()
        // The forwarder learns where answers go.
        _ = try await listener.connect(to: server, at: path.address)
        try await listener.wait("ready") { $0.readyCount == 1 }
        try await path.recordAnswers()
        var packet: [UInt8] = [0xC0, 0x1A, 0x2A, 0x3A, 0x4A, 8] + Array(1...8) + [4, 9, 9, 9, 9]
        packet += [UInt8](repeating: 0, count: 1_200 - packet.count)
        try await path.inject(packet)
        var answer: [UInt8]?
        for _ in 0..<5_000 where answer == nil {
            try await Task.sleep(for: .milliseconds(2))
            answer = try await path.answers.first { $0.count > 5 && $0[1...4].elementsEqual([0, 0, 0, 0]) }
        }
        let negotiation = try #require(answer)
        #expect(Array(negotiation[5...]) == [4, 9, 9, 9, 9, 8] + Array(1...8) + [0, 0, 0, 1])
        try await listener.stop()
        try await server.stop()
        path.stop()
    }
}

/// What a process must not leave behind. By itself, so that other tests do not count.
@Suite(.serialized) struct EnduranceTests {
    @Test func `a thousand handshakes leave nothing behind`() async throws {
        let server = try await Peer.server()
        let client = try await Peer.client()
        let target = try await server.address
        let pin = try #require(server.identity?.keySHA256)
        var memory: [Int] = []
        for round in 0..<5 {
            for _ in 0..<20 {
                let done = try await client.on { $0.readyCount }
                try await client.on { peer in
                    for _ in 0..<10 {
                        let connection = try peer.endpoint.connect(
                            to: target, options: QUICClientOptions(verification: .pinned([pin])))
                        connection.delegate = peer
                    }
                }
                try await client.wait("ten more") { $0.readyCount == done + 10 }
                try await server.wait("ten more") { $0.readyCount == done + 10 }
                try await server.on { peer in
                    for connection in peer.accepted { connection.close(code: 1, reason: "next") }
                    peer.accepted = []
                }
                try await client.wait("over") { $0.endpoint.connectionCount == 0 }
                try await server.wait("over") { $0.endpoint.connectionCount == 0 }
            }
            memory.append(residentKilobytes())
            #expect(try await client.on { $0.reasons.count } == 200 * (round + 1))
        }
        #expect(
            try await client.on { peer in peer.reasons.allSatisfy { $0 == .closedByPeer(code: 1, reason: "next") } })
        // The first round fills caches and pools; each connection costs tens of kilobytes, so a leak of them would show.
        #expect(memory[4] - memory[1] < 600 * 5, "resident kilobytes after each 200: \(memory)")
        try await client.stop()
        try await server.stop()
    }

    @Test func `closed endpoints give their descriptors back`() async throws {
        // Other tests open and close theirs meanwhile: look for a trend that is larger than they are.
        let before = openDescriptors()
        for _ in 0..<100 {
            let (server, client, connection) = try await connectedPair()
            try await client.migrate(connection)
            try await client.stop()
            try await server.stop()
        }
        #expect(openDescriptors() < before + 300)
    }

    private func residentKilobytes() -> Int {
        guard let file = fopen("/proc/self/statm", "r") else { return 0 }
        defer { fclose(file) }
        var line = [CChar](repeating: 0, count: 256)
        guard fgets(&line, Int32(line.count), file) != nil else { return 0 }
        let fields = String(decoding: line.prefix { $0 != 0 }.map { UInt8(truncatingIfNeeded: $0) }, as: UTF8.self)
            .split(separator: " ")
        return fields.count > 1 ? (Int(fields[1]) ?? 0) * Int(sysconf(Int32(_SC_PAGESIZE))) / 1_024 : 0
    }

    private func openDescriptors() -> Int {
        guard let directory = opendir("/proc/self/fd") else { return 0 }
        defer { closedir(directory) }
        var count = 0
        while readdir(directory) != nil { count += 1 }
        return count
    }
}
