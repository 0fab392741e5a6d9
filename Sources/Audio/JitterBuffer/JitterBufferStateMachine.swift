// Which packet is decoded when, and what stands in for a missing one: the state, and what is said to and asked of it.
// Pure: packets and times in, decisions out. The rules are in the two extensions.
import MonotonicTime
import Vocabulary

/// The jitter buffer: orders packets, holds them until they are due, and says what to play next.
///
/// A burst is held back until its first packet has waited for the target (`DelayEstimator`). From then on the
/// player asks for more whenever it has run out, so the buffer needs no clock of its own. A missing packet with later ones
/// behind it is lost: a short gap is passed over by invented sound, a long one waits for its repair. Where nothing is
/// behind it, it is late, and waited for. Every packet says how far the playing is behind or ahead of the target, and the
/// player shortens or lengthens the speech by that.
///
/// Times of audio are in samples at 48 kHz. All memory is taken in `init`; no step looks at more than a few packets.
struct JitterBufferStateMachine {
    /// What became of a packet.
    enum Insertion: Equatable {
        case stored, duplicate, late, full
    }

    /// How the samples of a packet are to be played.
    enum Pace: Equatable {
        case steady
        /// Shorten by at most this many samples, to catch up.
        case shorten(by: Int)
        /// Lengthen by at most this many samples, to wait longer for the next packets.
        case lengthen(by: Int)
    }

    /// What to play next.
    enum Decision: Equatable {
        /// Nothing plays.
        case idle
        /// Silence for at most this many samples, then ask again.
        case wait(samples: Int)
        /// Decode the packet in `slot`, then `release` it. `isFirst`: the burst begins with it.
        case decode(slot: Int, isFirst: Bool, pace: Pace)
        /// Conceal this many samples.
        case conceal(samples: Int)
        /// Recover this many samples from the FEC data of the next packet, which is in `slot` and stays there.
        case recover(slot: Int, samples: Int)
        /// The burst is over; ask again.
        case ended(PlaybackEnd)
    }

    /// A packet that takes its place although sound was invented for it.
    struct LatePacket: Equatable {
        /// Decode the packet in this slot, then `release` it.
        var slot: Int
        /// So many samples of the packet are not to be played, because the invented sound has taken their time.
        var skipped: Int
    }

    /// Packets held at most: five seconds of 10 ms frames. A gap of 2 s and 1.5 s around it are 3.5 s.
    static let slotCount = 512
    /// When so few slots are free, no gap is waited for.
    static let slotReserve = 64
    /// Samples invented at once, in place of a packet that is waited for: the least that the codec invents well.
    static let concealStep = 480
    /// A late packet takes its place if the late one before it was played this much earlier.
    static let lateRarely = Duration.seconds(1)
    /// Silence played at once before looking again.
    static let silenceStep = 120
    /// Concealment becomes silence after this many samples; libopus has faded it by then.
    static let concealMax = 4_800
    /// A gap of up to this many samples is concealed at once.
    static let concealAtOnceMax = 2_880
    /// After this many gaps without a repair, further gaps do not wait until a repair arrives.
    static let waitsInVainMax = 2
    /// Packets further away than this in sequence or time are of another burst.
    static let sequenceReach = 1_000
    static let timeReach = 10 * 48_000
    /// How long the first packets wait for the packet with the marker.
    static let headWait = Duration.milliseconds(150)
    /// For how long stray packets of a finished burst are known as such.
    static let memoryOfEnd = Duration.seconds(5)

    let settings: JitterBufferSettings
    var slots = [JitterBufferSlot](repeating: JitterBufferSlot(), count: slotCount)
    let store = JitterBufferStore(count: slotCount)
    var estimator: DelayEstimator
    var current = JitterBufferLane()
    var following = JitterBufferLane()
    var nextBurst: UInt32 = 1
    var playing = false
    var nextSequence: Int64 = 0
    var nextTimestamp: Int64 = 0
    /// Samples of the last packet decoded: how long a lost one is taken to have been.
    var frameSamples = 960
    /// Samples invented or silent since the last packet was decoded.
    var concealed = 0
    /// Of those, the ones invented while nothing was there, which stand in for packets that prove to be lost.
    var filled = 0
    /// When a packet was played last that sound had been invented for.
    var lateAt: Instant?
    var gap = Gap()
    var waitsInVain = 0
    var correction = PaceRule()
    /// Which of the last sequences were played. Tells duplicate from late.
    var played = [Bool](repeating: false, count: JitterBufferLane.reach)
    var playedNewest: Int64 = -1
    var lastEnded: Ended?
    /// Counts since `init`.
    var statistics = PlaybackStatistics()

