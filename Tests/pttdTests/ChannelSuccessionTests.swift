// The part of a member in the succession of hosts, where a network by Bluetooth leads to the host.
import Cryptography
import Logging
import MonotonicTime
import Nearby
import Reactor
import RelayClient
import RelayProtocol
import RelayServer
import Testing

@testable import pttd

@Suite struct ChannelSuccessionTests {
    private let created: HostedChannel
    private let link: InvitationLink
    /// What the channel's host tells.
    private let told: ServerMessage.Succession
    private let identity: Identity

    init() throws {
        created = try HostedChannel(
            named: try #require(DisplayName("Crane")), by: try #require(DisplayName("Anna")), admission: .open)
        link = try InvitationLink(
            host: "fe80::1%bnep3", port: 5_000, channelName: created.name, channel: created.id, token: created.token,
            pin: created.identity.pin, mediaKey: created.mediaKey)
        identity = try Identity(generating: "Ben")
        told = try #require(created.configuration(of: MemberID(identity.pin)).succession)
    }

    /// Runs `body` with a succession on its loop, where no timer fires meanwhile.
    private func onLoop<Value: Sendable>(
        kept: HostedChannel?,
        _ body: @escaping @Sendable (ChannelSuccession, () -> [SuccessionStateMachine.Action]) throws -> Value
    ) async throws -> Value {
        let loop = try EventLoop(name: "test")
        defer { loop.stop() }
        let client = RelayClient(
            invitation: link, identity: identity, displayName: try #require(DisplayName("Ben")), openWebSocket: nil,
            loop: loop, logger: Logger(label: "test") { _ in SwiftLogNoOpLogHandler() })
        return try await loop.run { [link] in
            var actions: [SuccessionStateMachine.Action] = []
            let succession = ChannelSuccession(client, to: link, secrets: kept) { actions.append($0) }
            defer { succession.end() }
            return try body(succession) { actions }
        }
    }

    @Test(arguments: [false, true]) func `over Bluetooth the next host takes its turn as soon as elsewhere`(
        isAnnounced: Bool
    ) async throws {
        let secrets = try #require(HostedChannel(link, told))
        #expect(secrets.host == created.host)
        // A restart forgets which host it was.
        let kept = try #require(HostedChannel(NearbyRecord.Hosted(secrets)))
        let wait = try await onLoop(kept: kept) { succession, _ in
            succession.reached(over: "bnep0")
            succession.handle(.linkReady)
            succession.told(secrets, turn: 0, isOwn: false)
            succession.handle(.linkLost(isAnnounced: isAnnounced))
            let now = Instant.now
            return try #require(succession.machine.nextDeadline) - now
        }
        #expect(wait <= (isAnnounced ? .zero : SuccessionStateMachine.returnTimeout))
    }

    @Test func `a host that is reached by Bluetooth again is checked by the next one`() async throws {
        let first = try #require(HostedChannel(link, told))
        var own = first.withFreshHost
        own.generation = 1
        let actions = try await onLoop(kept: nil) { [own] succession, actions in
            succession.handle(.linkReady)
            succession.told(first, turn: 0, isOwn: false)
            succession.handle(.linkLost(isAnnounced: true))
            succession.handle(.deadline)
            succession.handle(.served(own.host))
            succession.handle(.linkReady)
            succession.told(own, turn: nil, isOwn: true)
            succession.reached(over: "bnep0")
            return actions()
        }
        let place = try #require(RelayPlace(host: "fe80::1%bnep0", port: 5_000))
        #expect(actions == [.serve(generation: 1), .check(first.host, [place])])
    }

    @Test func `what is announced is seen along with what Bluetooth leads to`() async throws {
        let first = try #require(HostedChannel(link, told))
        let announced = try #require(RelayPlace(host: "10.0.0.2", port: 5_000))
        let other = NearbyHostSighting(host: HostID(), generation: 0, places: [announced])
        let actions = try await onLoop(kept: nil) { succession, actions in
            succession.handle(.linkReady)
            succession.told(first, turn: 0, isOwn: false)
            succession.seen([other])
            succession.reached(over: "bnep0")
            succession.handle(.linkLost(isAnnounced: false))
            return actions()
        }
        let place = try #require(RelayPlace(host: "fe80::1%bnep0", port: 5_000))
        #expect(actions.last == .reach([announced, place]))
    }
}
