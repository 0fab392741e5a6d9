// A port whose process has ended is told from one that never answered, and from one whose process is frozen.
import Glibc
import Reactor
import Synchronization
import Testing

@testable import QUIC

/// A UDP port that answers each packet, as long as it is asked to.
private final class AnsweringPort {
    private let descriptor: Int32
    let port: UInt16

    init() throws {
        let descriptor = socket(AF_INET, Int32(SOCK_DGRAM.rawValue | SOCK_NONBLOCK.rawValue), 0)
        var address = sockaddr_in()
        address.sin_family = sa_family_t(AF_INET)
        inet_pton(AF_INET, "127.0.0.1", &address.sin_addr)
        let size = socklen_t(MemoryLayout<sockaddr_in>.size)
        let port = try withUnsafeMutablePointer(to: &address) { pointer in
            try pointer.withMemoryRebound(to: sockaddr.self, capacity: 1) { address in
                var size = size
                try #require(bind(descriptor, address, size) == 0 && getsockname(descriptor, address, &size) == 0)
            }
            return UInt16(bigEndian: pointer.pointee.sin_port)
        }
        self.port = port
        self.descriptor = descriptor
    }

    deinit { close(descriptor) }

    /// Answers what has come; the longest packet of it.
    func answer() -> Int {
        var longest = 0
        var buffer = [UInt8](repeating: 0, count: 2_048)
        var from = sockaddr_storage()
        while true {
            var size = socklen_t(MemoryLayout<sockaddr_storage>.size)
            let count = withUnsafeMutablePointer(to: &from) { pointer in
                pointer.withMemoryRebound(to: sockaddr.self, capacity: 1) { address in
                    let count = recvfrom(descriptor, &buffer, buffer.count, 0, address, &size)
                    if count >= 0 { _ = sendto(descriptor, [1], 1, 0, address, size) }
                    return count
                }
            }
            guard count >= 0 else { return longest }
            longest = max(longest, count)
        }
    }
}

@Suite(.timeLimit(.minutes(1))) struct PortWatchTests {
    private final class Closures: Sendable {
        private let counted = Mutex(0)
        var count: Int { counted.withLock { $0 } }
        func add() { counted.withLock { $0 += 1 } }
    }

    /// Watches on a loop of its own, until it is dropped.
    private final class Watching: @unchecked Sendable {
        let loop: EventLoop
        let closures = Closures()
        private var watch: PortWatch?

        init(_ port: UInt16) async throws {
            loop = try EventLoop(name: "watch")
            let address = try #require(SocketAddress("127.0.0.1", port: port))
            try await loop.run { [self] in
                watch = PortWatch(address, on: loop) { [closures] in closures.add() }
            }
        }

        func end() async {
            try? await loop.run { [self] in
                watch?.cancel()
                watch = nil
            }
            loop.stop()
        }
    }

    @Test func `a port that was open and is closed is noticed within half a second`() async throws {
        var port: AnsweringPort? = try AnsweringPort()
        let watching = try await Watching(try #require(port).port)
        var longest = 0
        for round in 0..<500 where round < 40 || longest < 1_200 {
            longest = max(longest, port?.answer() ?? 0)
            try await Task.sleep(for: .milliseconds(20))
        }
        #expect(longest >= 1_200 && watching.closures.count == 0)
        port = nil
        for _ in 0..<500 where watching.closures.count == 0 { try await Task.sleep(for: .milliseconds(20)) }
        #expect(watching.closures.count == 1)
        try await Task.sleep(for: .milliseconds(600))
        #expect(watching.closures.count == 1, "it is told once")
        await watching.end()
    }

    @Test func `a port that was never open, or does not answer, proves nothing`() async throws {
        var port: AnsweringPort? = try AnsweringPort()
        let number = try #require(port).port
        let silent = try await Watching(number)
        try await Task.sleep(for: .milliseconds(700))
        #expect(silent.closures.count == 0)
        port = nil
        let closed = try await Watching(number)
        try await Task.sleep(for: .milliseconds(700))
        #expect(silent.closures.count == 0 && closed.closures.count == 0)
        await silent.end()
        await closed.end()
    }
}
