// libopus's encoder for one mono voice.
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
