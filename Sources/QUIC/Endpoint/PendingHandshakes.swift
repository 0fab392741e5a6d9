// The queue of pending handshakes: Initial packets that wait to be handled.
import CLinux
import Glibc

/// First packets of clients, in the order they came.
///
/// A handshake costs as much as hundreds of voice packets. When thousands of clients return at once, their packets
/// would fill the kernel's buffer and displace media while a few of them are answered. So they are read at once and
/// queued here.
struct PendingHandshakes {
    /// Packets that wait at most; a client sends up to three before it waits for an answer.
    static let capacity = 8_192

    /// A waiting packet.
    struct Held {
        private let bytes: [UInt8]
        private let remote: sockaddr_storage
        private let remoteLength: socklen_t
        private let local: sockaddr_storage
        private let localLength: socklen_t
        let socket: UDPSocket

        fileprivate init(_ packet: PacketReceiver.Packet, on socket: UDPSocket) {
            bytes = Array(packet.bytes)
            remote = PendingHandshakes.copy(packet.remote)
            remoteLength = packet.remote.length
            local = packet.local.map(PendingHandshakes.copy) ?? sockaddr_storage()
            localLength = packet.local?.length ?? 0
            self.socket = socket
        }

        /// Calls `body` with the packet, which is valid during the call.
        func withPacket<Result>(_ body: (PacketReceiver.Packet) -> Result) -> Result {
            var ends = (remote, local)
            let (remoteLength, localLength) = (remoteLength, localLength)
            return withUnsafeMutablePointer(to: &ends) { ends in
                let remote = UnsafeMutableRawPointer(ends)
                let local = remote + MemoryLayout<sockaddr_storage>.stride
                return bytes.withUnsafeBytes { bytes in
                    body(
                        PacketReceiver.Packet(
                            bytes: bytes, remote: NetworkEnd(address: remote, length: remoteLength),
                            local: localLength > 0 ? NetworkEnd(address: local, length: localLength) : nil,
                            isTruncated: false))
                }
            }
        }
    }

    private var held: [Held?] = []
    private var head = 0

    /// The number of waiting packets.
    var count: Int { held.count - head }

    /// Queues a copy of `packet`; false when the queue is full.
    mutating func keep(_ packet: PacketReceiver.Packet, on socket: UDPSocket) -> Bool {
        guard count < Self.capacity else { return false }
        held.append(Held(packet, on: socket))
        return true
    }

    /// The one that has waited longest.
    var first: Held? { head < held.count ? held[head] : nil }

    /// Takes out the one that has waited longest.
    mutating func takeFirst() -> Held? {
        guard head < held.count else { return nil }
        let first = held[head]
        held[head] = nil
        head += 1
        if head == held.count {
            held = []
            head = 0
        } else if head >= Self.capacity {
            held.removeFirst(head)
            head = 0
        }
        return first
    }

    fileprivate static func copy(_ end: NetworkEnd) -> sockaddr_storage {
        var storage = sockaddr_storage()
        withUnsafeMutableBytes(of: &storage) { bytes in
            bytes.copyMemory(
                from: UnsafeRawBufferPointer(start: end.address, count: min(Int(end.length), bytes.count)))
        }
        return storage
    }
}
