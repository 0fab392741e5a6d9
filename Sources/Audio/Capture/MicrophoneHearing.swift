// Decides when a started microphone delivers real sound, and from which sample on a burst counts. Pure.
import Glibc
import MonotonicTime

/// The wait for a microphone that delivers silence or its chipset's noise until its link runs, and for the go-ahead
/// after it.
///
/// It hears when three windows of 10 ms in a row are as loud as a room with people (`room`): chipsets give noise up to
/// -69 dBFS before the voice. Quieter sound may be a quiet room, or that noise. It counts once it has lasted as long as
/// this microphone needs to settle (`SettlingTimes`). Digital zeros, and the last bit of a decoder that has nothing to
/// decode, never count. Where nothing is heard, the wait is over all the same after `waitMax`, so that a muted
/// microphone cannot hold a press for ever.
struct MicrophoneHearing {
    /// What comes of what the device gave.
    enum Outcome: Equatable {
        /// Nothing yet: the samples are void.
        case wait
        /// The microphone hears, or, if not `really`, the waiting time is over: sound the go-ahead tone.
        case tell(really: Bool)
        /// The burst begins after `dropping` samples.
        case pass(dropping: Int)
    }

    private enum State: Equatable {
        case passed
        case listening(until: Instant)
        /// Told; without an answer it goes ahead at `by`.
        case told(by: Instant)
        case goingAhead(from: Instant)
    }

    /// How long silence is waited through.
    static let waitMax = Duration.milliseconds(2_500)
    /// How long the go-ahead may take.
    static let goAheadMax = Duration.milliseconds(500)
    /// Twice the last bit of 16, as mean power: -84 dBFS.
    static let floor: Float = 4 / (32_768 * 32_768)
    /// What no chipset's own noise reaches, as mean power: -60 dBFS.
    static let room: Float = 1e-6
    private static let window = 480
    private static let windowTime = Duration.milliseconds(10)
    private static let windowsNeeded = 3

    private var state = State.passed
    private var waitsForLevel = false
    private var power: Float = 0
    private var count = 0
    /// Windows in a row as loud as a room.
    private var loudWindows = 0
    /// Windows in a row with any sound.
    private var windows = 0
    private var steps = LevelSteps()

    /// What was learned about the microphone.
    private(set) var settling: SettlingTimes
    /// How long the microphone of this burst gave something else before its room's sound; nil until it is heard, and for
    /// one that was not waited for.
    private(set) var settledAfter: Duration?

    init(settling: SettlingTimes = SettlingTimes()) { self.settling = settling }

    /// Whether the burst has begun, so that samples are its own.
    var isPassed: Bool { state == .passed }

    /// A burst was asked for at `now`. `waitsForLevel` is false for a microphone that hears with its first sample, and
    /// for one that runs already and has been heard.
    mutating func begin(waitsForLevel: Bool, afterGoAhead: Bool, at now: Instant) {
        self = MicrophoneHearing(settling: settling)
        self.waitsForLevel = waitsForLevel
        state = waitsForLevel || afterGoAhead ? .listening(until: now + Self.waitMax) : .passed
    }

    /// The go-ahead tone sounds at `instant`.
    mutating func goAhead(from instant: Instant) {
        // An answer from nowhere, or one that comes too late, changes nothing; one from the far future is none.
        if case .told(let by) = state { state = .goingAhead(from: min(instant, by)) }
    }

    /// The device gave `samples`, the first of which was at the microphone at `first`; none: `count` is 0.
    mutating func take(_ samples: UnsafePointer<Float>, count: Int, first: Instant, at now: Instant) -> Outcome {
        switch state {
        case .passed: return .pass(dropping: 0)
        case .listening(let until):
            let really = count > 0 && (!waitsForLevel || listen(samples, count: count))
            guard really || now >= until else { return .wait }
            state = .told(by: now + Self.goAheadMax)
            return .tell(really: really)
        case .told(let by):
            guard now >= by else { return .wait }
            // A device that gives nothing at all is not waited for any longer either: it has stalled.
            state = .passed
            return count > 0 ? .pass(dropping: 0) : .wait
        case .goingAhead(let from):
            let early = Int(CaptureStateMachine.samples(from - first))
            guard early < count else { return .wait }
            state = .passed
            return count > 0 ? .pass(dropping: max(0, early)) : .wait
        }
    }

