// Which played samples were heard when a sample was captured: the source of its echo. Pure.
import Glibc
import MonotonicTime

/// Finds the time of the first of a series of counted, timestamped samples.
///
/// A timestamp may be late, when its thread was delayed between reading the device and the clock, but never early. So
/// the earliest one of each 100 ms counts.
struct StampedCount {
    /// The number of samples whose timestamps are compared.
    static let window: Int64 = 4_800

    /// When sample 0 was, or would have been, in nanoseconds; nil: nothing was stamped yet.
    private(set) var origin: Int64?
    private var earliest = Int64.max
    private var windowEnd: Int64 = 0

    /// `sample` was at the device at `instant`.
    mutating func stamp(_ sample: Int64, at instant: Instant) {
        let seen = instant.nanoseconds - CaptureStateMachine.duration(sample).nanoseconds
        earliest = min(earliest, seen)
        if origin != nil, sample < windowEnd { return }
        origin = earliest
        earliest = .max
        windowEnd = sample + Self.window
    }
}

/// The position of captured samples among the played ones. It is kept while it is right, because the filter has to
/// relearn the room when the position moves.
struct EchoAlignment {
    /// Which played samples belong to captured ones.
    struct Place: Equatable {
        /// The count of the first of them; it may lie before or behind all that are known.
        var start: Int64
        /// Whether that is another place than the one of the samples before: what was learnt is void.
        var isNew: Bool
    }

    /// The place moves when it is wrong by more than this, in samples: 3 ms.
    static let tolerance: Int64 = 144
    /// How much earlier than its echo a sound is requested, in samples, if it is available by then: the filter needs a
    /// sound before its echo, and timestamps are not exact.
    static let leadMax: Int64 = 240
    /// What a speaker that writes at the last moment may make of it.
    static let leadMin: Int64 = -240
    /// The lead is too long when the requested sound is late this many times in a row. A single time is a delayed
    /// thread.
    static let latesMax = 5
    /// A lead that was too long is shortened by whole milliseconds, and one to spare.
    private static let leadStep: Int64 = 48
    /// Longer pauses are counted as this, in samples: what was heard before is over.
    static let pauseMax: Int64 = 65_536

    private var played = StampedCount()
    private var captured = StampedCount()
    /// The end of what has been played: the count of the sample that comes next.
    private(set) var playedEnd: Int64 = 0
    private var shift: Int64?
    private(set) var lead = leadMax
    /// The end of what was wanted since the last block was played.
    private var wantedEnd: Int64?
    private var lates = 0
    private var leastLate = Int64.max

    /// `count` samples are heard from `instant` on. Not `isContinued`: there is a pause between them and those before, or some of
    /// those were dropped unheard.
    ///
    /// - Returns: The count of the first of them.
    mutating func play(_ count: Int, heardAt instant: Instant, isContinued: Bool) -> Int64 {
        if isContinued {
            if let wantedEnd { wasWanted(wantedEnd) }
        } else {
            if let origin = played.origin {
                let end = origin + CaptureStateMachine.duration(playedEnd).nanoseconds
                let pause = Self.samples(instant.nanoseconds - end)
                playedEnd += min(max(pause, -Self.pauseMax), Self.pauseMax)
            }
            played = StampedCount()
            shift = nil
        }
        wantedEnd = nil
        let place = playedEnd
        played.stamp(place, at: instant)
        playedEnd += Int64(count)
        return place
    }

    /// Captured samples are counted from 0 again, or some are missing.
    mutating func restartCapture() {
        captured = StampedCount()
        shift = nil
        wantedEnd = nil
    }

    /// The captured `sample` was at the microphone at `instant`.
    mutating func stampCapture(_ sample: Int64, at instant: Instant) { captured.stamp(sample, at: instant) }

    /// The place of `count` captured samples from `first` on; nil: nothing was played, or no sample was stamped.
    mutating func place(of first: Int64, _ count: Int) -> Place? {
        guard let heard = played.origin, let spoken = captured.origin else { return nil }
        let right = Self.samples(spoken - heard) + lead
        let isNew = shift.map { abs(right - $0) > Self.tolerance } ?? true
        let kept = isNew ? right : shift ?? right
        shift = kept
        wantedEnd = first + kept + Int64(count)
        return Place(start: first + kept, isNew: isNew)
    }

    /// Samples up to `end` were wanted before the block that comes now.
    private mutating func wasWanted(_ end: Int64) {
        guard end > playedEnd else {
            lates = 0
            leastLate = .max
            return
        }
        lates += 1
        leastLate = min(leastLate, end - playedEnd)
        guard lates >= Self.latesMax, lead > Self.leadMin else { return }
        lead = max(Self.leadMin, lead - (leastLate / Self.leadStep + 2) * Self.leadStep)
        shift = nil
        lates = 0
        leastLate = .max
    }

    /// To the nearest whole sample.
    private static func samples(_ nanoseconds: Int64) -> Int64 { Int64((Double(nanoseconds) * 48 / 1e6).rounded()) }
}

/// The last second of what was played, by its place in time. No device and no clock: instants are passed in. Allocates in `init`
/// only; confined to the capture thread.
final class EchoReference {
    /// What there is for a captured block.
    struct Found: Equatable {
        /// Whether something sounds in it.
        var sounds: Bool
        /// Whether the place in time has moved since the block before: what was learnt of the room is void.
        var isMoved: Bool
    }

    /// Samples kept, a power of two.
    static let capacity = Int(EchoAlignment.pauseMax)
    /// Samples below this are silence: half of what 16 bits tell apart.
    private static let silence: Float = 1 / 65_536

    private var alignment = EchoAlignment()
    private let samples: UnsafeMutablePointer<Float>

    init() {
        samples = .allocate(capacity: Self.capacity)
        samples.initialize(repeating: 0, count: Self.capacity)
        LockedMemory.lock(samples, Self.capacity * MemoryLayout<Float>.stride)
    }

    deinit { samples.deallocate() }

    /// `count` samples are heard from `instant` on; see `EchoAlignment.play`.
    func play(_ block: UnsafePointer<Float>, _ count: Int, heardAt instant: Instant, isContinued: Bool) {
        let end = alignment.playedEnd
        let place = alignment.play(count, heardAt: instant, isContinued: isContinued)
        // A pause was silence.
        if place > end { for index in end..<place { samples[Self.slot(index)] = 0 } }
        for index in 0..<count { samples[Self.slot(place + Int64(index))] = block[index] }
    }

    /// Captured samples are counted from 0 again, or some are missing.
    func restartCapture() { alignment.restartCapture() }

    /// The captured `sample` was at the microphone at `instant`.
    func stampCapture(_ sample: Int64, at instant: Instant) { alignment.stampCapture(sample, at: instant) }

    /// Fills `block` with what belongs to `count` captured samples from `first` on; with silence where nothing is known.
    func find(_ first: Int64, _ count: Int, into block: UnsafeMutablePointer<Float>) -> Found {
        guard let place = alignment.place(of: first, count) else {
            memset(block, 0, count * MemoryLayout<Float>.stride)
            return Found(sounds: false, isMoved: false)
        }
        let known = alignment.playedEnd - Int64(Self.capacity)..<alignment.playedEnd
        var sounds = false
        for index in 0..<count {
            let wanted = place.start + Int64(index)
            block[index] = known.contains(wanted) ? samples[Self.slot(wanted)] : 0
            if abs(block[index]) >= Self.silence { sounds = true }
        }
        return Found(sounds: sounds, isMoved: place.isNew)
    }

    private static func slot(_ index: Int64) -> Int { Int(truncatingIfNeeded: index) & (capacity - 1) }
}
