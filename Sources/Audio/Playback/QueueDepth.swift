// Controls how much sound is queued in a playback device: as little as the device has proved to tolerate. Pure, and
// remembered.
import MonotonicTime
import Synchronization

/// The depth of a playback device's queue, which is latency: it begins with the least, grows when the device runs empty again and
/// again, and shrinks when it has played for a while without, as far as what was seen meanwhile leaves room.
///
/// A halt now and then is let pass: it costs a pause as long as the queue was too short, once, and nothing that is said; a deeper
/// queue costs its depth in every word. Time is counted while the device plays, over all bursts: one alone is too short to tell.
struct QueueDepth: Equatable, Sendable {
    /// What it grows by, and shrinks by at least.
    static let step = Duration.microseconds(2_500)
    /// A device that needs more than this is left to stutter: it is broken, not slow.
    static let most = Duration.milliseconds(60)
    /// Time of playing without running empty after which it may shrink, at first and at least.
    static let calm = Duration.seconds(5)
    /// The longest that such a time becomes: it doubles when shrinking proved wrong, and halves when it proved right.
    static let calmMax = Duration.seconds(40)
    /// After this many such times a smaller queue is proved right.
    static let calmsToProve = 8
    /// An empty queue after at least this much playing without one does not change the depth.
    static let rare = Duration.seconds(4)
    /// Running empty again within this time lets it grow by double steps.
    static let again = Duration.seconds(1)
    /// How long a device takes to come into its pace.
    static let waking = Duration.milliseconds(200)
    /// Between two blocks no more time is counted: the thread was halted, or nothing played.
    private static let betweenMax = Duration.milliseconds(100)

    /// The depth to begin with, and the least.
    let least: Duration
    /// The depth that the device is to be filled to.
    private(set) var depth: Duration
    private var calmWanted = calm
    /// Time played, and the least that was left in the queue, since it ran empty or was judged.
    private var played = Duration.zero
    private var lowest = most
    private var foundAt: Instant?
    /// Until when running empty says nothing: a device that was not in use is being woken.
    private var wakesUntil = Instant.zero
    /// Time played since it ran empty.
    private var sinceEmpty = rare
    /// Whether it has shrunk since it ran empty, and how often it was judged since.
    private var hasShrunk = false
    private var calmsSince = 0

    /// A queue that is at least `least` deep.
    init(least: Duration) {
        self.least = min(max(least, Self.step + Self.step), Self.most)
        depth = self.least
    }

    /// The device begins to run. `isCold`: it has not been in use, and the first blocks may go as they like.
    mutating func started(at now: Instant, isCold: Bool = false) {
        foundAt = now
        wakesUntil = isCold ? now + Self.waking : .zero
    }

    /// The device ran empty. Returns whether the depth has changed.
    @discardableResult
    mutating func ranEmpty(at now: Instant) -> Bool {
        foundAt = now
        guard now >= wakesUntil else { return false }
        let before = depth
        if sinceEmpty < Self.rare {
            depth = min(Self.most, depth + (sinceEmpty < Self.again ? Self.step + Self.step : Self.step))
            if hasShrunk { calmWanted = min(Self.calmMax, calmWanted + calmWanted) }
            hasShrunk = false
            calmsSince = 0
        }
        sinceEmpty = .zero
        beginAnew()
        return depth != before
    }

    /// The thread came to write and found `left` in the queue. Returns whether the depth has changed.
    @discardableResult
    mutating func found(_ left: Duration, at now: Instant) -> Bool {
        lowest = min(lowest, left)
        if let foundAt {
            let passed = max(.zero, min(now - foundAt, Self.betweenMax))
            played += passed
            sinceEmpty = min(Self.rare, sinceEmpty + passed)
        }
        foundAt = now
        guard played >= calmWanted else { return false }
        if hasShrunk { calmsSince += 1 }
        if calmsSince >= Self.calmsToProve {
            calmWanted = max(Self.calm, calmWanted / 2)
            calmsSince = 0
        }
        // Half of what was never needed goes at once, and something stays in any case.
        let spare = lowest - Self.step
        beginAnew()
        guard depth > least, spare > .zero else { return false }
        hasShrunk = true
        let steps = max(1, spare.nanoseconds / 2 / Self.step.nanoseconds)
        depth = max(least, depth - .nanoseconds(steps * Self.step.nanoseconds))
        return true
    }

    private mutating func beginAnew() {
        played = .zero
        lowest = Self.most
    }
}

/// What the devices of this process have shown, by name.
enum QueueMemory {
    private struct Known {
        var depth: QueueDepth
        var server: ServerQueue.Learned
    }

    /// More names than this are not remembered: a configuration has two.
    private static let namesMax = 32
    private static let known = Mutex<[String: Known]>([:])

    /// The depth that `device` had last, or one that begins with `least`. Not for a running device: it takes a lock.
    static func depth(of device: String, least: Duration) -> QueueDepth {
        let remembered = known.withLock { $0[device]?.depth }
        let fresh = QueueDepth(least: least)
        return remembered?.least == fresh.least ? remembered ?? fresh : fresh
    }

    /// What the server behind `device` has shown.
    static func server(of device: String) -> ServerQueue.Learned { known.withLock { $0[device]?.server } ?? .init() }

    static func remember(_ depth: QueueDepth, _ server: ServerQueue.Learned = .init(), of device: String) {
        known.withLock {
            if $0[device] != nil || $0.count < namesMax { $0[device] = Known(depth: depth, server: server) }
        }
    }
}
