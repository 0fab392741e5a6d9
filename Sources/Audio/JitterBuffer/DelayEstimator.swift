// How long packets have to wait: the limits, and an estimate from the variation of their delays. Pure.
import MonotonicTime

/// Measures each packet's delay relative to the smallest recent one, keeps a decaying histogram of it, and returns the
/// wait that nearly all packets would have needed. The wait rises at once and falls slowly.
///
/// Repaired packets say nothing about the network's delay, but while packets are lost, waiting for their repair is
/// better than concealment. The wait depends on the loss: it covers so many repairs that hardly anything stays missing,
/// but it does not grow for a few lost packets, which the codec conceals well.
struct DelayEstimator {
    /// The histograms' resolution.
    static let binNanoseconds: Int64 = 1_000_000
    /// The share of packets that are to come in time.
    private static let quantile = 0.97
    /// The share of all packets that may be missing because their repair comes too late, where waiting can help that.
    private static let missingShare = 0.01
    /// Older packets are forgotten over about so much of their audio, in nanoseconds.
    private static let memory = 4e9
    /// What is known before the first packet counts as so much audio.
    private static let initialWeight = 0.06e9
    /// The quickest packet is looked for in the last one to two of these.
    private static let windowNanoseconds: Int64 = 2_000_000_000
    /// The wait falls by so much in a second of audio, and by so much of what it is too long: faster could be heard.
    private static let fallPerSecond = 0.03
    private static let fallOfExcess = 0.1
    /// How much is lost is judged over about so much audio, in nanoseconds.
    private static let shareMemory = 2e9
    /// Packets are looked at once in a block: so much later they may be taken than they came.
    private static let pickUp = CaptureStateMachine.duration(Int64(playbackBlock)).nanoseconds
    /// Repaired packets' share from which on they are waited for.
    private static let repairShareMin = 0.02
    /// Their share that is worth all of `repairTargetMax`; smaller ones are worth as much less.
    private static let repairShareHigh = 0.1
    /// A wait that brings fewer of the repairs than this is worth nothing: they take too long.
    private static let repairsInTimeMin = 0.5

    private let settings: JitterBufferSettings
    private var delays: DelayHistogram
    private var repairs: DelayHistogram
    /// The share of packets that had to be repaired, of late.
    private(set) var repairShare = 0.0
    /// The share of repairs, of late, that a wait of `repairTargetMax` covers.
    private var reachable = 1.0
    private var quickest: Int64?
    private var quickestInWindow: Int64?
    private var windowEnd: Int64 = 0
    private var repairedBase: Int64?
    private var slope = ClockSlope()
    private var wait: Int64

    init(_ settings: JitterBufferSettings) {
        self.settings = settings
        let bins = Int(settings.targetMax.nanoseconds / Self.binNanoseconds) + 1
        delays = DelayHistogram(bins: bins, quantile: Self.quantile)
        repairs = DelayHistogram(
            bins: Int(settings.repairTargetMax.nanoseconds / Self.binNanoseconds) + 1, quantile: Self.repairsInTimeMin)
        delays.add(
            Int((settings.targetInitial.nanoseconds - Self.pickUp - 1) / Self.binNanoseconds),
            forgetting: Self.initialWeight / Self.memory)
        wait = settings.targetInitial.nanoseconds
    }

    /// A new burst: its times have nothing to do with those of the one before, its network has.
    mutating func beginBurst() {
        quickest = nil
        quickestInWindow = nil
        repairedBase = nil
        windowEnd = 0
        // Another talker's clock, for all that is known here.
        slope.reset()
    }

    /// A packet of `span` nanoseconds of audio, which begins at `mediaTime` on the talker's clock, came.
    mutating func received(mediaTime: Int64, span: Int64, at now: Instant) {
        let transit = now.nanoseconds &- mediaTime
        if now.nanoseconds >= windowEnd {
            // The window before becomes the memory, this packet the first of the next.
            if let last = quickestInWindow { quickest = last }
            quickestInWindow = transit
            windowEnd = now.nanoseconds &+ Self.windowNanoseconds
        }
        quickestInWindow = min(quickestInWindow ?? transit, transit)
        let base = min(quickest ?? transit, quickestInWindow ?? transit)
        quickest = min(quickest ?? transit, transit)
        slope.observe(transit, at: now.nanoseconds)
        let late = max(0, transit &- base)
        let share = Double(span) / Self.memory
        repairShare -= repairShare * min(1, Double(span) / Self.shareMemory)
        // No wait helps against a stall of twice the longest.
        if late <= 2 * settings.targetMax.nanoseconds {
            delays.add(Int(late / Self.binNanoseconds), forgetting: share)
        }
        settle(span)
    }

    /// The packet before one that came at `now` is missing: its copy (FEC) came with that one, as late as that.
    mutating func lost(mediaTime: Int64, span: Int64, at now: Instant) {
        guard let base else { return }
        delays.add(
            Int((now.nanoseconds &- mediaTime &- base) / Self.binNanoseconds), forgetting: Double(span) / Self.memory)
        settle(span)
    }

    /// A packet that was sent again came.
    mutating func repaired(mediaTime: Int64, span: Int64, at now: Instant) {
        let transit = now.nanoseconds &- mediaTime
        guard let base else {
            repairedBase = min(repairedBase ?? transit, transit)
            return
        }
        let share = Double(span) / Self.memory
        repairShare += (1 - repairShare) * min(1, Double(span) / Self.shareMemory)
        repairs.quantile = max(Self.repairsInTimeMin, 1 - Self.missingShare / repairShare)
        let late = max(0, transit &- base)
        let isReachable = late <= settings.repairTargetMax.nanoseconds
        reachable += ((isReachable ? 1 : 0) - reachable) * share
        // What comes later than any wait, as after a gap of seconds, says nothing about the others.
        if isReachable { repairs.add(Int(late / Self.binNanoseconds), forgetting: share) }
        settle(span)
    }

