// A relay whose channels are spread over threads, on loopback: each is a channel of its own, whoever has its members' connections.
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
    /// The connection of the only member of a channel.
    fileprivate func onlyConnection(of channel: ChannelID) async -> (ConnectionID, RelayEngine)? {
        guard let engine, let shard = engine.exchange.directory.shard(of: channel) else { return nil }
        let id = await withCheckedContinuation { continuation in
            engine.ask(shard) { shard in
                shard.core.channels.first { $0.configuration.id == channel }?.members.everyone.first
            } _: {
                continuation.resume(returning: $0 ?? nil)
            }
        }
        return id.map { ($0, engine) }
    }
}

/// Holds a loop's thread up until it may go on; not for ever, since the relay of a test that has failed waits for it.
private final class Standstill: Sendable {
    private let hasBegun = Atomic<Bool>(false)
    private let isOver = Atomic<Bool>(false)

    init(of loop: EventLoop) {
        loop.execute { [self] in
            hasBegun.store(true, ordering: .releasing)
            loop.waiting {
                for _ in 0..<30_000 where !isOver.load(ordering: .acquiring) { _ = usleep(1_000) }
            }
        }
    }

    /// Whether the thread stands still, or has.
    var isThere: Bool { hasBegun.load(ordering: .acquiring) }

    func end() { isOver.store(true, ordering: .releasing) }
}

