// What a UDP payload is, by its first bytes. Pure.

/// Which of the protocols that share a port a packet belongs to (RFC 9443, section 3).
enum PacketClass: Equatable {
    /// A QUIC packet with a long header.
    case longHeader
    /// A QUIC packet with a short header.
    case shortHeader
    /// First byte 128…191: RTP, RTCP; the application's.
    case foreign
    /// Nothing this endpoint speaks.
    case unknown

    init(firstByte: UInt8) {
        switch firstByte {
        case 64...127: self = .shortHeader
        case 128...191: self = .foreign
        case 192...255: self = .longHeader
        default: self = .unknown
        }
    }
}

/// A QUIC connection id: at most 20 bytes, kept inline so that looking one up allocates nothing.
struct ConnectionID: Hashable {
    /// What this endpoint's own ids have: two bytes of worker number, sixteen of chance.
    static let ownLength = 18
    static let maximumLength = 20

    private let first: UInt64
    private let second: UInt64
    private let third: UInt32
    private let count: UInt8

    /// The id in `bytes`, or nil when it is longer than QUIC version 1 allows.
    init?(_ bytes: UnsafeRawBufferPointer) {
        guard bytes.count <= Self.maximumLength else { return nil }
        var storage: (UInt64, UInt64, UInt64) = (0, 0, 0)
        withUnsafeMutableBytes(of: &storage) { $0.copyMemory(from: bytes) }
        first = storage.0
        second = storage.1
        third = UInt32(truncatingIfNeeded: storage.2)
        count = UInt8(bytes.count)
    }

    /// The destination of a short-header packet, which has one of this endpoint's own ids.
    init?(shortHeader packet: UnsafeRawBufferPointer) {
        guard packet.count > Self.ownLength else { return nil }
        self.init(UnsafeRawBufferPointer(rebasing: packet[1..<(1 + Self.ownLength)]))
    }
}
