// Pushes between a relay and its clients, over QUIC on loopback, and the clients that are no members.
import Cryptography
import MonotonicTime
import Reactor
import RelayProtocol
import TestSupport
import Testing
import Vocabulary

@testable import RelayClient
@testable import RelayServer

/// A client with what it was told of pushes.
private struct PushClientRig {
    let client: RelayClient
    let links = Recorder<RelayLinkEvent>()
    let pushes = Recorder<PushLinkEvent>()
    let loop: EventLoop

    init(_ invitation: InvitationLink, identity: Identity? = nil, mode: RelayClientMode = .pushOnly) async throws {
        loop = try EventLoop(name: "client")
        client = RelayClient(
            invitation: invitation, identity: try identity ?? Identity(generating: "client"),
            displayName: DisplayName("Cab")!, mode: mode, openWebSocket: nil, loop: loop,
            logger: quietLogger("client"))
        let (links, pushes) = (links, pushes)
        await client.setEventHandler { links.record($0) }
        await client.setPushHandler { pushes.record($0) }
        await client.join()
        try await links.wait("ready") { if case .state(.ready) = $0 { true } else { nil } }
    }

    func registered(_ token: PushToken, from start: Int = 0) async throws -> Int {
        try await pushes.wait("the registration", from: start) { $0 == .registered(token) ? true : nil }.1
    }

    func push(from start: Int = 0) async throws -> (RelayPush, Int) {
        try await pushes.wait("the push", from: start) { if case .push(let push) = $0 { push } else { nil } }
    }
}

