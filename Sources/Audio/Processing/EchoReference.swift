import Glibc
// The sound that was played while a block was captured: the source of its echo.
import MonotonicTime

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
