// The sound of a spoken prompt, ready to be mixed: read from a WAV file in memory, at 48 kHz and as loud as speech.
import Glibc
import Vocabulary

/// Why a speech program's output is not played.
public enum PromptSoundError: Error, Equatable, Sendable, CustomStringConvertible {
    /// It is not a WAV file that can be played, for this reason.
    case malformed(String)
    /// It has no sound.
    case silent
    /// It is longer than `PromptSound.lengthMax`.
    case tooLong

    /// What is wrong.
    public var description: String {
        switch self {
        case .malformed(let reason): "its output is not a usable WAV file: \(reason)"
        case .silent: "its output has no sound"
        case .tooLong: "its output is longer than \(PromptSound.lengthMax)"
        }
    }
}

/// What is said, as samples. Any thread may read them.
public final class PromptSound: @unchecked Sendable {
    /// The longest sound.
    public static let lengthMax = Duration.seconds(15)
    /// Samples of the file that are converted at once.
    private static let part = 1_024
    /// What is less loud than this, in parts of the peak, is no speech.
    private static let speechShare: Float = 0.02

    /// Samples at 48 kHz; they stay where they are until the end of this object.
    let samples: UnsafePointer<Float>
    let count: Int

    /// How long it is.
    public var length: Duration { .nanoseconds(Int64(count) * 1_000_000_000 / Int64(audioClockRate)) }

    /// Reads the bytes of a WAV file. Its sizes may be those of a file that was written into a pipe.
    public convenience init(wav bytes: [UInt8]) throws(PromptSoundError) {
        let layout: WAVLayout
        do throws(AudioFault) {
            layout = try WAVLayout(size: bytes.count) { offset, count in
                guard offset <= bytes.count, count <= bytes.count - offset else { return nil }
                return Array(bytes[offset..<offset + count])
            }
        } catch {
            throw .malformed("\(WAVProblem(rawValue: error.code) ?? .unreadable)")
        }
        let frames = layout.dataSize / (layout.channels * layout.format.bytesPerSample)
        guard frames <= Int(Self.lengthMax.components.seconds) * layout.rate else { throw .tooLong }
        guard var samples = Self.converted(bytes, layout, frames: frames) else {
            throw .malformed("\(WAVProblem.unsupportedRate)")
        }
        guard Self.level(&samples) else { throw .silent }
        self.init(samples)
    }

    /// A sound of these samples at 48 kHz.
    init(_ samples: [Float]) {
        let memory = UnsafeMutablePointer<Float>.allocate(capacity: max(1, samples.count))
        memory.initialize(repeating: 0, count: max(1, samples.count))
        for (index, sample) in samples.enumerated() { memory[index] = sample }
        self.samples = UnsafePointer(memory)
        count = samples.count
    }

    deinit { samples.deallocate() }

    private static func converted(_ bytes: [UInt8], _ layout: WAVLayout, frames: Int) -> [Float]? {
        guard let resampler = Resampler(from: layout.rate, to: audioClockRate, inputMax: part) else { return nil }
        let bytesPerFrame = layout.channels * layout.format.bytesPerSample
        var input = [Float](repeating: 0, count: part)
        var output = [Float](repeating: 0, count: resampler.outputMax)
        var samples: [Float] = []
        samples.reserveCapacity(frames * audioClockRate / layout.rate + resampler.outputMax)
        bytes.withUnsafeBytes { bytes in
            guard let base = bytes.baseAddress else { return }
            for start in stride(from: 0, to: frames, by: part) {
                let count = min(part, frames - start)
                layout.format.decode(
                    base + layout.dataOffset + start * bytesPerFrame, frames: count, channels: layout.channels,
                    into: &input)
                let made = resampler.process(input, count: count, into: &output)
                samples.append(contentsOf: output[..<made])
            }
        }
        return samples
    }

    /// Makes it as loud as received speech, with no sample above its ceiling. Returns whether there is anything to hear.
    private static func level(_ samples: inout [Float]) -> Bool {
        let peak = samples.reduce(0) { max($0, abs($1)) }
        guard peak > 0.001 else { return false }
        var (power, spoken): (Double, Int) = (0, 0)
        for sample in samples where abs(sample) > peak * speechShare {
            power += Double(sample * sample)
            spoken += 1
        }
        let loudness = Float((power / Double(max(1, spoken))).squareRoot())
        let gain = min(powf(10, GainControl.target / 20) / loudness, GainControl.ceiling / peak)
        for index in samples.indices { samples[index] *= gain }
        return true
    }
}
