// What a relay reads of a media packet: who sent it and under which key. It cannot read the rest.
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
