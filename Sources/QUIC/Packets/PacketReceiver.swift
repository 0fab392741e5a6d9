// Receives packets in batches.
import CGnuTLS
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
    private let locals: UnsafeMutablePointer<sockaddr_storage>
    private let controls: UnsafeMutableRawPointer
    private let vectors: UnsafeMutablePointer<iovec>
    private let messages: UnsafeMutablePointer<mmsghdr>
    /// How many of the messages, from the first on, have to be made ready for the next call.
    private var used = PacketReceiver.batch
    private var wasWildcard = false

    init() {
        bytes = .allocate(byteCount: Self.batch * Self.largestPacket, alignment: 16)
        addresses = .allocate(capacity: Self.batch)
        addresses.initialize(repeating: sockaddr_storage(), count: Self.batch)
        locals = .allocate(capacity: Self.batch)
        locals.initialize(repeating: sockaddr_storage(), count: Self.batch)
        controls = .allocate(byteCount: Self.batch * Int(PTT_CONTROL_LENGTH), alignment: 16)
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
            messages[index].msg_hdr.msg_control = controls + index * Int(PTT_CONTROL_LENGTH)
        }
    }

    deinit {
        bytes.deallocate()
        addresses.deallocate()
        locals.deallocate()
        controls.deallocate()
        vectors.deallocate()
        messages.deallocate()
    }

    /// One packet of a batch; valid until the next `receive`.
    struct Packet {
        let bytes: UnsafeRawBufferPointer
        /// Who sent it.
        let remote: NetworkEnd
        /// Which of the host's addresses it was sent to, where the socket has several.
        let local: NetworkEnd?
        /// It was longer than `largestPacket`.
        let isTruncated: Bool
    }

    /// Fetches what has arrived, at most a batch; the number of packets.
    func receive(from socket: UDPSocket) -> Int {
        // Only those that were used: a lone packet would take less time than all the others' memory.
        if socket.isWildcard != wasWildcard { (used, wasWildcard) = (Self.batch, socket.isWildcard) }
        for index in 0..<used {
            messages[index].msg_hdr.msg_namelen = socklen_t(MemoryLayout<sockaddr_storage>.size)
            messages[index].msg_hdr.msg_controllen = socket.isWildcard ? Int(PTT_CONTROL_LENGTH) : 0
        }
        while true {
            let count = ptt_recvmmsg(socket.descriptor, messages, UInt32(Self.batch), 0)
            if count >= 0 {
                used = Int(count)
                return used
            }
            guard errno != EINTR else { continue }
            // Anything else (an ICMP error's echo, say) concerns a packet that was sent, and is over with this call. It may have changed
            // the first message.
            used = 1
            return 0
        }
    }

    /// The packet at `index` of the batch that came to `socket`.
    func packet(_ index: Int, on socket: UDPSocket) -> Packet {
        let header = messages[index].msg_hdr
        var local: NetworkEnd?
        if socket.isWildcard {
            let length = ptt_packet_destination(
                &messages[index].msg_hdr, socket.localAddress.port.bigEndian, locals + index)
            if length > 0 { local = NetworkEnd(address: UnsafeMutableRawPointer(locals + index), length: length) }
        }
        return Packet(
            bytes: UnsafeRawBufferPointer(
                start: bytes + index * Self.largestPacket, count: Int(messages[index].msg_len)),
            remote: NetworkEnd(address: UnsafeMutableRawPointer(addresses + index), length: header.msg_namelen),
            local: local, isTruncated: header.msg_flags & Int32(MSG_TRUNC) != 0)
    }
}
