// A relay and clients on real sockets: from the button to the ear, without the ends.
import Cryptography
import MonotonicTime
import QUIC
import Reactor
import RelayProtocol
import TestSupport
import Testing
import Vocabulary

@testable import RelayClient
@testable import RelayServer

@Suite(.serialized, .timeLimit(.minutes(2))) struct RelayEndToEndTests {
    @Test func `a burst is heard byte for byte, in order, and so is the next one`() async throws {
        let relay = try await TestRelay()
        let alice = try await TestClient.joined("Alice", relay)
        let bob = try await TestClient.joined("Bob", relay)
        var heard = 0
        var said = 0
        for burst in 1...2 {
            try await alice.talk(burst, frames: 25)
            let (end, report, next) = try await alice.transmissionEnd(from: said)
            said = next
            #expect(end == .completed)
            #expect(report.sent == 25)
            let (reception, received, index) = try await bob.heardEnd(from: heard)
            #expect(reception == .completed)
            #expect(received.received == 25)
            #expect(received.lost == 0)
            #expect(bob.heard(from: heard, to: index) == (0..<25).map { TestClient.payload(burst, $0) })
            heard = index
        }
        let taken = bob.recorder.events.compactMap { if case .floorTaken(let by) = $0 { by.name } else { nil } }
        #expect(taken == ["Alice", "Alice"])
        #expect(alice.heard().isEmpty, "nobody hears themselves")
        let counters = await relay.server.counters
        #expect(counters.packetsForwarded == 50)
        #expect(counters.packetsOut == 50)
        #expect(counters.droppedTotal == 0)
        await relay.server.stop()
    }

    @Test func `a press shorter than the round trip is delivered whole`() async throws {
        let relay = try await TestRelay()
        let alice = try await TestClient.joined("Alice", relay)
        let bob = try await TestClient.joined("Bob", relay)
        try await alice.loop.run { [client = alice.client] in
            // All within one turn of the loop: the grant cannot have come.
            client.assumeIsolated { client in
                client.beginBurst(priority: 0)
                for number in 0..<5 {
                    client.send(
                        OutgoingFrame(payload: TestClient.payload(1, number), samples: 960, capturedAt: .now))
                }
                client.endBurst()
            }
        }
        #expect(try await alice.transmissionEnd().0 == .completed)
        let (_, report, _) = try await bob.heardEnd()
        #expect(report.received == 5)
        #expect(bob.heard() == (0..<5).map { TestClient.payload(1, $0) })
        await relay.server.stop()
    }

    @Test func `who presses while another talks is denied and nothing of it is heard`() async throws {
        let relay = try await TestRelay()
        let alice = try await TestClient.joined("Alice", relay)
        let bob = try await TestClient.joined("Bob", relay)
        await alice.client.beginBurst(priority: 0)
        try await alice.recorder.wait("the grant") { if case .floorGranted = $0 { true } else { nil } }
        try await bob.talk(9, frames: 3)
        let (end, report, _) = try await bob.transmissionEnd()
        #expect(end == .denied(.taken))
        #expect(report.sent == 0)
        await alice.client.send(OutgoingFrame(payload: [1], samples: 960, capturedAt: .now))
        await alice.client.endBurst()
        #expect(try await alice.transmissionEnd().0 == .completed)
        _ = try await bob.heardEnd()
        #expect(alice.heard().isEmpty)
        // And now the floor is free for Bob.
        let start = bob.recorder.events.count
        try await bob.talk(10, frames: 3)
        #expect(try await bob.transmissionEnd(from: start).0 == .completed)
        #expect(try await alice.heardEnd().1.received == 3)
        await relay.server.stop()
    }

    @Test func `members know of each other`() async throws {
        let relay = try await TestRelay()
        let alice = try await TestClient.joined("Alice", relay)
        let bob = try await TestClient.joined("Bob", relay)
        let (joined, _) = try await alice.recorder.wait("Bob") {
            if case .memberJoined(let member) = $0 { member.name } else { nil }
        }
        #expect(joined == "Bob")
        let (members, _) = try await bob.recorder.wait("the members") {
            if case .members(let members, own: let own) = $0 { (members.map(\.name).sorted(), own.name) } else { nil }
        }
        #expect(members.0 == ["Alice", "Bob"])
        #expect(members.1 == "Bob")
        await bob.client.leave()
        let (left, _) = try await alice.recorder.wait("Bob leaving") {
            if case .memberLeft(let member) = $0 { member.name } else { nil }
        }
        #expect(left == "Bob")
        await relay.server.stop()
    }

    @Test func `a relay that stops and starts again gets its members back and carries a burst`() async throws {
        let keys = RelayTransportKeys.generate()
        let relay = try await TestRelay(keys: keys)
        let port = try #require(await relay.server.port)
        let alice = try await TestClient.joined("Alice", relay)
        let bob = try await TestClient.joined("Bob", relay)
        let (aliceStart, bobStart) = (alice.recorder.events.count, bob.recorder.events.count)
        await relay.server.stop()
        let (error, _) = try await alice.recorder.wait("the loss", from: aliceStart) {
            if case .state(.unavailable(let error, _)) = $0 { error } else { nil }
        }
        #expect(error == .closedByRelay("it is going down"))
        let again = try await TestRelay(port: port, channel: relay.channel, keys: keys)
        try await alice.untilReady(from: aliceStart)
        let heard = try await bob.untilReady(from: bobStart)
        try await alice.talk(3, frames: 10)
        #expect(try await alice.transmissionEnd(from: aliceStart).0 == .completed)
        _ = try await bob.heardEnd(from: heard)
        #expect(bob.heard(from: heard) == (0..<10).map { TestClient.payload(3, $0) })
        await again.server.stop()
    }

    @Test func `a connection that the relay has ended leaves no socket behind`() async throws {
        let relay = try await TestRelay()
        let alice = try await TestClient.joined("Alice", relay)
        let endpoint = try #require(await alice.client.quic?.connection.endpoint)
        await relay.server.stop()
        try await alice.recorder.wait("the loss") { if case .state(.unavailable) = $0 { true } else { nil } }
        #expect(try await alice.loop.run { endpoint.isClosed })
        await alice.client.leave()
    }

    @Test func `a relay that dies without a word is found out by the next press, which is not lost`() async throws {
        let keys = RelayTransportKeys.generate()
        let relay = try await TestRelay(keys: keys)
        let again = try await TestRelay(channel: relay.channel, keys: keys)
        let network = try await TestNetwork(to: try #require(await relay.server.port))
        let alice = try await TestClient("Alice", try await relay.invitation().through(network))
        try await alice.untilReady()
        // From here on nothing of the first relay is heard: the second one is what comes up at its address.
        try await network.redirect(to: try #require(await again.server.port))
        let bob = try await TestClient.joined("Bob", again)
        try await alice.talk(4, frames: 40, spacing: .milliseconds(20))
        let (end, report, _) = try await alice.transmissionEnd()
        #expect(end == .completed)
        #expect(report.sent == 40)
        _ = try await bob.heardEnd()
        #expect(bob.heard() == (0..<40).map { TestClient.payload(4, $0) })
        await again.server.stop()
        withExtendedLifetime(network) {}
        await relay.server.stop()
    }

    @Test func `a talker that is killed frees the floor, and the listener is told`() async throws {
        let relay = try await TestRelay { $0.timers.mediaTimeout = .seconds(2) }
        let alice = try await TestClient.joined("Alice", relay)
        let bob = try await TestClient.joined("Bob", relay)
        await alice.client.beginBurst(priority: 0)
        for number in 0..<5 {
            await alice.client.send(
                OutgoingFrame(payload: TestClient.payload(1, number), samples: 960, capturedAt: .now))
        }
        let last = TestClient.payload(1, 4)
        try await bob.recorder.wait("the last frame") {
            if case .frame(let frame) = $0, frame.payload == last { true } else { nil }
        }
        // As by SIGKILL: its thread stops, its socket says nothing.
        alice.loop.stop()
        let (end, report, index) = try await bob.heardEnd()
        #expect(end == .completed)
        #expect(report.received == 5)
        try await bob.recorder.wait("idle", from: index) { if case .floorIdle = $0 { true } else { nil } }
        try await bob.talk(2, frames: 2)
        #expect(try await bob.transmissionEnd().0 == .completed)
        await relay.server.stop()
    }

    @Test func `a talker that leaves in the middle frees the floor at once`() async throws {
        let relay = try await TestRelay()
        let alice = try await TestClient.joined("Alice", relay)
        let bob = try await TestClient.joined("Bob", relay)
        await alice.client.beginBurst(priority: 0)
        await alice.client.send(OutgoingFrame(payload: [1, 2], samples: 960, capturedAt: .now))
        try await bob.recorder.wait("the burst") { if case .burstBegan = $0 { true } else { nil } }
        await alice.client.leave()
        #expect(try await alice.transmissionEnd().0 == .linkUnavailable)
        #expect(try await bob.heardEnd().0 == .completed)
        try await alice.recorder.wait("stopped") { $0 == .state(.stopped) ? true : nil }
        await relay.server.stop()
    }

    @Test func `the talk-time limit takes the floor back`() async throws {
        let relay = try await TestRelay { $0.timers.talkTimeLimit = .milliseconds(200) }
        let alice = try await TestClient.joined("Alice", relay)
        let bob = try await TestClient.joined("Bob", relay)
        try await alice.talk(1, frames: 200, spacing: .milliseconds(10))
        #expect(try await alice.transmissionEnd().0 == .revoked(.talkTimeLimit))
        #expect(try await bob.heardEnd().0 == .completed)
        await relay.server.stop()
    }

    @Test func `a wrong token is refused for good, in words that say what to do`() async throws {
        let relay = try await TestRelay()
        var link = try await relay.invitation()
        link.token = InvitationToken()
        let mallory = try await TestClient("Mallory", link)
        let (state, _) = try await mallory.recorder.wait("the refusal") {
            if case .state(.unavailable(let error, let retry)) = $0 { (error, retry) } else { nil }
        }
        guard case .invitationRefused = state.0 else { return #expect(Bool(false), "\(state)") }
        #expect(state.1 == nil)
        #expect("\(state.0)".contains("pttrelay invite"))
        #expect(await relay.server.counters.joinsRefused == 1)
        await relay.server.stop()
    }

    @Test func `a relay with another key than the invitation's is not spoken to`() async throws {
        let relay = try await TestRelay()
        var link = try await relay.invitation()
        link.pin = try Identity(generating: "another").pin
        let client = try await TestClient("Alice", link)
        let (state, _) = try await client.recorder.wait("the error") {
            if case .state(.unavailable(let error, let retry)) = $0 { (error, retry) } else { nil }
        }
        #expect(state.0 == .wrongRelayKey)
        #expect(state.1 == .seconds(30))
        #expect(await relay.server.memberCount(of: relay.channel.id) == 0)
        await relay.server.stop()
    }

    @Test func `a newer connection of the same member takes the older one's place`() async throws {
        let relay = try await TestRelay()
        let identity = try Identity(generating: "Alice")
        let first = try await TestClient.joined("Alice", relay, identity: identity)
        let second = try await TestClient.joined("Alice", relay, identity: identity)
        let (state, _) = try await first.recorder.wait("the replacement") {
            if case .state(.unavailable(let error, let retry)) = $0 { (error, retry) } else { nil }
        }
        #expect(state.0 == .replaced)
        #expect(state.1 == .seconds(30))
        #expect(await relay.server.memberCount(of: relay.channel.id) == 1)
        _ = second
        await relay.server.stop()
    }

    @Test func `a relay can be stopped by cancelling the task that runs it`() async throws {
        let channel = RelayChannelConfiguration.yard()
        let server = try RelayServer(
            configuration: RelayServerConfiguration(
                listenAddress: "127.0.0.1", listenPort: 0, identity: TestRelay.identity, channels: [channel]),
            logger: quietLogger("relay"))
        try await server.start()
        #expect(await server.port != nil)
        let task = Task { try await server.run() }
        try await Task.sleep(for: .milliseconds(20))
        task.cancel()
        try await task.value
        #expect(await server.port == nil)
    }

    @Test func `many listeners hear the same burst`() async throws {
        let relay = try await TestRelay()
        let alice = try await TestClient.joined("Alice", relay)
        var listeners: [TestClient] = []
        for number in 0..<12 { listeners.append(try await TestClient.joined("Listener \(number)", relay)) }
        try await alice.talk(1, frames: 10)
        for listener in listeners {
            _ = try await listener.heardEnd()
            #expect(listener.heard() == (0..<10).map { TestClient.payload(1, $0) })
        }
        await relay.server.stop()
    }

    @Test func `a burst over a network that loses, doubles and reorders is heard once and in the talker's order`()
        async throws
    {
        let seed = SeededGenerator.seed()
        let relay = try await TestRelay()
        let network = try await TestNetwork(
            to: try #require(await relay.server.port),
            faults: .init(
                lossPercent: 5, duplicatePercent: 5, delay: .milliseconds(0)...(.milliseconds(15)), seed: seed))
        let alice = try await TestClient("Alice", try await relay.invitation().through(network))
        try await alice.untilReady()
        let bob = try await TestClient("Bob", try await relay.invitation().through(network))
        try await bob.untilReady()
        try await alice.talk(1, frames: 100, spacing: .milliseconds(10), from: .now)
        #expect(try await alice.transmissionEnd().0 == .completed)
        let (_, report, index) = try await bob.heardEnd()
        let heard = bob.recorder.events[..<index].compactMap { if case .frame(let frame) = $0 { frame } else { nil } }
        #expect(Set(heard.map(\.sequence)).count == heard.count, "a frame came twice; seed \(seed)")
        let sent = (0..<100).map { TestClient.payload(1, $0) }
        #expect(heard.allSatisfy { sent.contains($0.payload) })
        #expect(heard.count > 70, "5 % lost each way is not this; seed \(seed)")
        #expect(report.received == heard.count)
        let first = try #require(heard.map(\.timestamp).min())
        for frame in heard {
            #expect(sent.firstIndex(of: frame.payload).map { UInt32($0) } != nil)
            #expect((frame.timestamp &- first) % 960 == 0)
        }
        withExtendedLifetime(network) {}
        await relay.server.stop()
    }

    @Test func `a link that nobody holds any more leaves the channel, and a relay that nobody holds frees its port`()
        async throws
    {
        var relay: TestRelay? = try await TestRelay()
        let port = try #require(await relay?.server.port)
        let channel = try #require(relay?.channel)
        let link = try await relay!.invitation()
        let bob = try await TestClient.joined("Bob", relay!)
        var alice: RelayClient? = RelayClient(
            invitation: link, identity: try Identity(generating: "Alice"), displayName: DisplayName("Alice")!,
            openWebSocket: nil, loop: bob.loop, logger: quietLogger("Alice"))
        await alice?.join()
        try await bob.recorder.wait("Alice") { if case .memberJoined = $0 { true } else { nil } }
        alice = nil
        try await bob.recorder.wait("the leave") { if case .memberLeft = $0 { true } else { nil } }
        let start = bob.recorder.events.count
        relay = nil
        let (error, _) = try await bob.recorder.wait("the relay's end", from: start) {
            if case .state(.unavailable(let error, _)) = $0 { error } else { nil }
        }
        #expect(error == .closedByRelay("it is going down"))
        let again = try await TestRelay(port: port, channel: channel)
        #expect(try await again.invitation() == link)
        await again.server.stop()
    }
}
