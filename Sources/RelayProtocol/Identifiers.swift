// The names of things on the wire: channels, members, sources, requests. Each is checked when it comes in.
import Cryptography
import FoundationEssentials

/// A channel, named by a UUID that its invitation carries.
public struct ChannelID: Hashable, Sendable, CustomStringConvertible {
    /// The number of bytes on the wire.
    public static let byteCount = 16
    /// The channel's UUID.
    public var uuid: UUID

    /// The channel of that UUID.
    public init(_ uuid: UUID) {
        self.uuid = uuid
    }

    /// A channel that nobody has used yet: a random UUID (RFC 9562, version 4).
    public init() {
        uuid = UUID()
    }

    /// The channel of a UUID in text form ("01234567-89AB-…", either case), nil when it is not one.
    public init?(_ text: some StringProtocol) {
        guard let uuid = UUID(uuidString: String(text)) else { return nil }
        self.uuid = uuid
    }

    /// The channel of 16 bytes in network order, nil for any other number of bytes.
    public init?(bytes: some Collection<UInt8>) {
        guard bytes.count == Self.byteCount else { return nil }
        var value: uuid_t = (0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0)
        withUnsafeMutableBytes(of: &value) { $0.copyBytes(from: bytes) }
        uuid = UUID(uuid: value)
    }

    /// The UUID's 16 bytes in network order.
    public var bytes: [UInt8] { withUnsafeBytes(of: uuid.uuid) { [UInt8]($0) } }

    /// The UUID in lower case.
    public var description: String { uuid.uuidString.lowercased() }
}

/// A member of a channel: the first 16 bytes of the SHA-256 of its public key. It is the same after a reconnect, on
/// every relay, and cannot be chosen.
public struct MemberID: Hashable, Sendable, CustomStringConvertible {
    /// The number of bytes on the wire.
    public static let byteCount = 16
    private let high: UInt64
    private let low: UInt64

    /// The member with that public key.
    public init(_ key: PublicKeyPin) {
        self.init(unchecked: key.bytes)
    }

    /// The member of 16 bytes, nil for any other number of bytes.
    public init?(bytes: some Collection<UInt8>) {
        guard bytes.count == Self.byteCount else { return nil }
        self.init(unchecked: bytes)
    }

    private init(unchecked bytes: some Collection<UInt8>) {
        high = bytes.prefix(8).reduce(0) { $0 << 8 | UInt64($1) }
        low = bytes.dropFirst(8).prefix(8).reduce(0) { $0 << 8 | UInt64($1) }
    }

    /// The 16 bytes.
    public var bytes: [UInt8] {
        [high, low].flatMap { word in (0..<8).map { UInt8(truncatingIfNeeded: word >> (56 - 8 * $0)) } }
    }

    /// 32 hexadecimal digits.
    public var description: String { Hexadecimal.encode(bytes) }
}

/// An RTP synchronization source: the talker of a packet, assigned by the relay for one connection.
public struct SSRC: RawRepresentable, Hashable, Sendable, CustomStringConvertible {
    /// The 32-bit number in the RTP header.
    public var rawValue: UInt32
    /// The source of that number.
    public init(rawValue: UInt32) { self.rawValue = rawValue }
    /// Eight hexadecimal digits.
    public var description: String { Hexadecimal.encode(rawValue.bigEndianBytes) }
}

/// One press of the talk button on one connection: named by the client, counted up from 1.
public struct FloorRequestID: RawRepresentable, Hashable, Comparable, Sendable, CustomStringConvertible {
    /// The number on the wire; 0 is not one.
    public var rawValue: UInt32
    /// The request of that number.
    public init(rawValue: UInt32) { self.rawValue = rawValue }
    /// The first request of a connection.
    public static let first = FloorRequestID(rawValue: 1)
    /// The request after this one.
    public var next: FloorRequestID { FloorRequestID(rawValue: rawValue &+ 1) }
    /// Whether `lhs` was made before `rhs`.
    public static func < (lhs: FloorRequestID, rhs: FloorRequestID) -> Bool { lhs.rawValue < rhs.rawValue }
    /// The number.
    public var description: String { String(rawValue) }
}

extension FixedWidthInteger {
    /// The bytes, most significant first.
    var bigEndianBytes: [UInt8] { withUnsafeBytes(of: bigEndian) { [UInt8]($0) } }
}

extension ChannelID {
    /// The number of shares of each cluster. Relays of a cluster have to agree on it, so it does not change.
    public static let shareCount = 64

    /// The number of the share that the channel is in, of `count`: FNV-1a (64 bits) of its bytes, folded.
    public func share(of count: Int = shareCount) -> Int {
        let hash = bytes.reduce(0xCBF2_9CE4_8422_2325 as UInt64) { ($0 ^ UInt64($1)) &* 0x100_0000_01B3 }
        return Int((hash ^ hash >> 32) % UInt64(max(1, count)))
    }
}
