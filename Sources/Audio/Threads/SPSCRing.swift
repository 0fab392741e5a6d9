import Glibc
// A bounded queue between exactly two threads, without locks, system calls or allocation after its making.
import Synchronization

/// A ring for one producer and one consumer thread. A slot is a plain header and up to `payloadCapacity` bytes.
///
/// Both sides are wait-free. A push into a full ring is refused, and it is the producer who counts that.
final class SPSCRing<Header: BitwiseCopyable>: @unchecked Sendable {
    let capacity: Int
    let payloadCapacity: Int
    private let headers: UnsafeMutablePointer<Header>
    private let lengths: UnsafeMutablePointer<Int>
    private let payloads: UnsafeMutableRawPointer
    /// Slots ever popped and ever pushed: 64 bits do not wrap in a lifetime. Each is written by one side only.
    private let popped = Atomic<Int>(0)
    private let pushed = Atomic<Int>(0)

    init(capacity: Int, payloadCapacity: Int) {
        precondition(capacity > 0 && payloadCapacity >= 0)
        self.capacity = capacity
        self.payloadCapacity = payloadCapacity
        headers = .allocate(capacity: capacity)
        lengths = .allocate(capacity: capacity)
        lengths.initialize(repeating: 0, count: capacity)
        payloads = .allocate(byteCount: max(1, capacity * payloadCapacity), alignment: 16)
        // Touch every page now, so that the real-time side does not fault later.
        memset(payloads, 0, capacity * payloadCapacity)
        memset(UnsafeMutableRawPointer(headers), 0, capacity * MemoryLayout<Header>.stride)
        LockedMemory.lock(payloads, capacity * payloadCapacity)
        LockedMemory.lock(headers, capacity * MemoryLayout<Header>.stride)
    }

    deinit {
        headers.deallocate()
        lengths.deallocate()
        payloads.deallocate()
    }

    /// Slots in use. Exact on the two sides, up to what the other side does meanwhile.
    var count: Int { pushed.load(ordering: .acquiring) - popped.load(ordering: .acquiring) }

    /// Producer: puts a slot in, unless fewer than `reserve` slots would then be free.
    ///
    /// - Returns: Whether it went in; `false` also when the payload is longer than a slot.
    func push(_ header: Header, _ payload: UnsafeRawBufferPointer = .init(start: nil, count: 0), reserve: Int = 0)
        -> Bool
    {
        let position = pushed.load(ordering: .relaxed)
        let free = capacity - (position - popped.load(ordering: .acquiring))
        guard free > reserve, payload.count <= payloadCapacity else { return false }
        let slot = position % capacity
        headers[slot] = header
        lengths[slot] = payload.count
        if let source = payload.baseAddress, payload.count > 0 {
            memcpy(payloads + slot * payloadCapacity, source, payload.count)
        }
        pushed.store(position + 1, ordering: .releasing)
        return true
    }

    /// Consumer: takes the oldest slot. The payload is valid within `body` only.
    func pop<Result>(_ body: (Header, UnsafeRawBufferPointer) -> Result) -> Result? {
        let position = popped.load(ordering: .relaxed)
        guard position != pushed.load(ordering: .acquiring) else { return nil }
        let slot = position % capacity
        let payload = UnsafeRawBufferPointer(start: payloads + slot * payloadCapacity, count: lengths[slot])
        let result = body(headers[slot], payload)
        popped.store(position + 1, ordering: .releasing)
        return result
    }
}
