// Clients that come back: to a relay that was started again, a round trip sooner than strangers; and by another way.
import Cryptography
import MonotonicTime
import QUIC
import RelayProtocol
import Synchronization
import TestSupport
import Testing
import Vocabulary

@testable import RelayClient
@testable import RelayServer

extension RelayClient {
    /// The link to where it connects now.
    fileprivate var place: InvitationLink { core.relay }
}

@Suite struct ReturningTests {
    /// A relay in place of `relay`, which is stopped: with its port and its key.
    private func restart(
        _ relay: TestRelay, channel: RelayChannelConfiguration? = nil, keys: RelayTransportKeys? = nil
    ) async throws -> TestRelay {
        let port = try #require(await relay.server.port)
        await relay.server.stop()
        return try await TestRelay(
            port: port, channel: channel ?? relay.channel, keys: keys ?? relay.configuration.transportKeys)
    }

    private func untilTicket(_ memory: ResumptionMemory, _ client: TestClient) async throws {
        let deadline = ContinuousClock.now + .seconds(10)
        let (link, own) = (await client.client.place, await client.client.identity.pin)
        while memory.state(of: link, for: own) == nil {
            try #require(ContinuousClock.now < deadline, "no ticket came")
            try await Task.sleep(for: .milliseconds(2))
        }
    }

    private func joined(_ relay: TestRelay) async throws -> (MemberID, Int) {
        try await relay.milestones.wait("the member") {
            if case .memberJoined(_, let member, _, _, _) = $0 { member } else { nil }
        }
    }

    /// From the beginning of the newest attempt until it was ready.
    private func joinTime(_ client: TestClient) throws -> Duration {
        let timed = client.recorder.timed
        let ready = try #require(timed.last { if case .state(.ready) = $0.event { true } else { false } })
        let began = try #require(timed.last { $0.event == .state(.connecting) && $0.at <= ready.at })
        return ready.at - began.at
    }

