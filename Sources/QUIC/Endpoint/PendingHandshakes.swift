// The queue of pending handshakes: Initial packets that wait to be handled.
import CGnuTLS
import CLinux
import CNgtcp2

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
        private let remote: StoredEnd
        private let local: StoredEnd
        let socket: UDPSocket

        fileprivate init(_ packet: PacketReceiver.Packet, on socket: UDPSocket) {
            bytes = Array(packet.bytes)
            (remote, local) = (StoredEnd(packet.remote), StoredEnd(packet.local))
            self.socket = socket
        }

        /// Calls `body` with the packet, which is valid during the call.
        func withPacket<Result>(_ body: (PacketReceiver.Packet) -> Result) -> Result {
            withExtendedLifetime(self) {
                bytes.withUnsafeBytes {
                    body(
                        PacketReceiver.Packet(
                            bytes: $0, remote: remote.end, local: local.endIfAny, isTruncated: false))
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
}
