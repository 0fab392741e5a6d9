// Which packet is decoded when, and what stands in for a missing one. Pure: packets and times in, decisions out.
import MonotonicTime

/// The jitter buffer: orders packets, holds them until they are due, and says what to play next.
///
/// A burst is held back until its first packet has waited for the target (`DelayEstimator`). From then on the
/// player asks for more whenever it has run out, so the buffer needs no clock of its own: a missing packet is passed over
/// when later ones are there (it is lost), and waited for, by invented sound, when there are none (it is late).
/// Catching up after such waits, or after speech that was held until the floor was granted, is by acceleration.
///
/// Times of audio are in samples at 48 kHz. All memory is taken in `init`.
struct JitterBufferStateMachine {
    /// What became of a packet.
    enum Insertion: Equatable {
        case stored, duplicate, late, full
    }

    /// What to play next.
    enum Decision: Equatable {
        /// Nothing plays.
        case idle
        /// Silence for so many samples at most, then ask again.
        case wait(samples: Int)
        /// Decode the packet in `slot`, then `release` it. `isFirst`: the burst begins with it. `accelerate`: shorten it.
        case decode(slot: Int, isFirst: Bool, accelerate: Bool)
        /// Invent so many samples.
        case conceal(samples: Int)
        /// Restore so many samples from the packet in `slot`, the next one; it stays.
        case recover(slot: Int, samples: Int)
        /// The burst is over; ask again.
        case ended(PlaybackEnd)
    }

    struct Slot {
        var isUsed = false
        var burst: UInt32 = 0
        var sequence: Int64 = 0
        var timestamp: Int64 = 0
        var samples = 0
        var length = 0
        var receivedAt = Instant.zero
    }

    /// Packets held at most: 2.5 s of 20 ms frames; the talker holds at most 1 s until the floor is granted.
    static let slotCount = 128
    /// Samples invented at once, in place of a packet that is waited for.
    static let concealStep = 480
    /// Invented sound becomes silence after so many samples; libopus has faded it by then.
    static let concealMax = 4_800
    /// Packets further away than this in sequence or time are of another burst.
    static let sequenceReach = 1_000
    static let timeReach = 10 * 48_000
    /// Playing later than the target by more than this is worth catching up.
    static let excessMax = Duration.milliseconds(10)
    /// For how long stray packets of a finished burst are known as such.
    static let memoryOfEnd = Duration.seconds(5)

    private struct Burst {
        var number: UInt32
        var firstSequence: UInt16
        var firstTimestamp: UInt32
        var newestSequence: Int64 = 0
        var newestTimestamp: Int64 = 0
        var lowestSequence: Int64 = 0
        /// The last sequence, once it was announced.
        var endSequence: Int64?
        var lastReceivedAt: Instant
    }

    private let settings: JitterBufferSettings
    private(set) var slots = [Slot](repeating: Slot(), count: slotCount)
    private var payloads = [UInt8](repeating: 0, count: slotCount * opusPayloadMax)
    private var estimator: DelayEstimator
    private var current: Burst?
    private var following: Burst?
    private var nextBurst: UInt32 = 1
    private var playing = false
    private var nextSequence: Int64 = 0
    private var nextTimestamp: Int64 = 0
    /// Samples of the last packet decoded: how long a lost one is taken to have been.
    private var frameSamples = 960
    /// Samples invented or silent since the last packet was decoded.
    private var concealed = 0
    private var lastEnded: (burst: Burst, at: Instant)?
    /// Counts since `init`.
    private(set) var statistics = PlaybackStatistics()

    init(_ settings: JitterBufferSettings = .init()) {
        self.settings = settings
        estimator = DelayEstimator(settings)
    }

    /// Whether there is nothing to play and nothing to wait for.
    var isIdle: Bool { current == nil }
    /// The number of the burst that is played or waited for.
    var burst: UInt32 { current?.number ?? 0 }
    /// The present target.
    var target: Duration { estimator.target }

    // MARK: Packets in

