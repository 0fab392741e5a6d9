// libopus's encoder and decoder for one mono voice, the protection of packets against loss, and the constants of Opus on the wire.
import COpus

/// How speech is encoded (RFC 6716; RFC 7587 for what travels).
public struct OpusSettings: Sendable, Equatable {
    /// The length of a frame.
    public enum FrameDuration: Int, Sendable {
        /// 10 ms: 10 ms sooner, about a third more bytes on the wire.
        case milliseconds10 = 10
        /// 20 ms.
        case milliseconds20 = 20

        /// Samples at 48 kHz.
        public var samples: Int { rawValue * audioClockRate / 1000 }
    }

    /// The length of every frame.
    public var frameDuration = FrameDuration.milliseconds10
    /// Bits per second while nothing is lost, 6 000…128 000.
    public var bitrate = 32_000
    /// Encoder effort, 0…10.
    public var complexity = 8
    /// The loss, in percent, that listeners are taken to have at first: 0…100; see `LossProtection`.
    public var expectedLossPercent = 0

    /// 10 ms frames at 32 kbit/s, complexity 8, no loss expected. Of what was measured (docs/benchmarks.md) less effort or fewer bits are heard,
    /// and more effort is not.
    public init() {}
}

/// An Opus encoder: 48 kHz, mono, VOIP. Allocates in `init` only. Confined to one thread at a time.
final class OpusEncoder {
    /// Samples that an encoder may hold back; 10 ms is above any of libopus's modes.
    private static let lookaheadMax = 480

    /// Samples by which the decoded sound lags behind the samples given.
    let lookahead: Int
    private let state: OpaquePointer

    init(_ settings: OpusSettings) throws(AudioError) {
        var code: Int32 = 0
        guard let made = opus_encoder_create(Int32(audioClockRate), 1, OPUS_APPLICATION_VOIP, &code), code == OPUS_OK
        else { throw .codec(operation: "make an encoder", code: code) }
        state = made
        let options: [(Int32, Int)] = [
            (OPUS_SET_BITRATE_REQUEST, min(128_000, max(6_000, settings.bitrate))),
            (OPUS_SET_COMPLEXITY_REQUEST, min(10, max(0, settings.complexity))),
            (OPUS_SET_SIGNAL_REQUEST, Int(OPUS_SIGNAL_VOICE)),
        ]
        for (request, value) in options {
            let result = ptt_opus_encoder_set(state, request, Int32(value))
            if result != OPUS_OK {
                opus_encoder_destroy(state)
                throw .codec(operation: "set encoder option \(request)", code: result)
            }
        }
        var samples: Int32 = 0
        _ = ptt_opus_encoder_get(state, OPUS_GET_LOOKAHEAD_REQUEST, &samples)
        lookahead = min(Self.lookaheadMax, max(0, Int(samples)))
    }

    deinit { opus_encoder_destroy(state) }

    /// Forgets the sound so far.
    func reset() { _ = ptt_opus_encoder_reset(state) }

    /// Encodes from the next frame on as `protection` says. Allocates nothing.
    ///
    /// libopus refuses none of these values: each is within its bounds by `LossProtection`.
    func protect(_ protection: LossProtection.Encoding) {
        _ = ptt_opus_encoder_set(state, OPUS_SET_BITRATE_REQUEST, Int32(protection.bitrate))
        _ = ptt_opus_encoder_set(
            state, OPUS_SET_MAX_BANDWIDTH_REQUEST,
            protection.isWidebandAtMost ? OPUS_BANDWIDTH_WIDEBAND : OPUS_BANDWIDTH_FULLBAND)
        _ = ptt_opus_encoder_set(state, OPUS_SET_INBAND_FEC_REQUEST, protection.lossPercent > 0 ? 1 : 0)
        _ = ptt_opus_encoder_set(state, OPUS_SET_PACKET_LOSS_PERC_REQUEST, Int32(protection.lossPercent))
    }

    /// Encodes `count` samples (one frame) into `output`.
    ///
    /// - Returns: The packet's length, or a negative Opus error.
    func encode(_ samples: UnsafePointer<Float>, count: Int, into output: UnsafeMutableRawBufferPointer) -> Int32 {
        guard let bytes = output.bindMemory(to: UInt8.self).baseAddress else { return OPUS_BUFFER_TOO_SMALL }
        return opus_encode_float(state, samples, Int32(count), bytes, Int32(min(output.count, opusPayloadMax)))
    }
}

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

/// Which loss the encoder prepares for, from what listeners report.
///
/// Copies (LBRR, RFC 6716, section 4.2.5) come with SILK only, and libopus leaves them out when the bitrate does not carry
/// them: measured with its version 1.3.1 on speech in 10 ms frames, none are in the packets at 24 kbit/s and 3…5 % of
/// loss, and from 10 % on they are bought with bandwidth (medium band). At 32 kbit/s and wide band they always are, at
/// 29 kbit/s in truth, and a lost frame comes back 4…6 dB nearer to what was said than by concealment alone.
struct LossProtection {
    /// What the encoder is to do.
    struct Encoding: Equatable, BitwiseCopyable {
        /// Bits per second.
        var bitrate: Int
        /// Nothing above 8 kHz, which leaves the bits to the copies.
        var isWidebandAtMost: Bool
        /// The loss prepared for, in percent; 0: no copies.
        var lossPercent: Int
    }

    /// From this loss on there are copies.
    static let on = 3
    /// Down to this loss they stay.
    static let off = 1
    /// Preparing for more than this costs speech and helps little: copies mend single losses only.
    private static let percentMax = 30
    /// What libopus takes as a reason to put copies in.
    private static let percentMin = 5
    private static let bitrateMin10 = 32_000
    private static let bitrateMin20 = 28_000

    private let settings: OpusSettings
    private var isOn = false

    init(_ settings: OpusSettings) { self.settings = settings }

    /// Listeners lose `percent` of the packets: what the encoder is to do from now on.
    mutating func expect(percent: Int) -> Encoding {
        isOn = percent >= (isOn ? Self.off + 1 : Self.on)
        let bitrate = min(128_000, max(6_000, settings.bitrate))
        guard isOn else { return Encoding(bitrate: bitrate, isWidebandAtMost: false, lossPercent: 0) }
        let least = settings.frameDuration == .milliseconds10 ? Self.bitrateMin10 : Self.bitrateMin20
        return Encoding(
            bitrate: max(bitrate, least), isWidebandAtMost: true,
            lossPercent: min(Self.percentMax, max(Self.percentMin, percent)))
    }
}

/// The audio clock of everything encoded: RTP units of Opus (RFC 7587, section 4.1), in hertz.
public let audioClockRate = 48_000

/// The longest Opus frame (RFC 6716, section 3.4), in bytes.
public let opusPayloadMax = 1275
