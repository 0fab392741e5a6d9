// What a relay tells a talker of the packets that came from it outside QUIC.

/// Which of a member's packets outside QUIC the relay has received: docs/relay-protocol.md, section 8.4.
///
/// It travels as an application-defined RTCP packet (RFC 3550, section 6.7) with a media trailer, and takes the place of QUIC's
/// acknowledgements.
public struct UplinkReport: Hashable, Sendable {
    /// How many counters before the highest it says something about.
    public static let span = 64
    /// The bytes of the packet, without the trailer.
    public static let byteCount = 24

    /// RTP's version 2, no padding, subtype 0.
    private static let firstByte: UInt8 = 0x80
    /// RTCP's packet type APP.
    private static let packetType: UInt8 = 204
    /// RTCP's length: 32-bit words less one.
    private static let length = UInt16(byteCount / 4 - 1)
    /// "pttd".
    private static let name: UInt32 = 0x7074_7464

    /// The source of the member that it is for.
    public var ssrc: SSRC
    /// The highest counter that was received.
    public var highest: UInt32
    /// The counters before it: bit n, from the lowest, says whether `highest - 1 - n` was received.
    public var earlier: UInt64

    /// A report with all its values.
    public init(ssrc: SSRC, highest: UInt32, earlier: UInt64 = 0) {
        self.ssrc = ssrc
        self.highest = highest
        self.earlier = earlier
    }

    /// Whether a packet without its trailer is one, and none of media: RTP's payload types with the marker are not used for that type
    /// (RFC 5761, section 4).
    public static func isOne(_ packet: UnsafeRawBufferPointer) -> Bool {
        packet.count >= 2 && packet[1] == packetType
    }

    /// Reads a packet without its trailer; nil: it is no such report, or longer or shorter than one.
    public init?(parsing packet: UnsafeRawBufferPointer) {
        guard packet.count == Self.byteCount, packet[0] == Self.firstByte, Self.isOne(packet),
            UInt16(bigEndian: packet.loadUnaligned(fromByteOffset: 2, as: UInt16.self)) == Self.length,
            UInt32(bigEndian: packet.loadUnaligned(fromByteOffset: 8, as: UInt32.self)) == Self.name
        else { return nil }
        ssrc = SSRC(rawValue: UInt32(bigEndian: packet.loadUnaligned(fromByteOffset: 4, as: UInt32.self)))
        highest = UInt32(bigEndian: packet.loadUnaligned(fromByteOffset: 12, as: UInt32.self))
        earlier = UInt64(bigEndian: packet.loadUnaligned(fromByteOffset: 16, as: UInt64.self))
    }

    /// Writes it into the first `byteCount` bytes of `buffer`.
    public func write(to buffer: UnsafeMutableRawBufferPointer) {
        precondition(buffer.count >= Self.byteCount)
        buffer[0] = Self.firstByte
        buffer[1] = Self.packetType
        buffer.storeBytes(of: Self.length.bigEndian, toByteOffset: 2, as: UInt16.self)
        buffer.storeBytes(of: ssrc.rawValue.bigEndian, toByteOffset: 4, as: UInt32.self)
        buffer.storeBytes(of: Self.name.bigEndian, toByteOffset: 8, as: UInt32.self)
        buffer.storeBytes(of: highest.bigEndian, toByteOffset: 12, as: UInt32.self)
        buffer.storeBytes(of: earlier.bigEndian, toByteOffset: 16, as: UInt64.self)
    }

    /// Whether it says that the packet of `counter` came; nil: it says nothing of that one.
    public func has(_ counter: UInt32) -> Bool? {
        guard counter < highest else { return counter == highest ? true : nil }
        let distance = highest - counter
        return distance <= Self.span ? earlier >> UInt64(distance - 1) & 1 == 1 : nil
    }
}
