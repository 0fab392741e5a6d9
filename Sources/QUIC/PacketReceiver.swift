// Packets on their way in, fetched many at a time.
import CLinux
import CNgtcp2
import Glibc

/// Buffers for recvmmsg(2), used again for every batch.
final class PacketReceiver {
    /// The largest packet that is taken; also this side's `max_udp_payload_size`.
    static let largestPacket = 1_500
    static let batch = 32

    private let bytes: UnsafeMutableRawPointer
    private let addresses: UnsafeMutablePointer<sockaddr_storage>
    private let vectors: UnsafeMutablePointer<iovec>
    private let messages: UnsafeMutablePointer<mmsghdr>

    init() {
        bytes = .allocate(byteCount: Self.batch * Self.largestPacket, alignment: 16)
        addresses = .allocate(capacity: Self.batch)
        addresses.initialize(repeating: sockaddr_storage(), count: Self.batch)
        vectors = .allocate(capacity: Self.batch)
        vectors.initialize(repeating: iovec(), count: Self.batch)
        messages = .allocate(capacity: Self.batch)
        messages.initialize(repeating: mmsghdr(), count: Self.batch)
        for index in 0..<Self.batch {
            vectors[index].iov_base = bytes + index * Self.largestPacket
            vectors[index].iov_len = Self.largestPacket
            messages[index].msg_hdr.msg_iov = vectors + index
            messages[index].msg_hdr.msg_iovlen = 1
            messages[index].msg_hdr.msg_name = UnsafeMutableRawPointer(addresses + index)
        }
    }

    deinit {
        bytes.deallocate()
        addresses.deallocate()
        vectors.deallocate()
        messages.deallocate()
    }

    /// One packet of a batch; valid until the next `receive`.
    struct Packet {
        let bytes: UnsafeRawBufferPointer
        let address: UnsafeMutableRawPointer
        let addressLength: socklen_t
        /// It was longer than `largestPacket`.
        let isTruncated: Bool
    }

    /// Fetches what has arrived, at most a batch; the number of packets.
    func receive(from socket: UDPSocket) -> Int {
        for index in 0..<Self.batch {
            messages[index].msg_hdr.msg_namelen = socklen_t(MemoryLayout<sockaddr_storage>.size)
        }
        while true {
            let count = ptt_recvmmsg(socket.descriptor, messages, UInt32(Self.batch), 0)
            if count >= 0 { return Int(count) }
            // Anything else (an ICMP error's echo, say) concerns a packet that was sent, and is over with this call.
            if errno != EINTR { return 0 }
        }
    }

    subscript(index: Int) -> Packet {
        let header = messages[index].msg_hdr
        return Packet(
            bytes: UnsafeRawBufferPointer(
                start: bytes + index * Self.largestPacket, count: Int(messages[index].msg_len)),
            address: UnsafeMutableRawPointer(addresses + index), addressLength: header.msg_namelen,
            isTruncated: header.msg_flags & Int32(MSG_TRUNC) != 0)
    }
}
