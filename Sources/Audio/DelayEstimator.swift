// How long packets have to wait, learned from how unevenly they come. Pure.
import MonotonicTime

/// Measures each packet's delay against the quickest of late, keeps a forgetting histogram of it, and gives
/// the wait that nearly all packets would have needed. It rises at once and falls slowly.
///
/// Packets that were sent again say nothing about the network's delay; but while packets are lost, and their repair comes
/// soon, waiting for it is better than inventing sound, so then the wait covers it, too.
struct DelayEstimator {
    /// The histograms' resolution.
    static let binNanoseconds: Int64 = 2_000_000
    /// The share of packets that are to come in time.
    private static let quantile = 0.97
    /// The share of repaired packets that are to come in time.
    private static let repairQuantile = 0.9
    /// Older packets are forgotten over about so much of their audio, in nanoseconds.
    private static let memory = 4e9
    /// What is known before the first packet counts as so much audio.
    private static let initialWeight = 0.06e9
    /// The quickest packet is looked for in the last one to two of these.
    private static let windowNanoseconds: Int64 = 2_000_000_000
    /// The wait falls by so much in a second of audio: faster could be heard.
    private static let fallPerSecond = 0.03
    /// Packets are looked at once in a block: so much later they may be taken than they came.
    private static let pickUp = CaptureStateMachine.duration(Int64(playbackBlock)).nanoseconds
    /// Repaired packets' share from which on the wait covers them, if they come within half of `repairTargetMax`.
    private static let repairShareMin = 0.02
    /// Their share from which on it covers them within all of it.
    private static let repairShareHigh = 0.1

    private let settings: JitterBufferSettings
    private var delays: DelayHistogram
    private var repairs: DelayHistogram
    /// The share of packets that had to be repaired, of late.
    private(set) var repairShare = 0.0
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
            bins: Int(settings.repairTargetMax.nanoseconds / Self.binNanoseconds) + 1, quantile: Self.repairQuantile)
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
        repairShare -= repairShare * share
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
        repairShare += (1 - repairShare) * share
        repairs.add(Int(max(0, transit &- base) / Self.binNanoseconds), forgetting: share)
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
        if repairShare >= Self.repairShareMin, repairs.index < repairs.last {
            let needed = Int64(repairs.index + 1) * Self.binNanoseconds
            let limit = settings.repairTargetMax.nanoseconds / (repairShare < Self.repairShareHigh ? 2 : 1)
            if needed <= limit { wanted = max(wanted, needed) }
        }
        wanted = min(settings.targetMax.nanoseconds, max(settings.targetMin.nanoseconds, wanted + Self.pickUp))
        wait = max(wanted, wait - Int64(Double(span) * Self.fallPerSecond))
    }
}
