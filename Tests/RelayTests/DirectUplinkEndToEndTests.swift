// What talkers say outside QUIC, over real sockets: it is heard, repaired, follows a talker that moves, and is nobody else's to send.
import Cryptography
import Glibc
import MonotonicTime
import QUIC
import Reactor
import RelayProtocol
import Synchronization
import TestSupport
import Testing
import Vocabulary

@testable import RelayClient
@testable import RelayServer

extension RelayServer {
    /// Packets outside QUIC that have come.
    fileprivate var foreignPackets: Int {
        get async {
            _ = await statistics
            return engine?.workers.map { $0.tally.withLock { $0.transport?.foreignPacketsReceived ?? 0 } }.reduce(0, +)
                ?? 0
        }
    }
}

/// A talker and a listener, who hears what the talker says over a network.
private struct Pair {
    let relay: TestRelay
    let network: TestNetwork
    let alice: TestClient
    let bob: TestClient

    init(faults: TestNetwork.Faults = .init(), _ change: (inout RelayServerConfiguration) -> Void = { _ in })
        async throws
    {
        relay = try await TestRelay(change)
        network = try await TestNetwork(to: try #require(await relay.server.port), faults: faults)
        alice = try await TestClient("Alice", try await relay.invitation().through(network))
        try await alice.untilReady()
        bob = try await TestClient.joined("Bob", relay)
    }

    /// Alice says a burst, which Bob hears.
    ///
    /// - Returns: What he hears of it, in order.
    func say(_ burst: Int, frames: Int, spacing: Duration = .milliseconds(10)) async throws -> [[UInt8]] {
        let (said, heard) = (alice.recorder.events.count, bob.recorder.events.count)
        try await alice.talk(burst, frames: frames, spacing: spacing)
        let end = try await alice.transmissionEnd(from: said).0
        #expect(end == .completed)
        let (_, _, index) = try await bob.heardEnd(from: heard)
        return bob.heard(from: heard, to: index).sorted { $0[1] < $1[1] }
    }
}

@Suite(.serialized, .timeLimit(.minutes(3))) struct DirectUplinkEndToEndTests {
    private static func all(_ burst: Int, _ frames: Int) -> [[UInt8]] {
        (0..<frames).map { TestClient.payload(burst, $0) }.sorted { $0[1] < $1[1] }
    }

    private func wait(_ what: Comment, until condition: () async throws -> Bool) async throws {
        let deadline = ContinuousClock.now + .seconds(10)
        while try await !condition() {
            try #require(ContinuousClock.now < deadline, what)
            try await Task.sleep(for: .milliseconds(2))
        }
    }

    @Test(arguments: [1, 3]) func `speech goes outside QUIC, and its talker hears that it came`(workers: Int)
        async throws
    {
        let pair = try await Pair { $0.workers = workers }
        for burst in 1...3 {
            let heard = try await pair.say(burst, frames: 30)
            #expect(heard == Self.all(burst, 30))
        }
        let (foreign, counters) = (await pair.relay.server.foreignPackets, await pair.relay.server.counters)
        #expect(foreign == 90)
        #expect(counters.packetsForwarded == 90 && counters.strayPackets == 0 && counters.packetsRepaired == 0)
        // The release brings a report on what is left.
        try await wait("the last report") {
            let client = pair.alice.client
            return try await pair.alice.loop.run { client.assumeIsolated { $0.core.direct?.sentCount } } == 0
        }
        await pair.relay.server.stop()
        withExtendedLifetime(pair.network) {}
    }

    @Test func `what a bad network loses of it is sent again`() async throws {
        let pair = try await Pair(
            faults: .init(
                lossPercent: 15, duplicatePercent: 5, delay: .milliseconds(2)...(.milliseconds(9)), seed: 11))
        var missing = 0
        for burst in 1...4 {
            let heard = try await pair.say(burst, frames: 60)
            missing += 60 - heard.count
            #expect(heard.allSatisfy(Self.all(burst, 60).contains))
        }
        let counters = await pair.relay.server.counters
        #expect(missing == 0, "of 240 frames")
        #expect(counters.packetsRepaired > 10)
        #expect(counters.droppedTotal - counters.dropped(.duplicate) == 0)
        await pair.relay.server.stop()
        withExtendedLifetime(pair.network) {}
    }

    @Test func `a talker whose address changes is heard on, and the reports follow it`() async throws {
        let pair = try await Pair { $0.workers = 2 }
        let heardBefore = pair.bob.recorder.events.count
        let talking = Task { try await pair.alice.talk(1, frames: 150, spacing: .milliseconds(10)) }
        try await pair.bob.recorder.wait("sound") { if case .frame = $0 { true } else { nil } }
        for _ in 0..<3 {
            try await pair.network.rebind()
            try await Task.sleep(for: .milliseconds(300))
        }
        try await talking.value
        let (end, report, index) = try await pair.bob.heardEnd(from: heardBefore)
        #expect(end == .completed && report.lost == 0)
        let heard = pair.bob.heard(from: heardBefore, to: index).sorted { $0[1] < $1[1] }
        #expect(heard.count == 150)
        let (client, loop) = (pair.alice.client, pair.alice.loop)
        try await wait("a report at the new address") {
            try await loop.run { client.assumeIsolated { $0.core.direct?.sentCount } } == 0
        }
        let isBlocked = try await loop.run { client.assumeIsolated { $0.core.direct?.isBlocked } }
        #expect(isBlocked == false)
        await pair.relay.server.stop()
        withExtendedLifetime(pair.network) {}
    }

    @Test func `where such packets do not pass, speech goes in datagrams, and none of it is lost`() async throws {
        let pair = try await Pair()
        let heardBefore = try await pair.say(1, frames: 5)
        #expect(heardBefore == Self.all(1, 5))
        await pair.network.block { 128..<192 ~= $0 }
        let first = try await pair.say(2, frames: 120)
        #expect(first == Self.all(2, 120))
        let (client, loop) = (pair.alice.client, pair.alice.loop)
        let isBlocked = try await loop.run { client.assumeIsolated { $0.core.direct?.isBlocked } }
        #expect(isBlocked == true)
        let repaired = await pair.relay.server.counters.packetsRepaired
        let second = try await pair.say(3, frames: 60)
        #expect(second == Self.all(3, 60))
        let counters = await pair.relay.server.counters
        // But for the end of the burst, which goes again in doubt.
        #expect(counters.packetsRepaired - repaired < 10, "the datagrams arrive")
        await pair.relay.server.stop()
        withExtendedLifetime(pair.network) {}
    }

    @Test func `nobody can say anything with packets that they have seen or made up`() async throws {
        let pair = try await Pair()
        try await pair.network.record()
        let heard = try await pair.say(1, frames: 20)
        #expect(heard == Self.all(1, 20))
        let before = await pair.relay.server.counters
        // The same again, from another address.
        let (socket, _) = try TestNetwork.socket()
        defer { close(socket) }
        _ = try await pair.network.replay(through: socket)
        // The talker's source, and trailers that it did not make.
        let (client, loop) = (pair.alice.client, pair.alice.loop)
        let ssrc = try #require(try await loop.run { client.assumeIsolated { $0.core.session?.ssrc } })
        let port = try #require(await pair.relay.server.port)
        var random = SeededGenerator(seed: 5)
        for length in [0, 1, 11, 12, 29, 30, 60, 116, 1_176, 1_400] {
            for _ in 0..<20 {
                var packet = (0..<length).map { _ in UInt8.random(in: 0...255, using: &random) }
                if length > 0 { packet[0] = 0x80 }
                if length >= 12 {
                    packet[1] = 111
                    withUnsafeBytes(of: ssrc.rawValue.bigEndian) { packet.replaceSubrange(8..<12, with: $0) }
                }
                TestNetwork.send(packet, on: socket, to: port)
            }
        }
        let again = try await pair.say(2, frames: 20)
        #expect(again == Self.all(2, 20))
        let after = await pair.relay.server.counters
        #expect(after.packetsForwarded - before.packetsForwarded == 20)
        #expect(after.strayPackets - before.strayPackets >= 150)
        #expect(after.droppedTotal == before.droppedTotal)
        await pair.relay.server.stop()
        withExtendedLifetime(pair.network) {}
    }
}
