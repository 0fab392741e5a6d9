// How long an Opus packet sounds, and packets that stand for ones that are missing (RFC 6716, section 3; RFC 7845, section 4.1).

/// Opus packets, as far as a container has to know them.
enum OpusPacketLength {
    /// The longest packet: 120 ms (RFC 6716, section 3.2.5), in samples of 48 kHz.
    static let samplesMax = 5_760

    /// The samples of 48 kHz that a packet decodes to; nil: it is none.
    static func samples(of packet: [UInt8]) -> Int? {
        guard let toc = packet.first else { return nil }
        let frames: Int
        switch toc & 3 {
        case 0: frames = 1
        case 1:
            // Two frames of one length.
            guard packet.count % 2 == 1 else { return nil }
            frames = 2
        case 2:
            guard packet.count > 1 else { return nil }
            frames = 2
        default:
            guard packet.count > 1, packet[1] & 63 > 0 else { return nil }
            frames = Int(packet[1] & 63)
        }
        let samples = frames * frameSamples(toc)
        return samples <= samplesMax ? samples : nil
    }

    /// A packet of one frame without a byte, which asks the decoder to conceal that much; and how much that is.
    ///
    /// - Parameter packet: The one before the gap, whose mode it goes on with.
    static func missing(after packet: [UInt8]) -> (packet: [UInt8], samples: Int) {
        let toc = (packet.first ?? 0) & ~3
        return ([toc], frameSamples(toc))
    }

    /// One frame of this configuration (RFC 6716, table 2).
    private static func frameSamples(_ toc: UInt8) -> Int {
        let configuration = Int(toc >> 3)
        return switch configuration {
        case 0..<12: [480, 960, 1_920, 2_880][configuration % 4]  // SILK: 10, 20, 40, 60 ms
        case 12..<16: [480, 960][configuration % 2]  // Hybrid: 10, 20 ms
        default: [120, 240, 480, 960][configuration % 4]  // CELT: 2.5, 5, 10, 20 ms
        }
    }
}
