// A cluster, put together as `pttrelay run` does, with a real nats-server and real clients: where a client is sent, who
// enrols it, and what a push or a command to any relay does.
import Cryptography
import Glibc
import NATS
import RelayClient
import RelayCluster
import RelayHTTP
import RelayProtocol
import RelayServer
import RelayStore
import RelayWeb
import Synchronization
import TestSupport
import Testing
import Vocabulary

@testable import pttrelay

@Suite(.serialized, .timeLimit(.minutes(3))) struct ClusterServiceTests {
    /// Whether a node may end.
    final class End: Sendable {
        private let expected = Atomic<Bool>(false)
        var isExpected: Bool { expected.load(ordering: .relaxed) }
        func expect() { expected.store(true, ordering: .relaxed) }
    }

    /// One relay of the cluster.
    final class Relay: Sendable {
        let folder: StateFolder
        let host: String
        let port: UInt16
        private let links: Task<Void, any Error>
        let server: RelayServer
        let registrar: Registrar
        let node: ClusterNode
        let pin: PublicKeyPin
        let end: End
        let watch: ClusterWatch
        let page: OperatorPort

        init(_ folder: StateFolder, _ configuration: ClusterConfiguration, host: String, port: UInt16) async throws {
            (self.folder, self.host, self.port) = (folder, host, port)
            let state = try RelayState.open(folder.path, isClusterNode: true, logger: quiet("state"))
            pin = state.identity.pin
            let registrar = try Registrar(state: state, logger: quiet("members"))
            self.registrar = registrar
            var timers = SharesStateMachine.Timers()
            (timers.balance, timers.sharesAtOnce, timers.poll) = (.milliseconds(20), 8, .milliseconds(50))
            let end = End()
            self.end = end
            let address = try #require(configuration.web.flatMap { WebLinkAddress($0) })
            let certificate = try Identity(generating: "relay.example")
            let web = try WebEndpoint(
                configuration: WebEndpointConfiguration(
                    listenAddress: host, listenPort: address.place.port,
                    certificate: (certificate.certificatePEM, certificate.pem)), identity: state.identity,
                logger: quiet("web"))
            links = Task { try await web.run() }
            node = try ClusterNode(
                configuration, store: state.store, relay: try ClusterIdentity(state.identity), version: "1",
                timers: timers, logger: quiet("cluster"),
                onEnd: { if !end.isExpected { Issue.record("ended: \($0)") } })
            let shares = await node.serve()
            var server = RelayServerConfiguration(
                listenAddress: host, listenPort: port, identity: state.identity, channels: [],
                transportKeys: try .shared(by: state.identity, at: 0))
            server.places = ChannelPlaces(shares: Array(repeating: .nowhere, count: ChannelID.shareCount))
            server.roster = RelayRoster(memberships: [:])
            server.acceptsPushes = true
            server.limits.pushGraceTime = .zero
            server.web = web.worker
            server.enrol = { registrar.enrol($0, $1) }
            self.server = try RelayServer(configuration: server, logger: quiet("relay"))
            await registrar.connect(self.server)
            try await self.server.start()
            let place = try #require(RelayPlace(configuration.place))
            watch = ClusterWatch(
                try #require(await node.lookout()), self.server, passages: { web.passedOn })
            page = await OperatorPort(self.server, watch)
            await registrar.join(
                ClusterPart(
                    node: node, shares: shares, place: place, fail: { Issue.record($0) },
                    linkPlaces: { web.setPlaces($0) }, watch: watch), self.server, host: host, port: port)
        }

        var place: String { "\(host):\(port)" }

        func stop() async {
            end.expect()
            await server.stop()
            links.cancel()
            page.stop()
            await registrar.disconnect()
        }

        var owned: Set<Int> { get async { await registrar.part?.owned ?? [] } }

        func channel(_ name: String) async throws -> AdministrationResponse.ChannelLine {
            guard case .channel(let line) = try await registrar.perform(.channel(.named(name))) else {
                throw RelayStateError(description: "no channel")
            }
            return line
        }

        func link(to name: String) async throws -> InvitationLink {
            let answer = try await registrar.perform(.invite(channel: .named(name), terms: nil, key: nil))
            guard case .invitation(let invitation) = answer else { throw RelayStateError(description: "\(answer)") }
            return try InvitationLink(invitation.link)
        }
    }

    struct Cluster {
        let nats: NATSServer
        let relays: [Relay]
        /// Where both take links over TLS.
        let webPort: UInt16

        init() async throws {
            nats = try NATSServer()
            var relays: [Relay] = []
            webPort = try freePort()
            for (name, host) in [("a", "127.0.0.1"), ("b", "127.0.0.2")] {
                let (folder, port) = (try StateFolder(), try freeDatagramPort())
                var configuration = ClusterConfiguration(
                    name: "test", node: name, nats: NATSOptions(servers: [nats.url], name: name),
                    place: "\(host):\(port)", replicas: 1, logBytesMaximum: 16 << 20)
                configuration.web = "wss://\(host):\(webPort)"
                if let first = relays.first {
                    #expect(system("cp \(first.folder.path)/identity.pem \(folder.path)/") == 0)
                } else {
                    let state = try RelayState.open(folder.path, logger: quiet("state"))
                    for number in 0..<16 {
                        _ = try state.store.addChannel(
                            try #require(DisplayName("Post \(number)")), isAdded: true, isServed: true, now: 1)
                    }
                    _ = try ClusterAdministration(configuration).importRecords(
                        of: state.store, as: try ClusterIdentity(state.identity))
                }
                relays.append(try await Relay(folder, configuration, host: host, port: port))
            }
            self.relays = relays
            try await eventually("both serve as many shares") {
                let counts = await (relays[0].owned.count, relays[1].owned.count)
                return counts == (32, 32)
            }
        }

        /// The name of a channel that this relay serves.
        func channel(at relay: Relay) async throws -> String {
            for number in 0..<16 where try await relay.channel("Post \(number)").servedAt == relay.place {
                return "Post \(number)"
            }
            throw RelayStateError(description: "it serves none of 16 channels")
        }

        /// Afterwards there is no nats-server, and nodes end.
        func stop() async {
            for relay in relays { await relay.stop() }
        }
    }

    static func eventually(_ what: String, _ condition: () async throws -> Bool) async throws {
        let deadline = ContinuousClock.now + .seconds(20)
        while try await !condition() {
            try #require(ContinuousClock.now < deadline, "\(what)")
            try await Task.sleep(for: .milliseconds(10))
        }
    }

    @Test func `a client is sent to the relay that serves its channel, and each relay enrols`() async throws {
        let cluster = try await Cluster()
        for (relay, other) in [(cluster.relays[0], cluster.relays[1]), (cluster.relays[1], cluster.relays[0])] {
            let name = try await cluster.channel(at: relay)
            // The link is of the relay that writes the records. Here it names the one that does not serve the channel.
            let made = try await relay.link(to: name)
            let link = try InvitationLink(
                host: other.host, port: other.port, channelName: made.channelName, channel: made.channel,
                token: made.token, pin: made.pin)
            let device = try await Device("Ada", link)
            try await device.isReady()
            let served = try await relay.channel(name)
            #expect(served.connected == 1 && served.servedAt == relay.place)
            let seen = try await other.channel(name)
            #expect(seen.connected == 1 && seen.servedAt == relay.place, "the other relay asks it")
            try await Self.eventually("both relays have the member") {
                let members = try await (relay.channel(name).members, other.channel(name).members)
                return members == (1, 1)
            }
            // A link whose secret opens nothing is refused for good, whoever is asked.
            let wrong = try InvitationLink(
                host: relay.host, port: relay.port, channelName: link.channelName, channel: link.channel,
                token: InvitationToken(), pin: relay.pin)
            #expect(try await Device("Eve", wrong).refusal().contains("invitation"))
            let removed = try await other.registrar.perform(
                .revoke(channel: .named(name), member: device.id.description, keepsInvitation: true))
            guard case .removed = removed else {
                Issue.record("\(removed)")
                continue
            }
            #expect(try await device.refusal().contains("removed"))
        }
        await cluster.stop()
    }

    @Test func `a link over TLS leads to the relay that serves the channel, by either way`() async throws {
        let cluster = try await Cluster()
        for (relay, other) in [(cluster.relays[0], cluster.relays[1]), (cluster.relays[1], cluster.relays[0])] {
            let name = try await cluster.channel(at: relay)
            var link = try await relay.link(to: name)
            (link.host, link.port) = (other.host, other.port)
            // A place without a host is at the relay that the client is sent to.
            link.web = WebPlace("\(cluster.webPort)")
            let follows = try await Device("Ada", link, overTLS: true)
            try await follows.isReady()
            #expect(try await relay.channel(name).connected == 1)
            // One with a host is where it is: the relay there passes the link on.
            link.web = WebPlace("\(other.host):\(cluster.webPort)")
            let stays = try await Device("Bob", link, overTLS: true)
            try await stays.isReady()
            #expect(try await relay.channel(name).connected == 2)
            #expect(await relay.registrar.ownPresence(of: [link.channel], .count)[link.channel]?.count == 2)
            #expect(
                try await other.page.metrics().isSuperset(of: [
                    #"pttrelay_web_passages{direction="to"} 1"#,
                    #"pttrelay_web_passages_begun_total{direction="to"} 1"#,
                    "pttrelay_web_passages_failed_total 0",
                ]))
            #expect(
                try await relay.page.metrics().isSuperset(of: [
                    #"pttrelay_web_passages{direction="from"} 1"#,
                    #"pttrelay_web_passages_begun_total{direction="from"} 1"#,
                ]))
            // When its relay goes, the other one serves the channel.
            if relay.host == cluster.relays[1].host {
                relay.end.expect()
                _ = await relay.node.release()
                await relay.stop()
                try await Self.eventually("both are back") {
                    (stays.readyCount, follows.readyCount) == (2, 2)
                }
                #expect(try await other.channel(name).connected == 2)
            }
        }
        await cluster.stop()
    }

    @Test func `who is connected is known at each relay`() async throws {
        let cluster = try await Cluster()
        let (relay, other) = (cluster.relays[0], cluster.relays[1])
        let name = try await cluster.channel(at: relay)
        let (link, identity) = (try await relay.link(to: name), try Identity(generating: "ada"))
        let before = try await Device("Ada", link, identity: identity)
        try await before.isReady()
        await before.client.leave()
        // She has another name now.
        let device = try await Device("Bea", link, identity: identity)
        try await device.isReady()
        try await Self.eventually("both relays have the member") {
            try await (relay.channel(name).members, other.channel(name).members) == (1, 1)
        }
        for asked in [relay, other] {
            for text in ["Ada", "Bea", device.id.description, String(device.id.description.prefix(6))] {
                guard
                    case .member(let line) = try await asked.registrar.perform(
                        .member(channel: .named(name), member: text))
                else { continue }
                #expect(line.name == "Ada" && line.nameNow == "Bea" && line.isConnected == true, "\(text)")
            }
            guard
                case .members(let lines, nil) = try await asked.registrar.perform(
                    .members(channel: .named(name), after: nil))
            else { continue }
            #expect(lines.map(\.nameNow) == ["Bea"])
            guard case .status(let status) = try await asked.registrar.perform(.status) else { continue }
            #expect(status.members == 1 && status.channels == 16 && status.isPartial == false)
        }
        // A change by the name that she has now, at the relay that does not serve the channel.
        let change = try await other.registrar.perform(
            .changeMember(channel: .named(name), member: "Bea", MemberChange(priority: 7)))
        guard case .member(let changed) = change else {
            Issue.record("\(change)")
            return
        }
        #expect(changed.priority == 7 && changed.nameNow == "Bea")
        // Without the other relay what is on it is not known.
        relay.end.expect()
        await relay.server.stop()
        guard case .status(let status) = try await other.registrar.perform(.status) else { return }
        #expect(status.isPartial == true && status.members == 0)
        await cluster.stop()
    }

    @Test func `a change at one relay is there at once, and at the other one soon`() async throws {
        let cluster = try await Cluster()
        for (number, relay) in cluster.relays.enumerated() {
            let other = cluster.relays[1 - number]
            let added = try await relay.registrar.perform(
                .addChannel(name: "New \(number)", ChannelChange(), isEndToEnd: false))
            guard case .added(_, isNew: true) = added else {
                Issue.record("\(added)")
                continue
            }
            #expect(try await relay.channel("New \(number)").isServed)
            try await Self.eventually("one of both serves it") {
                guard let line = try? await other.channel("New \(number)") else { return false }
                let own = try await relay.channel("New \(number)")
                return line.connected == 0 && own.connected == 0 && line.servedAt == own.servedAt
            }
            _ = try await other.registrar.perform(
                .changeChannel(.named("New \(number)"), ChannelChange(name: "Other \(number)")))
            #expect(try await other.channel("Other \(number)").isServed)
            try await Self.eventually("it has its name") { (try? await relay.channel("Other \(number)")) != nil }
            _ = try await relay.registrar.perform(.removeChannel(.named("Other \(number)")))
            try await Self.eventually("it is gone") { (try? await other.channel("Other \(number)")) == nil }
            // Why not is told as by the relay that writes the records.
            do {
                _ = try await relay.registrar.perform(.removeChannel(.named("Other \(number)")))
                Issue.record("it was removed twice")
            } catch {
                #expect(APIProblem(error).status == 404 && "\(error)".contains("Other \(number)"), "\(error)")
            }
        }
        await cluster.stop()
    }

    @Test func `a push to any relay reaches the one that has the token`() async throws {
        let cluster = try await Cluster()
        let topic = try #require(PushTopic(application: "org.example.radio"))
        for (relay, other) in [(cluster.relays[0], cluster.relays[1]), (cluster.relays[1], cluster.relays[0])] {
            let device = try await Device("Cab", try await relay.link(to: try await cluster.channel(at: relay)))
            let events = Events()
            await device.client.setPushHandler { events.add($0) }
            try await device.isReady()
            let token = try #require(PushToken(SecureRandom.bytes(32)))
            await device.client.register(token: token, topic: topic)
            try await Self.eventually("the token is registered") { events.all.contains(.registered(token)) }
            let request = try #require(
                PushRequest(token: token, topic: topic, payload: Array("{}".utf8), priority: 10, lifetime: .zero))
            let verdict = await other.registrar.push(request, other.server, other.node)
            #expect(verdict == .accepted(.sent))
            try await Self.eventually("the push has come") {
                events.all.contains { if case .push(let push) = $0 { push.payload == request.payload } else { false } }
            }
            let unknown = try #require(PushToken(SecureRandom.bytes(32)))
            let stranger = try #require(
                PushRequest(token: unknown, topic: topic, payload: Array("{}".utf8), priority: 10, lifetime: .zero))
            #expect(
                await other.registrar.push(stranger, other.server, other.node) == .unavailable, "a relay has just come")
        }
        await cluster.stop()
    }

    private final class Events: Sendable {
        private let events = Mutex<[PushLinkEvent]>([])
        var all: [PushLinkEvent] { events.withLock { $0 } }
        func add(_ event: PushLinkEvent) { events.withLock { $0.append(event) } }
    }
}