@Suite(.serialized, .timeLimit(.minutes(2))) struct ShardsTests {
    private static let workers = 3
    private let channels: [RelayChannelConfiguration]
    private let relay: TestRelay

    init() async throws {
        let channels = (0..<6).map { _ in RelayChannelConfiguration.yard() }
        self.channels = channels
        relay = try await TestRelay {
            $0.channels = channels
            $0.workers = Self.workers
            $0.acceptsPushes = true
            $0.limits.pushGraceTime = .zero
        }
    }

    private func link(_ channel: RelayChannelConfiguration) async throws -> InvitationLink {
        try await relay.server.invitation(for: channel.id, host: "127.0.0.1")
    }

    private func member(_ name: String, _ channel: RelayChannelConfiguration) async throws -> TestClient {
        let client = try await TestClient(name, try await link(channel))
        try await client.untilReady()
        return client
    }

    private func shard(of channel: RelayChannelConfiguration) async -> Int? {
        await relay.server.engine?.exchange.directory.shard(of: channel.id)
    }

    /// A raw peer that has said `message`; whichever worker has it.
    private func peer(_ name: String, saying message: ClientMessage) async throws -> RawPeer {
        let link = try await link(channels[0])
        let peer = try await RawPeer(name, port: link.port, pin: link.pin)
        try await peer.send(message)
        return peer
    }

    @Test func `everybody hears the own channel and no other`() async throws {
        var members: [[TestClient]] = []
        for (number, channel) in channels.enumerated() {
            #expect(await shard(of: channel) == number % Self.workers)
            var own: [TestClient] = []
            for place in 0..<3 { own.append(try await member("Member \(number) \(place)", channel)) }
            members.append(own)
        }
        // All channels at a time, and each of them twice.
        for burst in 0..<2 {
            let starts = members.map { $0.map { $0.recorder.events.count } }
            try await withThrowingTaskGroup(of: Void.self) { group in
                for (number, own) in members.enumerated() {
                    group.addTask {
                        try await own[burst].talk(10 * burst + number, frames: 20, spacing: .milliseconds(10))
                    }
                }
                try await group.waitForAll()
            }
            for (number, own) in members.enumerated() {
                for (place, client) in own.enumerated() where place != burst {
                    let (end, report, index) = try await client.heardEnd(from: starts[number][place])
                    #expect(end == .completed && report.lost == 0)
                    let heard = client.heard(from: starts[number][place], to: index)
                    #expect(heard == (0..<20).map { TestClient.payload(10 * burst + number, $0) })
                }
            }
        }
        let statistics = try #require(await relay.server.statistics)
        #expect(statistics.channels.map(\.id) == channels.map(\.id), "in the order they were configured")
        #expect(statistics.channels.allSatisfy { $0.members.count == 3 && $0.counters.bursts == 2 })
        #expect(statistics.counters.packetsForwarded == 6 * 2 * 20)
        #expect(statistics.counters.packetsOut == 6 * 2 * 20 * 2)
        #expect(statistics.connections == 18)
        for channel in channels { #expect(await relay.server.memberCount(of: channel.id) == 3) }
        await relay.server.stop()
        #expect(await relay.server.counters.packetsForwarded == 6 * 2 * 20, "also of a relay that has ended")
    }

    @Test func `an operator's orders reach a channel of any shard`() async throws {
        for channel in channels.prefix(3) {
            let alice = try await member("Alice", channel)
            let bob = try await member("Bob", channel)
            let rules = FloorRules(hasQueue: true, preemptionStep: 3)
            #expect(await relay.server.setRules(rules, of: channel.id) == true)
            #expect(await relay.server.setRules(rules, of: channel.id) == false)
            try await relay.wait {
                await relay.server.statistics?.channels.first { $0.id == channel.id } != nil
                    && relay.milestones.events.contains {
                        if case .floorRulesChanged(channel.name, rules) = $0 { true } else { false }
                    }
            }
            let alices = MemberID(await alice.client.identity.pin)
            #expect(await relay.server.connectedMembers(of: channel.id)?[alices] == DisplayName("Alice"))
            await relay.server.revoke([alices], from: channel.id)
            #expect(await relay.server.memberCount(of: channel.id) == 1, "before it returns")
            try await alice.recorder.wait("the end") {
                if case .state(.unavailable(.invitationRefused, retryAfter: nil)) = $0 { true } else { nil }
            }
            await relay.server.end(channel.id, "closed for good")
            try await bob.recorder.wait("the end of the channel") {
                if case .state(.unavailable(_, retryAfter: nil)) = $0 { true } else { nil }
            }
        }
        // One more channel while it runs, and the same again.
        let later = RelayChannelConfiguration.yard()
        #expect(await relay.server.serve(later))
        #expect(await relay.server.serve(later))
        var other = later
        other.name = DisplayName("Gate")!
        #expect(await relay.server.serve(other), "nobody is on it")
        let carol = try await RawPeer("Carol", port: try await link(channels[0]).port, pin: TestRelay.identity.pin)
        try await carol.send(later.joinMessage("Carol"))
        let (welcome, _) = try await carol.recorder.wait("the welcome") {
            if case .message(.welcome(let welcome)) = $0 { welcome } else { nil }
        }
        #expect(welcome.channelName == other.name)
        #expect(await !relay.server.serve(later), "somebody is on it")
        await relay.server.stop()
        #expect(await relay.server.statistics == nil)
        #expect(await relay.server.memberCount(of: later.id) == 0)
        // Who was removed stays out when it starts again, whichever shard knew it; the new channel is there.
        try await relay.server.start()
        #expect(await relay.server.statistics?.channels.count == 7)
        await relay.server.stop()
    }

    @Test func `a drained relay waits for the talkers of all shards`() async throws {
        let talker = try await member("Talker", channels[1])
        let listener = try await member("Listener", channels[1])
        let idle = try await member("Idle", channels[2])
        let talking = Task { try await talker.talk(1, frames: 100, spacing: .milliseconds(10)) }
        try await listener.recorder.wait("the first frame") { if case .frame = $0 { true } else { nil } }
        let draining = Task { await relay.server.drain(for: .seconds(20)) }
        try await idle.recorder.wait("goodbye") { if case .state(.unavailable) = $0 { true } else { nil } }
        #expect(await relay.server.isServing == false)
        try await talking.value
        await draining.value
        #expect(try await listener.heardEnd().0 == .completed)
        #expect(listener.heard().count == 100)
        #expect(await relay.server.port == nil)
    }

    @Test func `a connection that the shard it has left closes is gone from the shard that it is on`() async throws {
        // All connections are the first worker's, and the second channel is the second one's.
        let relay = try await TestRelay {
            $0.channels = Array(channels.prefix(2))
            $0.workers = 2
            $0.spreadFrom = 64
        }
        let link = try await relay.server.invitation(for: channels[1].id, host: "127.0.0.1")
        let peer = try await RawPeer("Late", port: link.port, pin: link.pin)
        try await peer.send(channels[1].joinMessage("Late"))
        try await peer.recorder.wait("the welcome") { if case .message(.welcome) = $0 { true } else { nil } }
        #expect(await relay.server.memberCount(of: channels[1].id) == 1)
        let (id, engine) = try #require(await relay.server.onlyConnection(of: channels[1].id))
        #expect(engine.exchange.numbers.carrier(of: id) == 0)
        // As if a time-out of the former shard had been on its way when the join came.
        engine.exchange.post(.order(.action(.close(id, .protocolViolation, "no join in time"))), to: 0)
        #expect(try await peer.closeCode() == .protocolViolation)
        try await relay.wait { await relay.server.memberCount(of: channels[1].id) == 0 }
        await relay.server.stop()
    }

    /// The newest packet that a report tells of; nil: it is no report.
    private static func reported(_ event: RawPeer.Event) -> Int? {
        guard case .media(let datagram) = event else { return nil }
        return datagram.dropLast(MediaTrailer.byteCount).withUnsafeBytes {
            UplinkReport(parsing: $0).map { Int($0.highest) }
        }
    }

    /// Waits until a peer has read a report on that packet or a later one.
    private func untilReported(_ packet: Int, to peer: RawPeer) async throws {
        try await peer.recorder.wait("a report on packet \(packet)") { event in
            Self.reported(event).flatMap { $0 >= packet ? $0 : nil }
        }
    }

    /// How many packets outside QUIC have come to a shard, and when it said so: what was posted to it before is done.
    private func packetsTaken(by shard: Int, _ exchange: RelayExchange) async -> (count: Int, at: Instant) {
        await withCheckedContinuation { continuation in
            exchange.post(
                .question { shard in
                    let count = shard.worker.endpoint.statistics.foreignPacketsReceived
                    continuation.resume(returning: (count: count, at: Instant.now))
                }, to: shard)
        }
    }

    @Test func `no packet outside QUIC is reported while the thread hangs that has its talker's connection`()
        async throws
    {
        // All connections are the first worker's, and the second channel with its media is the second one's.
        let relay = try await TestRelay {
            $0.channels = Array(channels.prefix(2))
            $0.workers = 2
            $0.spreadFrom = 64
        }
        let channel = channels[1]
        let link = try await relay.server.invitation(for: channel.id, host: "127.0.0.1")
        let peer = try await RawPeer("Talker", port: link.port, pin: link.pin)
        try await peer.send(channel.joinMessage("Talker"))
        let (welcome, _) = try await peer.recorder.wait("the welcome") {
            if case .message(.welcome(let welcome)) = $0 { welcome } else { nil }
        }
        let (uplinkKey, mediaKey) = (try #require(welcome.uplinkKey), try #require(welcome.mediaKey))
        let keyID = UInt64(mediaKey.epoch) << 48 | 77
        try await peer.send(.floorRequest(.init(requestID: .first, keyID: keyID)))
        try await peer.recorder.wait("the grant") { if case .message(.floorGranted) = $0 { true } else { nil } }
        let exchange = try #require(await relay.server.engine?.exchange)
        // The counter of each packet's trailer is its place here.
        let sent = Recorder<UInt16>()
        let talking = Task {
            var trailers = try TrailerSealer(key: uplinkKey)
            for sequence in 0..<2_000 as Range<UInt16> {
                let packet = packetOnTheWire(
                    sequence, ssrc: welcome.ssrc, keyID: keyID, isFirst: sequence == 0,
                    timestamp: UInt32(sequence) * 960)
                sent.record(sequence)
                try await peer.send(outsideQUIC: try trailers.seal(packet))
                try await Task.sleep(for: .milliseconds(20))
            }
        }
        defer { talking.cancel() }
        // The first thread has nothing left to do that the second one waits for.
        try await untilReported(5, to: peer)
        let standstill = Standstill(of: relay.server.loop)
        defer { standstill.end() }
        try await relay.wait { standstill.isThere }
        // Nothing would have to be told to the talker: it hears that its packets come.
        try await untilReported(sent.events.count, to: peer)
        exchange.post(.report(.event(.renewMediaKey(channel.id))), to: 1)
        let bound = await packetsTaken(by: 1, exchange).at + RulesWatch.timeout
        try await relay.wait { sent.timed.contains { $0.at > bound } }
        let late = try #require(sent.timed.firstIndex { $0.at > bound })
        // They come as before, and would have been reported a dozen times.
        try await relay.wait { await packetsTaken(by: 1, exchange).count > late + 30 }
        let events = peer.recorder.events
        let reported = events.compactMap(Self.reported).filter { $0 >= late }
        #expect(reported.isEmpty, "sent after half a second: packet \(late) and those behind it")
        #expect(!events.contains { if case .message(.mediaKey) = $0 { true } else { false } }, "its thread hangs")
        // What was withheld is reported when the thread goes on, though nothing comes any more that a report could go with.
        talking.cancel()
        _ = await talking.result
        standstill.end()
        try await untilReported(late + 30, to: peer)
        try await peer.recorder.wait("the new key") { if case .message(.mediaKey) = $0 { true } else { nil } }
        #expect(await relay.server.counters.strayPackets == 0, "all were taken")
        await relay.server.stop()
    }

    @Test func `a second join is refused, also for a channel of another shard`() async throws {
        for target in 0..<Self.workers {
            let peer = try await peer("Mallory", saying: channels[0].joinMessage("Mallory"))
            try await peer.recorder.wait("the welcome") { if case .message(.welcome) = $0 { true } else { nil } }
            try await peer.send(channels[target].joinMessage("Mallory"))
            #expect(try await peer.closeCode() == .protocolViolation)
        }
        try await relay.wait { await relay.server.memberCount(of: channels[0].id) == 0 }
        await relay.server.stop()
    }

    @Test func `a channel nearby gives its invitation on any shard, and is joined on the same connection`() async throws
    {
        for channel in channels.prefix(3) {
            var open = channel
            open.admission = .nearby(.open, relay: TestRelay.identity.pin, mediaKey: nil)
            #expect(await relay.server.serve(open))
            let peer = try await peer("Newcomer", saying: .invitationRequest(.init(channel: channel.id)))
            let (invitation, _) = try await peer.recorder.wait("the invitation") {
                if case .message(.invitation(let invitation)) = $0 { invitation } else { nil }
            }
            #expect(invitation.token == channel.token)
            try await peer.send(channel.joinMessage("Newcomer", token: invitation.token))
            try await peer.recorder.wait("the welcome") { if case .message(.welcome) = $0 { true } else { nil } }
        }
        await relay.server.stop()
    }

    @Test func `what names no channel of the relay is refused, and who says nothing is closed in time`() async throws {
        let stranger = try await peer("Stranger", saying: RelayChannelConfiguration.yard().joinMessage("Stranger"))
        let (cause, _) = try await stranger.recorder.wait("the refusal") {
            if case .message(.joinRefused(let refusal)) = $0 { refusal.cause } else { nil }
        }
        #expect(cause == .notInvited)
        let early = try await peer("Early", saying: .floorRelease(.init(requestID: .first, lastSequence: 1)))
        #expect(try await early.closeCode() == .protocolViolation)
        await relay.server.stop()
    }

    @Test func `pushes reach members of every shard, and tokens are one relay's`() async throws {
        let topic = PushTopic(application: "org.example.radio")!
        for (number, channel) in channels.prefix(3).enumerated() {
            let token = PushToken(SecureRandom.bytes(32))!
            let peer = try await peer("Cab \(number)", saying: channel.joinMessage("Cab", isPushOnly: true))
            try await peer.send(.pushRegister(.init(token: token, topic: topic)))
            try await peer.recorder.wait("the registration") {
                if case .message(.pushRegistered(token)) = $0 { true } else { nil }
            }
            let request = PushRequest(
                token: token, topic: topic, payload: Array("{}".utf8), priority: 10, lifetime: .seconds(60))!
            #expect(await relay.server.push(request) == .accepted(.sent))
            let (push, _) = try await peer.recorder.wait("the push") {
                if case .message(.push(let push)) = $0 { push } else { nil }
            }
            // Another member, of another channel, may not have the token.
            let thief = try await self.peer(
                "Thief", saying: channels[number + 1].joinMessage("Thief", isPushOnly: true))
            try await thief.send(.pushRegister(.init(token: token, topic: topic)))
            let (refusal, _) = try await thief.recorder.wait("the refusal") {
                if case .message(.pushRefused(let refusal)) = $0 { refusal.cause } else { nil }
            }
            #expect(refusal == .taken)
            try await peer.send(.pushReceipt(.init(id: push.id, outcome: .taken)))
            #expect(await relay.server.pushTokenCount == number + 1)
        }
        await relay.server.stop()
    }

    @Test func `a small relay stays on its first thread, and a larger one takes all of them`() async throws {
        let relay = try await TestRelay {
            $0.workers = 2
            $0.spreadFrom = 8
        }
        func counts() async throws -> [Int] {
            _ = await relay.server.statistics
            return await relay.server.engine?.workers.map { $0.tally.withLock { $0.connections } } ?? []
        }
        var clients: [TestClient] = []
        for number in 0..<8 { clients.append(try await TestClient.joined("Member \(number)", relay)) }
        try await relay.wait { try await counts() == [8, 0] }
        // By chance, which the ports decide: of 16 none with a probability of 1 in 65,536.
        for number in 8..<24 { clients.append(try await TestClient.joined("Member \(number)", relay)) }
        try await relay.wait { try await counts().reduce(0, +) == 24 }
        #expect(try await counts()[1] > 0)
        for client in clients[0...1] { try await client.isHeard(by: clients[23], burst: 3) }
        await relay.server.stop()
    }
}
