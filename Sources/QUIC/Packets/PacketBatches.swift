// Receives and sends packets in batches.
import CGnuTLS
import CLinux
import CNgtcp2
import Glibc
import Reactor

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

/// Collects packets and sends them with sendmmsg(2). When the kernel takes no more it keeps what is left and says so
/// until the socket is writable again.
final class PacketSender {
    /// What the QUIC library may write at once.
    static let largestPacket = 1_472
    private static let capacity = 32

    private let bytes: UnsafeMutableRawPointer
    private let addresses: UnsafeMutablePointer<sockaddr_storage>
    private var sources: [PacketSource]
    private let vectors: UnsafeMutablePointer<iovec>
    private let messages: UnsafeMutablePointer<mmsghdr>
    private var sockets: [UDPSocket?] = Array(repeating: nil, count: capacity)
    private var head = 0
    private var count = 0
    /// The socket that took no more.
    private(set) var blocked: UDPSocket?
    /// Called when a socket takes no more: its owner waits until it is writable, then calls `resume`.
    var didBlock: (UDPSocket) -> Void = { _ in }
    private(set) var packetsSent = 0
    private(set) var packetsFailed = 0
    /// The number of a packet in the batch whose first try failed.
    private var failedOnce: Int?

    init() {
        bytes = .allocate(byteCount: Self.capacity * Self.largestPacket, alignment: 16)
        addresses = .allocate(capacity: Self.capacity)
        addresses.initialize(repeating: sockaddr_storage(), count: Self.capacity)
        sources = (0..<Self.capacity).map { _ in PacketSource() }
        vectors = .allocate(capacity: Self.capacity)
        vectors.initialize(repeating: iovec(), count: Self.capacity)
        messages = .allocate(capacity: Self.capacity)
        messages.initialize(repeating: mmsghdr(), count: Self.capacity)
        for index in 0..<Self.capacity {
            vectors[index].iov_base = bytes + index * Self.largestPacket
            messages[index].msg_hdr.msg_iov = vectors + index
            messages[index].msg_hdr.msg_iovlen = 1
            messages[index].msg_hdr.msg_name = UnsafeMutableRawPointer(addresses + index)
            messages[index].msg_hdr.msg_control = sources[index].control
        }
    }

    deinit {
        bytes.deallocate()
        addresses.deallocate()
        for source in sources { source.deallocate() }
        vectors.deallocate()
        messages.deallocate()
    }

    /// Memory for one packet, the same until `commit`; nil while the kernel accepts no more.
    func reserve() -> UnsafeMutableRawBufferPointer? {
        if count == Self.capacity { send() }
        guard blocked == nil else { return nil }
        return UnsafeMutableRawBufferPointer(
            start: bytes + count * Self.largestPacket, count: Self.largestPacket)
    }

    /// Sends the packet in the reserved memory to `remote`, from the local address `local` if the host has several.
    func commit(_ length: Int, on socket: UDPSocket, from local: NetworkEnd?, to remote: NetworkEnd) {
        let size = min(Int(remote.length), MemoryLayout<sockaddr_storage>.size)
        UnsafeMutableRawPointer(addresses + count).copyMemory(from: remote.address, byteCount: size)
        sources[count].set(local, on: socket)
        messages[count].msg_hdr.msg_controllen = sources[count].length
        messages[count].msg_hdr.msg_namelen = socklen_t(size)
        vectors[count].iov_len = length
        sockets[count] = socket
        count += 1
    }

    /// Sends a copy of `packet` if there is space; otherwise the packet is lost, as any packet may be.
    func send(_ packet: UnsafeRawBufferPointer, on socket: UDPSocket, from local: NetworkEnd?, to remote: NetworkEnd) {
        guard !packet.isEmpty, packet.count <= Self.largestPacket, let room = reserve() else { return }
        room.copyMemory(from: packet)
        commit(packet.count, on: socket, from: local, to: remote)
    }

    /// Hands everything to the kernel.
    func send() {
        while head < count, blocked == nil {
            guard let socket = sockets[head] else { break }
            var end = head + 1
            while end < count, sockets[end] === socket { end += 1 }
            let sent = ptt_sendmmsg(socket.descriptor, messages + head, UInt32(end - head), 0)
            if sent > 0 {
                packetsSent += Int(sent)
                head += Int(sent)
            } else {
                switch errno {
                case EINTR: continue
                case EAGAIN:
                    blocked = socket
                    didBlock(socket)
                default:
                    // The call may report the ICMP error of an earlier packet; that error is cleared now.
                    if socket.reportsErrors, failedOnce != head {
                        failedOnce = head
                        continue
                    }
                    // This packet cannot go there (no route, say); QUIC treats it as lost.
                    packetsFailed += 1
                    head += 1
                }
            }
        }
        if head == count { forgetAll() }
    }

    private func forgetAll() {
        for index in 0..<count { sockets[index] = nil }
        (head, count, failedOnce) = (0, 0, nil)
    }

    /// The socket is writable again.
    func resume() {
        blocked = nil
        send()
    }

    /// Forgets what was meant for `socket`, which is being closed.
    func abandon(_ socket: UDPSocket) {
        if blocked == nil { send() }
        // What waits behind it is at most a batch, and lost as packets are.
        if head < count, sockets[head..<count].contains(where: { $0 === socket }) { forgetAll() }
        if blocked === socket {
            // It may stay open: nobody waits any more until it is writable.
            socket.watch?.update(.readable)
            resume()
        }
    }
}
