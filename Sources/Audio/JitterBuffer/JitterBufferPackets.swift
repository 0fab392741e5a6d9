// The packets that wait: a burst's numbers and times, and the slots that hold them, allocated once and never freed.
import MonotonicTime
import Vocabulary

/// A burst's packets by sequence number: putting in, finding and taking out are one step each. One object is used for
/// burst after burst.
final class JitterBufferLane {
    /// Sequence numbers that packets of one burst that wait may lie apart.
    static let reach = 1_024
    private static let mask = Int64(reach - 1)

    private(set) var isActive = false
    private(set) var number: UInt32 = 0
    /// The number and time, on the wire, that the rest is counted from.
    private(set) var firstSequence: UInt16 = 0
    private(set) var firstTimestamp: UInt32 = 0
    private(set) var newestSequence: Int64 = 0
    private(set) var newestTimestamp: Int64 = 0
    /// Of the packet that had the marker; nothing of the burst is before it.
    private(set) var markerSequence: Int64?
    /// The last sequence, once it was announced.
    var endSequence: Int64?
    private(set) var beganAt = Instant.zero
    var lastReceivedAt = Instant.zero
    /// Packets held.
    private(set) var count = 0
    /// The lowest sequence held, when any is.
    private(set) var lowest: Int64 = 0
    private var places = [Int16](repeating: -1, count: reach)

    /// Begins a burst whose first packet to come has this number and time.
    func begin(_ number: UInt32, _ sequence: UInt16, _ timestamp: UInt32, at now: Instant) {
        isActive = true
        self.number = number
        firstSequence = sequence
        firstTimestamp = timestamp
        newestSequence = 0
        newestTimestamp = 0
        markerSequence = nil
        endSequence = nil
        beganAt = now
        lastReceivedAt = now
    }

    /// The burst is over; its packets have been taken out.
    func end() { isActive = false }

    /// Steps from the burst's first packet to the one with this number on the wire.
    func place(of sequence: UInt16) -> Int64 {
        newestSequence
            + Int64(sequence.sequenceDistance(from: firstSequence &+ UInt16(truncatingIfNeeded: newestSequence)))
    }

    /// Samples from the burst's first packet to this time on the wire.
    func time(of timestamp: UInt32) -> Int64 {
        newestTimestamp
            + Int64(timestamp.timestampDistance(from: firstTimestamp &+ UInt32(truncatingIfNeeded: newestTimestamp)))
    }

    /// The slot that holds `sequence`.
    func slot(of sequence: Int64) -> Int? {
        guard count > 0, sequence >= lowest, sequence <= newestSequence else { return nil }
        let place = places[Int(sequence & Self.mask)]
        return place < 0 ? nil : Int(place)
    }

    /// The slot that holds the lowest sequence.
    var lowestSlot: Int? { count > 0 ? Int(places[Int(lowest & Self.mask)]) : nil }

    /// Whether there is a place for `sequence`, near enough to the others.
    func hasPlace(for sequence: Int64) -> Bool {
        guard count > 0 else { return true }
        return max(newestSequence, sequence) - min(lowest, sequence) < Int64(Self.reach)
    }

    /// Puts `slot` in, for a sequence that has a place and is not held.
    func put(_ slot: Int, _ sequence: Int64, _ timestamp: Int64, marker: Bool) {
        lowest = count == 0 ? sequence : min(lowest, sequence)
        places[Int(sequence & Self.mask)] = Int16(slot)
        count += 1
        if sequence > newestSequence {
            newestSequence = sequence
            newestTimestamp = timestamp
        }
        if marker { markerSequence = sequence }
    }

    /// Takes the lowest out; returns its slot.
    func removeLowest() -> Int? {
        guard count > 0 else { return nil }
        let slot = Int(places[Int(lowest & Self.mask)])
        places[Int(lowest & Self.mask)] = -1
        count -= 1
        // Each place is passed once in a burst's life.
        if count > 0 { repeat { lowest += 1 } while places[Int(lowest & Self.mask)] < 0 }
        return slot
    }
}

/// A packet that waits.
struct JitterBufferSlot {
    var isRepaired = false
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
