// Changes the rate of a mono stream, by libspeexdsp: between sample rates, and by a few hundred parts per million.
import CSpeexDSP
import Glibc

/// Converts a stream from one rate to another, by speexdsp's windowed sinc. Allocates in `init` only.
final class Resampler {
    /// Accepted rates, in hertz.
    static let rateMin = 4_000
    /// Accepted rates, in hertz.
    static let rateMax = 384_000
    /// speexdsp's scale of 0…10, its own choice for speech: 24 samples of the lower rate are held back; a sine comes out 93 dB
    /// above what is wrong with it.
    private static let quality: Int32 = 3

    private let up: Int
    private let down: Int
    private let inputMax: Int
    private let state: OpaquePointer

    /// A converter that is given at most `inputMax` samples at once. Nil for rates out of range.
    init?(from inputRate: Int, to outputRate: Int, inputMax: Int) {
        guard (Self.rateMin...Self.rateMax).contains(inputRate), (Self.rateMin...Self.rateMax).contains(outputRate),
            (1...Int(UInt16.max)).contains(inputMax)
        else { return nil }
        var (a, b) = (inputRate, outputRate)
        while b != 0 { (a, b) = (b, a % b) }
        up = outputRate / a
        down = inputRate / a
        self.inputMax = inputMax
        var code: Int32 = 0
        guard let made = speex_resampler_init(1, UInt32(inputRate), UInt32(outputRate), Self.quality, &code) else {
            return nil
        }
        state = made
        reset()
    }

    deinit { speex_resampler_destroy(state) }

    /// The most samples that one call of `process` puts out.
    var outputMax: Int { (inputMax + 1) * up / down + 2 }

    /// Forgets the stream so far: the next sample comes after silence. The first output is at the first input's time,
    /// and comes out once half of the filter's length is known.
    func reset() {
        speex_resampler_reset_mem(state)
        speex_resampler_skip_zeros(state)
    }

    /// Takes `count` samples (at most `inputMax`) and puts out what they complete; returns how many those are.
    func process(_ input: UnsafePointer<Float>, count: Int, into output: UnsafeMutablePointer<Float>) -> Int {
        precondition(count <= inputMax)
        var taken = 0
        var produced = 0
        while taken < count {
            var inputLength = UInt32(count - taken)
            var outputLength = UInt32(outputMax - produced)
            let result = speex_resampler_process_float(
                state, 0, input + taken, &inputLength, output + produced, &outputLength)
            taken += Int(inputLength)
            produced += Int(outputLength)
            // It takes all that it is given while there is room, and there is; nothing taken would never end.
            if result != 0 || (inputLength == 0 && outputLength == 0) { break }
        }
        return produced
    }
}

/// Takes out, or puts in, a sample here and there by band-limited interpolation. Until a drift is known it passes samples
/// on unchanged and without delay; from then on it is half a millisecond of delay. Allocates in `init` only.
final class DriftCorrector {
    /// A prime, so that no ratio can be reduced: the filter's table then has one size for all of them.
    private static let denominator: UInt32 = 999_983
    /// Of speexdsp, 0…10: a stop band of about -80 dB.
    private static let quality: Int32 = 4
    /// Drifts below this, in parts per million, are left alone: 0.2 s of talk for a sample.
    static let correctFrom = 5.0
    /// A change below this is not worth a new table.
    private static let changeMin = 2.0

    private let state: OpaquePointer
    /// Half of the filter's length: samples by which the output is behind.
    let delay: Int
    private var dropped = 0
    private let scratch: UnsafeMutablePointer<Float>
    private(set) var partsPerMillion = 0.0
    /// Whether samples go through the filter.
    private(set) var isEngaged = false

    init() throws(AudioError) {
        var code: Int32 = 0
        // A ratio of the kind that is used later, so that all memory is taken now.
        let rate = UInt32(audioClockRate)
        guard
            let made = speex_resampler_init_frac(
                1, Self.denominator + 500, Self.denominator, rate, rate, Self.quality, &code),
            code == 0
        else { throw .codec(operation: "make a resampler", code: code) }
        state = made
        delay = Int(speex_resampler_get_input_latency(made))
        scratch = .allocate(capacity: 4 * delay)
        scratch.initialize(repeating: 0, count: 4 * delay)
    }

    deinit {
        speex_resampler_destroy(state)
        scratch.deallocate()
    }

    /// The talker's clock is so much faster than the speaker's (below zero: slower), in parts per million.
    func set(_ drift: Double) {
        let drift = min(ClockSlope.limit, max(-ClockSlope.limit, drift))
        guard abs(drift - partsPerMillion) >= Self.changeMin || (drift == 0) != (partsPerMillion == 0) else { return }
        partsPerMillion = drift
        var steps = Int64((drift * Double(Self.denominator) / 1e6).rounded())
        // One to one would be another kind of table.
        if steps == 0 { steps = 1 }
        let rate = UInt32(audioClockRate)
        _ = speex_resampler_set_rate_frac(
            state, UInt32(Int64(Self.denominator) + steps), Self.denominator, rate, rate)
    }

    /// A burst begins.
    func begin() {
        isEngaged = abs(partsPerMillion) >= Self.correctFrom
        dropped = 0
        if isEngaged {
            _ = speex_resampler_reset_mem(state)
            _ = speex_resampler_skip_zeros(state)
        }
    }

    /// Whether there is something to correct in the middle of speech.
    var isWanted: Bool { !isEngaged && abs(partsPerMillion) >= Self.correctFrom }

    /// Begins in the middle of speech, without a step. `history`: the `2 * delay` samples that were played last.
    func engage(_ history: UnsafePointer<Float>) {
        isEngaged = true
        _ = speex_resampler_reset_mem(state)
        // Fill the filter with what was heard; of its answers, the last half belongs to samples heard already, too.
        var (input, output) = (UInt32(2 * delay), UInt32(4 * delay))
        _ = speex_resampler_process_float(state, 0, history, &input, scratch, &output)
        dropped = 3 * delay - Int(output)
    }

    /// Takes of `input` what it needs and puts out at most `wanted` samples.
    func process(_ input: UnsafePointer<Float>, count: Int, into output: UnsafeMutablePointer<Float>, wanted: Int)
        -> (taken: Int, made: Int)
    {
        guard isEngaged else {
            let part = min(count, wanted)
            output.update(from: input, count: part)
            return (part, part)
        }
        var taken = 0
        while dropped > 0, taken < count {
            var (given, made) = (UInt32(count - taken), UInt32(min(dropped, 4 * delay)))
            _ = speex_resampler_process_float(state, 0, input + taken, &given, scratch, &made)
            taken += Int(given)
            dropped -= Int(made)
            if given == 0, made == 0 { break }
        }
        var (given, made) = (UInt32(count - taken), UInt32(wanted))
        guard given > 0, dropped == 0 else { return (taken, 0) }
        _ = speex_resampler_process_float(state, 0, input + taken, &given, output, &made)
        return (taken + Int(given), Int(made))
    }
}
