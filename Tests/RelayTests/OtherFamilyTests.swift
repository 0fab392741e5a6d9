// A machine that changes from a network of IPv6 to one of IPv4 and back, in the middle of what is being said.
import Cryptography
import QUIC
import Reactor
import RelayProtocol
import Synchronization
import Testing

@testable import RelayClient
@testable import RelayServer

@Suite(.timeLimit(.minutes(2))) struct OtherFamilyTests {
    /// A relay on every address, and a machine that is told which families it has a network of.
    private final class World: Sendable {
        let relay: TestRelay
        let six: SocketAddress
        let four: SocketAddress
        private let families = Mutex((four: true, six: true))
        private let named: Mutex<[SocketAddress]>
        private let lookUps = Mutex(0)

        init() async throws {
            relay = try await TestRelay { $0.listenAddress = "::" }
            let port = try #require(await relay.server.port)
            six = try #require(SocketAddress("::1", port: port))
            four = .loopback(port: port)
            named = Mutex([six, four])
        }

        var lookUpCount: Int { lookUps.withLock { $0 } }
        func name(_ addresses: [SocketAddress]) { named.withLock { $0 = addresses } }
        func have(four: Bool, six: Bool) { families.withLock { $0 = (four, six) } }

        /// As the kernel would say on such a network; any address of a family is reached by the default route.
        func route(_ address: SocketAddress) -> NetworkRoute? {
            let (four, six) = families.withLock { $0 }
            guard address.isIPv4 ? four : six else { return nil }
            let own = SocketAddress(address.isIPv4 ? "127.0.0.1" : "::1", port: 0) ?? .any()
            return NetworkRoute(source: own, interface: "lo")
        }

        func client(_ name: String) async throws -> TestClient {
            let invitation = try await relay.server.invitation(for: relay.channel.id, host: "relay.test")
            let client = try await TestClient(
                name, invitation,
                resolve: { [self] _, _ in
                    lookUps.withLock { $0 += 1 }
                    return named.withLock { $0 }
                }, route: { [self] in route($0) })
            try await client.untilReady()
            return client
        }
    }

    /// The network of `client` changes, and in the end its connection is at `address`.
    private func change(
        _ world: World, of client: TestClient, four: Bool, six: Bool, until address: SocketAddress
    ) async throws {
        world.have(four: four, six: six)
        await client.client.networkHas(.changed)
        for _ in 0..<2_000 {
            if await client.client.quic?.connection.remoteAddress == address { return }
            try await Task.sleep(for: .milliseconds(5))
        }
        throw TimedOut(description: "the connection did not come to \(address)")
    }

    private func readyCount(_ client: TestClient) -> Int {
        client.recorder.events.count { if case .state(.ready) = $0 { true } else { false } }
    }

    @Test(.enabled(if: NetworkRoute.toward(SocketAddress("::1", port: 9) ?? .any()) != nil))
    func `a burst goes on when the talker's network has another address family, there and back`() async throws {
        let world = try await World()
        let alice = try await world.client("Alice")
        let bob = try await TestClient.joined("Bob", world.relay)
        #expect(await alice.client.quic?.connection.remoteAddress == world.six)
        let talking = Task { try await alice.talk(1, frames: 150, spacing: .milliseconds(10)) }
        try await bob.recorder.wait("sound") { if case .frame = $0 { true } else { nil } }
        try await change(world, of: alice, four: true, six: false, until: world.four)
        try await change(world, of: alice, four: false, six: true, until: world.six)
        try await talking.value
        #expect(try await alice.transmissionEnd().0 == .completed)
        try await bob.heardEnd()
        #expect(bob.heard() == (0..<150).map { TestClient.payload(1, $0) })
        // And the relay's media come to where the client is now.
        let start = alice.recorder.events.count
        try await bob.talk(2, frames: 20)
        try await alice.heardEnd(from: start)
        #expect(alice.heard(from: start).count == 20)
        #expect(readyCount(alice) == 1 && world.lookUpCount == 1)
        await alice.client.leave()
        await world.relay.server.stop()
    }

    @Test(.enabled(if: NetworkRoute.toward(SocketAddress("::1", port: 9) ?? .any()) != nil))
    func `an address that the name has on the new network only is looked up and used`() async throws {
        let world = try await World()
        world.name([world.six])
        let alice = try await world.client("Alice")
        world.name([world.four])
        try await change(world, of: alice, four: true, six: false, until: world.four)
        #expect(world.lookUpCount == 2)
        #expect(readyCount(alice) == 1)
        await alice.client.leave()
        await world.relay.server.stop()
    }

    @Test func `addresses without a way take no attempt's time`() async throws {
        let world = try await World()
        let elsewhere = try #require(SocketAddress("2001:db8::1", port: world.four.port))
        world.name([elsewhere, world.four])
        world.have(four: true, six: false)
        let alice = try await world.client("Alice")
        #expect(world.lookUpCount == 1)
        #expect(await alice.client.quic?.address == world.four)
        await alice.client.leave()
        await world.relay.server.stop()
    }
}
