// Storage for the jitter buffer's packets: a pool of slots and their bytes, allocated once and never freed.
import MonotonicTime

/// A packet that waits.
struct JitterBufferSlot {
    var isUsed = false
    var isRepaired = false
    var burst: UInt32 = 0
    /// Steps from the burst's first packet that came.
    var sequence: Int64 = 0
    /// Samples at 48 kHz from that packet's time.
    var timestamp: Int64 = 0
    var samples = 0
    var length = 0
    var receivedAt = Instant.zero
}

/// A pool of `count` slots. What was given back last is taken first, so that only the memory of as many packets as ever
/// wait at once is touched.
final class JitterBufferStore {
    let count: Int
    private(set) var freeCount: Int
    private let free: UnsafeMutablePointer<Int32>
    private let bytes: UnsafeMutableRawPointer

    init(count: Int) {
        self.count = count
        freeCount = count
        free = .allocate(capacity: count)
        for index in 0..<count { free[index] = Int32(count - 1 - index) }
        bytes = .allocate(byteCount: count * opusPayloadMax, alignment: 16)
    }

    deinit {
        free.deallocate()
        bytes.deallocate()
    }

    /// A free slot's number, for a packet of these bytes (at most `opusPayloadMax`); nil when all are taken.
    func take(_ payload: UnsafeRawBufferPointer) -> Int? {
        guard freeCount > 0, payload.count <= opusPayloadMax else { return nil }
        freeCount -= 1
        let slot = Int(free[freeCount])
        if let source = payload.baseAddress {
            (bytes + slot * opusPayloadMax).copyMemory(from: source, byteCount: payload.count)
        }
        return slot
    }

    /// Gives back a slot that was taken.
    func giveBack(_ slot: Int) {
        free[freeCount] = Int32(slot)
        freeCount += 1
    }

    /// The first `length` bytes in a slot.
    func payload(_ slot: Int, length: Int) -> UnsafeRawBufferPointer {
        UnsafeRawBufferPointer(start: bytes + slot * opusPayloadMax, count: length)
    }
}
