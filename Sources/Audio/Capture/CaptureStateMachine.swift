// Decides when the microphone runs, and which samples belong to a burst. Pure: the worker passes events in and results
// out.
import MonotonicTime

/// The life of a microphone, and of the burst that it captures.
///
/// It holds invariant I1: the device runs in `capturing` and `tail` only, and a tail has an end in samples that no event
/// can move further away.
struct CaptureStateMachine {
    enum State: Equatable {
        case closed
        /// Open, not running.
        case prepared
        case capturing
        /// Released; it continues to the end of the tail.
        case tail
    }

    /// What `start` asks of the device.
    enum StartResult: Equatable {
        case openAndRun
        case run
        /// The device is already running: finish the burst of this number and continue.
        case goOn(finishing: UInt32)
    }

    /// The length of the fade at a burst's end, in samples: 10 ms.
    static let fade: Int64 = 480

    private(set) var state = State.closed
    private(set) var burst: UInt32 = 0
    /// When `start` was called for the burst.
    private(set) var requestedAt = Instant.zero
    /// When the burst's first sample was at the microphone, once that is known.
    private(set) var firstSampleAt: Instant?
    /// Samples of the burst so far: also the position of the next.
    private(set) var position: Int64 = 0
    private var releaseEnd: Instant?

    var isRunning: Bool { state == .capturing || state == .tail }

    /// Whether the device is to be opened.
    func prepare() -> Bool { state == .closed }

    /// The device is open.
    mutating func opened() {
        if state == .closed { state = .prepared }
    }

    /// Whether the device may be closed, which is then done.
    mutating func unprepare() -> Bool {
        guard state == .prepared else { return false }
        state = .closed
        return true
    }

    /// A press. `goesOn`: where the device runs already, the burst begins right after the one before, and not later.
    mutating func start(burst: UInt32, at now: Instant, goesOn: Bool = true) -> StartResult {
        let result: StartResult =
            switch state {
            case .closed: .openAndRun
            case .prepared: .run
            case .capturing, .tail: .goOn(finishing: self.burst)
            }
        // The next burst's first sample comes right after the last of the one before.
        firstSampleAt = isRunning && goesOn ? firstSampleAt.map { $0 + Self.duration(position) } : nil
        state = .capturing
        self.burst = burst
        requestedAt = now
        if !seededFault("a-burst-begins-where-the-last-ended") { position = 0 }
        releaseEnd = nil
        return result
    }

    /// A release: the burst ends with what was at the microphone at `end`.
    ///
    /// - Returns: Whether a burst was going on that had not been released.
    mutating func stop(end: Instant) -> Bool {
        guard state == .capturing else { return false }
        state = .tail
        releaseEnd = seededFault("a-tail-of-two-seconds") ? end + .seconds(2) : end
        if seededFault("a-tail-has-no-end") { releaseEnd = nil }
        return true
    }

    /// The time of the burst's first sample has become known.
    mutating func began(at instant: Instant) {
        if firstSampleAt == nil { firstSampleAt = instant }
    }

    /// How many of `count` samples, the first of which was at the microphone at `first`, are older than the press: a
    /// sound server delivers samples that it had already captured. 0 once the burst has begun.
    func early(_ count: Int, from first: Instant) -> Int {
        guard firstSampleAt == nil else { return 0 }
        return Int(min(max(Self.samples(requestedAt - first), 0), Int64(count)))
    }

    /// Where the burst ends, in samples, once that is known. Never before what was taken already.
    var endPosition: Int64? {
        guard let releaseEnd, let firstSampleAt else { return nil }
        return max(position, Self.samples(releaseEnd - firstSampleAt))
    }

    /// Takes up to `count` samples that the device gave into the burst; the rest lie beyond its end.
    mutating func take(_ count: Int) -> Int {
        guard isRunning else { return 0 }
        let taken = endPosition.map { Int(min(Int64(count), $0 - position)) } ?? count
        position += Int64(taken)
        return taken
    }

    /// Whether all of the burst has been taken.
    var isComplete: Bool { endPosition.map { position >= $0 } ?? false }

    /// Whether the tail is over by the clock, whatever the device gave. `grace` is for what is still on its way.
    func isOverdue(at now: Instant, grace: Duration) -> Bool {
        releaseEnd.map { now > $0 + grace } ?? false
    }

    /// The loudness, 0…1, of the sample at `position`: 1 but in the fade, which begins and ends gently, or its edge would be heard.
    func gain(at position: Int64) -> Float {
        guard let end = endPosition, position > end - Self.fade else { return 1 }
        let left = Float(max(0, end - position)) / Float(Self.fade)
        return left * left * (3 - 2 * left)
    }

    /// The burst is over and the device stopped, or closed.
    mutating func ended(deviceOpen: Bool) {
        state = deviceOpen ? .prepared : .closed
        releaseEnd = nil
        firstSampleAt = nil
    }

    static func duration(_ samples: Int64) -> Duration { .nanoseconds(samples * 1_000_000 / 48) }

    static func samples(_ duration: Duration) -> Int64 {
        // Clamped to an hour before and a day after, so that the product cannot overflow.
        let nanoseconds = min(max(duration.nanoseconds, -3_600_000_000_000), 86_400_000_000_000)
        return nanoseconds * 48 / 1_000_000
    }
}
