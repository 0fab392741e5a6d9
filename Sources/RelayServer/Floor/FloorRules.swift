// Who may talk at the same time, and with which precedence: the rules of one channel's floor.
import MonotonicTime

/// What a channel's operator chooses about its floor. The defaults are those of a plain radio channel.
public struct FloorRules: Sendable, Hashable {
    /// How many may talk at once, and what happens to a talker when another member requests the floor.
    public enum Mode: String, Sendable, Hashable, CaseIterable {
        /// One at a time; who asks meanwhile waits or is refused.
        case halfDuplex = "half-duplex"
        /// Up to `fullDuplexTalkers` at a time, mixed by each listener.
        case fullDuplex = "full-duplex"
        /// One at a time: the member that asks last takes the floor from its holder.
        case cutIn = "cut-in"
        /// One at a time of those who have a priority; who has none only listens.
        case listenOnly = "listen-only"
    }

    /// The priority of an emergency, which takes the floor from everything else in every mode.
    public static let emergency: UInt8 = 255
    /// The most that may talk at once in full duplex.
    public static let fullDuplexTalkers = 4

    /// How many may talk at once.
    public var mode: Mode
    /// Whether requests wait for as long as the floor is taken, instead of being refused. Without meaning where who asks cuts in.
    public var hasQueue: Bool
    /// How much higher than the talker's the priority of a request has to be to take the floor from it, from 1; `nil`: only
    /// an emergency does.
    public var preemptionStep: UInt8?

    /// Half duplex without a queue, where only an emergency takes the floor from a talker.
    public init(mode: Mode = .halfDuplex, hasQueue: Bool = false, preemptionStep: UInt8? = nil) {
        self.mode = mode
        self.hasQueue = hasQueue
        self.preemptionStep = preemptionStep
    }

    /// The most that may talk at once.
    public var talkersMaximum: Int { mode == .fullDuplex ? Self.fullDuplexTalkers : 1 }

    /// Whether a member with that priority may ask for the floor.
    func admits(_ priority: UInt8) -> Bool { mode != .listenOnly || priority > 0 }

    /// Whether requests may wait while the floor is taken.
    var queues: Bool { hasQueue && mode != .cutIn }

    /// Whether a request of priority `newer` takes the floor from a talker of priority `older`. Nothing takes it from an emergency, but
    /// the next emergency where the newest wins.
    func preempts(_ newer: UInt8, _ older: UInt8) -> Bool {
        if mode == .cutIn { return newer == Self.emergency || older != Self.emergency }
        if older == Self.emergency { return false }
        if newer == Self.emergency { return !seededFault("an-emergency-overrides-nobody") }
        guard let preemptionStep else { return false }
        return Int(newer) >= Int(older) + max(1, Int(preemptionStep))
    }

    /// Whether a request of priority `newer` goes before one of priority `older` that waits already.
    func overtakes(_ newer: UInt8, _ older: UInt8) -> Bool {
        mode == .cutIn ? newer == Self.emergency || older != Self.emergency : newer > older
    }
}
