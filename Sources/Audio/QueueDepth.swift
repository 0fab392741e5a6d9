// How much sound is kept queued in a playback device: as little as the device has shown to bear. Pure, and remembered.
import MonotonicTime
import Synchronization

/// The depth of a playback device's queue, which is latency: it begins with the least, grows when the device runs empty, and
/// shrinks slowly when it is long without, and only if the device never came near it meanwhile.
struct QueueDepth: Equatable, Sendable {
    /// What it grows and shrinks by.
    static let step = Duration.microseconds(2_500)
    /// A device that needs more than this is left to stutter: it is broken, not slow.
    static let most = Duration.milliseconds(60)
    /// Time of playing without running empty after which it may shrink, at first.
    static let calm = Duration.seconds(30)
    /// The longest that such a time becomes: it doubles when shrinking proved wrong.
    static let calmMax = Duration.seconds(960)
    /// Running empty again within this time lets it grow by double steps.
    static let again = Duration.seconds(2)

    /// The depth to begin with, and the least.
    let least: Duration
    /// The depth that the device is to be filled to.
    private(set) var depth: Duration
    private var calmWanted = calm
    private var calmBegan: Instant?
    private var lowest = Duration.seconds(1)
    private var emptyAt: Instant?
    private var hasShrunk = false

    /// A queue that is at least `least` deep.
    init(least: Duration) {
        self.least = min(max(least, Self.step + Self.step), Self.most)
        depth = self.least
    }

    /// The device begins to run: what was before says nothing about the time until now.
    mutating func started(at now: Instant) {
        calmBegan = now
        lowest = .seconds(1)
    }

    /// The device ran empty. Returns whether the depth has changed.
    @discardableResult
    mutating func ranEmpty(at now: Instant) -> Bool {
        let before = depth
        let isAgain = emptyAt.map { now - $0 < Self.again } ?? false
        depth = min(Self.most, depth + (isAgain ? Self.step + Self.step : Self.step))
        if hasShrunk { calmWanted = min(Self.calmMax, calmWanted + calmWanted) }
        hasShrunk = false
        emptyAt = now
        started(at: now)
        return depth != before
    }

    /// The thread came to write and found `left` in the queue. Returns whether the depth has changed.
    @discardableResult
    mutating func found(_ left: Duration, at now: Instant) -> Bool {
        lowest = min(lowest, left)
        guard let calmBegan, now - calmBegan >= calmWanted else { return false }
        // Shrunk by a step it would still have been as far from empty as a step.
        let mayShrink = depth > least && lowest > Self.step + Self.step
        started(at: now)
        guard mayShrink else { return false }
        depth = max(least, depth - Self.step)
        hasShrunk = true
        return true
    }
}

/// What the devices of this process have shown, by name.
enum QueueMemory {
    /// More names than this are not remembered: a configuration has two.
    private static let namesMax = 32
    private static let known = Mutex<[String: QueueDepth]>([:])

    /// The depth that `device` had last, or one that begins with `least`. Not for a running device: it takes a lock.
    static func depth(of device: String, least: Duration) -> QueueDepth {
        let remembered = known.withLock { $0[device] }
        let fresh = QueueDepth(least: least)
        return remembered?.least == fresh.least ? remembered ?? fresh : fresh
    }

    static func remember(_ depth: QueueDepth, of device: String) {
        known.withLock { if $0[device] != nil || $0.count < namesMax { $0[device] = depth } }
    }
}