    /// Takes a packet of `samples` (1…5760) and at most `opusPayloadMax` bytes.
    mutating func insert(
        sequence: UInt16, timestamp: UInt32, marker: Bool, samples: Int, payload: UnsafeRawBufferPointer,
        receivedAt now: Instant
    ) -> Insertion {
        guard !payload.isEmpty, payload.count <= opusPayloadMax, samples > 0 else {
            statistics.malformed += 1
            return .full
        }
        if current == nil, isStray(sequence, timestamp, at: now) {
            statistics.late += 1
            return .late
        }
        let isFollowing: Bool
        if let burst = current, belongs(sequence, timestamp, marker, to: burst) {
            isFollowing = false
        } else if current == nil {
            current = makeBurst(sequence, timestamp, now)
            playing = false
            concealed = 0
            estimator.beginBurst()
            isFollowing = false
        } else if let burst = following, belongs(sequence, timestamp, marker, to: burst) {
            isFollowing = true
        } else {
            // A third burst cannot wait for the first: what was not played of that is dropped, and `next` ends it.
            if following != nil {
                discard(current?.number ?? 0)
                statistics.dropped += 1
                return .full
            }
            following = makeBurst(sequence, timestamp, now)
            isFollowing = true
        }
        guard var burst = isFollowing ? following : current else { return .full }
        defer { if isFollowing { following = burst } else { current = burst } }
        let unwrapped =
            burst.newestSequence + Int64(Int16(truncatingIfNeeded: Int(sequence) - Int(Self.low(burst, newest: true))))
        let time =
            burst.newestTimestamp
            + Int64(Int32(bitPattern: timestamp &- Self.lowTime(burst)))
        burst.lastReceivedAt = max(burst.lastReceivedAt, now)
        if !isFollowing {
            estimator.received(mediaTime: Self.nanoseconds(time), at: now)
            if playing, unwrapped < nextSequence {
                let known = unwrapped >= nextSequence - 64 && wasPlayed(unwrapped)
                if known { statistics.duplicate += 1 } else { statistics.late += 1 }
                return known ? .duplicate : .late
            }
        }
        var free: Int?
        for index in slots.indices {
            if !slots[index].isUsed {
                if free == nil { free = index }
            } else if slots[index].burst == burst.number, slots[index].sequence == unwrapped {
                statistics.duplicate += 1
                return .duplicate
            }
        }
        guard let slot = free else {
            statistics.dropped += 1
            return .full
        }
        slots[slot] = Slot(
            isUsed: true, burst: burst.number, sequence: unwrapped, timestamp: time, samples: samples,
            length: payload.count, receivedAt: now)
        payloads.withUnsafeMutableBytes { bytes in
            let start = slot * opusPayloadMax
            UnsafeMutableRawBufferPointer(rebasing: bytes[start..<start + payload.count]).copyMemory(from: payload)
        }
        burst.lowestSequence = min(burst.lowestSequence, unwrapped)
        if unwrapped > burst.newestSequence {
            burst.newestSequence = unwrapped
            burst.newestTimestamp = time
        }
        statistics.received += 1
        return .stored
    }

    /// The talker's burst ends with `lastSequence`. Nothing when no burst is known that this could be about.
    mutating func end(lastSequence: UInt16) {
        func distance(_ burst: Burst) -> Int64 {
            Int64(Int16(truncatingIfNeeded: Int(lastSequence) - Int(Self.low(burst, newest: false))))
        }
        if let burst = following, distance(burst) >= 0, distance(burst) < Self.sequenceReach {
            following?.endSequence = distance(burst)
        } else if let burst = current {
            let place = distance(burst)
            // A burst may be longer than half of the numbers' range: count from its newest packet then.
            let near = Int64(
                Int16(truncatingIfNeeded: Int(lastSequence) - Int(Self.low(burst, newest: true))))
            guard abs(near) < Self.sequenceReach else { return }
            current?.endSequence = max(place, burst.newestSequence + near, burst.lowestSequence - 1)
        }
    }

    /// Forgets all packets. `next` then says that the burst has ended.
    ///
    /// - Returns: Whether a burst was going on.
    mutating func flush(at now: Instant) -> Bool {
        let wasBusy = current != nil
        for index in slots.indices where slots[index].isUsed {
            slots[index].isUsed = false
            statistics.dropped += 1
        }
        if let burst = current { lastEnded = (following ?? burst, now) }
        current = nil
        following = nil
        playing = false
        return wasBusy
    }

    // MARK: Decisions out

