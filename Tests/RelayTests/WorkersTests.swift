// A relay with several threads: members of all of them hear each other, move, return and are removed as with one.
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
    /// Connections of each worker, as last counted.
    fileprivate var connectionsOfWorkers: [Int] {
        get async {
            // Counted when the question is answered.
            _ = await statistics
            return engine?.workers.map { $0.tally.withLock { $0.connections } } ?? []
        }
    }
}

@Suite(.serialized, .timeLimit(.minutes(2))) struct WorkersTests {
    private static let workers = 3
    private static let members = 10

    private func relay(
        port: UInt16 = 0, like other: TestRelay? = nil, workers: Int = WorkersTests.workers
    ) async throws -> TestRelay {
        try await TestRelay(
            port: port, channel: other?.channel, keys: other?.configuration.transportKeys ?? .generate()
        ) { $0.workers = workers }
    }

    private func wait(_ what: Comment, until condition: () async throws -> Bool) async throws {
        let deadline = ContinuousClock.now + .seconds(10)
        while try await !condition() {
            try #require(ContinuousClock.now < deadline, what)
            try await Task.sleep(for: .milliseconds(2))
        }
    }

    /// A member of each of at least two workers; by chance, which the ports decide.
    private func crowd(_ relay: TestRelay) async throws -> [TestClient] {
        var clients: [TestClient] = []
        for number in 0..<Self.members { clients.append(try await TestClient.joined("Member \(number)", relay)) }
        try await wait("all are counted") {
            await relay.server.connectionsOfWorkers.reduce(0, +) == Self.members
        }
        let shares = await relay.server.connectionsOfWorkers
        #expect(shares.count == Self.workers && shares.count { $0 > 0 } > 1, "\(shares)")
        return clients
    }

    @Test func `a worker reads no more than a window ahead of the rules`() async throws {
        let relay = try await relay(workers: 2)
        let link = try await relay.invitation()
        var peers: [RawPeer] = []
        for number in 0..<8 { peers.append(try await RawPeer("Flood \(number)", port: link.port, pin: link.pin)) }
        let exchange = try #require(await relay.server.engine?.exchange)
        var mail: (posted: UInt64, handled: UInt64) { exchange.progress(of: 0) }
        try await wait("the rules have heard of all") { mail.posted == mail.handled }
        let before = mail.posted
        var gate: [Int32] = [-1, -1]
        try #require(pipe(&gate) == 0)
        defer { for end in gate { close(end) } }
        let loop = relay.server.loop
        loop.execute { [gate] in
            loop.waiting {
                var byte: UInt8 = 0
                _ = read(gate[0], &byte, 1)
            }
        }
        let join = ClientMessage.join(
            .init(channel: link.channel, token: link.token, displayName: DisplayName("Flood")!)
        ).framed()
        let some = Array(repeating: join, count: 8_192 / join.count).flatMap { $0 }
        // On a busy machine it may take longer until a worker has read anything.
        let (end, latest) = (ContinuousClock.now + .milliseconds(300), ContinuousClock.now + .seconds(20))
        while ContinuousClock.now < end || mail.posted == before && ContinuousClock.now < latest {
            // What finds no room in the stream's own buffer is refused, and tried again.
            for peer in peers { try? await peer.send(bytes: some) }
        }
        let window = QUICConfiguration(applicationProtocol: "x", identity: nil).streamReceiveWindow
        // A report for each message, and one for each time that something was read.
        let most = UInt64(peers.count * 2 * (window / join.count + 1))
        let posted = mail.posted - before
        #expect(posted > 0 && posted <= most)
        #expect(write(gate[1], "x", 1) == 1)
        try await wait("the rules have taken it all") { mail.posted == mail.handled }
        await relay.server.stop()
    }

    @Test func `whoever talks is heard by all, whichever worker has them`() async throws {
        let relay = try await relay()
        let clients = try await crowd(relay)
        var ends = [Int](repeating: 0, count: clients.count)
        // Among these are talkers of more than one worker.
        for (burst, talker) in clients.prefix(6).enumerated() {
            let before = talker.recorder.events.count
            try await talker.talk(burst, frames: 10)
            #expect(try await talker.transmissionEnd(from: before).0 == .completed)
            for (number, listener) in clients.enumerated() where listener !== talker {
                let (end, report, index) = try await listener.heardEnd(from: ends[number])
                #expect(end == .completed && report.lost == 0)
                #expect(
                    listener.heard(from: ends[number], to: index) == (0..<10).map { TestClient.payload(burst, $0) })
                ends[number] = index
            }
            ends[burst] = talker.recorder.events.count
        }
        try await wait("the count") {
            await relay.server.counters.packetsOut == 6 * 10 * (Self.members - 1)
        }
        let statistics = try #require(await relay.server.statistics)
        #expect(statistics.counters.packetsForwarded == 60 && statistics.counters.droppedTotal == 0)
        #expect(statistics.forwarding.total >= 60)
        await relay.server.stop()
    }

    @Test func `a NAT that gives the talker one port after the other leads to the same worker`() async throws {
        let relay = try await relay()
        let network = try await TestNetwork(to: try #require(await relay.server.port))
        let alice = try await TestClient("Alice", try await relay.invitation().through(network))
        try await alice.untilReady()
        let bob = try await TestClient.joined("Bob", relay)
        let talking = Task { try await alice.talk(1, frames: 120, spacing: .milliseconds(10)) }
        try await bob.recorder.wait("sound") { if case .frame = $0 { true } else { nil } }
        for _ in 0..<4 {
            try await network.rebind()
            try await Task.sleep(for: .milliseconds(200))
        }
        try await talking.value
        #expect(try await alice.transmissionEnd().0 == .completed)
        try await bob.heardEnd()
        let heard = bob.heard()
        #expect(heard.count >= 100)
        #expect(heard.last == TestClient.payload(1, 119))
        #expect(alice.recorder.events.count { if case .state(.ready) = $0 { true } else { false } } == 1)
        await relay.server.stop()
        withExtendedLifetime(network) {}
    }

    @Test func `a listener that moves is heard of by its worker, and goes on hearing`() async throws {
        let relay = try await relay()
        let network = try await TestNetwork(to: try #require(await relay.server.port))
        let bob = try await TestClient("Bob", try await relay.invitation().through(network))
        try await bob.untilReady()
        let alice = try await TestClient.joined("Alice", relay)
        for burst in 1...4 {
            try await network.rebind()
            // What he says tells of his new port; the relay cannot know of it before.
            let asked = bob.recorder.events.count
            let listened = alice.recorder.events.count
            try await bob.talk(burst, frames: 3)
            let before = try await bob.transmissionEnd(from: asked).2
            // She may ask as soon as she knows that the floor is free.
            _ = try await alice.heardEnd(from: listened)
            let said = alice.recorder.events.count
            try await alice.talk(burst, frames: 10)
            let spoken = try await alice.transmissionEnd(from: said).0
            #expect(spoken == .completed)
            let (end, report, index) = try await bob.heardEnd(from: before)
            #expect(end == .completed && report.lost == 0)
            #expect(bob.heard(from: before, to: index) == (0..<10).map { TestClient.payload(burst, $0) })
        }
        #expect(bob.recorder.events.count { if case .state(.ready) = $0 { true } else { false } } == 1)
        await relay.server.stop()
        withExtendedLifetime(network) {}
    }

    @Test func `who is removed is out, on whichever worker, and the others get another key`() async throws {
        let relay = try await relay()
        let clients = try await crowd(relay)
        for client in clients.prefix(4) {
            let member = MemberID(await client.client.identity.pin)
            await relay.server.revoke([member], from: relay.channel.id)
            let (error, _) = try await client.recorder.wait("the end") {
                if case .state(.unavailable(let error, retryAfter: nil)) = $0 { error } else { nil }
            }
            guard case .invitationRefused = error else { return #expect(Bool(false), "\(error)") }
        }
        #expect(await relay.server.memberCount(of: relay.channel.id) == Self.members - 4)
        try await clients[9].talk(1, frames: 5)
        #expect(try await clients[9].transmissionEnd().0 == .completed)
        for client in clients[4..<9] { #expect(try await client.heardEnd().1.received == 5) }
        await relay.server.stop()
    }

    @Test func `all come back to a relay with another number of workers, which had the port to itself`() async throws {
        let first = try await relay()
        let clients = try await crowd(first)
        let port = try #require(await first.server.port)
        await #expect(throws: RelayServerError.self) { _ = try await relay(port: port) }
        await #expect(throws: RelayServerError.self) { _ = try await relay(port: port, workers: 1) }
        let before = clients.map { $0.recorder.events.count }
        await first.server.stop()
        let second = try await relay(port: port, like: first, workers: 2)
        for (client, start) in zip(clients, before) { try await client.untilReady(from: start) }
        // Who is welcomed in early data is a member when its handshake is complete, a moment later.
        let deadline = Instant.now + .seconds(10)
        while await second.server.memberCount(of: second.channel.id) < Self.members, Instant.now < deadline {
            try await Task.sleep(for: .milliseconds(5))
        }
        #expect(await second.server.memberCount(of: second.channel.id) == Self.members)
        try await clients[0].talk(1, frames: 5)
        for (client, start) in zip(clients, before).dropFirst() {
            #expect(try await client.heardEnd(from: start).1.received == 5)
        }
        // It ends in good order with its threads, and begins anew.
        await second.server.stop()
        try await second.server.start()
        await second.server.stop()
    }

    @Test func `who talks to a worker whose rules stand still is told that nobody hears it`() async throws {
        let isInTime = { (told: Duration) in told < .seconds(7) && told > .seconds(3) }
        let told = try await attempts(3, until: isInTime) { try await talkToStandingRules() }
        #expect(isInTime(told), "told after \(told)")
    }

    /// How long somebody talks to a worker whose rules stand still before it is told; then they go on, and it talks again.
    private func talkToStandingRules() async throws -> Duration {
        let relay = try await relay()
        let listener = try await TestClient.joined("Listener", relay)
        try await wait("it is counted") { await relay.server.connectionsOfWorkers.reduce(0, +) == 1 }
        let talker = try await memberOfAnotherThread(relay)
        await talker.client.beginBurst(priority: 0)
        let talking = Task {
            for number in 0..<600 {
                await talker.client.send(
                    OutgoingFrame(payload: TestClient.payload(1, number), samples: 960, capturedAt: .now))
                try await Task.sleep(for: .milliseconds(20))
            }
        }
        try await listener.recorder.wait("the first frame") { if case .frame = $0 { true } else { nil } }
        let stopped = ContinuousClock.now
        relay.server.loop.execute { [loop = relay.server.loop] in loop.waiting { _ = usleep(8_000_000) } }
        let (end, _, _) = try await talker.transmissionEnd()
        let told = ContinuousClock.now - stopped
        #expect(end == .linkUnavailable)
        talking.cancel()
        // It all goes on once the rules do.
        let start = talker.recorder.events.count
        try await talker.untilReady(from: start)
        let heard = listener.recorder.events.count
        try await talker.talk(2, frames: 10)
        try await listener.recorder.wait("the last word", from: heard) {
            if case .frame(let frame) = $0, frame.payload == TestClient.payload(2, 9) { true } else { nil }
        }
        await relay.server.stop()
        return told
    }

    /// A member whose connection is on another thread than the rules.
    private func memberOfAnotherThread(_ relay: TestRelay) async throws -> TestClient {
        for attempt in 0..<64 {
            let before = await relay.server.connectionsOfWorkers
            let client = try await TestClient.joined("Talker \(attempt)", relay)
            var after = before
            try await wait("it is counted") {
                after = await relay.server.connectionsOfWorkers
                return after.reduce(0, +) == before.reduce(0, +) + 1
            }
            if after[0] == before[0] { return client }
        }
        throw TimedOut(description: "all are on the first thread")
    }

    @Test func `each processor has a worker, and the others help with large channels`() {
        let counts = [-1, 0, 1, 2, 3, 4, 5, 64].map(RelayServerConfiguration.workers(forProcessors:))
        #expect(counts == [1, 1, 1, 2, 3, 4, 5, 16])
        let helpers = [-1, 0, 1, 2, 3, 4, 5, 64].map(RelayServerConfiguration.helpers(forProcessors:))
        #expect(helpers == [0, 0, 0, 1, 2, 3, 3, 3])
    }
}
