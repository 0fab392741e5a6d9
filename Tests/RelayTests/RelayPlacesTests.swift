// Where a client goes on whose relay has named a successor.
import Cryptography
import MonotonicTime
import QUIC
import RelayProtocol
import TestSupport
import Testing

@testable import RelayClient
@testable import RelayServer

@Suite struct RelayPlacesTests {
    private static let home = RelayPlace("relay.example:1")!
    private static let other = RelayPlace("[2001:db8::2]:2")!

    @Test func `the successor is tried first, and the place of the invitation in turns with it`() {
        var places = RelayPlaces(home: Self.home)
        places.attempt()
        #expect(places.current == Self.home && !places.isAway)
        places.joined()
        places.move(to: [Self.other])
        #expect(places.current == Self.home, "the connection is there still")
        var tried: [RelayPlace] = []
        for _ in 0..<4 {
            places.attempt()
            tried.append(places.current)
        }
        #expect(tried == [Self.other, Self.home, Self.other, Self.home])
    }

    @Test func `who was let in by the successor looks for it again, who is back at home does not`() {
        var places = RelayPlaces(home: Self.home)
        places.move(to: [Self.other])
        places.attempt()
        places.joined()
        places.attempt()
        #expect(places.current == Self.other && places.isAway)
        places.attempt()
        #expect(places.current == Self.home)
        places.joined()
        for _ in 0..<2 {
            places.attempt()
            #expect(places.current == Self.home)
        }
    }

    @Test func `a successor among the addresses of the invitation's name has no turns of its own beside it`() {
        var places = RelayPlaces(home: Self.home)
        places.cover()
        places.move(to: [Self.other])
        places.attempt()
        places.cover()
        #expect(places.current == Self.other)
        places.failed()
        for _ in 0..<3 {
            places.attempt()
            #expect(places.current == Self.home)
        }
        // Nor when it has let the client in.
        places.follow(to: Self.other)
        places.attempt()
        #expect(places.current == Self.other)
        places.cover()
        places.joined()
        places.attempt()
        #expect(places.current == Self.home)
    }

    @Test func `of several places each has its turn, and the one that lets in is looked for alone`() {
        var places = RelayPlaces(home: Self.home)
        let third = RelayPlace("third.example:3")!
        places.move(to: [Self.other, third, Self.other])
        var tried: [RelayPlace] = []
        for _ in 0..<5 {
            places.attempt()
            tried.append(places.current)
        }
        #expect(tried == [Self.other, third, Self.home, Self.other, third])
        places.joined()
        places.attempt()
        #expect(places.current == third)
        places.giveUpSuccessor()
        places.attempt()
        #expect(places.current == Self.home)
        places.move(to: (1...20).map { RelayPlace(host: "10.0.0.\($0)", port: 1)! })
        tried = []
        for _ in 0..<9 {
            places.attempt()
            tried.append(places.current)
        }
        #expect(Set(tried).count == 9 && tried.last == Self.home, "as many as may be are kept")
    }

    @Test func `what the relay has named comes before what is announced, until an attempt there fails`() {
        var places = RelayPlaces(home: Self.home)
        let announced = RelayPlace("10.0.0.7:3")!
        places.follow(to: Self.other)
        places.failed()
        places.move(to: [announced])
        places.attempt()
        #expect(places.current == Self.other)
        places.move(to: [announced])
        places.attempt()
        #expect(places.current == Self.other, "an announcement that changes is no reason to give it up")
        places.failed()
        places.move(to: [announced])
        places.attempt()
        #expect(places.current == announced)
        #expect(places.areSeveral && !RelayPlaces(home: Self.home).areSeveral)
    }

