// Sends one packet to many listeners: the same bytes for all, and a short trailer for each.
import CGnuTLS
import CLinux
import CNgtcp2
import Glibc
import Reactor

/// What became of a fan-out.
public struct FanOutResult: Sendable, Equatable {
    /// Packets that the kernel took.
    public internal(set) var sent = 0
    /// Packets that the kernel refused.
    public internal(set) var failed = 0
}

/// Where packets beside QUIC go for one connection: the validated path, as sendmmsg(2) wants it.
///
/// A value, so that another thread than the connection's can send them, from its own socket on the same port.
public struct FanOutPath: Sendable {
    /// Large enough for the control message with the host's address, of either family (IPV6_PKTINFO).
    private typealias Control = (UInt64, UInt64, UInt64, UInt64, UInt64)

    // The first member: a pointer to the whole is one to this. Large enough for an address of either family.
    fileprivate var address = sockaddr_in6()
    fileprivate var addressLength: UInt16 = 0
    fileprivate var controlLength: UInt16 = 0
    private var control: Control = (0, 0, 0, 0, 0)
    fileprivate static let controlOffset = MemoryLayout<FanOutPath>.offset(of: \.control) ?? 0

    init(to remote: NetworkEnd, from source: PacketSource) {
        let length = min(Int(remote.length), MemoryLayout<sockaddr_in6>.size)
        withUnsafeMutableBytes(of: &address) {
            $0.copyMemory(from: UnsafeRawBufferPointer(start: remote.address, count: length))
        }
        addressLength = UInt16(length)
        let controlSize = min(source.length, MemoryLayout<Control>.size)
        withUnsafeMutableBytes(of: &control) {
            $0.copyMemory(from: UnsafeRawBufferPointer(start: source.control, count: controlSize))
        }
        controlLength = UInt16(controlSize)
    }
}

/// Paths that get the same packets, laid out for sendmmsg(2), so that a packet costs no walk over connections.
///
/// Of a thousand connections only a few would be in the processor's caches. So the data needed of each connection lies
/// side by side in one array. Everything else exists once per system call and is reused for the next call: the packet
/// is copied as often as one call sends it, and only its trailer is written for each recipient. Used on the endpoint's
/// loop, which `QUICEndpoint.fanOut` checks; for the length of a packet to a large group, on the threads of its helpers
/// too.
public final class FanOutGroup {
    /// Bytes that a trailer may have.
    public static let longestTrailer = 64
    /// Recipients from which on helpers are asked: they wake in the time in which some dozens are sent theirs, and do it with empty caches.
    static let sharedFrom = 256

    /// Bytes of each one's own behind every packet.
    public let trailerLength: Int
    /// How many get the packets.
    public private(set) var count = 0
    private var paths = UnsafeMutableBufferPointer<FanOutPath>.allocate(capacity: 0)
    private let finish: @Sendable (_ number: Int, _ datagram: UnsafeMutableRawBufferPointer) -> Void
    // Of the packet that is being sent: a batch for each thread, and who gets nothing.
    private var batches: [FanOutBatch] = []
    private var excluded: Int?
    private var descriptor: Int32 = -1
    private lazy var work: ThreadPool.Work = { [own = Own(group: self)] in own.group.send(share: $0, on: $1) }

    /// The group, for other threads while its own waits for them: each touches another share of it.
    private struct Own: @unchecked Sendable {
        unowned let group: FanOutGroup
    }

    /// A group of nobody.
    ///
    /// - Parameter finish: Gets the packet for path `number` as it is to be sent, and fills the trailer at its end; called for every
    ///   one that is sent it, with `QUICEndpoint.helpers` on several threads at once, each time for another number. It must leave the packet
    ///   as it is: the next one is made in the same place.
    public init(
        trailerLength: Int = 0,
        finish: @escaping @Sendable (_ number: Int, _ datagram: UnsafeMutableRawBufferPointer) -> Void = { _, _ in }
    ) {
        precondition(0...Self.longestTrailer ~= trailerLength, "a trailer has at most \(Self.longestTrailer) bytes")
        self.trailerLength = trailerLength
        self.finish = finish
    }

    deinit { paths.deallocate() }

    /// Adds a path; its number is the count until now.
    public func append(_ path: FanOutPath) {
        if count == paths.count {
            let larger = UnsafeMutableBufferPointer<FanOutPath>.allocate(capacity: max(8, count * 2))
            _ = larger.moveInitialize(fromContentsOf: paths.extracting(..<count))
            paths.deallocate()
            paths = larger
        }
        paths.initializeElement(at: count, to: path)
        count += 1
    }

    /// Removes path `number`; those after it count one less from now on.
    public func remove(at number: Int) {
        paths.deinitializeElement(at: number)
        _ = paths.extracting(number..<count - 1).moveInitialize(fromContentsOf: paths.extracting(number + 1..<count))
        count -= 1
    }

    /// The connection of path `number` has moved.
    public func replace(at number: Int, by path: FanOutPath) { paths.extracting(..<count)[number] = path }