    /// What is remembered of a burst that is over.
    struct Ended {
        var lastSequence: UInt16
        var lastTimestamp: UInt32
        var at: Instant
    }

    init(_ settings: JitterBufferSettings = .init()) {
        self.settings = settings
        estimator = DelayEstimator(settings)
    }

    /// Whether there is nothing to play and nothing to wait for.
    var isIdle: Bool { !current.isActive }
    /// Packets that wait.
    var heldCount: Int { store.count - store.freeCount }
    /// The number of the burst that is played or waited for.
    var burst: UInt32 { current.isActive ? current.number : 0 }
    /// The present target.
    var target: Duration { estimator.target }
    /// How much faster than this machine's clock the talker's runs, in parts per million; 0 until it is known.
    var talkerPartsPerMillion: Double { estimator.talkerPartsPerMillion }
    /// Whether `next` would decode the packet that follows in the burst: it is there, without a pause before it.
    var nextIsThere: Bool {
        guard playing, let slot = current.slot(of: nextSequence) else { return false }
        return nextSequence <= current.endSequence ?? .max && slots[slot].timestamp <= nextTimestamp
    }

    /// The talker's burst ends with `lastSequence`. Nothing when no burst is known that this could be about.
    mutating func end(lastSequence: UInt16) {
        func distance(_ lane: JitterBufferLane) -> Int64 {
            Int64(lastSequence.sequenceDistance(from: lane.firstSequence))
        }
        if following.isActive, distance(following) >= 0, distance(following) < Self.sequenceReach {
            following.endSequence = distance(following)
        } else if current.isActive {
            // A burst may be longer than half of the numbers' range: count from its newest packet then.
            let near = current.place(of: lastSequence)
            guard abs(near - current.newestSequence) < Self.sequenceReach else { return }
            let lowest = current.count > 0 ? current.lowest : nextSequence
            current.endSequence = max(distance(current), near, lowest - 1)
        }
    }

    /// Forgets all packets. `next` then says that the burst has ended.
    ///
    /// - Returns: Whether a burst was going on.
    mutating func flush(at now: Instant) -> Bool {
        let wasBusy = current.isActive
        if following.isActive { remember(following, at: now) } else if wasBusy { remember(current, at: now) }
        discard(current)
        discard(following)
        playing = false
        return wasBusy
    }

    /// The packet in `slot`.
    func withPayload<Result>(_ slot: Int, _ body: (UnsafeRawBufferPointer) -> Result) -> Result {
        body(store.payload(slot, length: slots[slot].length))
    }

    /// The packet in `slot` has been decoded, or could not be.
    mutating func release(_ slot: Int, decoded: Bool) {
        if current.lowestSlot == slot { _ = current.removeLowest() }
        store.giveBack(slot)
        if decoded { statistics.played += 1 } else { statistics.malformed += 1 }
    }

    /// The player has shortened speech by `removed` samples, or lengthened it if negative.
    mutating func rescaled(by removed: Int) {
        if removed > 0 { statistics.acceleratedSamples += removed } else { statistics.expandedSamples -= removed }
    }

    /// Ends a lane and drops what it holds.
    mutating func discard(_ lane: JitterBufferLane) {
        empty(lane)
        lane.end()
    }

    /// Drops what a lane holds.
    mutating func empty(_ lane: JitterBufferLane) {
        while let slot = lane.removeLowest() {
            store.giveBack(slot)
            statistics.dropped += 1
        }
    }

    mutating func remember(_ lane: JitterBufferLane, at now: Instant) {
        let last = max(lane.newestSequence, lane.endSequence ?? lane.newestSequence)
        lastEnded = Ended(
            lastSequence: lane.firstSequence &+ UInt16(truncatingIfNeeded: last),
            lastTimestamp: lane.firstTimestamp &+ UInt32(truncatingIfNeeded: lane.newestTimestamp), at: now)
    }

    static func nanoseconds(_ samples: Int64) -> Int64 { samples &* 1_000_000 / 48 }
    static func samples(_ duration: Duration) -> Int { max(1, Int(CaptureStateMachine.samples(duration))) }
}
