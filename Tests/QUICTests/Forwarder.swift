// A NAT for tests: forwards UDP between a client and a server, and changes, loses or spoils what passes.
import CGnuTLS
import CLinux
import CNgtcp2
import Glibc
import QUIC
import Reactor
import Synchronization
import Testing

/// Which way a packet goes.
enum Direction { case toServer, toClient }

/// One "router" between one client and one server; the server sees the router's outer port.
final class Forwarder: @unchecked Sendable {
    typealias Filter = @Sendable (Direction, [UInt8]) -> Bool

    private let loop: EventLoop
    private let inner: Int32
    private var outer: Int32
    private var watches: [EventLoop.Watch] = []
    private var client: sockaddr_in?
    private var server: sockaddr_in
    private var dropping: Filter = { _, _ in false }
    private var copies: [[UInt8]] = []
    private var recordedAnswers: [[UInt8]]?
    /// Where clients send to.
    let address: SocketAddress

    init(to server: SocketAddress) async throws {
        loop = try EventLoop(name: "forwarder")
        inner = try Self.open()
        outer = try Self.open()
        address = .loopback(port: Self.port(inner))
        self.server = Self.loopback(port: server.port)
        try await loop.run { try self.watchBoth() }
    }

    /// Every packet for which `filter` says true is lost from now on.
    func drop(_ filter: @escaping Filter) async throws { try await loop.run { self.dropping = filter } }

    func redirect(to server: SocketAddress) async throws {
        try await loop.run { self.server = Self.loopback(port: server.port) }
    }

    /// The NAT forgets its mapping: from now on packets leave from another port, and the old one is gone. The new port.
    func rebind() async throws -> UInt16 {
        try await loop.run {
            for watch in self.watches { watch.cancel() }
            close(self.outer)
            self.outer = try Self.open()
            try self.watchBoth()
            return Self.port(self.outer)
        }
    }

    /// Packets to the server that have passed, the newest hundred.
    var seen: [[UInt8]] { get async throws { try await loop.run { self.copies } } }

    /// Keeps packets to the client from now on.
    func recordAnswers() async throws { try await loop.run { self.recordedAnswers = [] } }

    /// Packets to the client since `recordAnswers`.
    var answers: [[UInt8]] { get async throws { try await loop.run { self.recordedAnswers ?? [] } } }

    /// Sends `packet` to the server as if it came from the client.
    func inject(_ packet: [UInt8], _ direction: Direction = .toServer) async throws {
        try await loop.run { self.forward(packet, direction) }
    }

    func stop() {
        loop.execute {
            for watch in self.watches { watch.cancel() }
            close(self.inner)
            close(self.outer)
        }
        loop.stop()
    }

    private func watchBoth() throws {
        watches = [
            try loop.watch(inner, for: .readable) { [weak self] _ in
                if let self { receive(inner, .toServer) }
            },
            try loop.watch(outer, for: .readable) { [weak self] _ in
                if let self { receive(outer, .toClient) }
            },
        ]
    }

    private func receive(_ socket: Int32, _ direction: Direction) {
        var buffer = [UInt8](repeating: 0, count: 2_048)
        while true {
            var source = sockaddr_in()
            var length = socklen_t(MemoryLayout<sockaddr_in>.size)
            let count = withUnsafeMutablePointer(to: &source) {
                $0.withMemoryRebound(to: sockaddr.self, capacity: 1) {
                    recvfrom(socket, &buffer, buffer.count, Int32(MSG_DONTWAIT), $0, &length)
                }
            }
            guard count >= 0 else { return }
            if direction == .toServer { client = source }
            let packet = Array(buffer.prefix(count))
            if dropping(direction, packet) { continue }
            if direction == .toClient { recordedAnswers?.append(packet) }
            if direction == .toServer {
                copies.append(packet)
                if copies.count > 100 { copies.removeFirst() }
            }
            forward(packet, direction)
        }
    }

    private func forward(_ packet: [UInt8], _ direction: Direction) {
        guard var target = direction == .toServer ? server : client else { return }
        let socket = direction == .toServer ? outer : inner
        _ = withUnsafePointer(to: &target) {
            $0.withMemoryRebound(to: sockaddr.self, capacity: 1) {
                sendto(socket, packet, packet.count, 0, $0, socklen_t(MemoryLayout<sockaddr_in>.size))
            }
        }
    }

    private static func open() throws -> Int32 {
        let descriptor = socket(AF_INET, Int32(SOCK_DGRAM.rawValue) | Int32(SOCK_CLOEXEC.rawValue), 0)
        try #require(descriptor >= 0)
        var address = loopback(port: 0)
        let status = withUnsafePointer(to: &address) {
            $0.withMemoryRebound(to: sockaddr.self, capacity: 1) {
                bind(descriptor, $0, socklen_t(MemoryLayout<sockaddr_in>.size))
            }
        }
        try #require(status == 0)
        return descriptor
    }

    private static func port(_ descriptor: Int32) -> UInt16 {
        var address = sockaddr_in()
        var length = socklen_t(MemoryLayout<sockaddr_in>.size)
        _ = withUnsafeMutablePointer(to: &address) {
            $0.withMemoryRebound(to: sockaddr.self, capacity: 1) { getsockname(descriptor, $0, &length) }
        }
        return UInt16(bigEndian: address.sin_port)
    }

    private static func loopback(port: UInt16) -> sockaddr_in {
        var address = sockaddr_in()
        address.sin_family = sa_family_t(AF_INET)
        address.sin_port = port.bigEndian
        address.sin_addr.s_addr = UInt32(0x7F00_0001).bigEndian
        return address
    }
}