@Suite(.serialized, .timeLimit(.minutes(2))) struct RelayPushTests {
    private let topic = PushTopic(application: "org.example.radio")!

    private func relay(port: UInt16 = 0, channel: RelayChannelConfiguration? = nil) async throws -> TestRelay {
        try await TestRelay(port: port, channel: channel) {
            $0.acceptsPushes = true
            $0.limits.pushGraceTime = .zero
        }
    }

    private func freshToken(_ count: Int = 32) -> PushToken { PushToken(SecureRandom.bytes(count))! }

    private func request(_ token: PushToken, _ text: String = "{}", lifetime: Duration = .zero) -> PushRequest {
        PushRequest(token: token, topic: topic, payload: Array(text.utf8), priority: 10, lifetime: lifetime)!
    }

    @Test func `a push-only client is woken, and is no member`() async throws {
        let relay = try await relay()
        let alice = try await TestClient.joined("Alice", relay)
        let bob = try await TestClient.joined("Bob", relay)
        let rig = try await PushClientRig(try await relay.invitation())
        let token = freshToken(100)
        await rig.client.register(token: token, topic: topic)
        _ = try await rig.registered(token)
        let sentAt = Instant.now
        #expect(await relay.server.push(request(token, #"{"activeSpeaker":"Ann"}"#)) == .accepted(.sent))
        let (push, _) = try await rig.push()
        print("push from relay to client: \((push.receivedAt - sentAt).milliseconds) ms")
        #expect(push.payload == Array(#"{"activeSpeaker":"Ann"}"#.utf8))
        #expect(push.token == token)
        #expect(push.expiresAt == nil)
        #expect(await relay.server.memberCount(of: relay.channel.id) == 2)
        try await alice.talk(1, frames: 5)
        #expect(try await bob.heardEnd().1.received == 5)
        #expect(await relay.server.counters.packetsOut == 5, "no media go to it")
        for client in [alice, bob] {
            let seen = client.recorder.events.compactMap {
                if case .memberJoined(let one) = $0 { one.name } else { nil }
            }
            #expect(!seen.contains("Cab"))
        }
        // Nor does it hear of the floor, or talk.
        await rig.client.beginBurst(priority: 0)
        let (end, _) = try await rig.links.wait("the end of the burst") {
            if case .transmissionEnded(_, let end, _) = $0 { end } else { nil }
        }
        #expect(end == .linkUnavailable)
        #expect(!rig.links.events.contains { if case .floorTaken = $0 { true } else { false } })
        await relay.server.stop()
    }

    @Test func `who is woken by a push while somebody talks hears the burst from its first packet on`() async throws {
        let relay = try await relay()
        let alice = try await TestClient.joined("Alice", relay)
        let identity = try Identity(generating: "Cab")
        let rig = try await PushClientRig(try await relay.invitation(), identity: identity)
        let token = freshToken()
        await rig.client.register(token: token, topic: topic)
        _ = try await rig.registered(token)
        // What a program does that is woken.
        let waking = Task {
            _ = try await rig.push()
            return try await TestClient.joined("Cab", relay, identity: identity)
        }
        await alice.client.beginBurst(priority: 0)
        let start = Instant.now
        var (count, rest, isPushed) = (0, 20, false)
        while rest > 0 {
            let capturedAt = start + .milliseconds(20 * count)
            await alice.client.send(
                OutgoingFrame(payload: TestClient.payload(1, count), samples: 960, capturedAt: capturedAt))
            count += 1
            if !isPushed, await relay.server.counters.packetsForwarded >= 30 {
                isPushed = true
                #expect(await relay.server.push(request(token)) == .accepted(.sent))
            }
            // She goes on until it has come, and a little longer.
            if await relay.server.memberCount(of: relay.channel.id) == 2 { rest -= 1 }
            try #require(count < 1_000, "it did not come")
            try await Task.sleep(for: .milliseconds(20))
        }
        await alice.client.endBurst()
        let cab = try await waking.value
        #expect(try await alice.transmissionEnd().0 == .completed)
        let (end, report, index) = try await cab.heardEnd()
        let heard = cab.recorder.events[..<index].compactMap { if case .frame(let frame) = $0 { frame } else { nil } }
        #expect(end == .completed && report.received == count && report.lost == 0 && report.skipped == 0)
        #expect(heard.map(\.payload) == (0..<count).map { TestClient.payload(1, $0) })
        #expect(heard.first?.marker == true)
        // What was said before the push was fetched.
        #expect(heard.prefix(30).allSatisfy { $0.isLate } && heard.last?.isLate == false)
        await relay.server.stop()
    }

    @Test func `one key may be a member and a push-only client of one channel at a time`() async throws {
        let relay = try await relay()
        let identity = try Identity(generating: "both")
        let member = try await PushClientRig(try await relay.invitation(), identity: identity, mode: .member)
        let pushOnly = try await PushClientRig(try await relay.invitation(), identity: identity)
        let (first, second) = (freshToken(), freshToken())
        await member.client.register(token: first, topic: topic)
        await pushOnly.client.register(token: second, topic: topic)
        _ = try await member.registered(first)
        _ = try await pushOnly.registered(second)
        #expect(await relay.server.push(request(first)) == .accepted(.sent))
        #expect(await relay.server.push(request(second)) == .accepted(.sent))
        #expect(try await member.push().0.token == first)
        #expect(try await pushOnly.push().0.token == second)
        let again = try await PushClientRig(try await relay.invitation(), identity: identity)
        try await pushOnly.links.wait("the replacement") {
            if case .state(.unavailable(.replaced, _)) = $0 { true } else { nil }
        }
        await pushOnly.client.leave()
        #expect(await relay.server.memberCount(of: relay.channel.id) == 1)
        await again.client.register(token: second, topic: topic)
        _ = try await again.registered(second)
        await relay.server.stop()
    }

    @Test func `an invitation that does not open the channel lets no push-only client in`() async throws {
        let relay = try await relay()
        var link = try await relay.invitation()
        link.token = InvitationToken()
        let loop = try EventLoop(name: "stranger")
        let client = RelayClient(
            invitation: link, identity: try Identity(generating: "x"), displayName: DisplayName("X")!, mode: .pushOnly,
            openWebSocket: nil, loop: loop, logger: quietLogger("stranger"))
        let events = Recorder<RelayLinkEvent>()
        await client.setEventHandler { events.record($0) }
        await client.join()
        try await events.wait("the refusal") {
            if case .state(.unavailable(.invitationRefused, nil)) = $0 { true } else { nil }
        }
        #expect(!events.events.contains { if case .state(.ready) = $0 { true } else { false } })
        await relay.server.stop()
    }

    @Test func `a token is registered again after a reconnect, and what was kept comes then`() async throws {
        let relay = try await relay()
        let network = try await TestNetwork(to: try await relay.invitation().port)
        let rig = try await PushClientRig(try await relay.invitation().through(network))
        let token = freshToken()
        await rig.client.register(token: token, topic: topic)
        let registered = try await rig.registered(token)
        await rig.client.leave()
        try await relay.wait { await relay.server.push(request(token)) == .accepted(.dropped) }
        #expect(
            await relay.server.push(request(token, #"{"n":1}"#, lifetime: .seconds(60))) == .accepted(.kept))
        #expect(
            await relay.server.push(request(token, #"{"n":2}"#, lifetime: .seconds(60))) == .accepted(.kept))
        await rig.client.join()
        _ = try await rig.registered(token, from: registered)
        let (push, next) = try await rig.push()
        #expect(push.payload == Array(#"{"n":2}"#.utf8))
        #expect(push.expiresAt != nil)
        await rig.client.unregister(token: token)
        try await relay.wait {
            if case .unregistered = await relay.server.push(request(token)) { true } else { false }
        }
        #expect(rig.pushes.events.dropFirst(next).isEmpty)
        await relay.server.stop()
    }

    @Test func `a relay that starts anew learns the tokens again, within a second`() async throws {
        let first = try await relay()
        let link = try await first.invitation()
        let network = try await TestNetwork(to: link.port)
        let rig = try await PushClientRig(link.through(network))
        let token = freshToken()
        await rig.client.register(token: token, topic: topic)
        let registered = try await rig.registered(token)
        await first.server.stop()
        let second = try await relay(channel: first.channel)
        let startedAt = Instant.now
        try await network.redirect(to: try await second.invitation().port)
        _ = try await rig.registered(token, from: registered)
        print("registered again after \((Instant.now - startedAt).milliseconds) ms")
        #expect(await second.server.push(request(token)) == .accepted(.sent))
        _ = try await rig.push()
        await second.server.stop()
    }

    @Test func `a relay without an endpoint says so`() async throws {
        let relay = try await TestRelay()
        let rig = try await PushClientRig(try await relay.invitation())
        let token = freshToken()
        await rig.client.register(token: token, topic: topic)
        let (cause, _) = try await rig.pushes.wait("the refusal") {
            if case .refused(token, let cause, _) = $0 { cause } else { nil }
        }
        #expect(cause == .noEndpoint)
        await relay.server.stop()
    }

    @Test func `what only members may say ends a push-only connection`() async throws {
        let relay = try await relay()
        let link = try await relay.invitation()
        let messages: [ClientMessage] = [
            .floorRequest(.init(requestID: .first, keyID: 1)),
            .floorRelease(.init(requestID: .first, lastSequence: nil)),
            .receptionReport(.init(ssrc: SSRC(rawValue: 1), received: 0, lost: 0, highestSequence: 0, jitter: 0)),
        ]
        for message in messages {
            let peer = try await RawPeer("raw", port: link.port, pin: link.pin)
            try await peer.send(
                .join(
                    .init(
                        channel: link.channel, token: link.token, displayName: DisplayName("raw")!, isPushOnly: true)))
            try await peer.recorder.wait("the welcome") {
                if case .message(.pushWelcome) = $0 { true } else { nil }
            }
            try await peer.send(datagram: [UInt8](repeating: 0x80, count: 60))
            try await peer.send(message)
            #expect(try await peer.closeCode() == .protocolViolation)
        }
        #expect(await relay.server.counters.packetsForwarded == 0)
        await relay.server.stop()
    }

    @Test func `receipts that were asked for do not count against a client, others do`() async throws {
        let relay = try await TestRelay {
            $0.acceptsPushes = true
            $0.limits.pushBurst = 1_000
        }
        let rig = try await PushClientRig(try await relay.invitation())
        let token = freshToken()
        await rig.client.register(token: token, topic: topic)
        _ = try await rig.registered(token)
        var index = 0
        for _ in 0..<200 {
            #expect(await relay.server.push(request(token)) == .accepted(.sent))
            index = try await rig.push(from: index).1
        }
        #expect(await relay.server.counters.protocolViolations == 0)
        let link = try await relay.invitation()
        let peer = try await RawPeer("raw", port: link.port, pin: link.pin)
        try await peer.send(
            .join(.init(channel: link.channel, token: link.token, displayName: DisplayName("r")!, isPushOnly: true)))
        for number in 0..<100 {
            try? await peer.send(.pushReceipt(.init(id: PushID(rawValue: UInt64(number)), outcome: .taken)))
        }
        #expect(try await peer.closeCode() == .protocolViolation)
        await relay.server.stop()
    }

    @Test func `a relay that makes a member of a push-only client is too old for it`() {
        let link = try! InvitationLink(
            host: "h", port: 1, channelName: DisplayName("c")!, channel: ChannelID(), token: InvitationToken(),
            pin: PublicKeyPin([UInt8](repeating: 0, count: 32))!)
        var core = RelayClientCore(
            invitation: link, displayName: DisplayName("c")!, mode: .pushOnly, timestampAtZero: 7)
        let now = Instant(nanoseconds: 1)
        _ = core.handle(.join, at: now)
        guard case .send(.join(let join))? = core.handle(.connected, at: now).first else {
            Issue.record("no join")
            return
        }
        #expect(join.isPushOnly)
        let welcome = ServerMessage.Welcome(
            ssrc: SSRC(rawValue: 1), downlinkKey: TrailerKey(), mediaKey: MediaKey(epoch: 0),
            channelName: DisplayName("c")!, members: [], floor: nil, memberID: MemberID(link.pin), talkTimeLimit: nil)
        let actions = core.handle(.message(.welcome(welcome)), at: now)
        #expect(
            actions.contains {
                if case .tell(.state(.unavailable(.versionMismatch, nil))) = $0 { true } else { false }
            })
        #expect(!core.isReady)
    }
}

extension TestRelay {
    /// Waits until `condition` holds.
    func wait(until condition: () async throws -> Bool) async throws {
        for _ in 0..<1_000 {
            if try await condition() { return }
            try await Task.sleep(for: .milliseconds(5))
        }
        throw TimedOut(description: "it did not come to that")
    }
}
