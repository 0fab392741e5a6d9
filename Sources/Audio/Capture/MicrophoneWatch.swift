// Notices a microphone that falls silent within a burst. Pure.
import MonotonicTime

/// A watch over what a running microphone gives: a real one always gives a little noise. Samples that stay at one value, or none at
/// all, mean that it is muted, that its link is down, or that its driver has died.
///
/// A quiet room is no such silence. Some headsets cut off all noise between words, though: a microphone that was seen to do so is given
/// more time.
struct MicrophoneWatch {
    /// What comes of what the device gave.
    enum Outcome: Equatable {
        case nothing
        /// It has given no sound for `limit`.
        case fellSilent
        /// It gives sound again.
        case heardAgain
        /// It has given no sound for `end`: nobody is to talk into it any longer.
        case dead
    }

    /// Silence after which it is told: with the time that samples are on their way, within 300 ms.
    static let limit = Duration.milliseconds(250)
    /// Silence that ends a burst. A person who is heard by nobody does not wait for longer, and one who takes a breath does not need it.
    static let end = Duration.seconds(2)
    /// Pauses of digital silence after quiet sound that make it a microphone that cuts off noise.
    static let gatedPauses = 3
    /// A shorter pause says nothing: samples may be missing.
    private static let pauseMin = Duration.milliseconds(30)
    /// Sound that is louder before the silence was not cut off for being noise: -45 dBFS, as mean power.
    private static let quiet: Float = 3.2e-5
    /// The difference between samples of one value: less than any noise at 16 bits. A converter of rates adds a little of the value.
    private static let difference: Float = 1e-6
    private static let differencePerValue: Float = 2e-4
    private static let window = audioClockRate / 100
    /// Of a single wait for the device no more is counted: the machine may have been halted.
    private static let waitMax = StallClock.waitMax

    /// Whether it has been told that the microphone is silent.
    private(set) var isSilent = false
    /// Whether the microphone has been seen to cut off noise.
    private(set) var isGated = false

    private var silence = Duration.zero
    private var lookedAt = Instant.zero
    private var pauses = 0
    /// The mean power of the last window with sound.
    private var lastPower: Float = 0
    // The window that is being filled.
    private var count = 0
    private var least: Float = 0
    private var most: Float = 0
    private var sum: Float = 0
    private var power: Float = 0

    /// The device begins to run, or a burst begins. What is known of the microphone stays.
    mutating func begin(at now: Instant) {
        isSilent = false
        silence = .zero
        lookedAt = now
        lastPower = 0
        count = 0
    }

    /// The device gave `samples`.
    mutating func take(_ samples: UnsafePointer<Float>, count taken: Int, at now: Instant) -> Outcome {
        lookedAt = now
        var outcome = Outcome.nothing
        for index in 0..<taken {
            let sample = samples[index]
            if count == 0 { (least, most, sum, power) = (sample, sample, 0, 0) }
            least = min(least, sample)
            most = max(most, sample)
            sum += sample
            power += sample * sample
            count += 1
            guard count == Self.window else { continue }
            count = 0
            let mean = abs(sum) / Float(Self.window)
            let next =
                most - least <= Self.difference + mean * Self.differencePerValue
                ? silent(for: .milliseconds(10)) : heard(power / Float(Self.window))
            if next != .nothing { outcome = next }
        }
        return outcome
    }

    /// The device was waited for and gave nothing.
    mutating func takeNothing(at now: Instant) -> Outcome {
        let passed = max(.zero, min(now - lookedAt, Self.waitMax))
        lookedAt = now
        return silent(for: passed)
    }

    private mutating func silent(for span: Duration) -> Outcome {
        let before = silence
        silence += span
        if silence >= Self.end { return before < Self.end ? .dead : .nothing }
        guard !isSilent, !isGated, silence >= Self.limit else { return .nothing }
        isSilent = true
        return .fellSilent
    }

    private mutating func heard(_ power: Float) -> Outcome {
        let wasSilent = isSilent
        if silence >= Self.pauseMin, lastPower > 0, lastPower < Self.quiet {
            pauses += 1
            if pauses >= Self.gatedPauses { isGated = true }
        }
        silence = .zero
        isSilent = false
        lastPower = power
        return wasSilent ? .heardAgain : .nothing
    }
}
