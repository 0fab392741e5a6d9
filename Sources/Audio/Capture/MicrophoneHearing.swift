// Decides when a started microphone delivers real sound, and from which sample on a burst counts. Pure.
import MonotonicTime

/// The wait for a microphone that delivers silence until its link runs, and for the go-ahead after it.
///
/// It hears when three windows of 10 ms in a row are louder than `floor`: digital zeros, and the last bit of a decoder
/// that has nothing to decode, are below it; the noise of a real microphone is above. Where nothing is heard, it is over
/// all the same after `waitMax`, so that a muted microphone cannot hold a press for ever.
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
    private static let window = 480
    private static let windowsNeeded = 3

    private var state = State.passed
    private var waitsForLevel = false
    private var power: Float = 0
    private var count = 0
    private var windows = 0

    /// Whether the burst has begun, so that samples are its own.
    var isPassed: Bool { state == .passed }

    /// A burst was asked for at `now`. `waitsForLevel` is false for a microphone that hears with its first sample, and
    /// for one that runs already and has been heard.
    mutating func begin(waitsForLevel: Bool, afterGoAhead: Bool, at now: Instant) {
        self.waitsForLevel = waitsForLevel
        state = waitsForLevel || afterGoAhead ? .listening(until: now + Self.waitMax) : .passed
        power = 0
        count = 0
        windows = 0
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
            windows = power > Self.floor * Float(Self.window) ? windows + 1 : 0
            power = 0
            self.count = 0
            if windows >= Self.windowsNeeded { return true }
        }
        return false
    }
}
