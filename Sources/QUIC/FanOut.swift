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

/// Connections that get the same packets, laid out as sendmmsg(2) wants them, so that a packet costs no walk over them.
///
/// Everything that is needed for one of them lies in arrays of the group: of a thousand connections only a few would be in the
/// processor's caches. They are laid out anew when the group has other connections, or when any path of the endpoint has
/// changed. Used on the endpoint's loop, which `QUICEndpoint.fanOut` checks.
public final class FanOutGroup {
    /// Bytes that a trailer may have.
    public static let longestTrailer = 64
    /// Packets for one system call: few enough for the first to leave early, enough to make the call cheap.
    private static let batch = 64

    /// Bytes of each one's own behind every packet.
    public let trailerLength: Int
    /// Who gets the packets.
    public var connections: [QUICConnection] = [] {
        didSet { laidOutFor = nil }
    }
    /// The endpoint's paths as they were when this was laid out.
    private var laidOutFor: UInt64?
    private var capacity = 0
    private var trailers: UnsafeMutableRawPointer
    private var vectors: UnsafeMutablePointer<iovec>
    private var messages: UnsafeMutablePointer<mmsghdr>
    /// Of each message, whose it is.
    private var numbers: [Int] = []
    /// Of each connection, which message is its; -1: none.
    private var slots: [Int] = []
    /// Messages of one socket, one run after the other; a server has one socket.
    private var runs: [(descriptor: Int32, end: Int)] = []

    /// A group of nobody.
    public init(trailerLength: Int = 0) {
        precondition(0...Self.longestTrailer ~= trailerLength, "a trailer has at most \(Self.longestTrailer) bytes")
        self.trailerLength = trailerLength
        trailers = .allocate(byteCount: 0, alignment: 16)
        vectors = .allocate(capacity: 0)
        messages = .allocate(capacity: 0)
    }

    deinit {
        trailers.deallocate()
        vectors.deallocate()
        messages.deallocate()
    }

    private func layOut() {
        if capacity < connections.count {
            capacity = connections.count + connections.count / 2
            trailers.deallocate()
            vectors.deallocate()
            messages.deallocate()
            trailers = .allocate(byteCount: capacity * trailerLength, alignment: 16)
            trailers.initializeMemory(as: UInt8.self, repeating: 0, count: capacity * trailerLength)
            vectors = .allocate(capacity: 2 * capacity)
            vectors.initialize(repeating: iovec(), count: 2 * capacity)
            messages = .allocate(capacity: capacity)
            messages.initialize(repeating: mmsghdr(), count: capacity)
        }
        numbers.removeAll(keepingCapacity: true)
        runs.removeAll(keepingCapacity: true)
        slots.removeAll(keepingCapacity: true)
        for (number, connection) in connections.enumerated() {
            guard connection.isReady else {
                slots.append(-1)
                continue
            }
            let slot = numbers.count
            vectors[2 * slot + 1] = iovec(iov_base: trailers + slot * trailerLength, iov_len: trailerLength)
            messages[slot].msg_hdr.msg_iov = vectors + 2 * slot
            messages[slot].msg_hdr.msg_iovlen = trailerLength > 0 ? 2 : 1
            messages[slot].msg_hdr.msg_name = UnsafeMutableRawPointer(connection.remoteStorage)
            messages[slot].msg_hdr.msg_namelen = connection.remoteLength
            messages[slot].msg_hdr.msg_control = connection.source.control
            messages[slot].msg_hdr.msg_controllen = connection.source.length
            numbers.append(number)
            slots.append(slot)
            let descriptor = connection.socket.descriptor
            if runs.last?.descriptor == descriptor {
                runs[runs.count - 1].end = slot + 1
            } else {
                runs.append((descriptor, slot + 1))
            }
        }
    }

    /// Sends `packet` to all but one; see `QUICEndpoint.fanOut`.
    func send(
        _ packet: UnsafeRawBufferPointer, paths: UInt64, except excluded: Int?,
        trailer: (Int, UnsafeMutableRawBufferPointer) -> Void
    ) -> FanOutResult {
        if laidOutFor != paths {
            layOut()
            laidOutFor = paths
        }
        var result = FanOutResult()
        let hole = excluded.map { slots[$0] } ?? -1
        result.skipped = connections.count - numbers.count - (excluded != nil && hole < 0 ? 1 : 0)
        var head = 0
        for run in runs {
            while head < run.end {
                if head == hole {
                    head += 1
                    continue
                }
                var end = min(head + Self.batch, run.end)
                if head < hole, hole < end { end = hole }
                for slot in head..<end {
                    vectors[2 * slot].iov_base = UnsafeMutableRawPointer(mutating: packet.baseAddress)
                    vectors[2 * slot].iov_len = packet.count
                    trailer(
                        numbers[slot],
                        UnsafeMutableRawBufferPointer(start: trailers + slot * trailerLength, count: trailerLength))
                }
                flush(head..<end, run.descriptor, &result)
                head = end
            }
        }
        return result
    }

    private func flush(_ range: Range<Int>, _ descriptor: Int32, _ result: inout FanOutResult) {
        var head = range.lowerBound
        while head < range.upperBound {
            let sent = ptt_sendmmsg(descriptor, messages + head, UInt32(range.upperBound - head), 0)
            if sent > 0 {
                result.sent += Int(sent)
                head += Int(sent)
            } else if errno != EINTR {
                // Voice that cannot go now is of no use later: the next recipient's turn.
                connections[numbers[head]].statistics.foreignPacketsFailed += 1
                result.failed += 1
                head += 1
            }
        }
    }
}
