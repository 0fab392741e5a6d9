// Learns in which steps a sound server reads a playback queue, and how much it needs there before it reads any. Pure.
import MonotonicTime

/// The queue of a PCM that belongs to a sound server, watched by the clock.
///
/// Servers differ in what they do with a queue that is shorter than what they play at once (their step). PulseAudio plays what is there.
/// PipeWire's PulseAudio interface takes nothing at all, and reports nothing either: the queue stands still until it holds a whole
/// step. ALSA's `pipewire` plug-in plays what is there and then reports an underrun. No server tells its step beforehand, and it may
/// change while sound plays. So the step is learned from what the server does, and the queue always holds one.
///
/// `look` is asked before each block; time is passed in.
struct ServerQueue {
    /// What is to be done next.
    enum Advice: Equatable {
        /// Write a block of sound.
        case write
        /// Write this many frames of silence: the server may be waiting for a longer queue.
        case pad(frames: Int)
        /// Look again then.
        case wait(until: Instant)
        /// Nothing: the server has ceased to take anything.
        case lost
    }

    /// What is worth remembering of a server for the next stream.
    struct Learned: Equatable, Sendable {
        /// What the server takes at once; zero while it has refused no queue for being shorter.
        var step = Duration.zero
        /// Whether it takes queues of the present length as a matter of course.
        var isProven = false
    }

    /// A server that read something and then nothing for this time, or for three steps if that is longer, has lost its
    /// device.
    static let lostAfter = Duration.milliseconds(300)
    /// The same while the stream is too young for its steps to be known: three of the longest that PipeWire has (8,192 frames).
    static let lostAfterAtFirst = Duration.milliseconds(520)
    /// A queue that lasts for t is refused when nothing of it was taken within 2 t and this time.
    static let grace = Duration.milliseconds(5)
    /// How long to wait for a server that never refused a queue: it is more likely to be late.
    static let provenTimeout = Duration.milliseconds(100)
    /// The shortest sleep while a server takes in steps of its own.
    static let napMin = Duration.microseconds(300)
    /// Steps after which the largest of them is taken to be the server's.
    static let stepsToLearn = 8
    /// Servers work in powers of two of frames at this rate.
    private static let stepRate = 48_000

    private(set) var learned: Learned
    /// Times that the thread had not filled the queue when the server came for a step.
    private(set) var lapses = 0
    /// Times that the server refused a queue for being too short.
    private(set) var refusals = 0

    private var rate = audioClockRate
    private var block = 1
    private var capacity = 1
    private var tellsUnderruns = false
    /// Frames that were queued at the last look, and that were written since.
    private var expected = 0
    private var lookedAt = Instant.zero
    private var movedAt = Instant.zero
    private var hasMoved = false
    /// Time watched since something was taken, and since the queue was lengthened for it. A halt of the machine, or of this
    /// program, counts for one wait.
    private var still = Duration.zero
    private var refused = Duration.zero
    /// Whether silence was written to lengthen the queue since something was taken.
    private var isPadded = false
    private var steps = 0
    private var largestStep = 0
    /// The least that was taken since the server was judged, whether all else was a multiple of it, and how often it was not.
    private var smallestTake = 0
    private var isRegular = true
    private var irregularities = 0
    /// Whether enough steps of this stream have been seen to judge by.
    private var isKnown = false

    init(_ learned: Learned = Learned()) { self.learned = learned }

    /// A new stream begins, empty.
    ///
    /// - Parameters:
    ///   - block: Frames that are written at once.
    ///   - capacity: Frames that the queue can hold.
    ///   - stepTold: Frames that the server was asked to take at once. Such a server plays shorter queues and tells of the underrun
    ///     (`ranDry`); nil: it was not asked, and may refuse them.
    mutating func started(rate: Int, block: Int, capacity: Int, stepTold: Int? = nil, at now: Instant) {
        var fresh = ServerQueue(learned)
        (fresh.lapses, fresh.refusals) = (lapses, refusals)
        self = fresh
        self.rate = max(1, rate)
        self.block = max(1, block)
        self.capacity = max(1, capacity)
        tellsUnderruns = stepTold != nil
        if learned.step == .zero, let stepTold { learned.step = duration(stepTold) }
        (lookedAt, movedAt) = (now, now)
    }

    /// So many frames were written, whatever they are.
    mutating func wrote(_ frames: Int) { expected += frames }

    /// Frames that are to be queued: `depth`, and at any rate one step with the block that is being written.
    func target(_ depth: Duration) -> Int {
        let held = step > 0 ? step + block : 0
        return min(capacity, max(frames(depth), 2 * block, held))
    }

    /// How long the sound in the queue lasts before the server passes it over: what is left beyond the step, and the time until the
    /// step is taken.
    func margin(queued: Int, at now: Instant) -> Duration {
        guard step > 0 else { return duration(max(0, queued)) }
        let untilTaken = max(.zero, learned.step - (now - movedAt))
        return queued >= step ? untilTaken + duration(queued - step) : untilTaken
    }

