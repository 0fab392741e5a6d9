// A machine that comes to another network while the relay is looked for, over either kind of connection.
import Cryptography
import Glibc
import QUIC
import RelayProtocol
import Synchronization
import Testing
import Vocabulary
import WebSockets

@testable import RelayClient

@Suite(.timeLimit(.minutes(1))) struct NetworkChangeInAttemptTests {
    /// A WebSocket that never opens.
    private final class SilentWebSocket: WebSocket {
        var hasRoom: Bool { false }
        func send(_ message: [UInt8]) {}
        func close(code: UInt16, reason: String) {}
    }

    /// Networks on which nobody answers, and a name server that may not answer on the first of them.
    private final class DeadNetworks: Sendable {
        private struct State {
            var network = 1
            var (lookUps, openings) = (0, 0)
        }

        private let socket: Int32
        private let port: UInt16
        private let answersOnFirst: Bool
        private let state = Mutex(State())

        init(answersOnFirst: Bool) throws {
            (socket, port) = try TestNetwork.socket()
            self.answersOnFirst = answersOnFirst
        }

        deinit { close(socket) }

        var lookUps: Int { state.withLock { $0.lookUps } }
        var openings: Int { state.withLock { $0.openings } }
        func change() { state.withLock { $0.network += 1 } }

        private func resolve() async -> [SocketAddress] {
            let (network, number) = state.withLock { state in
                state.lookUps += 1
                return (state.network, state.lookUps)
            }
            guard network == 1, !answersOnFirst else { return [.loopback(port: port)] }
            // The first network's name server is heard when nobody waits for it any more.
            while state.withLock({ $0.network == 1 || $0.lookUps == number }) {
                try? await Task.sleep(for: .milliseconds(5))
            }
            return [.loopback(port: port)]
        }

        private func route() -> NetworkRoute? {
            let number = state.withLock { $0.network }
            return SocketAddress("198.51.100.\(number)", port: 0).map { NetworkRoute(source: $0, interface: "net") }
        }

        func client(hasTLS: Bool) async throws -> TestClient {
            let link = try InvitationLink(
                host: "relay.test", port: port, channelName: DisplayName("c")!, channel: ChannelID(),
                token: InvitationToken(), pin: try Identity(generating: "relay").pin,
                web: hasTLS ? WebPlace(port: 1) : nil)
            return try await TestClient(
                "Ann", link,
                resolve: { [self] _, _ in await resolve() }, route: { [self] _ in route() },
                openWebSocket: { [self] _, _, _ in
                    state.withLock { $0.openings += 1 }
                    return SilentWebSocket()
                },
                pathTimes: .init(headStart: .milliseconds(1)))
        }
    }

    private func until(_ what: String, _ condition: () async -> Bool) async throws {
        let deadline = ContinuousClock.now + .seconds(20)
        while await !condition() {
            guard ContinuousClock.now < deadline else { throw TimedOut(description: "\(what) did not happen") }
            try await Task.sleep(for: .milliseconds(5))
        }
    }

    @Test(arguments: [true, false], [true, false])
    func `an attempt begins anew with all that it has begun, also while the name is looked up`(
        hasAddress: Bool, hasTLS: Bool
    ) async throws {
        let networks = try DeadNetworks(answersOnFirst: hasAddress)
        let client = try await networks.client(hasTLS: hasTLS)
        try await until("the attempt") {
            let isBegun = await client.client.quic != nil
            return networks.lookUps > 0 && isBegun == hasAddress && networks.openings >= (hasTLS ? 1 : 0)
        }
        let (lookUps, openings) = (networks.lookUps, networks.openings)
        networks.change()
        await client.client.networkHas(.changed)
        let (error, _) = try await client.recorder.wait("the end of the attempt", within: .seconds(20)) {
            if case .state(.unavailable(let error, _)) = $0 { error } else { nil }
        }
        #expect(error == .lost("the network has changed"), "not the end of its time")
        try await until("the next attempt") {
            networks.lookUps > lookUps && networks.openings >= openings + (hasTLS ? 1 : 0)
        }
        await client.client.leave()
    }
}