    @Test func `an attempt at one of several places nearby does not keep the others waiting`() {
        var machine = RelayClientStateMachine()
        machine.hasOtherPlaces = true
        _ = machine.handle(.join, at: now)
        #expect(machine.nextDeadline == now + RelayClientStateMachine.connectTimeoutOfSeveral)
        let late = now + RelayClientStateMachine.connectTimeoutOfSeveral
        let told = RelayLinkState.unavailable(
            .unreachable("no answer within 1 s"), retryAfter: .milliseconds(250))
        #expect(machine.handle(.deadline, at: late) == [.close(.none), .tell(told)])
    }

    @Test func `a join that was given up and arrives late is no other machine's`() {
        var machine = RelayClientStateMachine()
        for event in [.join, .connected, .relayFound, .connected, .welcomed(channelName: "c")]
            as [RelayClientStateMachine.Event]
        {
            _ = machine.handle(event, at: now)
        }
        let soon = now + .seconds(1)
        let lost = RelayLinkError.lost("an earlier attempt replaced it")
        #expect(
            machine.handle(.connectionEnded(.replaced), at: soon) == [
                .linkLost, .close(.none), .tell(.unavailable(lost, retryAfter: .milliseconds(250))),
            ])
        _ = machine.handle(.deadline, at: soon + .milliseconds(250))
        _ = machine.handle(.connected, at: soon + .milliseconds(260))
        _ = machine.handle(.welcomed(channelName: "c"), at: soon + .milliseconds(270))
        let again = machine.handle(.connectionEnded(.replaced), at: soon + .milliseconds(280))
        #expect(again.last == .tell(.unavailable(.replaced, retryAfter: .seconds(30))), "a second time it is")
    }

    @Test func `a successor may send on, and back`() {
        var places = RelayPlaces(home: Self.home)
        places.move(to: [Self.other])
        places.attempt()
        places.joined()
        let third = RelayPlace("third.example:3")!
        places.move(to: [third])
        places.attempt()
        #expect(places.current == third)
        places.joined()
        places.move(to: [Self.home])
        places.attempt()
        #expect(places.current == Self.home)
        places.attempt()
        #expect(places.current == Self.home)
    }

    // MARK: Put together

    private let now = Instant(nanoseconds: 1_000_000_000)

    /// A client that has joined at home, has heard of the successor, and is asked to connect again.
    private func sentAway() throws -> RelayClientCore {
        let link = try InvitationLink(
            host: "relay.example", port: 1, channelName: DisplayName("c")!, channel: ChannelID(),
            token: InvitationToken(), pin: PublicKeyPin([UInt8](repeating: 0, count: 32))!)
        var core = RelayClientCore(invitation: link, displayName: DisplayName("c")!, timestampAtZero: 7)
        _ = core.handle(.join, at: now)
        _ = core.handle(.connected, at: now)
        let welcome = ServerMessage.Welcome(
            ssrc: SSRC(rawValue: 1), downlinkKey: TrailerKey(), mediaKey: MediaKey(epoch: 1),
            channelName: DisplayName("c")!, members: [], floor: nil, memberID: MemberID(link.pin), talkTimeLimit: nil)
        _ = core.handle(.message(.welcome(welcome)), at: now)
        #expect(core.handle(.message(.successor(Self.other)), at: now).isEmpty)
        #expect(core.isReady && core.relay == link, "the relay itself ends the connection")
        _ = core.handle(.connectionEnded(.closedByRelay("it is going down")), at: now)
        #expect(core.handle(.deadline, at: now + .seconds(1)).contains(.connect))
        #expect(core.relay.place == Self.other && core.relay.pin == link.pin && core.relay.token == link.token)
        return core
    }

    @Test func `a successor that refuses is none, and the link is not given up for it`() throws {
        for cause in [JoinRefusal.notInvited, .unsupportedVersion] {
            var core = try sentAway()
            _ = core.handle(.connected, at: now + .seconds(1))
            let actions = core.handle(.message(.joinRefused(.init(cause: cause))), at: now + .seconds(1))
            #expect(actions.contains { if case .tell(.state(.unavailable(_, .some))) = $0 { true } else { false } })
            for time in 2...3 {
                _ = core.handle(.deadline, at: now + .seconds(time))
                #expect(core.relay.place == Self.home)
                _ = core.handle(.connectionEnded(.unreachable("no answer")), at: now + .seconds(time))
            }
        }
    }

    @Test func `a named place that does not answer comes after what is announced meanwhile`() throws {
        let announced = RelayPlace("10.0.0.7:3")!
        for (wait, first) in [(Duration.seconds(1), Self.other), (.seconds(2), announced)] {
            var core = try sentAway()
            core.offersSuccession = true
            // The attempt at the named place began at one second.
            let actions = core.handle(.relayMoved([announced]), at: now + .seconds(1) + wait)
            #expect(actions.contains(.connect))
            #expect(core.relay.place == first, "after \(wait)")
        }
    }

    @Test func `a member that was removed learns so from the successor`() throws {
        var core = try sentAway()
        _ = core.handle(.connected, at: now + .seconds(1))
        let actions = core.handle(.message(.joinRefused(.init(cause: .revoked))), at: now + .seconds(1))
        #expect(actions.contains { if case .tell(.state(.unavailable(_, nil))) = $0 { true } else { false } })
    }

    @Test func `what has another key is no successor, and says nothing of the relay`() throws {
        var core = try sentAway()
        let actions = core.handle(.connectionEnded(.wrongRelayKey), at: now + .seconds(1))
        let isTold = actions.contains {
            if case .tell(.state(.unavailable(.wrongRelayKey, _))) = $0 { true } else { false }
        }
        #expect(!isTold)
        _ = core.handle(.deadline, at: now + .seconds(3))
        #expect(core.relay.place == Self.home)
    }

    // MARK: Over sockets

    @Test(.timeLimit(.minutes(1))) func `members go on at the relay that is named, and find it again there`()
        async throws
    {
        let keys = RelayTransportKeys.generate()
        let relay = try await TestRelay(keys: keys)
        let next = try await TestRelay(channel: relay.channel, keys: keys)
        // By another name, which a ticket of the first relay does not have.
        let port = try #require(await next.server.port)
        let place = try #require(RelayPlace("next.example:\(port)"))
        let resolve: RelayClient.Resolver = { _, port throws(QUICError) in
            try await SocketAddress.resolve("127.0.0.1", port: port)
        }
        let memory = ResumptionMemory()
        let alice = try await TestClient(
            "Alice", try await relay.invitation(), resumption: memory, resolve: resolve)
        try await alice.untilReady()
        let own = await alice.client.identity.pin
        let deadline = ContinuousClock.now + .seconds(10)
        while memory.state(of: try await relay.invitation(), for: own) == nil {
            try #require(ContinuousClock.now < deadline, "no ticket came")
            try await Task.sleep(for: .milliseconds(2))
        }
        let bob = try await TestClient("Bob", try await relay.invitation(), resolve: resolve)
        try await bob.untilReady()
        let (aliceStart, bobStart) = (alice.recorder.events.count, bob.recorder.events.count)
        await relay.server.drain(for: .seconds(20), to: place)
        #expect(await relay.server.port == nil)
        try await alice.untilReady(from: aliceStart)
        try await bob.untilReady(from: bobStart)
        // Alice is welcomed before her handshake is complete, and is a member after it.
        while await next.server.memberCount(of: next.channel.id) < 2 {
            try #require(ContinuousClock.now < deadline, "both are not members")
            try await Task.sleep(for: .milliseconds(2))
        }
        #expect(await next.server.memberCount(of: next.channel.id) == 2)
        #expect(await alice.client.quic?.connection.earlyData == .accepted)
        try await alice.talk(1, frames: 5)
        #expect(try await bob.heardEnd().1.received == 5)
        // It is started again at the same place, where they come back to.
        let start = alice.recorder.events.count
        await next.server.stop()
        let again = try await TestRelay(port: place.port, channel: relay.channel, keys: keys)
        try await alice.untilReady(from: start)
        await again.server.stop()
    }
}
