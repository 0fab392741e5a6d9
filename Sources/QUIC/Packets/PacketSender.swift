// Sends packets in batches.
import CGnuTLS
import CLinux
import CNgtcp2
import Glibc
import Reactor

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
