// Compares the frames that a PCM has moved with this machine's clock, to recognise a PCM without its own clock. Pure.
import MonotonicTime

/// What was written to a PCM, or read from it, and how far that is ahead of the time that has passed.
///
/// ALSA's `null` and `file` take and give everything at once; a card is ahead of time by its drift only, and what was written
/// and is not waiting any more may be held by a sound server, or have been heard.
struct MovedFrames {
    /// A PCM that is ahead of time by more has no clock.
    static let aheadMax = Duration.milliseconds(50)
    /// So much of the time that has passed may be drift: twice what cards keep.
    private static let drift = 0.001

    private let rate: Int
    private var count = 0
    private var since: Instant
    /// Whether frames were ever seen to wait, as none do in a PCM without a clock.
    private var hasClock = false

    /// A PCM of `rate` that is started at `now`.
    init(rate: Int, at now: Instant) {
        self.rate = max(1, rate)
        since = now
    }

    mutating func add(_ frames: Int) { count += frames }

    /// At `now`, `frames` frames (at least one) were waiting in the PCM: at least that many have not been heard.
    mutating func isSeen(waiting frames: Int, at now: Instant) {
        hasClock = true
        if ahead(at: now) < frames {
            count = frames
            since = now
        }
    }

    /// Frames that, by this machine's clock, cannot have been played, or captured, yet. Where the PCM has a clock a drift is
    /// allowed for: it is what was last seen waiting, or more.
    func ahead(at now: Instant) -> Int { count - Int(passed(at: now) * (hasClock ? 1 + Self.drift : 1)) }

    /// Until when a PCM without a clock is to be left alone, so as not to be further ahead than `waiting` frames; nil for one
    /// that is not ahead.
    func pause(beyond waiting: Int = 0, at now: Instant) -> Instant? {
        let ahead = ahead(at: now) - waiting
        let allowed = Double(rate) * Self.aheadMax.milliseconds / 1_000 + passed(at: now) * Self.drift
        return Double(ahead) > allowed ? now + .nanoseconds(ahead * 1_000_000_000 / rate) : nil
    }

    /// In frames.
    private func passed(at now: Instant) -> Double {
        min(1e15, max(0, Double((now - since).nanoseconds) * Double(rate) / 1e9))
    }
}
