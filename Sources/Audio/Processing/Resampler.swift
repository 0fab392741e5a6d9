// Sample-rate conversion of a mono stream, by libspeexdsp.
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