    /// Sends `packet` to all but one, with a batch for each thread that may take part; see `QUICEndpoint.fanOut`.
    func send(
        _ packet: UnsafeRawBufferPointer, with batches: [FanOutBatch], helpers: ThreadPool?, on descriptor: Int32,
        except excluded: Int?
    ) -> FanOutResult {
        let helpers = count >= Self.sharedFrom ? helpers : nil
        let threads = 1 + (helpers?.size ?? 0)
        for thread in 0..<threads { batches[thread].begin(packet, trailerLength: trailerLength) }
        (self.batches, self.excluded, self.descriptor) = (batches, excluded, descriptor)
        let shares = (count + FanOutBatch.capacity - 1) / FanOutBatch.capacity
        if let helpers {
            helpers.perform(shares, work)
        } else {
            for share in 0..<shares { send(share: share, on: 0) }
        }
        var result = FanOutResult()
        for thread in 0..<threads {
            result.sent += batches[thread].sent
            result.failed += batches[thread].refused
        }
        return result
    }

    /// Sends to as many recipients as one system call takes.
    private func send(share: Int, on thread: Int) {
        guard let first = paths.baseAddress else { return }
        let (batch, finish, excluded) = (batches[thread], finish, excluded)
        let begin = share * FanOutBatch.capacity
        for number in begin..<min(count, begin + FanOutBatch.capacity) where number != excluded {
            finish(number, batch.add(first + number))
        }
        batch.flush(descriptor)
    }
}

/// The packets of one system call, each with a place of its own for a trailer. One for each thread serves all groups of an endpoint.
final class FanOutBatch {
    /// Few enough packets for the first to leave early, enough to make the call cheap.
    static let capacity = 64
    private static let lineLength = 64

    private let vectors: UnsafeMutablePointer<iovec>
    private let messages: UnsafeMutablePointer<mmsghdr>
    /// The packets, each on cache lines of its own.
    private var bytes: UnsafeMutableRawPointer
    private var byteCount = 0
    private var stride = 0
    private var packet = UnsafeRawBufferPointer(start: nil, count: 0)
    private var trailerLength = 0
    private var copies = 0
    private var count = 0
    /// Of the packet, how many the kernel took.
    private(set) var sent = 0
    /// Of the packet, how many the kernel refused.
    private(set) var refused = 0

    init() {
        vectors = .allocate(capacity: Self.capacity)
        vectors.initialize(repeating: iovec(), count: Self.capacity)
        messages = .allocate(capacity: Self.capacity)
        messages.initialize(repeating: mmsghdr(), count: Self.capacity)
        bytes = .allocate(byteCount: 0, alignment: Self.lineLength)
        for slot in 0..<Self.capacity {
            messages[slot].msg_hdr.msg_iov = vectors + slot
            messages[slot].msg_hdr.msg_iovlen = 1
        }
    }

    deinit {
        vectors.deallocate()
        messages.deallocate()
        bytes.deallocate()
    }

    /// What `add` sends from now on; `packet` has to stay until the last `flush`.
    func begin(_ packet: UnsafeRawBufferPointer, trailerLength: Int) {
        self.packet = packet
        self.trailerLength = trailerLength
        (count, copies, sent, refused) = (0, 0, 0, 0)
        let length = packet.count + trailerLength
        stride = (length + Self.lineLength - 1) / Self.lineLength * Self.lineLength
        if byteCount < Self.capacity * stride {
            byteCount = Self.capacity * stride
            bytes.deallocate()
            bytes = .allocate(byteCount: byteCount, alignment: Self.lineLength)
            bytes.initializeMemory(as: UInt8.self, repeating: 0, count: byteCount)
        }
    }

    /// Adds a packet to `path`, which has to stay until the next `flush`, and returns it, with space for its trailer at the end.
    func add(_ path: UnsafeMutablePointer<FanOutPath>) -> UnsafeMutableRawBufferPointer {
        let place = bytes + count * stride
        if count == copies {
            if let source = packet.baseAddress { place.copyMemory(from: source, byteCount: packet.count) }
            vectors[count] = iovec(iov_base: place, iov_len: packet.count + trailerLength)
            copies += 1
        }
        messages[count].msg_hdr.msg_name = UnsafeMutableRawPointer(path)
        messages[count].msg_hdr.msg_namelen = socklen_t(path.pointee.addressLength)
        let control = UnsafeMutableRawPointer(path) + FanOutPath.controlOffset
        messages[count].msg_hdr.msg_control = path.pointee.controlLength > 0 ? control : nil
        messages[count].msg_hdr.msg_controllen = Int(path.pointee.controlLength)
        count += 1
        return UnsafeMutableRawBufferPointer(start: place, count: packet.count + trailerLength)
    }

    /// Sends what was added.
    func flush(_ descriptor: Int32) {
        var head = 0
        while head < count {
            let taken = ptt_sendmmsg(descriptor, messages + head, UInt32(count - head), 0)
            if taken > 0 {
                sent += Int(taken)
                head += Int(taken)
            } else if errno != EINTR {
                // Voice that cannot go now is of no use later: the next recipient's turn.
                refused += 1
                head += 1
            }
        }
        count = 0
    }
}
