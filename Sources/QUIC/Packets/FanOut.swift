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
    /// Packets that the kernel refused; counted at each connection too.
    public internal(set) var failed = 0
    /// Connections that are closed or whose handshake is not complete: nothing is sent to those.
    public internal(set) var skipped = 0
}

/// Connections that get the same packets, laid out for sendmmsg(2), so that a packet costs no walk over them.
///
/// Of a thousand connections only a few would be in the processor's caches. So the data needed of each connection lies
/// side by side in one array. Everything else exists once per system call and is reused for the next call: the packet
/// is copied as often as one call sends it, and only its trailer is written for each recipient. The layout is rebuilt
/// when the group's connections change, or when any path of the endpoint has changed. Used on the endpoint's loop,
/// which `QUICEndpoint.fanOut` checks; for the length of a packet to a large group, on the threads of its helpers too.
public final class FanOutGroup {
    /// Bytes that a trailer may have.
    public static let longestTrailer = 64
    /// Recipients from which on helpers are asked: they wake in the time in which some dozens are sent theirs, and do it with empty caches.
    static let sharedFrom = 256

    /// What sendmmsg(2) needs to know of one connection.
    private struct Recipient {
        /// The first member: a pointer to the whole is one to this. Large enough for an address of either family.
        var address = sockaddr_in6()
        var addressLength: socklen_t = 0
        var descriptor: Int32 = -1
        var number = 0
        var control: UnsafeMutableRawPointer?
        var controlLength = 0
    }

    /// Bytes of each one's own behind every packet.
    public let trailerLength: Int
    /// Who gets the packets.
    public var connections: [QUICConnection] = [] {
        didSet { laidOutFor = nil }
    }
    /// The endpoint's paths as they were when this was laid out.
    private var laidOutFor: UInt64?
    private var recipients: UnsafeMutableBufferPointer<Recipient>
    private var count = 0
    private let finish: @Sendable (_ number: Int, _ datagram: UnsafeMutableRawBufferPointer) -> Void
    // Of the packet that is being sent: a batch for each thread, and who gets nothing.
    private var batches: [FanOutBatch] = []
    private var excluded: Int?
    private lazy var work: ThreadPool.Work = { [own = Own(group: self)] in own.group.send(share: $0, on: $1) }

    /// The group, for other threads while its own waits for them: each touches another share of it.
    private struct Own: @unchecked Sendable {
        unowned let group: FanOutGroup
    }

    /// A group of nobody.
    ///
    /// - Parameter finish: Gets the packet for `connections[number]` as it is to be sent, and fills the trailer at its end; called for every
    ///   one that is sent it, with `QUICEndpoint.helpers` on several threads at once, each time for another number. It must leave the packet
    ///   as it is: the next one is made in the same place.
    public init(
        trailerLength: Int = 0,
        finish: @escaping @Sendable (_ number: Int, _ datagram: UnsafeMutableRawBufferPointer) -> Void = { _, _ in }
    ) {
        precondition(0...Self.longestTrailer ~= trailerLength, "a trailer has at most \(Self.longestTrailer) bytes")
        self.trailerLength = trailerLength
        self.finish = finish
        recipients = .allocate(capacity: 0)
    }

    deinit { recipients.deallocate() }

    private func layOut() {
        if recipients.count < connections.count {
            recipients.deallocate()
            recipients = .allocate(capacity: connections.count + connections.count / 2)
            recipients.initialize(repeating: Recipient())
        }
        count = 0
        for (number, connection) in connections.enumerated() where connection.isReady {
            var recipient = Recipient()
            let length = min(Int(connection.remoteLength), MemoryLayout<sockaddr_in6>.size)
            withUnsafeMutableBytes(of: &recipient.address) {
                $0.copyMemory(from: UnsafeRawBufferPointer(start: connection.remoteStorage, count: length))
            }
            recipient.addressLength = socklen_t(length)
            recipient.descriptor = connection.socket.descriptor
            recipient.number = number
            recipient.control = connection.source.control
            recipient.controlLength = connection.source.length
            recipients[count] = recipient
            count += 1
        }
    }

