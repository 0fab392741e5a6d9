// The trailer on every packet outside QUIC, from the relay or to it: a counter and a short MAC.
import Cryptography

/// Why a packet outside QUIC was not accepted. Nothing changes but a counter of such packets.
public enum TrailerError: Error, Hashable, Sendable, CustomStringConvertible {
    /// Too short to have a trailer.
    case truncated
    /// The counter was received before, or is too far behind to tell.
    case replayed(counter: UInt32)
    /// The packet does not come from the connection's other end, or was changed.
    case notAuthentic
    /// All counters are used, 2^32 of them at most; the connection needs a new key.
    case exhausted

    /// One line for a log.
    public var description: String {
        switch self {
        case .truncated: "the packet is too short to have a trailer"
        case .replayed(let counter): "packet \(counter) was received before or is too old"
        case .notAuthentic: "the packet is not from the connection's other end"
        case .exhausted: "the connection's packet counter is used up"
        }
    }
}

/// The layout of the trailer.
public enum MediaTrailer {
    /// 4 bytes of counter and 12 of MAC.
    public static let byteCount = counterByteCount + tagByteCount
    /// The packets that one key has counters for; none may be used twice.
    public static let counters = UInt64(UInt32.max) + 1
    static let counterByteCount = 4
    static let tagByteCount = 12

    /// The MAC of a packet and the counter behind it; 12 bytes in the order of memory.
    fileprivate static func tag(_ mac: SipHash, _ counted: UnsafeRawBufferPointer) -> (UInt64, UInt32) {
        let whole = mac.tag(of: counted)
        return (whole.0, UInt32(truncatingIfNeeded: whole.1.littleEndian).littleEndian)
    }
}

/// Makes the trailers of one connection. Allocates nothing per packet. A copy counts on from where it was made: a relay lays
/// thousands of them side by side in memory, and uses each in one place.
public struct TrailerSealer: Sendable {
    private let mac: SipHash
    private var counter: UInt64
    private let end: UInt64

    /// Trailers under `key` for at most `maximum` packets, counting from 0.
    public init(
        key: TrailerKey, maximum: UInt64 = MediaTrailer.counters
    ) throws(CryptographyError) {
        try self.init(key: key, firstCounter: 0, maximum: maximum)
    }

    init(
        key: TrailerKey, firstCounter: UInt64, maximum: UInt64 = MediaTrailer.counters
    ) throws(CryptographyError) {
        mac = try SipHash(key: key.bytes)
        counter = firstCounter
        end = min(maximum, MediaTrailer.counters)
    }

    /// The counter of the next packet.
    public var nextCounter: UInt64 { counter }

    /// Whether all counters are used: nothing more is sealed.
    public var isExhausted: Bool { counter >= end }

    /// Writes the trailer into the last 16 bytes of `datagram`, with the next counter; before them is the packet.
    public mutating func seal(_ datagram: UnsafeMutableRawBufferPointer) throws(TrailerError) {
        let carried = datagram.count - MediaTrailer.tagByteCount
        precondition(carried >= MediaTrailer.counterByteCount)
        guard counter < end else { throw .exhausted }
        datagram.storeBytes(
            of: UInt32(truncatingIfNeeded: counter).bigEndian, toByteOffset: carried - MediaTrailer.counterByteCount,
            as: UInt32.self)
        let tag = MediaTrailer.tag(mac, UnsafeRawBufferPointer(rebasing: datagram[..<carried]))
        datagram.storeBytes(of: tag.0, toByteOffset: carried, as: UInt64.self)
        datagram.storeBytes(of: tag.1, toByteOffset: carried + 8, as: UInt32.self)
        counter += 1
    }

    /// `packet` with its trailer, as a new array.
    public mutating func seal(_ packet: [UInt8]) throws(TrailerError) -> [UInt8] {
        var datagram = packet + [UInt8](repeating: 0, count: MediaTrailer.byteCount)
        let result: Result<Void, TrailerError> = datagram.withUnsafeMutableBytes { datagram in
            Result { () throws(TrailerError) in try seal(datagram) }
        }
        try result.get()
        return datagram
    }
}

/// Checks the trailers of one connection. Allocates nothing per packet. Not `Sendable`: one thread at a time.
public final class TrailerOpener {
    private let mac: SipHash
    private var window = ReplayWindow()

    /// Checks under `key`.
    public init(key: TrailerKey) throws(CryptographyError) {
        mac = try SipHash(key: key.bytes)
    }

    /// Checks a packet with its trailer; returns the size of the packet without it, and its counter.
    ///
    /// Throws, without any change, for a packet that is too short, was accepted before, or is not the other end's.
    public func open(_ datagram: UnsafeRawBufferPointer) throws(TrailerError) -> (byteCount: Int, counter: UInt32) {
        let count = datagram.count - MediaTrailer.byteCount
        guard count > 0 else { throw .truncated }
        let counter = UInt32(bigEndian: datagram.loadUnaligned(fromByteOffset: count, as: UInt32.self))
        guard window.allows(UInt64(counter)) else { throw .replayed(counter: counter) }
        let carried = count + MediaTrailer.counterByteCount
        let tag = MediaTrailer.tag(mac, UnsafeRawBufferPointer(rebasing: datagram[..<carried]))
        // All of it is compared, wherever they differ.
        let difference =
            (tag.0 ^ datagram.loadUnaligned(fromByteOffset: carried, as: UInt64.self))
            | UInt64(tag.1 ^ datagram.loadUnaligned(fromByteOffset: carried + 8, as: UInt32.self))
        guard difference == 0 else { throw .notAuthentic }
        _ = window.accept(UInt64(counter))
        return (count, counter)
    }

    /// The packet inside `datagram`, as a new array. For tests and tools.
    public func open(_ datagram: [UInt8]) throws(TrailerError) -> [UInt8] {
        let result: Result<(byteCount: Int, counter: UInt32), TrailerError> = datagram.withUnsafeBytes { datagram in
            Result { () throws(TrailerError) in try open(datagram) }
        }
        return Array(datagram[..<(try result.get().byteCount)])
    }
}
