// Relays whose name has several addresses.
import Cryptography
import QUIC
import Reactor
import RelayProtocol
import Synchronization
import Testing

@testable import RelayClient
@testable import RelayServer

@Suite(.timeLimit(.minutes(2))) struct AddressTests {
    @Test func `attempts take turns until one reaches the relay, and its address is kept`() throws {
        let addresses = try (1...3).map { try #require(SocketAddress("127.0.0.\($0)", port: 1)) }
        var turns = AddressTurns()
        #expect(turns.next(of: addresses) == addresses[0])
        #expect(turns.next(of: addresses) == addresses[1])
        turns.succeeded()
        #expect(turns.next(of: addresses) == addresses[1])
        #expect(turns.next(of: addresses) == addresses[2])
        #expect(turns.next(of: addresses) == addresses[0])
        #expect(turns.next(of: []) == nil)
        _ = turns.next(of: addresses)
        _ = turns.next(of: addresses)
        #expect(turns.next(of: [addresses[0]]) == addresses[0])
    }

    @Test func `a name whose first address is not the relay's is joined by the second`() async throws {
        let relay = try await TestRelay()
        let port = try #require(await relay.server.port)
        let stranger = try await Stranger()
        let name = try await relay.server.invitation(for: relay.channel.id, host: "relay.test")
        let asked = Mutex(0)
        let client = try await TestClient("Alice", name) { host, _ in
            asked.withLock { $0 += 1 }
            return host == "relay.test" ? [.loopback(port: stranger.port), .loopback(port: port)] : []
        }
        try await client.untilReady()
        #expect(asked.withLock { $0 } == 2)
        await client.client.leave()
        await relay.server.stop()
        try await stranger.stop()
    }

    @Test func `a name without an address is an error, and is asked for again`() async throws {
        let relay = try await TestRelay()
        let name = try await relay.server.invitation(for: relay.channel.id, host: "relay.test")
        let client = try await TestClient("Alice", name) { _, _ in [] }
        var start = 0
        for _ in 0..<2 {
            // Where much runs beside it, looking up may take longer than an attempt may.
            let (_, next) = try await client.recorder.wait("the failure", from: start, within: .seconds(50)) {
                guard case .state(.unavailable(.unreachable("'relay.test' has no address"), .some)) = $0 else {
                    return Optional<Bool>.none
                }
                return true
            }
            start = next
        }
        await client.client.leave()
        await relay.server.stop()
    }
}

/// A QUIC server that speaks something else.
private final class Stranger: @unchecked Sendable {
    let loop: EventLoop
    let port: UInt16
    private let endpoint: QUICEndpoint

    init() async throws {
        let loop = try EventLoop(name: "stranger")
        self.loop = loop
        let identity = try Identity(generating: "stranger")
        endpoint = try await loop.run {
            try QUICEndpoint(
                loop: loop, bind: .loopback(),
                configuration: QUICConfiguration(
                    applicationProtocol: "other/1",
                    identity: QUICIdentity(
                        certificate: identity.certificateDER, privateKey: identity.privateKeyDER, encoding: .der),
                    server: QUICServerOptions(keys: .generate())),
                logger: quietLogger("stranger"))
        }
        let endpoint = endpoint
        port = try await loop.run { endpoint.localAddress.port }
    }

    func stop() async throws {
        let endpoint = endpoint
        try await loop.run { endpoint.close() }
        loop.stop()
    }
}