    @Test func `a join that goes with the first packet saves a round trip after a restart, and finds the same member`()
        async throws
    {
        var relay = try await TestRelay(keys: .generate())
        let delay = Duration.milliseconds(50)
        let network = try await TestNetwork(
            to: try #require(await relay.server.port), faults: .init(delay: delay...delay))
        let memory = ResumptionMemory()
        let client = try await TestClient("Alice", try await relay.invitation().through(network), resumption: memory)
        try await client.untilReady()
        #expect(await client.client.quic?.connection.earlyData == .notOffered)
        let (member, _) = try await joined(relay)
        let first = try joinTime(client)
        #expect(first >= delay * 4, "two round trips, or the network does not delay")
        var best = Duration.seconds(60)
        // A busy machine delays more than the network does.
        for _ in 0..<5 where best >= delay * 4 {
            try await untilTicket(memory, client)
            let start = client.recorder.events.count
            relay = try await restart(relay)
            try await client.untilReady(from: start)
            #expect(await client.client.quic?.connection.earlyData == .accepted)
            #expect(try await joined(relay).0 == member)
            best = min(best, try joinTime(client))
        }
        #expect(best >= delay * 2, "one round trip is the least")
        #expect(best < delay * 4, "a round trip is saved")
        print("joining at 50 ms each way: \(first) at first, \(best) on return")
        await relay.server.stop()
        withExtendedLifetime(network) {}
    }

    @Test func `a join that comes too early for a relay with other keys is sent again by itself`() async throws {
        let relay = try await TestRelay()
        let memory = ResumptionMemory()
        let client = try await TestClient("Alice", try await relay.invitation(), resumption: memory)
        try await client.untilReady()
        try await untilTicket(memory, client)
        let start = client.recorder.events.count
        let other = try await restart(relay, keys: .generate())
        let ready = try await client.untilReady(from: start)
        #expect(await client.client.quic?.connection.earlyData == .rejected)
        let bob = try await TestClient.joined("Bob", other)
        try await client.talk(1, frames: 3)
        #expect(try await client.transmissionEnd(from: ready).0 == .completed)
        try await bob.heardEnd()
        await other.server.stop()
    }

    @Test func `the ticket of one relay of a cluster is good at another one`() async throws {
        let identity = TestRelay.identity
        let relay = try await TestRelay(keys: .shared(by: identity, at: 1_795_000_000))
        let memory = ResumptionMemory()
        let client = try await TestClient("Alice", try await relay.invitation(), resumption: memory)
        try await client.untilReady()
        try await untilTicket(memory, client)
        let start = client.recorder.events.count
        // Another process, which has nothing but the relay's key, started a little later.
        let other = try await restart(relay, keys: .shared(by: identity, at: 1_795_000_060))
        try await client.untilReady(from: start)
        #expect(await client.client.quic?.connection.earlyData == .accepted)
        await other.server.stop()
    }

    @Test func `keys that a cluster shares come from the relay's key and the week`() throws {
        let (one, other) = (TestRelay.identity, try Identity(generating: "another relay"))
        let week = RelayTransportKeys.ticketPeriod
        let keys = try RelayTransportKeys.shared(by: one, at: 10 * week)
        #expect(try RelayTransportKeys.shared(by: one, at: 11 * week - 1) == keys)
        let next = try RelayTransportKeys.shared(by: one, at: 11 * week)
        #expect(next.bytes.prefix(64) != keys.bytes.prefix(64))
        #expect(next.bytes.suffix(32) == keys.bytes.suffix(32), "resets and address tokens stay valid")
        let strange = try RelayTransportKeys.shared(by: other, at: 10 * week)
        #expect(strange.bytes.prefix(64) != keys.bytes.prefix(64) && strange.bytes.suffix(32) != keys.bytes.suffix(32))
    }

    @Test func `an invitation that was changed meanwhile does not open the channel to who returns`() async throws {
        let keys = RelayTransportKeys.generate()
        let relay = try await TestRelay(keys: keys)
        let memory = ResumptionMemory()
        let client = try await TestClient("Alice", try await relay.invitation(), resumption: memory)
        try await client.untilReady()
        try await untilTicket(memory, client)
        var changed = relay.channel
        changed.token = InvitationToken()
        let start = client.recorder.events.count
        let other = try await restart(relay, channel: changed)
        let (error, _) = try await client.recorder.wait("the refusal", from: start) {
            if case .state(.unavailable(let error, retryAfter: nil)) = $0 { error } else { nil }
        }
        guard case .invitationRefused = error else { return #expect(Bool(false), "\(error)") }
        #expect(await other.server.memberCount(of: relay.channel.id) == 0)
        await other.server.stop()
    }

    @Test func `a NAT that forgets its mapping in the middle of a burst costs nothing but what was on its way`()
        async throws
    {
        let relay = try await TestRelay()
        let network = try await TestNetwork(to: try #require(await relay.server.port))
        let alice = try await TestClient("Alice", try await relay.invitation().through(network))
        try await alice.untilReady()
        let bob = try await TestClient.joined("Bob", relay)
        let talking = Task { try await alice.talk(1, frames: 60, spacing: .milliseconds(10)) }
        try await bob.recorder.wait("sound") { if case .frame = $0 { true } else { nil } }
        try await network.rebind()
        try await talking.value
        #expect(try await alice.transmissionEnd().0 == .completed)
        try await bob.heardEnd()
        // What was in the NAT when it forgot is lost; the rest comes in order.
        let heard = bob.heard()
        #expect(heard.count >= 55)
        #expect(heard.last == TestClient.payload(1, 59))
        #expect(alice.recorder.events.count { if case .state(.ready) = $0 { true } else { false } } == 1)
        await relay.server.stop()
    }

    @Test func `what is said while the relay is being restarted is held, and heard whole`() async throws {
        let relay = try await TestRelay()
        let port = try #require(await relay.server.port)
        let network = try await TestNetwork(to: port)
        let alice = try await TestClient("Alice", try await relay.invitation().through(network))
        try await alice.untilReady()
        let start = alice.recorder.events.count
        let (silent, nowhere) = try TestNetwork.socket()
        await relay.server.stop()
        let (_, lost) = try await alice.recorder.wait("the loss", from: start) {
            if case .state(.unavailable) = $0 { true } else { nil }
        }
        try await network.redirect(to: nowhere)
        let other = try await TestRelay(
            port: port, channel: relay.channel, keys: relay.configuration.transportKeys)
        let bob = try await TestClient.joined("Bob", other)
        // She presses and speaks, and nobody answers yet.
        async let said: Void = alice.talk(1, frames: 40)
        try await Task.sleep(for: .milliseconds(50))
        try await network.redirect(to: port)
        try await said
        #expect(try await alice.transmissionEnd(from: lost).0 == .completed)
        try await bob.heardEnd()
        #expect(bob.heard().map(\.[1]) == (0..<40).map { TestClient.payload(1, $0)[1] })
        await other.server.stop()
        _ = silent
    }

    @Test func `who comes back a moment after the talker hears the burst from its start`() async throws {
        let relay = try await TestRelay()
        let port = try #require(await relay.server.port)
        let network = try await TestNetwork(to: port)
        let alice = try await TestClient("Alice", try await relay.invitation())
        let bob = try await TestClient("Bob", try await relay.invitation().through(network))
        try await alice.untilReady()
        try await bob.untilReady()
        let (start, before) = (alice.recorder.events.count, bob.recorder.events.count)
        let (silent, nowhere) = try TestNetwork.socket()
        await relay.server.stop()
        try await bob.recorder.wait("the loss", from: before) {
            if case .state(.unavailable) = $0 { true } else { nil }
        }
        try await network.redirect(to: nowhere)
        let other = try await TestRelay(
            port: port, channel: relay.channel, keys: relay.configuration.transportKeys)
        let ready = try await alice.untilReady(from: start)
        // She speaks until he is back, and a little longer.
        let back = Task { try await bob.untilReady(from: before) }
        await alice.client.beginBurst(priority: 0)
        var (count, rest) = (0, 20)
        while rest > 0 {
            let frame = OutgoingFrame(payload: TestClient.payload(1, count), samples: 960, capturedAt: .now)
            await alice.client.send(frame)
            count += 1
            if count == 5 {
                try await alice.recorder.wait("her first words", from: ready) {
                    if case .firstPacketSent = $0 { true } else { nil }
                }
                try await network.redirect(to: port)
            }
            let events = bob.recorder.events.dropFirst(before)
            if events.contains(where: { if case .state(.ready) = $0 { true } else { false } }) { rest -= 1 }
            try #require(count < 2_000)
            try await Task.sleep(for: .milliseconds(10))
        }
        await alice.client.endBurst()
        _ = try await back.value
        try await bob.heardEnd(from: before)
        // On a machine that is so busy that he is away for longer he has missed something, and that is right.
        let isShort = try absence(bob, from: before) < RelayClientCore.shortAbsence
        #expect(bob.heard().count == count || !isShort, "\(bob.heard().count) of \(count)")
        await other.server.stop()
        _ = silent
    }

    /// From the first loss after `start` until the link was ready again.
    private func absence(_ client: TestClient, from start: Int) throws -> Duration {
        let timed = client.recorder.timed.dropFirst(start)
        let lost = try #require(timed.first { if case .state(.unavailable) = $0.event { true } else { false } })
        let ready = try #require(timed.first { if case .state(.ready) = $0.event { true } else { false } })
        return ready.at - lost.at
    }

    @Test func `a relay that does not answer a press and says nothing at all is given up for a new connection`()
        async throws
    {
        let relay = try await TestRelay()
        let network = try await TestNetwork(to: try #require(await relay.server.port))
        let alice = try await TestClient("Alice", try await relay.invitation().through(network))
        try await alice.untilReady()
        // Nobody listens there, and nobody says so.
        let (silent, port) = try TestNetwork.socket()
        try await network.redirect(to: port)
        // Whatever was said until now may still be answered.
        try await Task.sleep(for: .milliseconds(100))
        try await alice.talk(1, frames: 1)
        let end = try await alice.transmissionEnd()
        #expect(end.0 == .completed || end.0 == .notAnswered)
        let (error, index) = try await alice.recorder.wait("the loss") {
            if case .state(.unavailable(let error, _)) = $0 { error } else { nil }
        }
        #expect(error == .lost("the relay does not answer"))
        try await network.redirect(to: try #require(await relay.server.port))
        try await alice.untilReady(from: index)
        await relay.server.stop()
        _ = silent
    }
}

/// What a `ResumptionMemory` has saved last.
final class SavedBytes: Sendable {
    private let kept = Mutex<[UInt8]>([])
    var bytes: [UInt8] {
        get { kept.withLock { $0 } }
        set { kept.withLock { $0 = newValue } }
    }
}

@Suite struct ResumptionMemoryTests {
    /// What a client that joined has kept.
    private func kept() async throws -> (bytes: [UInt8], link: InvitationLink, identity: Identity) {
        let relay = try await TestRelay()
        let holder = SavedBytes()
        let identity = try Identity(generating: "Alice")
        let memory = ResumptionMemory { holder.bytes = $0 }
        let client = try await TestClient(
            "Alice", try await relay.invitation(), identity: identity, resumption: memory)
        try await client.untilReady()
        let deadline = ContinuousClock.now + .seconds(10)
        while holder.bytes.isEmpty {
            try #require(ContinuousClock.now < deadline, "nothing was kept")
            try await Task.sleep(for: .milliseconds(2))
        }
        let link = try await relay.invitation()
        await relay.server.stop()
        return (holder.bytes, link, identity)
    }

    @Test func `what is kept is found again, by the same end and for the same key only`() async throws {
        let (bytes, link, identity) = try await kept()
        #expect(ResumptionMemory.isIntact(bytes))
        let memory = ResumptionMemory(restoring: bytes)
        let state = try #require(memory.state(of: link, for: identity.pin))
        #expect(memory.state(of: link, for: link.pin) == nil, "a ticket is its owner's")
        var other = link
        other.port ^= 1
        #expect(memory.state(of: other, for: identity.pin) == state, "another relay with that key can read it")
        // Bounded: the oldest goes.
        for number in 0..<ResumptionMemory.entriesMaximum {
            other.pin = try #require(PublicKeyPin([UInt8](repeating: UInt8(number), count: 32)))
            #expect(memory.state(of: other, for: identity.pin) == nil)
            memory.keep(state, of: other, for: identity.pin)
        }
        #expect(memory.state(of: link, for: identity.pin) == nil)
        #expect(memory.state(of: other, for: identity.pin) == state)
        let longest = 40 + ResumptionMemory.stateByteCountMaximum + WebPlace.byteCountMaximum
        #expect(ResumptionMemory.entriesMaximum * longest + 100 < ResumptionMemory.byteCountMaximum)
        memory.keep(nil, of: other, for: identity.pin)
        #expect(memory.state(of: other, for: identity.pin) == nil)
    }

    @Test func `where a relay takes links over TLS is kept beside its ticket, or without one`() async throws {
        let (bytes, link, identity) = try await kept()
        let place = try #require(WebPlace("relay.example:443"))
        let holder = SavedBytes()
        let memory = ResumptionMemory(restoring: bytes) { holder.bytes = $0 }
        let state = try #require(memory.state(of: link, for: identity.pin))
        memory.keep(place, of: link, for: identity.pin)
        var restored = ResumptionMemory(restoring: holder.bytes)
        #expect(restored.web(of: link, for: identity.pin) == place)
        #expect(restored.state(of: link, for: identity.pin) == state)
        #expect(restored.web(of: link, for: link.pin) == nil)
        memory.keep(nil, of: link, for: identity.pin)
        #expect(ResumptionMemory.isIntact(holder.bytes))
        restored = ResumptionMemory(restoring: holder.bytes)
        #expect(restored.web(of: link, for: identity.pin) == place)
        #expect(restored.state(of: link, for: identity.pin) == nil)
    }

    @Test func `a file of the former form is read`() async throws {
        let (bytes, link, identity) = try await kept()
        // Without the length of the place that is not known, and with the former number.
        var former = Array(bytes.dropLast(4))
        former[16] = UInt8(ascii: "1")
        #expect(ResumptionMemory.isIntact(former))
        #expect(
            ResumptionMemory(restoring: former).state(of: link, for: identity.pin)
                == ResumptionMemory(restoring: bytes).state(of: link, for: identity.pin))
        #expect(!ResumptionMemory.isIntact(former + [0, 0, 0, 0]))
    }

    @Test func `damage is noticed, and never gives another state than the one that was kept`() async throws {
        let (bytes, link, identity) = try await kept()
        let original = ResumptionMemory(restoring: bytes).state(of: link, for: identity.pin)
        var generator = SeededGenerator(seed: 5)
        for round in 0..<500 {
            var damaged = bytes
            switch round % 3 {
            case 0: damaged[Int.random(in: 0..<damaged.count, using: &generator)] ^= UInt8(1 << (round % 8))
            case 1: damaged.removeLast(Int.random(in: 1...damaged.count, using: &generator))
            default:
                damaged.insert(
                    UInt8.random(in: 0...255, using: &generator),
                    at: Int.random(in: 0...damaged.count, using: &generator))
            }
            let found = ResumptionMemory(restoring: damaged).state(of: link, for: identity.pin)
            #expect(found == nil || found == original, "seed 5, round \(round)")
        }
        #expect(!ResumptionMemory.isIntact([1, 2, 3]))
        #expect(ResumptionMemory.isIntact([]))
        let endless = bytes + [UInt8](repeating: 0, count: ResumptionMemory.byteCountMaximum)
        #expect(!ResumptionMemory.isIntact(endless))
    }
}
