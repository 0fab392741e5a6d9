// How long packets have to wait, learned from how unevenly they come. Pure.
import MonotonicTime

/// Measures each packet's delay against the quickest of late, keeps a forgetting histogram of it, and gives
/// the wait that nearly all packets would have needed.
struct DelayEstimator {
    /// The histogram's resolution.
    private static let binNanoseconds: Int64 = 5_000_000
    /// The share of packets that are to come in time.
    private static let quantile: Float = 0.97
    /// What is known before the first packet counts as so many packets.
    private static let initialWeight: Float = 3
    /// Older packets are forgotten over about so many: four seconds of 20 ms frames.
    private static let memory: Float = 200
    /// The quickest packet is looked for in the last one to two of these.
    private static let windowNanoseconds: Int64 = 2_000_000_000

    private let settings: JitterBufferSettings
    private var histogram: [Float]
    private var weight = initialWeight
    private var quickest: Int64?
    private var quickestInWindow: Int64?
    private var windowEnd: Int64 = 0

    init(_ settings: JitterBufferSettings) {
        self.settings = settings
        let bins = Int(settings.targetMax.nanoseconds / Self.binNanoseconds) + 1
        histogram = [Float](repeating: 0, count: max(1, bins))
        let initial = Int(settings.targetInitial.nanoseconds / Self.binNanoseconds) - 1
        histogram[min(max(0, initial), histogram.count - 1)] = 1
    }

    /// A new burst: its times have nothing to do with those of the one before, its network has.
    mutating func beginBurst() {
        quickest = nil
        quickestInWindow = nil
        windowEnd = 0
    }

    /// A packet whose audio is `mediaTime` (nanoseconds on the talker's clock) came.
    mutating func received(mediaTime: Int64, at now: Instant) {
        let transit = now.nanoseconds &- mediaTime
        if now.nanoseconds >= windowEnd {
            // The window before becomes the memory, this packet the first of the next.
            if let last = quickestInWindow { quickest = last }
            quickestInWindow = transit
            windowEnd = now.nanoseconds + Self.windowNanoseconds
        }
        quickestInWindow = min(quickestInWindow ?? transit, transit)
        let base = min(quickest ?? transit, quickestInWindow ?? transit)
        quickest = min(quickest ?? transit, transit)
        let late = max(0, transit &- base)
        let bin = min(Int(late / Self.binNanoseconds), histogram.count - 1)
        weight = min(weight + 1, Self.memory)
        let share = 1 / weight
        for index in histogram.indices { histogram[index] *= 1 - share }
        histogram[bin] += share
    }

    /// The transit of the quickest packet of late, on the two clocks' difference; nil before the first.
    var base: Int64? {
        switch (quickest, quickestInWindow) {
        case (let a?, let b?): min(a, b)
        case (let a, let b): a ?? b
        }
    }

    /// The wait that is right now.
    var target: Duration {
        var sum: Float = 0
        for index in histogram.indices {
            sum += histogram[index]
            if sum >= Self.quantile {
                let needed = Duration.nanoseconds(Int64(index + 1) * Self.binNanoseconds)
                return min(settings.targetMax, max(settings.targetMin, needed))
            }
        }
        return settings.targetMax
    }
}
