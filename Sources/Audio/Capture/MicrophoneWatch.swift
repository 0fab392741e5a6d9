// Notices a microphone that falls silent within a burst, or that has lost samples. Pure.
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

/// Watches how far a burst's samples have come against the time that has passed.
///
/// PipeWire leaves out a client that has not answered in time, for a whole step of its graph, and reports nothing. Counted on, all
/// that is said afterwards would look as if it had been said that much earlier, and every packet up to the end of the burst would
/// come late to its listeners, who would take that for the network and wait longer from then on.
///
/// Two views have to agree: when the newest sample was read, and when it was at the microphone by the device's own word. Each can be
/// wrong for a while: a device that changes to longer steps is read later, and a server's word is partly guessed. Both are late at
/// times, and never early, so the least of a window counts. A drift of the two clocks is followed.
struct LostSamples {
    /// The time that is looked at before anything is said of it.
    static let window = Duration.milliseconds(60)
    /// Reads within a window at least.
    static let readsMin = 3
    /// Clocks come apart by no more than this, in parts of the time: twice what cards keep.
    private static let drift = 0.001

    /// How late the samples are, in nanoseconds since their burst's first would have been read, or said.
    private struct Lateness {
        var read: Int64
        var said: Int64

        func least(_ other: Lateness) -> Lateness {
            Lateness(read: min(read, other.read), said: min(said, other.said))
        }
    }

    /// What is usual; nil before the first window.
    private var usual: Lateness?
    private var usualAt = Instant.zero
    private var least = Lateness(read: .max, said: .max)
    private var reads = 0
    private var beganAt = Instant.zero

    /// Forgets everything: the device was restarted, or its loss is known.
    mutating func begin() { self = LostSamples() }

    /// Samples up to `position` (48 kHz) were read at `now`; the one that follows them is at the microphone at `next`.
    ///
    /// - Returns: The loss since the last report; mostly zero. The caller adds it to the position, so it is reported
    ///   only once.
    mutating func read(upTo position: Int64, next: Instant, at now: Instant) -> Duration {
        let passed = CaptureStateMachine.duration(position).nanoseconds
        if reads == 0 { beganAt = now }
        reads += 1
        least = least.least(Lateness(read: now.nanoseconds &- passed, said: next.nanoseconds &- passed))
        guard reads >= Self.readsMin, now - beganAt >= Self.window else { return .zero }
        defer {
            usualAt = now
            least = Lateness(read: .max, said: .max)
            reads = 0
        }
        guard let before = usual else {
            usual = least
            return .zero
        }
        let drifted = Int64(Double((now - usualAt).nanoseconds) * Self.drift)
        usual = least.least(Lateness(read: before.read &+ drifted, said: before.said &+ drifted))
        return .nanoseconds(max(0, min(least.read &- before.read, least.said &- before.said)))
    }
}
