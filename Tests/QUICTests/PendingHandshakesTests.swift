// Those who begin connections, while they wait: in order, whole, and not without end.
import Glibc
import Testing

@testable import QUIC

@Suite struct PendingHandshakesTests {
    /// Has a packet from `port` on loopback wait, if there is room.
    private func keep(
        _ bytes: [UInt8], from port: UInt16, to local: UInt16?, on socket: UDPSocket,
        in pending: inout PendingHandshakes
    ) -> Bool {
        var ends = [sockaddr_storage](repeating: sockaddr_storage(), count: 2)
        return ends.withUnsafeMutableBufferPointer { ends in
            guard let base = ends.baseAddress else { return false }
            func end(_ port: UInt16, _ place: Int) -> NetworkEnd {
                let length = SocketAddress.loopback(port: port).encode(family: AF_INET, into: base + place)
                return NetworkEnd(address: UnsafeMutableRawPointer(base + place), length: length)
            }
            return bytes.withUnsafeBytes { bytes in
                pending.keep(
                    PacketReceiver.Packet(
                        bytes: bytes, remote: end(port, 0), local: local.map { end($0, 1) }, isTruncated: false),
                    on: socket)
            }
        }
    }

    @Test func `they come out in order and whole`() throws {
        let socket = try UDPSocket(.loopback(), reusePort: false, bufferSize: 1 << 16)
        var pending = PendingHandshakes()
        for number in 1...3 {
            let packet = [UInt8](repeating: UInt8(number), count: 1_000 + number)
            let isKept = keep(
                packet, from: UInt16(number), to: number == 2 ? 77 : nil, on: socket, in: &pending)
            #expect(isKept)
        }
        #expect(pending.count == 3)
        for number in 1...3 {
            let first = pending.takeFirst()
            let next = try #require(first)
            var seen = 0
            next.withPacket { packet in
                seen += 1
                #expect(Array(packet.bytes) == [UInt8](repeating: UInt8(number), count: 1_000 + number))
                #expect(packet.remote.value == .loopback(port: UInt16(number)))
                #expect(packet.local?.value == (number == 2 ? .loopback(port: 77) : nil))
            }
            #expect(seen == 1)
        }
        #expect(pending.count == 0)
        let isOver = pending.takeFirst() == nil
        #expect(isOver)
    }

    @Test func `beyond the bound none is kept until there is room again`() throws {
        let socket = try UDPSocket(.loopback(), reusePort: false, bufferSize: 1 << 16)
        var pending = PendingHandshakes()
        var kept = 0
        for _ in 0..<(PendingHandshakes.capacity + 10) where keep([1], from: 1, to: nil, on: socket, in: &pending) {
            kept += 1
        }
        #expect(kept == PendingHandshakes.capacity && pending.count == PendingHandshakes.capacity)
        // Long after: what has been taken out is not remembered.
        for round in 0..<(3 * PendingHandshakes.capacity) {
            let taken = pending.takeFirst() != nil
            let isKept = keep([UInt8(round & 255)], from: 1, to: nil, on: socket, in: &pending)
            if !taken || !isKept { Issue.record("round \(round)") }
        }
        #expect(pending.count == PendingHandshakes.capacity)
    }
}