    /// `queued` frames are in the queue, which is to be `depth` deep. Says what to do next.
    mutating func look(queued: Int, depth: Duration, at now: Instant) -> Advice {
        let passed = max(.zero, min(now - lookedAt, StallClock.waitMax))
        still += passed
        refused += passed
        if queued < expected { took(expected - queued, leaving: queued, at: now) }
        expected = queued
        lookedAt = now
        let target = target(depth)
        if queued + block <= target { return .write }
        let lostAfter = isKnown ? Self.lostAfter : Self.lostAfterAtFirst
        if hasMoved, still >= max(lostAfter, learned.step + learned.step + learned.step) { return .lost }
        let timeLeft = timeout(queued) - refused
        if timeLeft <= .zero, !tellsUnderruns, let frames = padding(queued) {
            refused = .zero
            isPadded = true
            return .pad(frames: frames)
        }
        guard step > 0 else {
            // A queue that was lengthened tells the step by what is taken of it: only if that is seen alone.
            let wait = isPadded ? Self.napMin : duration(queued + block - target)
            return .wait(until: now + max(Self.napMin, timeLeft > .zero ? min(wait, timeLeft) : wait))
        }
        // A server that takes steps is not asked until the next one is nearly due, and then often enough to see it alone.
        return .wait(until: max(now + max(Self.napMin, learned.step / 16), movedAt + learned.step * 3 / 4))
    }

    /// The PCM reports an underrun.
    ///
    /// - Returns: Whether the thread was late; else the server takes more at once than the queue held, which it will from now on.
    mutating func ranDry() -> Bool {
        guard !hasMoved else { return true }
        learned.step = duration(min(max(1, capacity - block), stepAbove(max(step, expected))))
        return false
    }

    // MARK: What the server does

    private mutating func took(_ taken: Int, leaving queued: Int, at now: Instant) {
        // Of two steps at one look nothing can be told.
        let isSingle = duration(taken) > (now - lookedAt) + (now - lookedAt)
        let isRefusal = isPadded
        if isRefusal {
            // Before anything was heard it is a part of starting.
            if hasMoved { refusals += 1 }
        } else if step > 0, hasMoved, queued < step, frames(now - movedAt) >= taken + step + block {
            lapses += 1
        }
        if isRefusal || isSingle && step > 0 {
            largestStep = max(largestStep, taken)
            if taken > step { learned.step = duration(taken) }
        } else if step > 0 {
            // Less than a step is no step.
            largestStep = max(largestStep, min(taken, step))
        }
        regard(taken)
        steps = isRefusal ? 0 : steps + 1
        if steps >= Self.stepsToLearn {
            // What looked like a refusal may have been a device that was being woken: a short step is no step.
            if step > 0, largestStep > 0 { learned.step = largestStep > block ? duration(largestStep) : .zero }
            learned.isProven = true
            isKnown = true
            // A server that takes whole steps takes nothing else; one that does not was late, and refused nothing.
            irregularities = isRegular ? 0 : irregularities + 1
            if irregularities >= 2, !tellsUnderruns { learned.step = .zero }
            judged()
        }
        movedAt = now
        hasMoved = true
        still = .zero
        refused = .zero
        isPadded = false
    }

    private mutating func regard(_ taken: Int) {
        let (less, more) = (min(taken, smallestTake), max(taken, smallestTake))
        smallestTake = smallestTake == 0 ? taken : less
        guard less > 0 else { return }
        let times = (more + less / 2) / less
        // A converter's rounding is a frame for each step.
        if abs(more - times * less) > times { isRegular = false }
    }

    private mutating func judged() {
        steps = 0
        largestStep = 0
        smallestTake = 0
        isRegular = true
    }

    private func timeout(_ queued: Int) -> Duration {
        let twice = duration(queued) + duration(queued) + Self.grace
        return learned.isProven && step == 0 ? max(twice, Self.provenTimeout) : twice
    }

    /// Silence that lengthens the queue to the next step that a server may have, and a block; nil: there is no room.
    private func padding(_ queued: Int) -> Int? {
        let wanted = min(capacity, stepAbove(queued) + block) - queued
        return wanted > 0 ? wanted : nil
    }

    private func stepAbove(_ frames: Int) -> Int {
        var step = 64
        while step * rate / Self.stepRate <= frames, step < 1 << 20 { step *= 2 }
        return (step * rate + Self.stepRate - 1) / Self.stepRate
    }

    private var step: Int { frames(learned.step) }

    /// Rounded, so that frames become a duration and the same frames again.
    private func frames(_ duration: Duration) -> Int {
        (Int(duration.nanoseconds / 1_000) * rate + 500_000) / 1_000_000
    }

    private func duration(_ frames: Int) -> Duration { .nanoseconds(frames * 1_000_000_000 / rate) }
}
