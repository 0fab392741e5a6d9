import TestSupport
import Testing

@testable import QUIC

@Suite struct DatagramTests {
    @Test func `datagrams go both ways in order when nothing is lost`() async throws {
        let (server, client, connection) = try await connectedPair()
        let sent = (0..<100).map { number in [UInt8](repeating: UInt8(number), count: 1 + number * 10) }
        try await client.on { _ in for datagram in sent { try connection.sendDatagram(datagram) } }
        try await server.wait("all") { $0.datagrams.count == sent.count }
        #expect(try await server.on { $0.datagrams } == sent)
        try await server.on { peer in for datagram in sent { try peer.accepted[0].sendDatagram(datagram) } }
        try await client.wait("all") { $0.datagrams.count == sent.count }
        #expect(try await client.on { $0.datagrams } == sent)
        #expect(try await client.on { $0.earlyDatagrams.isEmpty })
        try await client.stop()
        try await server.stop()
    }

    @Test func `one acknowledgement is for several datagrams that come soon`() async throws {
        // Each waits up to 22 ms for what comes next, and none so long that the client asks (RFC 9002, section 6.2). What the client
        // acknowledges is in what it sends.
        let isAsMeant = { (round: Round) in (4...25).contains(round.acknowledgements) && round.packets <= 52 }
        let round = try await attempts(10, until: isAsMeant) { try await sayForty() }
        #expect(isAsMeant(round), "\(round)")
    }

    /// What goes each way while one end says something every few milliseconds.
    private struct Round {
        var acknowledgements: Int
        var packets: Int
    }

    private func sayForty() async throws -> Round {
        let server = try await Peer.server { $0.acknowledgementThreshold = 10 }
        let path = try await Forwarder(to: server.address)
        let client = try await Peer.client()
        let connection = try await client.connect(to: server, at: path.address)
        try await client.wait("ready") { $0.readyCount == 1 }
        // What belongs to the handshake is over.
        try await Task.sleep(for: .milliseconds(200))
        try await path.recordAnswers()
        let before = try await path.seen.count
        for number in 0..<40 {
            try await client.on { _ in try connection.sendDatagram([UInt8(number)]) }
            try await Task.sleep(for: .milliseconds(6))
        }
        try await server.wait("all") { $0.datagrams.count == 40 }
        try await Task.sleep(for: .milliseconds(100))
        let round = Round(
            acknowledgements: try await path.answers.count, packets: try await path.seen.count - before)
        try await client.stop()
        try await server.stop()
        path.stop()
        return round
    }

    @Test func `the longest datagram fits and a longer one is refused`() async throws {
        let (server, client, connection) = try await connectedPair()
        let maximum = try await client.on { _ in connection.maximumDatagramLength }
        let length = try #require(maximum)
        #expect(length > 1_100)
        try await client.on { _ in
            #expect(throws: QUICError.datagramTooLarge(maximum: length)) {
                try connection.sendDatagram([UInt8](repeating: 1, count: length + 1))
            }
            try connection.sendDatagram([UInt8](repeating: 2, count: length))
            try connection.sendDatagram([])
        }
        try await server.wait("both") { $0.datagrams.count == 2 }
        #expect(try await server.on { $0.datagrams.map(\.count) } == [length, 0])
        try await client.stop()
        try await server.stop()
    }

    /// The delay is that of each way, in milliseconds.
    @Test(arguments: [0, 40]) func `what is sent costs no wake up afterwards`(delay: Int) async throws {
        // The library's pacing looks again after each packet: microseconds later on a short path, more on a long one.
        let wakes = try await attempts(3, until: { $0 <= 25 }) { try await countWakes(delay: delay) }
        #expect(wakes <= 25)
    }

    /// How often a client is woken that says something a hundred times.
    private func countWakes(delay: Int) async throws -> Int {
        let server = try await Peer.server { $0.acknowledgementThreshold = 10 }
        let path = try LossyPath(to: try await server.address.port, seed: 1)
        defer { path.stop() }
        path.set(.toServer, .init(delayMilliseconds: delay))
        path.set(.toClient, .init(delayMilliseconds: delay))
        let client = try await Peer.client()
        let connection = try await client.connect(to: server, at: .loopback(port: path.port))
        try await server.wait("ready") { $0.readyCount == 1 }
        try await Task.sleep(for: .milliseconds(500))
        let before = try await client.on { $0.endpoint.alarmWakes }
        for number in 0..<100 {
            try await client.on { _ in try connection.sendDatagram([UInt8(number)]) }
            try await Task.sleep(for: .milliseconds(3))
        }
        try await server.wait("all") { $0.datagrams.count == 100 }
        let wakes = try await client.on { $0.endpoint.alarmWakes } - before
        try await client.stop()
        try await server.stop()
        return wakes
    }

    @Test func `a full queue drops the oldest and counts`() async throws {
        let (server, client, connection) = try await connectedPair { $0.datagramSendQueue = 4 }
        try await client.on { _ in
            for number in 0..<10 { try connection.sendDatagram([UInt8(number)]) }
            #expect(connection.datagrams.count == 4)
            #expect(connection.statistics.datagramsDroppedSending == 6)
        }
        try await server.wait("the newest") { $0.datagrams.count == 4 }
        #expect(try await server.on { $0.datagrams } == [[6], [7], [8], [9]])
        try await client.stop()
        try await server.stop()
    }

    @Test func `a peer that takes none is respected`() async throws {
        let (server, client, connection) = try await connectedPair { $0.maximumDatagram = 0 }
        try await client.on { _ -> Void in
            #expect(throws: QUICError.datagramsNotSupported) { try connection.sendDatagram([1]) }
        }
        try await client.stop()
        try await server.stop()
    }
}
