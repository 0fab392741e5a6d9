// The RTP header of every media packet (RFC 3550, section 5.1), in the one form this protocol allows.

/// Why bytes are not an RTP packet of this protocol.
public enum RTPError: Error, Hashable, Sendable, CustomStringConvertible {
    /// Fewer than 12 bytes.
    case truncated
    /// The version is not 2.
    case wrongVersion(UInt8)
    /// Padding, an extension header or contributing sources, none of which this protocol uses.
    case unsupportedFeature
    /// A payload type that is not Opus in this protocol.
    case wrongPayloadType(UInt8)

    /// One line for a log.
    public var description: String {
        switch self {
        case .truncated: "fewer than \(RTPHeader.byteCount) bytes are no RTP packet"
        case .wrongVersion(let version): "RTP version \(version) instead of 2"
        case .unsupportedFeature: "RTP with padding, extension or contributing sources"
        case .wrongPayloadType(let type): "RTP payload type \(type) instead of \(RTPHeader.payloadType)"
        }
    }
}

/// The 12 bytes in front of every sealed Opus frame: version 2, no padding, extension or contributing sources,
/// payload type 111, a clock of 48 kHz (RFC 7587).
public struct RTPHeader: Hashable, Sendable {
    /// The size of the header.
    public static let byteCount = 12
    /// The payload type of sealed Opus.
    public static let payloadType: UInt8 = 111
    /// Units of `timestamp` in a second.
    public static let clockRate = 48_000

    /// Whether this is the first packet of a burst.
    public var marker: Bool
    /// The packet's number, one more than that of the packet before it.
    public var sequence: UInt16
    /// When the frame's first sample was taken, in units of 1/48000 s.
    public var timestamp: UInt32
    /// Who talks.
    public var ssrc: SSRC

    /// A header.
    public init(marker: Bool, sequence: UInt16, timestamp: UInt32, ssrc: SSRC) {
        self.marker = marker
        self.sequence = sequence
        self.timestamp = timestamp
        self.ssrc = ssrc
    }

    /// Reads the header at the beginning of `packet`.
    public init(parsing packet: UnsafeRawBufferPointer) throws(RTPError) {
        guard packet.count >= Self.byteCount else { throw .truncated }
        guard packet[0] >> 6 == 2 else { throw .wrongVersion(packet[0] >> 6) }
        guard packet[0] & 0x3F == 0 else { throw .unsupportedFeature }
        guard packet[1] & 0x7F == Self.payloadType else { throw .wrongPayloadType(packet[1] & 0x7F) }
        marker = packet[1] & 0x80 != 0
        sequence = UInt16(bigEndian: packet.loadUnaligned(fromByteOffset: 2, as: UInt16.self))
        timestamp = UInt32(bigEndian: packet.loadUnaligned(fromByteOffset: 4, as: UInt32.self))
        ssrc = SSRC(rawValue: UInt32(bigEndian: packet.loadUnaligned(fromByteOffset: 8, as: UInt32.self)))
    }

    /// Reads the header at the beginning of `packet`.
    public init(parsing packet: [UInt8]) throws(RTPError) {
        let result: Result<RTPHeader, RTPError> = packet.withUnsafeBytes { packet in
            Result { () throws(RTPError) in try RTPHeader(parsing: packet) }
        }
        self = try result.get()
    }

    /// Writes the header to the first 12 bytes of `output`.
    public func write(to output: UnsafeMutableRawBufferPointer) {
        precondition(output.count >= Self.byteCount)
        output[0] = 0x80
        output[1] = (marker ? 0x80 : 0) | Self.payloadType
        output.storeBytes(of: sequence.bigEndian, toByteOffset: 2, as: UInt16.self)
        output.storeBytes(of: timestamp.bigEndian, toByteOffset: 4, as: UInt32.self)
        output.storeBytes(of: ssrc.rawValue.bigEndian, toByteOffset: 8, as: UInt32.self)
    }

    /// The 12 bytes.
    public var bytes: [UInt8] {
        [UInt8](unsafeUninitializedCapacity: Self.byteCount) { buffer, count in
            write(to: UnsafeMutableRawBufferPointer(buffer))
            count = Self.byteCount
        }
    }

    /// Whether a UDP packet with this first byte is RTP and not QUIC (RFC 9443, section 2).
    public static func isRTP(firstByte: UInt8) -> Bool { (128...191).contains(firstByte) }
}
