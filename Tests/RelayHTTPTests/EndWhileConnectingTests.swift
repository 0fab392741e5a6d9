// An endpoint that ends while clients connect: no connection may be left between being accepted and being served.
import Glibc
import ServiceLifecycle
import Synchronization
import Testing

@testable import RelayHTTP

/// Tasks that connect, one connection after the other, until they are told to stop.
private final class Crowd: Sendable {
    private let isOver = Mutex(false)
    private let connected = Mutex(0)

    var count: Int { connected.withLock { $0 } }

    func start(_ count: Int, to port: UInt16) -> [Task<Void, Never>] {
        (0..<count).map { _ in
            Task.detached {
                while !self.isOver.withLock({ $0 }) {
                    let socket = Glibc.socket(AF_INET, Int32(SOCK_STREAM.rawValue) | Int32(SOCK_NONBLOCK.rawValue), 0)
                    guard socket >= 0 else { continue }
                    var address = sockaddr_in()
                    address.sin_family = sa_family_t(AF_INET)
                    address.sin_port = port.bigEndian
                    address.sin_addr.s_addr = UInt32(0x7F00_0001).bigEndian
                    _ = withUnsafeBytes(of: &address) {
                        connect(socket, $0.baseAddress!.assumingMemoryBound(to: sockaddr.self), socklen_t($0.count))
                    }
                    self.connected.withLock { $0 += 1 }
                    close(socket)
                    await Task.yield()
                }
            }
        }
    }

    func stop() { isOver.withLock { $0 = true } }
}

@Suite struct EndWhileConnectingTests {
    /// A connection that is accepted and never served ended the program.
    @Test(.timeLimit(.minutes(1)), arguments: [false, true])
    func `an endpoint that ends while clients connect serves or closes each`(isGraceful: Bool) async throws {
        for round in 0..<50 {
            let (ports, found) = AsyncStream.makeStream(of: UInt16.self)
            let endpoint = APIEndpoint(
                configuration: PlainHTTPConfiguration(listenPort: 0, token: OperatorToken()), logger: EndpointRig.quiet,
                onListening: { found.yield($0) }
            ) { _ in APIAnswer(status: 204) }
            let group = ServiceGroup(
                configuration: .init(services: [.init(service: endpoint)], logger: EndpointRig.quiet))
            let running = Task { try await group.run() }
            let port = await ports.first { _ in true } ?? 0
            let crowd = Crowd()
            let tasks = crowd.start(2, to: port)
            try await Task.sleep(for: .milliseconds(1 + round % 7))
            if isGraceful { await group.triggerGracefulShutdown() } else { running.cancel() }
            _ = await running.result
            crowd.stop()
            for task in tasks { await task.value }
            #expect(crowd.count > 0)
        }
    }

    @Test func `an endpoint that is told to end before it listens ends`() async throws {
        for _ in 0..<20 {
            let endpoint = APIEndpoint(
                configuration: PlainHTTPConfiguration(listenPort: 0, token: OperatorToken()), logger: EndpointRig.quiet
            ) { _ in APIAnswer(status: 204) }
            let running = Task { try await endpoint.run() }
            running.cancel()
            _ = await running.result
        }
    }
}
