// How long an Opus packet sounds, and packets that stand for ones that are missing (RFC 6716, section 3; RFC 7845, section 4.1).

import Audio
import COpus

/// Opus packets, as far as a container has to know them.
enum OpusPacketLength {
    /// The longest packet: 120 ms (RFC 6716, section 3.2.5), in samples of 48 kHz.
    static let samplesMax = 5_760
    /// Frames of 2.5 ms in it.
    private static let framesMax = 48
    private static let rate: Int32 = 48_000

    /// The samples of 48 kHz that a packet decodes to; nil: it is none.
    static func samples(of packet: [UInt8]) -> Int? {
        guard packet.count <= opusPayloadMax else { return nil }
        // The lengths of its frames are looked at, too: a player may refuse the whole file for one that is not whole.
        let frames = withUnsafeTemporaryAllocation(of: Int16.self, capacity: framesMax) { lengths in
            lengths.baseAddress.map { opus_packet_parse(packet, Int32(packet.count), nil, nil, $0, nil) } ?? 0
        }
        guard frames > 0 else { return nil }
        let samples = Int(opus_packet_get_nb_samples(packet, Int32(packet.count), rate))
        return (1...samplesMax).contains(samples) ? samples : nil
    }

    /// A packet of one frame without a byte, which asks the decoder to conceal that much; and how much that is.
    ///
    /// - Parameter packet: The one before the gap, whose mode it goes on with.
    static func missing(after packet: [UInt8]) -> (packet: [UInt8], samples: Int) {
        let toc = (packet.first ?? 0) & ~3
        return ([toc], Int(opus_packet_get_samples_per_frame([toc], rate)))
    }
}