    /// What to play from `now` on. Every answer but `idle` moves the machine on, so it is to be done.
    mutating func next(at now: Instant) -> Decision {
        guard let burst = current else { return .idle }
        let found = lowest(burst.number)
        guard playing else {
            guard let found else { return finish(.superseded, at: now) }
            let wait = due(slots[found].timestamp) - now
            // When half of the room is taken, or all has come, waiting gains nothing.
            let first = slots[found].sequence
            let isFull = count(burst.number, from: first, to: .max) > Self.slotCount / 2
            let isWhole =
                burst.endSequence.map { Int64(count(burst.number, from: first, to: $0)) == $0 - first + 1 } ?? false
            if wait > .zero, !isFull, !isWhole { return .wait(samples: Self.samples(wait)) }
            playing = true
            nextSequence = slots[found].sequence
            nextTimestamp = slots[found].timestamp
            return decode(found, isFirst: true, at: now)
        }
        if let end = burst.endSequence, nextSequence > end { return finish(.complete, at: now) }
        guard let found else { return runDry(burst, at: now) }
        let slot = slots[found]
        let gap = slot.timestamp - nextTimestamp
        if slot.sequence > nextSequence { return passOver(found, gap: gap, at: now) }
        // The talker left out time (an overrun, or a pause): it passes here, too, unless that has happened already.
        let wait = due(slot.timestamp) - now
        if gap > 0, wait > .milliseconds(2) {
            let samples = min(Self.samples(wait), Self.concealStep, max(1, Int(clamping: gap)))
            nextTimestamp += Int64(samples)
            return concealed < Self.concealMax && samples == Self.concealStep ? conceal(samples) : silence(samples)
        }
        return decode(found, isFirst: false, at: now)
    }

    /// The packet in `slot`.
    func withPayload<Result>(_ slot: Int, _ body: (UnsafeRawBufferPointer) -> Result) -> Result {
        payloads.withUnsafeBytes { bytes in
            let start = slot * opusPayloadMax
            return body(UnsafeRawBufferPointer(rebasing: bytes[start..<start + slots[slot].length]))
        }
    }

    /// The packet in `slot` has been decoded, or could not be.
    mutating func release(_ slot: Int, decoded: Bool, removedByAcceleration: Int = 0) {
        slots[slot].isUsed = false
        if decoded { statistics.played += 1 } else { statistics.malformed += 1 }
        statistics.acceleratedSamples += removedByAcceleration
    }

    // MARK: Rules

    private mutating func decode(_ slot: Int, isFirst: Bool, at now: Instant) -> Decision {
        let packet = slots[slot]
        nextSequence = packet.sequence + 1
        nextTimestamp = packet.timestamp + Int64(packet.samples)
        frameSamples = packet.samples
        concealed = 0
        markPlayed(packet.sequence)
        let excess = now - due(packet.timestamp)
        let nextIsThere = count(packet.burst, from: nextSequence, to: nextSequence) > 0
        return .decode(slot: slot, isFirst: isFirst, accelerate: excess > Self.excessMax && nextIsThere)
    }

    /// Later packets are there: those before them are lost.
    private mutating func passOver(_ slot: Int, gap: Int64, at now: Instant) -> Decision {
        let missing = slots[slot].sequence - nextSequence
        guard gap > 0, concealed < Self.concealMax else {
            statistics.lost += Int(missing)
            nextSequence = slots[slot].sequence
            return next(at: now)
        }
        nextSequence += 1
        statistics.lost += 1
        let isLastMissing = missing == 1
        let samples = Int(min(gap, Int64(isLastMissing ? OpusDecoder.samplesMax : frameSamples))) / 120 * 120
        nextTimestamp += Int64(samples)
        guard samples > 0 else { return next(at: now) }
        concealed += samples
        // Only a copy of a whole frame can be in the next packet; longer gaps are more than one frame.
        if isLastMissing, samples <= 2 * frameSamples {
            statistics.recovered += 1
            return .recover(slot: slot, samples: samples)
        }
        statistics.concealedSamples += samples
        return .conceal(samples: samples)
    }

    /// Nothing is there: wait for it by invented sound, and after that in silence, but not for ever.
    private mutating func runDry(_ burst: Burst, at now: Instant) -> Decision {
        if following != nil { return finish(.superseded, at: now) }
        let waited = CaptureStateMachine.duration(Int64(concealed))
        if let end = burst.endSequence, waited >= settings.missingEnd {
            statistics.lost += Int(clamping: min(end - nextSequence + 1, Int64(Self.sequenceReach)))
            return finish(.silence, at: now)
        }
        if now - burst.lastReceivedAt >= settings.silenceEnd { return finish(.silence, at: now) }
        return concealed < Self.concealMax ? conceal(Self.concealStep) : silence(Self.concealStep)
    }

    private mutating func conceal(_ samples: Int) -> Decision {
        concealed += samples
        statistics.concealedSamples += samples
        return .conceal(samples: samples)
    }

