// Links over TLS from a client to a relay, both as they are shipped, on loopback: where UDP is blocked, from the
// beginning or in the middle of a burst, and where it comes back.
import Cryptography
import MonotonicTime
import QUIC
import RelayProtocol
import TestSupport
import Testing
import Vocabulary
import WebSockets
import WebTestSupport

@testable import RelayClient
@testable import RelayServer

extension RelayClient {
    fileprivate var isUplinkIdle: Bool { core.uplink.isIdle }
}

@Suite(.serialized, .timeLimit(.minutes(3))) struct WebLinkEndToEndTests {
    private static func payloads(_ burst: Int, _ count: Int) -> [[UInt8]] {
        (0..<count).map { TestClient.payload(burst, $0) }
    }

    private static func sorted(_ payloads: [[UInt8]]) -> [[UInt8]] {
        payloads.sorted { $0.lexicographicallyPrecedes($1) }
    }

    /// A world that is stopped after the test.
    private func inWorld(udp isOpen: Bool = true, _ body: (WebWorld) async throws -> Void) async throws {
        let world = try await WebWorld(udp: isOpen)
        do { try await body(world) } catch {
            await world.stop()
            throw error
        }
        await world.stop()
    }

    @Test func `where UDP is blocked, two members talk to each other over TLS`() async throws {
        try await inWorld(udp: false) { world in
            let alice = try await world.client("Alice")
            let bob = try await world.client("Bob")
            try await world.until(alice, on: .tls)
            try await world.until(bob, on: .tls)
            #expect(await alice.client.path == .tls(proxy: nil, .noAnswerOverUDP))
            for (talker, listener, burst) in [(alice, bob, 1), (bob, alice, 2)] {
                try await talker.talk(burst, frames: 100)
                #expect(try await talker.transmissionEnd().0 == .completed)
                #expect(try await listener.heardEnd().1.lost == 0)
                let isWhole = listener.heard() == Self.payloads(burst, 100)
                #expect(isWhole)
            }
            #expect(await alice.client.roundTripTime != nil)
            #expect(await alice.client.counters.packetsRepaired == 0)
        }
    }

    @Test func `a member on QUIC and one on TLS hear each other`() async throws {
        try await inWorld { world in
            let alice = try await world.client("Alice", network: RelayNetwork(transport: .tls))
            let bob = try await world.client("Bob")
            try await world.until(alice, on: .tls)
            try await world.until(bob, on: .quic)
            #expect(await alice.client.path == .tls(proxy: nil, .configured))
            for (talker, listener, burst) in [(alice, bob, 1), (bob, alice, 2)] {
                try await talker.talk(burst, frames: 60)
                #expect(try await talker.transmissionEnd().0 == .completed)
                #expect(try await listener.heardEnd().1.lost == 0)
                let isWhole = listener.heard() == Self.payloads(burst, 60)
                #expect(isWhole)
            }
        }
    }

    @Test func `a member whose link is older learns of TLS from the relay`() async throws {
        try await inWorld { world in
            var link = try await world.link()
            link.web = nil
            let alice = try await TestClient("Alice", link, pathTimes: WebWorld.quick)
            try await world.until(alice, on: .quic)
            #expect(await alice.client.choice.hasAlternative)
            world.open(udp: false)
            try await alice.talk(1, frames: 200, spacing: .milliseconds(20))
            try await world.until(alice, on: .tls)
        }
    }

    @Test func `a member whose link is older finds TLS where UDP is blocked, after a start as well`() async throws {
        try await inWorld { world in
            let saved = SavedBytes()
            let identity = try Identity(generating: "Alice")
            var link = try await world.link()
            link.web = nil
            let before = try await TestClient(
                "Alice", link, identity: identity, resumption: ResumptionMemory { saved.bytes = $0 },
                pathTimes: WebWorld.quick)
            try await world.until(before, on: .quic)
            await before.client.leave()
            world.open(udp: false)
            let memory = ResumptionMemory(restoring: saved.bytes)
            let after = try await TestClient(
                "Alice", link, identity: identity, resumption: memory, pathTimes: WebWorld.quick)
            try await world.until(after, on: .tls)
        }
    }

    @Test func `a link on TLS moves to QUIC when UDP comes back, without a gap`() async throws {
        try await inWorld(udp: false) { world in
            let alice = try await world.client("Alice")
            try await world.until(alice, on: .tls)
            let states = alice.recorder.events.count
            world.open(udp: true)
            try await world.until(alice, on: .quic)
            let gaps = alice.recorder.events.dropFirst(states).filter { if case .state = $0 { true } else { false } }
            #expect(gaps.isEmpty, "the user is not told: \(gaps)")
            let bob = try await world.client("Bob")
            try await bob.untilReady()
            for (talker, listener, burst) in [(alice, bob, 1), (bob, alice, 2)] {
                try await talker.talk(burst, frames: 40)
                #expect(try await talker.transmissionEnd().0 == .completed)
                try await listener.heardEnd()
                let isWhole = listener.heard() == Self.payloads(burst, 40)
                #expect(isWhole)
            }
        }
    }

    @Test func `a link on TLS moves to the relay of the cluster that another one names`() async throws {
        try await inWorld(udp: false) { world in
            // The link's name leads to a relay that does not serve the channel.
            let other = try await TestRelay()
            let serving = try #require(RelayPlace(host: "127.0.0.1", port: world.udp.port))
            await other.server.setPlaces(
                ChannelPlaces(shares: Array(repeating: .elsewhere(serving), count: ChannelID.shareCount)))
            let way = try LossyPath(to: try await other.invitation().port, seed: 1)
            defer { way.stop() }
            way.blackOut(.toServer, true)
            var link = try await world.link()
            link.host = "relay.test"
            link.web = WebPlace("127.0.0.1:\(world.tcp.port)")
            let alice = try await TestClient(
                "Alice", link, resolve: { _, _ in [.loopback(port: way.port)] }, pathTimes: WebWorld.quick)
            try await world.until(alice, on: .tls)
            let states = alice.recorder.events.count
            world.open(udp: true)
            way.blackOut(.toServer, false)
            try await world.until(alice, on: .quic)
            let gaps = alice.recorder.events.dropFirst(states).filter { if case .state = $0 { true } else { false } }
            #expect(gaps.isEmpty, "the user is not told: \(gaps)")
            #expect(await alice.client.quic?.address.port == serving.port)
            let counters = try #require(await other.server.statistics?.counters)
            #expect(counters.joinsSentOn > 0)
            let bob = try await world.client("Bob")
            try await bob.untilReady()
            try await alice.talk(1, frames: 40)
            #expect(try await alice.transmissionEnd().0 == .completed)
            try await bob.heardEnd()
            let isWhole = bob.heard() == Self.payloads(1, 40)
            #expect(isWhole)
            await other.server.stop()
        }
    }

    @Test func `a link does not move while somebody talks`() async throws {
        try await inWorld(udp: false) { world in
            let alice = try await world.client("Alice")
            try await world.until(alice, on: .tls)
            let talking = Task { try await alice.talk(1, frames: 150, spacing: .milliseconds(20)) }
            try await Task.sleep(for: .milliseconds(200))
            world.open(udp: true)
            let bob = try await world.client("Bob")
            try await bob.untilReady()
            while await !alice.client.isUplinkIdle {
                #expect(await alice.client.path?.description == "TLS")
                try await Task.sleep(for: .milliseconds(20))
            }
            try await talking.value
            #expect(try await alice.transmissionEnd().1.sent == 150)
            try await world.until(alice, on: .quic)
        }
    }

    @Test func `when UDP is blocked in the middle of a burst, the burst goes on over TLS`() async throws {
        let isInTime = try await attempts(3, until: { $0 }) { try await blockUDPInBurst() }
        #expect(isInTime)
    }

    /// Whether the burst was on TLS before more was said than is held, 3 s of it. Then every word was heard.
    private func blockUDPInBurst() async throws -> Bool {
        var isInTime = false
        try await inWorld { world in
            let alice = try await world.client("Alice")
            let bob = try await world.client("Bob", network: RelayNetwork(transport: .tls))
            try await world.until(alice, on: .quic)
            try await world.until(bob, on: .tls)
            let talking = Task { try await alice.talk(1, frames: 350, spacing: .milliseconds(20), from: .now) }
            try await bob.recorder.wait("sound") { if case .frame = $0 { true } else { nil } }
            try await Task.sleep(for: .milliseconds(700))
            world.open(udp: false)
            let blockedAt = Instant.now
            try await world.until(alice, on: .tls)
            let gap = Instant.now - blockedAt
            print("on TLS \(Int(gap.milliseconds)) ms after UDP was blocked")
            try await talking.value
            isInTime = gap < .milliseconds(2_700)
            guard isInTime else { return }
            let (end, report, _) = try await alice.transmissionEnd()
            #expect(end == .completed && report.sent == 350 && report.erased == 0)
            try await bob.recorder.wait("the last frame") {
                if case .frame(let frame) = $0 { frame.payload == TestClient.payload(1, 349) ? true : nil } else { nil }
            }
            let heard = bob.heard()
            let isWhole = heard == Self.payloads(1, 350)
            #expect(isWhole, "every word once: \(heard.count)")
        }
        return isInTime
    }

    @Test func `when UDP is blocked while another member talks, listening goes on over TLS`() async throws {
        try await inWorld { world in
            let alice = try await world.client("Alice", network: RelayNetwork(transport: .tls))
            let bob = try await world.client("Bob")
            try await world.until(alice, on: .tls)
            try await world.until(bob, on: .quic)
            let talking = Task { try await alice.talk(1, frames: 400, spacing: .milliseconds(20), from: .now) }
            try await bob.recorder.wait("sound") { if case .frame = $0 { true } else { nil } }
            world.open(udp: false)
            let blockedAt = Instant.now
            try await world.until(bob, on: .tls)
            print("listening on TLS \(Int((Instant.now - blockedAt).milliseconds)) ms after UDP was blocked")
            try await talking.value
            try await bob.recorder.wait("the last frame") {
                if case .frame(let frame) = $0 { frame.payload == TestClient.payload(1, 399) ? true : nil } else { nil }
            }
            // What was fetched again came behind what followed it.
            let heard = bob.heard()
            let isWhole = Self.sorted(heard) == Self.sorted(Self.payloads(1, 400))
            #expect(isWhole, "every word once: \(heard.count)")
        }
    }

    @Test func `over a proxy that asks for a password, with it and without`() async throws {
        try await inWorld(udp: false) { world in
            let proxy = try await ScriptedProxy()
            let named = try HTTPProxy("http://ann:secret@127.0.0.1:\(proxy.port)")
            let alice = try await world.client("Alice", network: RelayNetwork(proxy: ProxyPolicy(proxy: named)))
            try await world.until(alice, on: .tls)
            #expect(await alice.client.path?.description == "TLS through proxy 127.0.0.1:\(proxy.port)")
            await proxy.stop()
            let strict = try await ScriptedProxy(answer: "HTTP/1.1 407 Proxy Authentication Required\r\n\r\n")
            let bob = try await world.client(
                "Bob",
                network: RelayNetwork(
                    transport: .tls,
                    proxy: ProxyPolicy(proxy: try HTTPProxy("127.0.0.1:\(strict.port)"))))
            let (error, _) = try await bob.recorder.wait("a refusal") {
                if case .state(.unavailable(let error, _)) = $0 { error } else { nil }
            }
            #expect("\(error)".contains("asks for a user and a password"), "\(error)")
            await strict.stop()
        }
    }

    @Test func `a path of TCP that passes nothing on any more is given up for QUIC`() async throws {
        try await inWorld { world in
            // Its UDP is blocked first, so that it begins on TLS.
            world.open(udp: false)
            var slow = WebWorld.quick
            slow.firstPause = .seconds(60)
            let alice = try await world.client("Alice", times: slow)
            try await world.until(alice, on: .tls)
            let talking = Task { try await alice.talk(1, frames: 300, spacing: .milliseconds(20), from: .now) }
            try await Task.sleep(for: .milliseconds(500))
            world.open(udp: true)
            world.tcp.freeze(true)
            let frozenAt = Instant.now
            try await world.until(alice, on: .quic)
            let gap = Int((Instant.now - frozenAt).milliseconds)
            try await talking.value
            let (end, report, _) = try await alice.transmissionEnd()
            print("moved from a dead TCP path: \(end), sent \(report.sent), erased \(report.erased)")
            // Of a longer gap less is held.
            let erasedMaximum = 50 + max(0, gap - 2_700) / 20
            #expect(end == .completed && report.sent + report.erased == 300 && report.erased < erasedMaximum)
            world.tcp.freeze(false)
        }
    }

    @Test func `another relay at the place for TLS is not believed`() async throws {
        try await inWorld(udp: false) { world in
            var link = try await world.link()
            link.pin = try Identity(generating: "other").pin
            let alice = try await TestClient("Alice", link, network: RelayNetwork(transport: .tls))
            try await alice.recorder.wait("a refusal") {
                if case .state(.unavailable(.wrongRelayKey, _)) = $0 { true } else { nil }
            }
        }
    }
}
