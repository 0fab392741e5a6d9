import MonotonicTime
import TestSupport
import Testing

@testable import QUIC

@Suite struct PureTests {
    @Test(arguments: [1, 28, 30, 36, 43, 60, 176, 400] as [UInt64])
    func `nobody is asked again while its answer may still wait`(milliseconds: UInt64) {
        let roundTrip = milliseconds * 1_000_000
        let interval = QUICConnection.probeInterval(shortest: .milliseconds(50), roundTrip: roundTrip)
        let answered = roundTrip + max(roundTrip / 8, UInt64(AcknowledgementPace.longest.nanoseconds))
        #expect(interval > answered && interval >= 50_000_000)
        // Nor is it waited for much longer.
        #expect(interval <= max(50_000_000, roundTrip * 3 / 2, roundTrip + 30_000_000))
    }

    @Test(arguments: [4, 5] as [UInt64])
    func `a send buffer gives back what was written at addresses that stay`(seed: UInt64) {
        var generator = SeededGenerator(seed: seed)
        var buffer = StreamSendBuffer(limit: 50_000)
        var written: [UInt8] = []
        var sent: [UInt8] = []
        /// Sent pieces that are not acknowledged: the library would read them again.
        var kept: [(offset: Int, pointer: UnsafeRawPointer, bytes: [UInt8])] = []
        for _ in 0..<3_000 {
            switch Int.random(in: 0..<3, using: &generator) {
            case 0:
                let count = min(buffer.available, Int.random(in: 0...9_000, using: &generator))
                let bytes = (0..<count).map { _ in UInt8.random(in: 0...255, using: &generator) }
                bytes.withUnsafeBytes { buffer.append($0) }
                written += bytes
            case 1:
                var pieces: [(UnsafeRawPointer, Int)] = []
                let offered = buffer.forEachUnsent(maximum: 3) { pieces.append((UnsafeRawPointer($0), $1)) }
                #expect(offered <= buffer.unsent)
                var rest = Int.random(in: 0...max(0, offered), using: &generator)
                let taken = rest
                for (pointer, length) in pieces where rest > 0 {
                    let part = Array(UnsafeRawBufferPointer(start: pointer, count: min(length, rest)))
                    kept.append((sent.count, pointer, part))
                    sent += part
                    rest -= part.count
                }
                buffer.markSent(taken)
            default:
                let upTo = Int.random(in: buffer.acknowledged...buffer.sent, using: &generator)
                buffer.acknowledge(upTo: upTo)
                kept.removeAll { $0.offset < upTo }
            }
            for piece in kept {
                #expect(Array(UnsafeRawBufferPointer(start: piece.pointer, count: piece.bytes.count)) == piece.bytes)
            }
            #expect(buffer.end == written.count && buffer.sent == sent.count)
            #expect(buffer.available == 50_000 - (buffer.end - buffer.acknowledged))
        }
        #expect(sent == Array(written.prefix(sent.count)), "seed \(seed)")
        #expect(sent.count > 100_000)
    }

    @Test func `the first byte tells the protocol`() {
        for byte in UInt8.min...UInt8.max {
            let expected: PacketClass =
                switch byte {
                case 0..<64: .unknown
                case 64..<128: .shortHeader
                case 128..<192: .foreign
                default: .longHeader
                }
            #expect(PacketClass(firstByte: byte) == expected)
        }
    }

    @Test func `connection IDs differ by every byte and by length`() {
        let bytes = Array(UInt8(1)...20)
        func id(_ bytes: [UInt8]) -> ConnectionID? { bytes.withUnsafeBytes { ConnectionID($0) } }
        #expect(id(bytes) == id(bytes))
        #expect(id(bytes + [21]) == nil)
        for index in bytes.indices {
            var other = bytes
            other[index] ^= 1
            #expect(id(other) != id(bytes))
            #expect(id(Array(bytes.prefix(index))) != id(bytes))
        }
        #expect(id([]) != id([0]))
        #expect(
            [0x40].withUnsafeBytes { ConnectionID(shortHeader: UnsafeRawBufferPointer(rebasing: $0.prefix(1))) } == nil)
    }

    @Test func `addresses are read and written in the usual notation`() throws {
        for text in ["127.0.0.1", "255.1.2.3", "::1", "2001:db8::1:2", "fe80::1%7"] {
            #expect(SocketAddress(text, port: 5)?.host == text)
        }
        #expect(SocketAddress("192.0.2.1", port: 4433)?.description == "192.0.2.1:4433")
        #expect(SocketAddress("2001:db8::1", port: 4433)?.description == "[2001:db8::1]:4433")
        #expect(SocketAddress("::ffff:192.0.2.1", port: 1) == SocketAddress("192.0.2.1", port: 1))
        for text in ["", "example.org", "1.2.3", "1.2.3.4.5", "::g", "%", "::1%nosuchinterface"] {
            #expect(SocketAddress(text, port: 1) == nil)
        }
        #expect(SocketAddress.any().isUnspecified)
        #expect(try #require(SocketAddress("0.0.0.0", port: 0)).isUnspecified)
        for text in ["192.0.2.1\0", "::1\0:", "::1\0%1", "fe80::1%", "", "relay"] {
            #expect(SocketAddress(text, port: 1) == nil)
        }
    }

    @Test func `names are resolved off the loop`() async throws {
        let addresses = try await SocketAddress.resolve("localhost", port: 7)
        #expect(addresses.contains { $0.host == "127.0.0.1" || $0.host == "::1" })
        #expect(addresses.allSatisfy { $0.port == 7 })
        #expect(try await SocketAddress.resolve("::1", port: 7) == [SocketAddress("::1", port: 7)])
        await #expect(throws: QUICError.self) { try await SocketAddress.resolve("no such host.invalid", port: 7) }
    }

    @Test func `a rate limit refills evenly`() {
        var limit = TokenBucket(depth: 10, perSecond: 10, at: .zero)
        let start = Instant(nanoseconds: 1_000_000_000_000)
        let atOnce = (0..<20).count { _ in limit.take(at: start) }
        #expect(atOnce == 10)
        let (early, later) = (limit.take(at: start + .milliseconds(50)), limit.take(at: start + .milliseconds(150)))
        #expect(!early && later)
        let afterRest = (0..<50).count { _ in limit.take(at: start + .seconds(100)) }
        #expect(afterRest == 10)
    }

    @Test func `a greeting is new once and too many are refused`() {
        let guarding = ReplayGuard()
        let start = Instant(nanoseconds: 1)
        #expect(guarding.isNew([1], at: start))
        #expect(!guarding.isNew([1], at: start + .seconds(20)))
        #expect(guarding.isNew([1], at: start + .seconds(22)))
        var taken = 0
        for number in 0..<ReplayGuard.capacity + 1_000 {
            let binder = [2, UInt8(number >> 16), UInt8(number >> 8 & 255), UInt8(number & 255)]
            if guarding.isNew(binder, at: start + .seconds(23)) { taken += 1 }
        }
        #expect(taken == ReplayGuard.capacity - 1)
        #expect(guarding.isNew([3], at: start + .seconds(60)))
    }
}
