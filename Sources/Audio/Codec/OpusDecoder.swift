// libopus's decoder for one mono voice, with concealment of what did not arrive.
import COpus

/// An Opus decoder: 48 kHz, mono (stereo packets are mixed). Allocates in `init` only. Confined to one thread at a time.
final class OpusDecoder {
    /// The most samples of one packet: 120 ms (RFC 6716, section 3.1).
    static let samplesMax = 5_760

    private let state: OpaquePointer

    init() throws(AudioError) {
        var code: Int32 = 0
        guard let made = opus_decoder_create(Int32(audioClockRate), 1, &code), code == OPUS_OK else {
            throw .codec(operation: "make a decoder", code: code)
        }
        state = made
    }

    deinit { opus_decoder_destroy(state) }

    /// Forgets the sound so far.
    func reset() { _ = ptt_opus_decoder_reset(state) }

    /// Samples at 48 kHz in a packet, from its first bytes; nil when it is no Opus packet.
    static func samples(in packet: UnsafeRawBufferPointer) -> Int? {
        guard !packet.isEmpty, packet.count <= opusPayloadMax,
            let bytes = packet.assumingMemoryBound(to: UInt8.self).baseAddress
        else { return nil }
        let samples = opus_packet_get_nb_samples(bytes, Int32(packet.count), Int32(audioClockRate))
        return samples > 0 && samples <= samplesMax ? Int(samples) : nil
    }

    /// Decodes a packet.
    ///
    /// - Returns: How many samples were put out (at most `samplesMax`), or a negative Opus error.
    func decode(_ packet: UnsafeRawBufferPointer, into output: UnsafeMutablePointer<Float>) -> Int {
        guard !packet.isEmpty, let bytes = packet.assumingMemoryBound(to: UInt8.self).baseAddress else {
            return Int(OPUS_INVALID_PACKET)
        }
        return Int(opus_decode_float(state, bytes, Int32(packet.count), output, Int32(Self.samplesMax), 0))
    }

    /// Restores the `samples` before `packet` from the copy it may carry (in-band FEC), else conceals them.
    func recover(_ samples: Int, from packet: UnsafeRawBufferPointer, into output: UnsafeMutablePointer<Float>) -> Int {
        guard let bytes = packet.assumingMemoryBound(to: UInt8.self).baseAddress else { return 0 }
        return Int(opus_decode_float(state, bytes, Int32(packet.count), output, Int32(samples), 1))
    }

    /// Conceals `samples` (a multiple of 2.5 ms) that continue the last decoded sound.
    func conceal(_ samples: Int, into output: UnsafeMutablePointer<Float>) -> Int {
        Int(opus_decode_float(state, nil, 0, output, Int32(samples), 0))
    }
}
