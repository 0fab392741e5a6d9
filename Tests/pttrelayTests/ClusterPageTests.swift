// The operator's page and the metrics of the relays of a cluster, with a real nats-server and real clients.
import Foundation
import FoundationNetworking
import RelayCluster
import RelayHTTP
import RelayServer
import Synchronization
import TestSupport
import Testing

@testable import pttrelay

extension ClusterServiceTests {
    /// The operator's endpoint of a relay, as a program sees it.
    final class OperatorPort: Sendable {
        private let running: Task<Void, any Error>
        private let port: UInt16
        private let token = OperatorToken()

        init(_ server: RelayServer, _ watch: ClusterWatch) async {
            let (ports, found) = AsyncStream.makeStream(of: UInt16.self)
            let endpoint = OperatorEndpoint(
                configuration: .init(listenPort: 0, token: token), version: "1",
                source: .init(server, cluster: .init(watch)), logger: quiet("page"), onListening: { found.yield($0) })
            running = Task { try await endpoint.run() }
            port = await ports.first { _ in true } ?? 0
        }

        func stop() { running.cancel() }

        func get(_ path: String) async throws -> Data {
            var request = URLRequest(url: try #require(URL(string: "http://127.0.0.1:\(port)\(path)")))
            request.setValue("Bearer \(token.text)", forHTTPHeaderField: "Authorization")
            return try await URLSession.shared.data(for: request).0
        }

        func status() async throws -> Page { try JSONDecoder().decode(Page.self, from: await get("/status.json")) }

        func metrics() async throws -> Set<String> {
            Set(String(decoding: try await get("/metrics"), as: UTF8.self).split(separator: "\n").map(String.init))
        }
    }

    /// What a page is given.
    struct Page: Decodable {
        struct Member: Decodable {
            var name: String
        }

        struct Channel: Decodable {
            var name: String
            var relay: String
            var members: [Member]
        }

        struct Told: Decodable {
            var members: Int
            var channels: Int
        }

        struct Relay: Decodable {
            var name: String
            var place: String
            var state: String
            var shares: Int
            var writes: Bool
            var isOwn: Bool
            var told: Told?
        }

        struct Cluster: Decodable {
            var name: String
            var relays: [Relay]
        }

        var channels: [Channel]
        var cluster: Cluster

        func members(of channel: String) -> [String] {
            channels.filter { $0.name == channel }.flatMap(\.members).map(\.name)
        }
    }

    @Test func `each page shows the channels of all relays, and names a relay that is missing`() async throws {
        let cluster = try await Cluster()
        var devices: [Device] = []
        for relay in cluster.relays {
            let device = try await Device(
                "On \(relay.host)", try await relay.link(to: try await cluster.channel(at: relay)))
            try await device.isReady()
            devices.append(device)
        }
        for (number, relay) in cluster.relays.enumerated() {
            var page = try await relay.page.status()
            try await Self.eventually("both relays have told") {
                page = try await relay.page.status()
                return page.cluster.relays.map(\.state) == ["told", "told"]
            }
            #expect(Set(page.channels.map(\.name)) == Set((0..<16).map { "Post \($0)" }) && page.channels.count == 16)
            for (other, name) in zip(cluster.relays, ["a", "b"]) {
                let channel = try await cluster.channel(at: other)
                #expect(page.channels.first { $0.name == channel }?.relay == name)
                #expect(page.members(of: channel) == ["On \(other.host)"])
            }
            #expect(page.cluster.name == "test")
            #expect(page.cluster.relays.map(\.name) == ["a", "b"])
            #expect(page.cluster.relays.map(\.place) == cluster.relays.map(\.place))
            #expect(page.cluster.relays.map(\.shares) == [32, 32])
            #expect(page.cluster.relays.map(\.isOwn) == [number == 0, number == 1])
            #expect(page.cluster.relays.map(\.writes) == cluster.relays.map { $0.node.writes })
            #expect(page.cluster.relays.compactMap(\.told?.members) == [1, 1])
            #expect(page.cluster.relays.compactMap(\.told?.channels).reduce(0, +) == 16)
            let metrics = try await relay.page.metrics()
            for line in [
                "pttrelay_cluster_relays_known 2", "pttrelay_cluster_relays 2", "pttrelay_cluster_shares 32",
                "pttrelay_cluster_shares_unserved 0",
                "pttrelay_cluster_writes_records \(relay.node.writes ? 1 : 0)",
            ] {
                #expect(metrics.contains(line), "\(line)")
            }
        }
        withExtendedLifetime(devices) {}
        // Its port is closed: the other one takes its channels.
        let (gone, left) = (cluster.relays[0], cluster.relays[1])
        gone.end.expect()
        await gone.server.stop()
        try await Self.eventually("it is named, and its channels are at the other relay") {
            let page = try await left.page.status()
            return page.cluster.relays.map(\.state) == ["away", "told"]
                && page.cluster.relays.map(\.shares) == [0, 64]
                && page.channels.map(\.relay) == Array(repeating: "b", count: 16)
        }
        await cluster.stop()
    }

    @Test func `relays that do not know the question, or answer nothing, are told apart`() async throws {
        let cluster = try await Cluster()
        let (asked, other) = (cluster.relays[0], cluster.relays[1])
        await other.node.onRequest { _ in
            (ClusterResponse.failed(ForwardedError(RelayStateError(description: "unknown"))).bytes, 0)
        }
        try await Self.eventually("it is of another version") {
            try await asked.page.status().cluster.relays.map(\.state) == ["told", "otherVersion"]
        }
        await other.node.onRequest { _ in
            try? await Task.sleep(for: .seconds(3))
            return ([], 0)
        }
        try await Self.eventually("it is named") {
            try await asked.page.status().cluster.relays.map(\.state) == ["told", "silent"]
        }
        // Nobody waits for it any more, which would take a second each time that it is asked.
        let time = try await attempts(3, until: { $0 < .milliseconds(900) }) {
            try await Task.sleep(for: .milliseconds(1_100))
            let began = ContinuousClock.now
            for _ in 0..<5 { #expect(try await asked.page.status().channels.count < 16) }
            return ContinuousClock.now - began
        }
        #expect(time < .milliseconds(900))
        await cluster.stop()
    }

    @Test func `however many pages are open, a relay is asked once in a second`() async throws {
        let cluster = try await Cluster()
        let (asked, other) = (cluster.relays[0], cluster.relays[1])
        let count = Atomic<Int>(0)
        let watch = other.watch
        await other.node.onRequest { request in
            guard case .look(let byteCount)? = ClusterRequest(bytes: request) else { return ([], 0) }
            count.add(1, ordering: .relaxed)
            return (ClusterResponse.look(await watch.own(byteCount: byteCount)).bytes, 0)
        }
        let deadline = ContinuousClock.now + .milliseconds(2_500)
        let looks = await withTaskGroup(of: Int.self) { group in
            for _ in 0..<8 {
                group.addTask {
                    var looks = 0
                    while ContinuousClock.now < deadline {
                        if await asked.watch.view().relays.count == 2 { looks += 1 }
                        try? await Task.sleep(for: .milliseconds(5))
                    }
                    return looks
                }
            }
            return await group.reduce(0, +)
        }
        #expect(looks > 50)
        #expect((2...3).contains(count.load(ordering: .relaxed)), "\(count.load(ordering: .relaxed)) questions")
        await cluster.stop()
    }
}
