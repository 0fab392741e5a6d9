// Sample-rate conversion of a mono stream: a polyphase windowed-sinc filter with no state but its history.

#if canImport(Glibc)
import Glibc
#else
import Musl
#endif

/// Converts a stream from one rate to another. Allocates in `init` only.
///
/// The filter is a sinc under a Kaiser window (stop band about -80 dB) that cuts below half of the lower rate. Ratios
/// with up to `phaseCountMax` phases are exact; between the phases of others it is interpolated linearly.
final class Resampler {
    /// Accepted rates, in hertz.
    static let rateMin = 4_000
    /// Accepted rates, in hertz.
    static let rateMax = 384_000
    private static let phaseCountMax = 1_024
    private static let tapsAtUnity = 48
    private static let kaiserBeta = 8.0
    /// The pass band as a share of half the lower rate.
    private static let passBand = 0.92

    private let up: Int
    private let down: Int
    private let phases: Int
    private let taps: Int
    /// `phases + 1` rows of `taps` coefficients; the last row is the first moved by one sample, for interpolation.
    private let coefficients: UnsafeMutablePointer<Float>
    private let history: UnsafeMutablePointer<Float>
    private let inputMax: Int
    private var filled: Int
    private var index = 0
    private var phase = 0

    /// A converter that is given at most `inputMax` samples at once. Nil for rates out of range.
    init?(from inputRate: Int, to outputRate: Int, inputMax: Int) {
        guard (Self.rateMin...Self.rateMax).contains(inputRate), (Self.rateMin...Self.rateMax).contains(outputRate),
            inputMax > 0
        else { return nil }
        var (a, b) = (inputRate, outputRate)
        while b != 0 { (a, b) = (b, a % b) }
        up = outputRate / a
        down = inputRate / a
        phases = min(up, Self.phaseCountMax)
        let narrowing = max(1, Double(inputRate) / Double(outputRate))
        taps = (Int((Double(Self.tapsAtUnity) * narrowing).rounded(.up)) + 1) & ~1
        self.inputMax = inputMax
        coefficients = .allocate(capacity: (phases + 1) * taps)
        history = .allocate(capacity: taps + inputMax)
        filled = 0
        let cutoff = Self.passBand / narrowing
        for row in 0...phases {
            var sum = 0.0
            let base = row * taps
            for tap in 0..<taps {
                let distance = Double(tap - (taps / 2 - 1)) - Double(row) / Double(phases)
                let place = distance / Double(taps / 2)
                let window =
                    abs(place) >= 1
                    ? 0 : Self.bessel(Self.kaiserBeta * (1 - place * place).squareRoot()) / Self.bessel(Self.kaiserBeta)
                let angle = Double.pi * distance * cutoff
                let value = (angle == 0 ? cutoff : cutoff * sin(angle) / angle) * window
                coefficients[base + tap] = Float(value)
                sum += value
            }
            for tap in 0..<taps { coefficients[base + tap] /= Float(sum) }
        }
        reset()
    }

    deinit {
        coefficients.deallocate()
        history.deallocate()
    }

    /// The most samples that one call of `process` puts out.
    var outputMax: Int { (inputMax + 1) * up / down + 2 }

    /// Forgets the stream so far: the next sample comes after silence. The first output is at the first input's time,
    /// and comes out once half of the filter's length is known.
    func reset() {
        filled = taps / 2 - 1
        index = 0
        phase = 0
        memset(history, 0, filled * MemoryLayout<Float>.stride)
    }

    /// Takes `count` samples (at most `inputMax`) and puts out what they complete; returns how many those are.
    func process(_ input: UnsafePointer<Float>, count: Int, into output: UnsafeMutablePointer<Float>) -> Int {
        precondition(count <= inputMax)
        memcpy(history + filled, input, count * MemoryLayout<Float>.stride)
        filled += count
        var produced = 0
        while index + taps <= filled {
            let place = phase * phases
            let row = coefficients + (place / up) * taps
            var sum = Self.dot(row, history + index, taps)
            let rest = place % up
            if rest != 0 {
                let next = Self.dot(row + taps, history + index, taps)
                sum += (next - sum) * (Float(rest) / Float(up))
            }
            output[produced] = sum
            produced += 1
            phase += down
            index += phase / up
            phase %= up
        }
        // The index may lie beyond what is there when the ratio is above the number of taps; then keep the distance.
        let used = min(index, filled)
        memmove(history, history + used, (filled - used) * MemoryLayout<Float>.stride)
        filled -= used
        index -= used
        return produced
    }

    private static func dot(_ a: UnsafePointer<Float>, _ b: UnsafePointer<Float>, _ count: Int) -> Float {
        var sum = SIMD8<Float>.zero
        var position = 0
        while position + 8 <= count {
            let left = UnsafeRawPointer(a + position).loadUnaligned(as: SIMD8<Float>.self)
            let right = UnsafeRawPointer(b + position).loadUnaligned(as: SIMD8<Float>.self)
            sum += left * right
            position += 8
        }
        var total = sum.sum()
        while position < count {
            total += a[position] * b[position]
            position += 1
        }
        return total
    }

    /// The modified Bessel function of the first kind, order zero, by its series.
    private static func bessel(_ x: Double) -> Double {
        var (sum, term, k) = (1.0, 1.0, 1.0)
        while term > sum * 1e-12 {
            term *= (x / (2 * k)) * (x / (2 * k))
            sum += term
            k += 1
        }
        return sum
    }
}
