// One packet to many listeners: the same bytes for all, and a few of each one's own.
import CGnuTLS
import CLinux
import CNgtcp2
import Glibc

/// What became of a fan-out.
public struct FanOutResult: Sendable, Equatable {
    /// Packets that the kernel took.
    public internal(set) var sent = 0
    /// Packets that the kernel refused; counted at each connection too.
    public internal(set) var failed = 0
    /// Connections that are closed or whose handshake is not complete: nothing is sent to those.
    public internal(set) var skipped = 0
}

/// Buffers for sendmmsg(2) with two pieces a message: the packet, which all share, and the trailer.
final class FanOut {
    /// Bytes that a trailer may have.
    static let longestTrailer = 64
    private static let batch = 64

    private let trailers: UnsafeMutableRawPointer
    private let vectors: UnsafeMutablePointer<iovec>
    private let messages: UnsafeMutablePointer<mmsghdr>
    private var recipients: [QUICConnection] = []
    private var descriptor: Int32 = -1

    init() {
        trailers = .allocate(byteCount: Self.batch * Self.longestTrailer, alignment: 16)
        vectors = .allocate(capacity: 2 * Self.batch)
        vectors.initialize(repeating: iovec(), count: 2 * Self.batch)
        messages = .allocate(capacity: Self.batch)
        messages.initialize(repeating: mmsghdr(), count: Self.batch)
        recipients.reserveCapacity(Self.batch)
        for index in 0..<Self.batch {
            vectors[2 * index + 1].iov_base = trailers + index * Self.longestTrailer
            messages[index].msg_hdr.msg_iov = vectors + 2 * index
            messages[index].msg_hdr.msg_iovlen = 2
        }
    }

    deinit {
        trailers.deallocate()
        vectors.deallocate()
        messages.deallocate()
    }

    /// Sends `packet` to all; see `QUICEndpoint.fanOut`.
    func send(
        _ packet: UnsafeRawBufferPointer, to connections: [QUICConnection], trailerLength: Int,
        trailer: (Int, UnsafeMutableRawBufferPointer) -> Void
    ) -> FanOutResult {
        var result = FanOutResult()
        for (number, connection) in connections.enumerated() {
            guard connection.isReady else {
                result.skipped += 1
                continue
            }
            if recipients.count == Self.batch || (descriptor != connection.socket.descriptor && !recipients.isEmpty) {
                flush(&result)
            }
            descriptor = connection.socket.descriptor
            let slot = recipients.count
            vectors[2 * slot].iov_base = UnsafeMutableRawPointer(mutating: packet.baseAddress)
            vectors[2 * slot].iov_len = packet.count
            vectors[2 * slot + 1].iov_len = trailerLength
            messages[slot].msg_hdr.msg_name = UnsafeMutableRawPointer(connection.remoteStorage)
            messages[slot].msg_hdr.msg_namelen = connection.remoteLength
            messages[slot].msg_hdr.msg_control = connection.source.control
            messages[slot].msg_hdr.msg_controllen = connection.source.length
            trailer(
                number,
                UnsafeMutableRawBufferPointer(start: trailers + slot * Self.longestTrailer, count: trailerLength))
            recipients.append(connection)
        }
        flush(&result)
        return result
    }

    private func flush(_ result: inout FanOutResult) {
        var head = 0
        while head < recipients.count {
            let sent = ptt_sendmmsg(descriptor, messages + head, UInt32(recipients.count - head), 0)
            if sent > 0 {
                for index in head..<(head + Int(sent)) { recipients[index].statistics.foreignPacketsSent += 1 }
                result.sent += Int(sent)
                head += Int(sent)
            } else if errno != EINTR {
                // Voice that cannot go now is of no use later: the next recipient's turn.
                recipients[head].statistics.foreignPacketsFailed += 1
                result.failed += 1
                head += 1
            }
        }
        recipients.removeAll(keepingCapacity: true)
    }
}
