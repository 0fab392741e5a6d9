// What becomes of datagrams and streams on a path that loses packets, or is gone for a while.
import MonotonicTime
import TestSupport
import Testing

@testable import QUIC

@Suite struct LossTests {
    /// A pair with a path of its own between them, once the handshake is done and confirmed.
    private func pair(
        seed: UInt64, configure: @escaping @Sendable (inout QUICConfiguration) -> Void = { _ in }
    ) async throws -> (server: Peer, client: Peer, connection: QUICConnection, path: LossyPath) {
        let server = try await Peer.server(configure: configure)
        let client = try await Peer.client(configure: configure)
        let path = try LossyPath(to: try await server.address.port, seed: seed)
        let connection = try await client.connect(to: server, at: .loopback(port: path.port), keepAlive: .seconds(20))
        try await client.wait("the client is ready") { $0.readyCount == 1 }
        try await server.wait("the server is ready") { $0.readyCount == 1 }
        return (server, client, connection, path)
    }

    private func say(_ count: Int, every pause: Duration, on connection: QUICConnection, of client: Peer) async throws {
        for number in 0..<count {
            try await client.on { _ in
                _ = try connection.sendDatagram([UInt8(truncatingIfNeeded: number)] + [UInt8](repeating: 0, count: 99))
            }
            try await Task.sleep(for: pause)
        }
    }

    @Test func `the fate of every datagram is told and a lost one never arrived`() async throws {
        let seed = SeededGenerator.seed()
        let (server, client, connection, path) = try await pair(seed: seed)
        path.set(.toServer, .init(lossPercent: 30, delayMilliseconds: 10))
        path.set(.toClient, .init(lossPercent: 30, delayMilliseconds: 10))
        try await say(200, every: .milliseconds(5), on: connection, of: client)
        path.set(.toServer, .init())
        path.set(.toClient, .init())
        try await client.wait("every fate, seed \(seed)") { Set($0.acknowledged).union($0.lost).count == 200 }
        let acknowledged = try await client.on { Set($0.acknowledged) }
        let lost = try await client.on { Set($0.lost) }
        let arrived = try await server.on { Set($0.datagrams.map { UInt64($0[0]) }) }
        #expect(acknowledged.isSubset(of: arrived), "seed \(seed)")
        #expect(lost.union(arrived).count == 200, "seed \(seed)")
        #expect(lost.count > 20 && arrived.count > 80, "seed \(seed): \(lost.count) lost, \(arrived.count) arrived")
        // Nothing waited for a window: loss did not choke it.
        #expect(try await client.on { _ in connection.statistics.datagramsDroppedSending } == 0)
        path.stop()
        try await client.stop()
        try await server.stop()
    }

    @Test func `a path that was gone for a while works again at once`() async throws {
        let seed = SeededGenerator.seed()
        let (server, client, connection, path) = try await pair(seed: seed)
        path.blackOut(.toServer, true)
        path.blackOut(.toClient, true)
        try await say(150, every: .milliseconds(10), on: connection, of: client)
        #expect(try await client.on { _ in connection.datagrams.count } == 0)
        let arrivedBefore = try await server.on { $0.datagrams.count }
        path.blackOut(.toServer, false)
        path.blackOut(.toClient, false)
        let back = Instant.now
        try await client.wait("every fate, seed \(seed)") { Set($0.acknowledged).union($0.lost).count == 150 }
        print("fates were told \((Instant.now - back).milliseconds) ms after the gap; \(arrivedBefore) had arrived")
        // Without probing it is the keep-alive's 20 s.
        #expect(Instant.now - back < .seconds(10))
        #expect(try await client.on { $0.reasons.isEmpty })
        path.stop()
        try await client.stop()
        try await server.stop()
    }

    /// How often each end, the client first, asks in a gap for what it has written in it; what was written arrives after it.
    private func packetsIntoGap(
        seed: UInt64, configure: @escaping @Sendable (inout QUICConfiguration) -> Void = { _ in }
    ) async throws -> [Int] {
        let (server, client, connection, path) = try await pair(seed: seed, configure: configure)
        let stream = try await client.on { _ in try connection.openStream() }
        try await client.on { _ in try stream.write([1]) }
        try await server.wait("the stream") { $0.received[0]?.count == 1 }
        try await Task.sleep(for: .milliseconds(100))
        var counts: [Int] = []
        for sender in [LossyPath.Direction.toServer, .toClient] {
            let before = path.counts(sender).lost
            path.blackOut(.toServer, true)
            path.blackOut(.toClient, true)
            if sender == .toServer {
                try await client.on { _ in try stream.write([2]) }
            } else {
                try await server.on { try $0.streams[0].write([2]) }
            }
            try await Task.sleep(for: .seconds(1))
            path.blackOut(.toServer, false)
            path.blackOut(.toClient, false)
            counts.append(path.counts(sender).lost - before)
            let receiver = sender == .toServer ? server : client
            let wanted = sender == .toServer ? 2 : 1
            try await receiver.wait("the byte, seed \(seed)") { $0.received[0]?.count == wanted }
        }
        path.stop()
        try await client.stop()
        try await server.stop()
        return counts
    }

    /// The more often it is asked, the sooner after the gap one of the questions gets through.
    @Test func `what was written in a gap is asked for more often than the back off alone would`() async throws {
        let seed = SeededGenerator.seed()
        var (probed, alone) = ([0, 0], [0, 0])
        // A machine that halts in a gap asks less often, so the most of up to three counts.
        for _ in 0..<3 where !zip(probed, alone).allSatisfy(>) {
            probed = zip(probed, try await packetsIntoGap(seed: seed)).map(max)
            alone = zip(alone, try await packetsIntoGap(seed: seed) { $0.probeTime = .zero }).map(max)
        }
        print("packets into a gap of 1 s: \(probed) with probing, \(alone) without")
        for (with, without) in zip(probed, alone) { #expect(with > without, "seed \(seed)") }
    }
}