    /// The transit of the quickest packet of late, on the two clocks' difference; nil before the first.
    var base: Int64? {
        switch (quickest, quickestInWindow) {
        case (let a?, let b?): min(a, b)
        case (let a, let b): a ?? b ?? repairedBase
        }
    }

    /// The wait that is right now.
    var target: Duration { .nanoseconds(wait) }

    /// How much faster than this machine's clock the talker's runs, in parts per million; 0 until it is known.
    var talkerPartsPerMillion: Double { -slope.partsPerMillion }

    private mutating func settle(_ span: Int64) {
        var wanted = Int64(delays.index + 1) * Self.binNanoseconds
        wanted = max(wanted, waitForRepair)
        wanted = min(settings.targetMax.nanoseconds, max(settings.targetMin.nanoseconds, wanted + Self.pickUp))
        let excess = Double(max(0, wait - wanted)) / 1e9
        wait = max(wanted, wait - Int64(Double(span) * (Self.fallPerSecond + Self.fallOfExcess * excess)))
    }

    /// The wait that is worth it for the sake of packets that are sent again.
    private var waitForRepair: Int64 {
        guard repairShare >= Self.repairShareMin, reachable >= Self.repairsInTimeMin, !repairs.isEmpty else { return 0 }
        let worth = min(1, repairShare / Self.repairShareHigh)
        let longest = Int64(Double(settings.repairTargetMax.nanoseconds) * worth)
        let needed = Int64(repairs.index + 1) * Self.binNanoseconds
        if needed <= longest { return needed }
        // Some come later than that: is it worth it for the others?
        return repairs.share(below: Int(longest / Self.binNanoseconds)) >= Self.repairsInTimeMin ? longest : 0
    }
}

/// A histogram that forgets: each entry weighs a little more than the one before it, so nothing has to be scaled down but
/// once in a long while. The quantile moves with the entries; an entry costs no scan.
struct DelayHistogram {
    /// Weights are scaled back when the newest has grown to this.
    private static let unitMax = 1e9

    /// The quantile that is followed (0…1); a new one counts from the next entry on.
    var quantile: Double
    private var weights: [Double]
    private var unit = 1.0
    private var total = 0.0
    /// The weight below `index`.
    private var below = 0.0
    /// The bin in which the quantile lies.
    private(set) var index = 0

    /// An empty histogram of `bins` bins that follows `quantile` (0…1).
    init(bins: Int, quantile: Double) {
        self.quantile = quantile
        weights = [Double](repeating: 0, count: max(1, bins))
    }

    var isEmpty: Bool { total == 0 }
    /// The last bin.
    var last: Int { weights.count - 1 }

    /// An entry in `bin` (beyond the last: in the last); `share` is how much of what was there it makes forgotten.
    mutating func add(_ bin: Int, forgetting share: Double) {
        unit *= 1 + share
        // An entry weighs what it makes forgotten: long packets more than short ones.
        let weight = unit * share
        let bin = min(max(0, bin), last)
        weights[bin] += weight
        total += weight
        if bin < index { below += weight }
        let wanted = quantile * total
        while index < last, below + weights[index] < wanted {
            below += weights[index]
            index += 1
        }
        while index > 0, below >= wanted {
            index -= 1
            below -= weights[index]
        }
        if unit > Self.unitMax { rescale() }
    }

    /// The share of entries in bins below `bin`. Looks at every bin between that and the quantile's.
    func share(below bin: Int) -> Double {
        guard total > 0 else { return 0 }
        var sum = below
        var place = index
        while place < min(bin, weights.count) {
            sum += weights[place]
            place += 1
        }
        while place > max(0, bin) {
            place -= 1
            sum -= weights[place]
        }
        return min(1, max(0, sum / total))
    }

    private mutating func rescale() {
        total = 0
        below = 0
        for bin in weights.indices {
            weights[bin] /= unit
            total += weights[bin]
            if bin < index { below += weights[bin] }
        }
        unit = 1
    }
}

/// How long received packets wait for later ones. All times are of the talker's audio.
public struct JitterBufferSettings: Sendable, Equatable {
    /// The wait before anything is known of the network; afterwards what was learned is kept from burst to burst.
    public var targetInitial = Duration.milliseconds(20)
    /// The shortest wait.
    public var targetMin = Duration.milliseconds(5)
    /// The longest wait, of networks whose delay varies by that much. Most need a tenth of it.
    public var targetMax = Duration.milliseconds(400)
    /// The longest wait for the sake of packets that are sent again, which is worth it while packets are being lost: as long as
    /// many are.
    public var repairTargetMax = Duration.milliseconds(400)
    /// How long a gap of more than 60 ms with later packets waits for repair. Each repaired packet restarts this time.
    public var repairWait = Duration.seconds(1)
    /// A burst whose end was not announced ends after this time without packets, which is longer than a change of the
    /// network takes.
    public var silenceEnd = Duration.seconds(3)
    /// A burst whose end was announced ends when missing packets have not arrived for this time.
    public var missingEnd = Duration.milliseconds(100)

    /// 20 ms at first, then 5…400 ms.
    public init() {}
}
