// A relay that takes both kinds of connection, with a bad path of UDP and one of TCP before it.
import Cryptography
import MonotonicTime
import RelayProtocol
import RelayWeb
import TestSupport
import WebSockets
import WebTestSupport

@testable import RelayClient
@testable import RelayServer

extension RelayClient {
    fileprivate var pathAndReadiness: (RelayPath?, Bool) { (path, core.isReady) }
}

/// The relay, and the paths to it.
final class WebWorld: Sendable {
    let relay: TestRelay
    let udp: LossyPath
    let tcp: ScriptedProxy
    private let serving: Task<Void, any Error>

    /// Times that a test can wait for.
    static let quick = PathChoiceStateMachine.Times(
        headStart: .milliseconds(300), firstPause: .milliseconds(700), longestPause: .seconds(3),
        tryTimeout: .seconds(2),
        standingTimeout: .seconds(2), changeInterval: .milliseconds(100))

    init(seed: UInt64 = 1, udp isOpen: Bool = true) async throws {
        let certificate = try Identity(generating: "relay.example")
        let endpoint = try WebEndpoint(
            configuration: WebEndpointConfiguration(
                listenAddress: "127.0.0.1", listenPort: 0,
                certificate: (certificate.certificatePEM, certificate.pem)), identity: TestRelay.identity,
            logger: quietLogger("web"))
        let (ports, listening) = AsyncStream.makeStream(of: UInt16.self)
        let running = endpoint.listening { port in listening.yield(port) }
        serving = Task { try await running.run() }
        var port: UInt16 = 0
        for await found in ports {
            port = found
            break
        }
        let tcp = try await ScriptedProxy(target: port)
        self.tcp = tcp
        relay = try await TestRelay {
            $0.web = endpoint.worker
            $0.webPlace = WebPlace(port: tcp.port)
        }
        udp = try LossyPath(to: try await relay.invitation().port, seed: seed)
        if !isOpen { open(udp: false) }
    }

    /// The link through both paths.
    func link() async throws -> InvitationLink {
        var link = try await relay.invitation()
        link.port = udp.port
        link.web = WebPlace(port: tcp.port)
        return link
    }

    func open(udp isOpen: Bool) { for way in [LossyPath.Direction.toServer, .toClient] { udp.blackOut(way, !isOpen) } }

    func client(
        _ name: String, network: RelayNetwork = .automatic, identity: Identity? = nil,
        times: PathChoiceStateMachine.Times = quick
    ) async throws -> TestClient {
        try await TestClient(name, try await link(), identity: identity, network: network, pathTimes: times)
    }

    /// Waits until the client's link is on that path.
    func until(_ client: TestClient, on kind: LinkKind, within: Duration = .seconds(20)) async throws {
        let deadline = ContinuousClock.now + within
        while ContinuousClock.now < deadline {
            let (path, isReady) = await client.client.pathAndReadiness
            switch (path, kind) {
            case (.quic?, .quic) where isReady: return
            case (.tls?, .tls) where isReady: return
            default: try await Task.sleep(for: .milliseconds(5))
            }
        }
        throw TimedOut(description: "not on \(kind): \(client.recorder.events.suffix(12))")
    }

    func stop() async {
        await relay.server.stop()
        serving.cancel()
        udp.stop()
        await tcp.stop()
    }
}
