// The packet that asks for versions, and what counts as its answer; sent to a real socket.
import Glibc
import MonotonicTime
import Reactor
import RelayProtocol
import Synchronization
import TestSupport
import Testing

@testable import Nearby

@Suite struct VersionProbeTests {
    private static func answer(_ probe: [UInt8], versions: [UInt8] = [0, 0, 0, 1]) -> [UInt8] {
        let ids = (Array(probe[6..<14]), Array(probe[15..<23]))
        return [0x80, 0, 0, 0, 0, 8] + ids.1 + [8] + ids.0 + versions
    }

    @Test func `the answer names the probe`() {
        var random = SeededGenerator()
        for _ in 0..<100 {
            let ids = VersionProbe.IDs(random: random.bytes(16))
            let packet = VersionProbe.packet(ids)
            #expect(packet.count == 1_200 && packet[0] & 0xC0 == 0xC0)
            #expect(packet[1..<5].allSatisfy { $0 & 0x0F == 0x0A })
            #expect(VersionProbe.answered(by: Self.answer(packet)) == ids)
            #expect(VersionProbe.answered(by: Self.answer(packet, versions: Array(0..<40))) == ids)
        }
    }

    @Test func `nothing else is an answer`() {
        let packet = VersionProbe.packet(VersionProbe.IDs(random: Array(0..<16)))
        let answer = Self.answer(packet)
        #expect(VersionProbe.answered(by: packet) == nil)
        #expect(VersionProbe.answered(by: []) == nil)
        for count in 0..<answer.count { #expect(VersionProbe.answered(by: Array(answer.prefix(count))) == nil) }
        for (index, value) in [(0, 0x40), (1, 1), (4, 1), (5, 7), (5, 255), (14, 9)] as [(Int, UInt8)] {
            var wrong = answer
            wrong[index] = value
            #expect(VersionProbe.answered(by: wrong) == nil)
        }
        #expect(VersionProbe.answered(by: answer + [0]) == nil)
        var random = SeededGenerator()
        for _ in 0..<20_000 {
            var wrong = answer
            wrong[Int.random(in: wrong.indices, using: &random)] = UInt8.random(in: 0...255, using: &random)
            _ = VersionProbe.answered(by: wrong)
            _ = VersionProbe.answered(by: random.bytes(Int.random(in: 0...60, using: &random)))
        }
    }

    /// Received probes are answered with those of another, then truly.
    @Test func `only the true answer counts`() async throws {
        let loop = try EventLoop(name: "test")
        defer { loop.stop() }
        let server = socket(AF_INET, Int32(SOCK_DGRAM.rawValue), 0)
        defer { close(server) }
        var address = sockaddr_in()
        address.sin_family = sa_family_t(AF_INET)
        address.sin_addr.s_addr = UInt32(0x7F00_0001).bigEndian
        var size = socklen_t(MemoryLayout<sockaddr_in>.size)
        withUnsafeMutableBytes(of: &address) {
            let pointer = $0.baseAddress!.assumingMemoryBound(to: sockaddr.self)
            bind(server, pointer, size)
            getsockname(server, pointer, &size)
        }
        let place = try #require(RelayPlace(host: "127.0.0.1", port: UInt16(bigEndian: address.sin_port)))
        let answered = Mutex<[UInt64]>([])
        let held = try await loop.run {
            let socket = ProbeSocket(on: loop) { number in answered.withLock { $0.append(number) } }
            for number in 1...3 { socket.send(to: place, number: UInt64(number)) }
            return Holder(socket)
        }
        var buffer = [UInt8](repeating: 0, count: 2_000)
        for number in 1...3 {
            var peer = sockaddr_in()
            let count = withUnsafeMutableBytes(of: &peer) {
                recvfrom(
                    server, &buffer, buffer.count, 0, $0.baseAddress!.assumingMemoryBound(to: sockaddr.self), &size)
            }
            #expect(count == 1_200)
            var answer = Self.answer(Array(buffer.prefix(count)))
            if number == 2 { answer[8] ^= 1 }
            for _ in 0..<2 {
                _ = withUnsafeMutableBytes(of: &peer) {
                    sendto(
                        server, answer, answer.count, 0, $0.baseAddress!.assumingMemoryBound(to: sockaddr.self), size)
                }
            }
        }
        let deadline = Instant.now + .seconds(5)
        while answered.withLock({ $0.count }) < 2, Instant.now < deadline {
            try await Task.sleep(for: .milliseconds(5))
        }
        try await Task.sleep(for: .milliseconds(50))
        #expect(answered.withLock { $0 } == [1, 3])
        try await loop.run { held.socket.close() }
    }

    private struct Holder: @unchecked Sendable {
        let socket: ProbeSocket
        init(_ socket: ProbeSocket) { self.socket = socket }
    }
}