    /// Sends `packet` to all but one, with a batch for each thread that may take part; see `QUICEndpoint.fanOut`.
    func send(
        _ packet: UnsafeRawBufferPointer, with batches: [FanOutBatch], helpers: ThreadPool?, paths: UInt64,
        except excluded: Int?
    ) -> FanOutResult {
        if laidOutFor != paths {
            layOut()
            laidOutFor = paths
        }
        var result = FanOutResult()
        result.skipped = connections.count - count
        if let excluded, !connections[excluded].isReady { result.skipped -= 1 }
        let helpers = count >= Self.sharedFrom ? helpers : nil
        let threads = 1 + (helpers?.size ?? 0)
        for thread in 0..<threads { batches[thread].begin(packet, trailerLength: trailerLength) }
        (self.batches, self.excluded) = (batches, excluded)
        let shares = (count + FanOutBatch.capacity - 1) / FanOutBatch.capacity
        if let helpers {
            helpers.perform(shares, work)
        } else {
            for share in 0..<shares { send(share: share, on: 0) }
        }
        for thread in 0..<threads {
            let batch = batches[thread]
            result.sent += batch.sent
            for number in batch.refused { connections[number].statistics.foreignPacketsFailed += 1 }
            result.failed += batch.refused.count
        }
        return result
    }

    /// Sends to as many recipients as one system call takes.
    private func send(share: Int, on thread: Int) {
        guard let first = recipients.baseAddress else { return }
        let (batch, finish, excluded) = (batches[thread], finish, excluded)
        let begin = share * FanOutBatch.capacity
        var descriptor = first[begin].descriptor
        for place in begin..<min(count, begin + FanOutBatch.capacity) where first[place].number != excluded {
            let recipient = first + place
            if recipient.pointee.descriptor != descriptor {
                batch.flush(descriptor)
                descriptor = recipient.pointee.descriptor
            }
            let number = recipient.pointee.number
            finish(
                number,
                batch.add(
                    number, address: UnsafeMutableRawPointer(recipient), length: recipient.pointee.addressLength,
                    control: (recipient.pointee.control, recipient.pointee.controlLength)))
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
    private let numbers: UnsafeMutablePointer<Int>
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
    /// Of the packet, for whom the kernel refused it.
    private(set) var refused: [Int] = []

    init() {
        vectors = .allocate(capacity: Self.capacity)
        vectors.initialize(repeating: iovec(), count: Self.capacity)
        messages = .allocate(capacity: Self.capacity)
        messages.initialize(repeating: mmsghdr(), count: Self.capacity)
        numbers = .allocate(capacity: Self.capacity)
        numbers.initialize(repeating: 0, count: Self.capacity)
        bytes = .allocate(byteCount: 0, alignment: Self.lineLength)
        for slot in 0..<Self.capacity {
            messages[slot].msg_hdr.msg_iov = vectors + slot
            messages[slot].msg_hdr.msg_iovlen = 1
        }
    }

    deinit {
        vectors.deallocate()
        messages.deallocate()
        numbers.deallocate()
        bytes.deallocate()
    }

    /// What `add` sends from now on; `packet` has to stay until the last `flush`.
    func begin(_ packet: UnsafeRawBufferPointer, trailerLength: Int) {
        self.packet = packet
        self.trailerLength = trailerLength
        (count, copies, sent) = (0, 0, 0)
        refused.removeAll(keepingCapacity: true)
        let length = packet.count + trailerLength
        stride = (length + Self.lineLength - 1) / Self.lineLength * Self.lineLength
        if byteCount < Self.capacity * stride {
            byteCount = Self.capacity * stride
            bytes.deallocate()
            bytes = .allocate(byteCount: byteCount, alignment: Self.lineLength)
            bytes.initializeMemory(as: UInt8.self, repeating: 0, count: byteCount)
        }
    }

    /// Adds a packet to `address` and returns it, with space for its trailer at the end.
    func add(
        _ number: Int, address: UnsafeMutableRawPointer, length: socklen_t, control: (UnsafeMutableRawPointer?, Int)
    ) -> UnsafeMutableRawBufferPointer {
        let place = bytes + count * stride
        if count == copies {
            if let source = packet.baseAddress { place.copyMemory(from: source, byteCount: packet.count) }
            vectors[count] = iovec(iov_base: place, iov_len: packet.count + trailerLength)
            copies += 1
        }
        numbers[count] = number
        messages[count].msg_hdr.msg_name = address
        messages[count].msg_hdr.msg_namelen = length
        messages[count].msg_hdr.msg_control = control.0
        messages[count].msg_hdr.msg_controllen = control.1
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
                refused.append(numbers[head])
                head += 1
            }
        }
        count = 0
    }
}
