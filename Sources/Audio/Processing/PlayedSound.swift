// Passes the played sound to the microphone's thread, which removes it from the captured sound.
import MonotonicTime
import Synchronization

/// The path by which a microphone's engine learns what a speaker's engine plays at the same time. Give one object to
/// exactly one pair of engines.
///
/// Nothing is passed while the microphone is stopped. It uses no locks. Sound that the microphone does not read in time
/// is lost, and the loss is reported to it.
public final class PlayedSound: Sendable {
    /// A block as it lies in the ring; its samples are the payload.
    struct Block: BitwiseCopyable {
        /// When its first sample is heard, in nanoseconds.
        var heardAt: Int64
        /// Whether it is heard right after the block before.
        var isContinued: Bool
    }

    /// Blocks that wait to be taken: 640 ms. A microphone takes some every 10 ms.
    static let blocksMax = 256

    private let blocks = SPSCRing<Block>(
        capacity: blocksMax, payloadCapacity: playbackBlock * MemoryLayout<Float>.stride)
    /// The number of the microphone's listening; 0: it stands still.
    private let listening = Atomic<Int>(0)
    /// The microphone's own: how often it began to listen.
    private let times = Atomic<Int>(0)
    /// The speaker's own: to which listening the block before was handed on; 0: to none.
    private let heardBy = Atomic<Int>(0)

    /// A path on which nothing has been played yet.
    public init() {}

    /// Whether the last block that was played was handed on. From any thread.
    var isHandedOn: Bool { heardBy.load(ordering: .relaxed) != 0 }

    // MARK: The speaker's thread

    /// `playbackBlock` samples were given to the speaker, where they are heard from `heardAt` on.
    func add(_ samples: UnsafePointer<Float>, heardAt: Instant, isContinued: Bool) {
        let listener = listening.load(ordering: .acquiring)
        guard listener != 0 else { return heardBy.store(0, ordering: .relaxed) }
        let isNext = isContinued && listener == heardBy.load(ordering: .relaxed)
        let bytes = UnsafeRawBufferPointer(start: samples, count: playbackBlock * MemoryLayout<Float>.stride)
        let isTaken = blocks.push(Block(heardAt: heardAt.nanoseconds, isContinued: isNext), bytes)
        heardBy.store(isTaken ? listener : 0, ordering: .relaxed)
    }

    // MARK: The microphone's thread

    /// The microphone begins to hear. Nothing when it does already.
    func listen() {
        guard listening.load(ordering: .relaxed) == 0 else { return }
        while take({ _, _ in }) {}
        listening.store(times.wrappingAdd(1, ordering: .relaxed).newValue, ordering: .releasing)
    }

    /// The microphone stands still.
    func rest() { listening.store(0, ordering: .releasing) }

    /// Gives the oldest block that waits, with its samples, to `body`; false: there is none.
    func take(_ body: (Block, UnsafePointer<Float>) -> Void) -> Bool {
        blocks.pop { block, bytes in
            guard let start = bytes.baseAddress else { return }
            body(block, start.assumingMemoryBound(to: Float.self))
        } != nil
    }
}