    private mutating func silence(_ samples: Int) -> Decision {
        concealed += samples
        return .wait(samples: samples)
    }

    private mutating func finish(_ end: PlaybackEnd, at now: Instant) -> Decision {
        guard let burst = current else { return .idle }
        discard(burst.number)
        lastEnded = (burst, now)
        current = following
        following = nil
        playing = false
        concealed = 0
        estimator.beginBurst()
        if let burst = current {
            for index in slots.indices where slots[index].isUsed && slots[index].burst == burst.number {
                estimator.received(mediaTime: Self.nanoseconds(slots[index].timestamp), at: slots[index].receivedAt)
            }
        }
        return .ended(end)
    }

    /// When audio of the talker's time `timestamp` is to be played.
    private func due(_ timestamp: Int64) -> Instant {
        Instant(nanoseconds: (estimator.base ?? 0) &+ Self.nanoseconds(timestamp)) + estimator.target
    }

    private func lowest(_ burst: UInt32) -> Int? {
        var found: Int?
        for index in slots.indices where slots[index].isUsed && slots[index].burst == burst {
            if found.map({ slots[index].sequence < slots[$0].sequence }) ?? true { found = index }
        }
        return found
    }

    /// How many packets of `burst` are there between two sequences. A plain loop: generic ones allocate when not optimised.
    private func count(_ burst: UInt32, from first: Int64, to last: Int64) -> Int {
        var found = 0
        for index in slots.indices where slots[index].isUsed && slots[index].burst == burst {
            if slots[index].sequence >= first, slots[index].sequence <= last { found += 1 }
        }
        return found
    }

    private mutating func discard(_ burst: UInt32) {
        for index in slots.indices where slots[index].isUsed && slots[index].burst == burst {
            slots[index].isUsed = false
            statistics.dropped += 1
        }
    }

    private mutating func makeBurst(_ sequence: UInt16, _ timestamp: UInt32, _ now: Instant) -> Burst {
        defer { nextBurst &+= 1 }
        return Burst(
            number: nextBurst, firstSequence: sequence, firstTimestamp: timestamp, lastReceivedAt: now)
    }

    private func belongs(_ sequence: UInt16, _ timestamp: UInt32, _ marker: Bool, to burst: Burst) -> Bool {
        let steps = Int(Int16(truncatingIfNeeded: Int(sequence) - Int(Self.low(burst, newest: true))))
        let time = Int(Int32(bitPattern: timestamp &- Self.lowTime(burst)))
        guard abs(steps) < Self.sequenceReach, abs(time) < Self.timeReach else { return false }
        // A marker begins a burst, unless it is this burst's own first packet, come again or behind others.
        return !marker || (burst.newestSequence + Int64(steps) <= burst.lowestSequence && time <= 0)
    }

    private func isStray(_ sequence: UInt16, _ timestamp: UInt32, at now: Instant) -> Bool {
        guard let (burst, ended) = lastEnded, now - ended < Self.memoryOfEnd else { return false }
        let steps = Int(Int16(truncatingIfNeeded: Int(sequence) - Int(Self.low(burst, newest: true))))
        let time = Int(Int32(bitPattern: timestamp &- Self.lowTime(burst)))
        return steps <= 0 && steps > -Self.sequenceReach && time <= 0 && time > -Self.timeReach
    }

    /// A bit for each of the last 64 sequences before `nextSequence`: whether it was played. Tells late from duplicate.
    private var playedBits: UInt64 = 0
    private var playedNewest: Int64 = 0

    private mutating func markPlayed(_ sequence: Int64) {
        let step = sequence - playedNewest
        playedBits = step > 0 && step < 64 ? playedBits << UInt64(step) | 1 : 1
        playedNewest = sequence
    }

    private func wasPlayed(_ sequence: Int64) -> Bool {
        let age = playedNewest - sequence
        return age >= 0 && age < 64 && playedBits >> UInt64(age) & 1 == 1
    }

    private static func low(_ burst: Burst, newest: Bool) -> UInt16 {
        newest ? burst.firstSequence &+ UInt16(truncatingIfNeeded: burst.newestSequence) : burst.firstSequence
    }

    private static func lowTime(_ burst: Burst) -> UInt32 {
        burst.firstTimestamp &+ UInt32(truncatingIfNeeded: burst.newestTimestamp)
    }

    private static func nanoseconds(_ samples: Int64) -> Int64 { samples &* 1_000_000 / 48 }
    private static func samples(_ duration: Duration) -> Int { max(1, Int(CaptureStateMachine.samples(duration))) }
}
