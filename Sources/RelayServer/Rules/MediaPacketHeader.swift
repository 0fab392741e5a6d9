// What a relay reads of media packets: who sent them, under which key, and how long the speech in them is. It cannot read the rest.
import RelayProtocol
import SFrame

/// The fields of an up-link packet that bind it to a member and to the floor.
public struct MediaPacketHeader: Sendable, Hashable {
    /// The RTP source.
    public var ssrc: SSRC
    /// The RTP sequence number.
    public var sequence: UInt16
    /// The RTP marker: the burst's first packet.
    public var marker: Bool
    /// The SFrame key id.
    public var keyID: UInt64

    /// The burst that it belongs to.
    var burst: BurstName { BurstName(ssrc: ssrc, keyID: keyID) }

    /// The least bytes of a packet: RTP header, SFrame header, one byte of Opus and the tag.
    public static let packetBytesMinimum = RTPHeader.byteCount + 1 + 1 + 16
}

extension MediaPacketHeader {
    /// The same of a packet that may have `limit` bytes.
    init?(parsing packet: [UInt8], limit: Int) {
        guard packet.count <= limit, let header = packet.withUnsafeBytes({ Self(parsing: $0) }) else { return nil }
        self = header
    }

    /// The source that a packet with its trailer names, whatever else it is; nil: it is too short.
    static func source(of packet: UnsafeRawBufferPointer) -> SSRC? {
        guard packet.count >= packetBytesMinimum + MediaTrailer.byteCount else { return nil }
        return SSRC(rawValue: UInt32(bigEndian: packet.loadUnaligned(fromByteOffset: 8, as: UInt32.self)))
    }

    /// Reads them from a packet; `nil` when it is not RTP with an SFrame payload as the protocol has them.
    public init?(parsing packet: UnsafeRawBufferPointer) {
        guard packet.count >= Self.packetBytesMinimum, let rtp = try? RTPHeader(parsing: packet),
            let frame = try? SFrameHeader(parsing: UnsafeRawBufferPointer(rebasing: packet[RTPHeader.byteCount...])),
            // Whatever its header says of its own length, a byte of Opus and the tag have room behind it.
            packet.count > RTPHeader.byteCount + frame.byteCount + SFrameCipherSuite.aes128GCMSHA256.tagByteCount
        else { return nil }
        self.init(ssrc: rtp.ssrc, sequence: rtp.sequence, marker: rtp.marker, keyID: frame.keyID.rawValue)
    }
}

/// The length of a burst's speech, by the RTP time stamps of its packets.
struct SpeechLength: Sendable {
    /// Samples a second of the RTP clock (RFC 7587).
    private static let clockRate: Int64 = 48_000
    /// A packet of 20 ms, in samples: what a burst of one packet is taken for.
    private static let frameDefault: UInt32 = 960

    private var first: (number: Int64, timestamp: UInt32)?
    private var last: (number: Int64, timestamp: UInt32)?
    /// The shortest distance of two packets in a row.
    private var frame: UInt32?

    /// A packet came that is of that number in its burst.
    mutating func note(_ packet: [UInt8], _ number: Int64) {
        guard let timestamp = packet.withUnsafeBytes({ try? RTPHeader(parsing: $0).timestamp }) else { return }
        if let last, number == last.number + 1 {
            let step = timestamp &- last.timestamp
            if step > 0, step < frame ?? 2 * Self.frameDefault { frame = step }
        }
        if number < first?.number ?? .max { first = (number, timestamp) }
        if number > last?.number ?? .min { last = (number, timestamp) }
    }

    /// From the beginning of its first packet to the end of its last; zero without packets.
    var duration: Duration {
        guard let first, let last else { return .zero }
        let samples = Int64(last.timestamp &- first.timestamp) + Int64(frame ?? Self.frameDefault)
        return .nanoseconds(samples * 1_000_000_000 / Self.clockRate)
    }
}