    private mutating func listen(_ samples: UnsafePointer<Float>, count: Int) -> Bool {
        for index in 0..<count {
            power += samples[index] * samples[index]
            self.count += 1
            guard self.count == Self.window else { continue }
            let level = power / Float(Self.window)
            power = 0
            self.count = 0
            if hears(level) { return true }
        }
        return false
    }

    /// Whether the microphone hears with a window of this mean power.
    private mutating func hears(_ level: Float) -> Bool {
        guard level > Self.floor else {
            (windows, loudWindows) = (0, 0)
            steps.skip()
            return false
        }
        windows += 1
        loudWindows = level > Self.room ? loudWindows + 1 : 0
        steps.add(level)
        let hasSettled = windows >= Self.windowsNeeded && Self.windowTime * windows >= settling.wait
        guard loudWindows >= Self.windowsNeeded || hasSettled else { return false }
        let settled = Self.windowTime * steps.lastStep
        settledAfter = settled
        settling.add(settled)
        return true
    }
}

/// How long a microphone gave its chipset's noise before its room's sound, in its last bursts.
struct SettlingTimes: Equatable {
    /// For a microphone that nothing is known of. Reports name 300 to 1,000 ms.
    static let unknown = Duration.seconds(1)
    /// A longer time says that the microphone did not work.
    static let max = Duration.seconds(2)
    private static let countMax = 8
    /// Added to what was seen, besides a quarter of it.
    private static let margin = Duration.milliseconds(20)

    private var times: [Duration] = {
        var times: [Duration] = []
        // What the capture thread adds must not allocate.
        times.reserveCapacity(countMax)
        return times
    }()

    /// - Parameter known: What was learned earlier; nil: nothing.
    init(_ known: Duration? = nil) {
        if let known { add(known) }
    }

    /// How long quiet sound has to last until it is taken for the room's.
    var wait: Duration {
        guard let longest = times.max() else { return Self.unknown }
        return min(Self.max, .nanoseconds(longest.nanoseconds * 5 / 4) + Self.margin)
    }

    mutating func add(_ time: Duration) {
        if times.count >= Self.countMax { times.removeFirst() }
        times.append(min(Self.max, Swift.max(.zero, time)))
    }
}

/// Finds the window at which the loudness of a sound changed last, and stayed changed.
private struct LevelSteps {
    /// A change of loudness that noise alone does not make for so many windows: 4 dB, in powers of two.
    private static let step: Float = 1.33
    private static let windowsNeeded = 4

    private var window = 0
    private var hasBegun = false
    private var mean: Float = 0
    private var meanCount: Float = 0
    private var deviating = 0
    private var deviationSum: Float = 0
    /// The window, counted from the first with sound, with which the present loudness began.
    private(set) var lastStep = 0

    /// A window without sound.
    mutating func skip() {
        guard hasBegun else { return }
        window += 1
        begin(at: window)
    }

    mutating func add(_ power: Float) {
        let level = log2f(power)
        defer { window += 1 }
        guard hasBegun, meanCount > 0 else {
            hasBegun = true
            (mean, meanCount) = (level, 1)
            return
        }
        guard abs(level - mean) > Self.step else {
            (deviating, deviationSum) = (0, 0)
            mean += (level - mean) / (meanCount + 1)
            meanCount += 1
            return
        }
        deviating += 1
        deviationSum += level
        guard deviating >= Self.windowsNeeded else { return }
        let (found, first) = (deviationSum / Float(deviating), window + 1 - deviating)
        begin(at: first)
        (mean, meanCount) = (found, Float(Self.windowsNeeded))
    }

    private mutating func begin(at window: Int) {
        lastStep = window
        (mean, meanCount, deviating, deviationSum) = (0, 0, 0, 0)
    }
}
