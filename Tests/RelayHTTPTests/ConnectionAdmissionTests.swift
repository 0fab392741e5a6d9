// Who has to go when there are too many connections: the rules, and real sockets.
import Foundation
import Glibc
import MonotonicTime
import RelayProtocol
import RelayServer
import Testing
import Vocabulary

@testable import RelayHTTP

@Suite struct ConnectionAdmissionTests {
    private func admission() -> ConnectionAdmission {
        ConnectionAdmission(.init(connections: 4, connectionsPerAddress: 2, silence: .seconds(10)))
    }

    @Test func `a newcomer takes the place of its address's oldest connection that has proven nothing`() {
        var admission = admission()
        #expect(admission.accept(from: "a", at: .zero) == .admit(0, dropping: nil))
        #expect(admission.accept(from: "a", at: .zero) == .admit(1, dropping: nil))
        admission.proved(0)
        #expect(admission.accept(from: "a", at: .zero) == .admit(2, dropping: 1))
        #expect(admission.accept(from: "b", at: .zero) == .admit(3, dropping: nil))
        #expect(admission.count == 3)
    }

    @Test func `one that is proven yields only after it has been silent, and the longest silent first`() {
        var admission = admission()
        _ = admission.accept(from: "a", at: .zero)
        _ = admission.accept(from: "a", at: .zero)
        admission.proved(0)
        admission.proved(1)
        #expect(admission.accept(from: "a", at: .zero + .seconds(9)) == .refuse)
        admission.read(0, at: .zero + .seconds(5))
        #expect(admission.accept(from: "a", at: .zero + .seconds(12)) == .admit(2, dropping: 1))
        admission.proved(2)
        #expect(admission.accept(from: "a", at: .zero + .seconds(12)) == .refuse)
        admission.closed(0)
        #expect(admission.accept(from: "a", at: .zero + .seconds(12)) == .admit(3, dropping: nil))
    }

    @Test func `when all are too many, the oldest unproven one of any address goes`() {
        var admission = admission()
        for address in ["a", "a", "b", "c"] { _ = admission.accept(from: address, at: .zero) }
        admission.proved(0)
        #expect(admission.accept(from: "d", at: .zero + .seconds(1)) == .admit(4, dropping: 1))
        for number in 0..<10_000 {
            guard case .admit = admission.accept(from: "\(number)", at: .zero + .seconds(2)) else {
                Issue.record("\(number) is kept out")
                return
            }
            #expect(admission.count == 4)
        }
    }
}

/// Connections to a port from addresses of this machine, which say `words` and read nothing.
final class Silence: Sendable {
    private let sockets: [Int32]

    init(_ count: Int, to port: UInt16, from addresses: Int = 1, saying words: String = "") {
        sockets = (0..<count).map { number in
            let socket = Glibc.socket(AF_INET, Int32(SOCK_STREAM.rawValue), 0)
            var size: Int32 = 2_048
            setsockopt(socket, SOL_SOCKET, SO_RCVBUF, &size, 4)
            var address = sockaddr_in()
            address.sin_family = sa_family_t(AF_INET)
            address.sin_addr.s_addr = in_addr_t(0x7F00_0001 + number % addresses).bigEndian
            _ = withUnsafePointer(to: &address) {
                $0.withMemoryRebound(to: sockaddr.self, capacity: 1) {
                    bind(socket, $0, socklen_t(MemoryLayout<sockaddr_in>.size))
                }
            }
            address.sin_port = port.bigEndian
            address.sin_addr.s_addr = in_addr_t(0x7F00_0001).bigEndian
            _ = withUnsafePointer(to: &address) {
                $0.withMemoryRebound(to: sockaddr.self, capacity: 1) {
                    connect(socket, $0, socklen_t(MemoryLayout<sockaddr_in>.size))
                }
            }
            _ = Array(words.utf8).withUnsafeBytes { send(socket, $0.baseAddress, $0.count, Int32(MSG_NOSIGNAL)) }
            return socket
        }
    }

    deinit { for socket in sockets { close(socket) } }
}

@Suite(.serialized, .timeLimit(.minutes(2))) struct CrowdTests {
    /// 300 from five addresses are more than the endpoint takes in all, 256; of one address it takes 64.
    @Test(arguments: [(200, 1), (300, 5)])
    func `connections that say nothing do not delay a push`(count: Int, addresses: Int) async throws {
        let rig = try await EndpointRig()
        let token = try await rig.registeredToken()
        let silence = Silence(count, to: rig.port, from: addresses)
        for _ in 0..<3 {
            let begun = Instant.now
            let answer = try await rig.curl(EndpointRig.arguments(), path: "/3/device/\(token.hexadecimal)")
            let time = Instant.now - begun
            print("a push beside \(count) silent connections: \(time.milliseconds) ms")
            #expect(answer.status == 200 && time < .seconds(5))
        }
        withExtendedLifetime(silence) {}
        try await rig.stop()
    }

    @Test(arguments: ["", "GET /healthz HTTP/1.1\r\n", "GET / HTTP/1.1\r\nHost: a\r\n\r\n"])
    func `200 connections that are silent, slow, or do not read do not delay the health check`(
        words: String
    ) async throws {
        let (ports, found) = AsyncStream.makeStream(of: UInt16.self)
        let endpoint = OperatorEndpoint(
            configuration: .init(listenPort: 0, token: OperatorToken()), version: "1",
            source: .init(isServing: { true }, statistics: { nil }), logger: EndpointRig.quiet,
            onListening: { found.yield($0) })
        let running = Task { try await endpoint.run() }
        let port = await ports.first { _ in true } ?? 0
        let silence = Silence(
            200, to: port, saying: String(repeating: words, count: words.hasSuffix("\r\n\r\n") ? 50 : 1))
        let directory = FileManager.default.temporaryDirectory.path
        for _ in 0..<3 {
            let begun = Instant.now
            let output = try await Output.of("curl -sS -m 20 'http://127.0.0.1:\(port)/healthz'", in: directory)
            let time = Instant.now - begun
            print("a health check beside 200 connections: \(time.milliseconds) ms")
            #expect(output.text == "ok\n" && time < .seconds(5), "\(output.text)")
        }
        withExtendedLifetime(silence) {}
        running.cancel()
        _ = await running.result
    }

    @Test func `a request that comes byte by byte has an end`() async throws {
        let (ports, found) = AsyncStream.makeStream(of: UInt16.self)
        var configuration = PlainHTTPConfiguration(listenPort: 0, token: OperatorToken())
        configuration.requestTime = .milliseconds(500)
        let endpoint = OperatorEndpoint(
            configuration: configuration, version: "1",
            source: .init(isServing: { true }, statistics: { nil }), logger: EndpointRig.quiet,
            onListening: { found.yield($0) })
        let running = Task { try await endpoint.run() }
        let port = await ports.first { _ in true } ?? 0
        let begun = Instant.now
        let output = try await Output.of(
            "bash -c 'exec 3<>/dev/tcp/127.0.0.1/\(port); for n in $(seq 100); do printf G >&3 || break; sleep 0.1; done' 2>/dev/null",
            in: FileManager.default.temporaryDirectory.path)
        #expect(Instant.now - begun < .seconds(6), "\(output.text)")
        running.cancel()
        _ = await running.result
    }
}
