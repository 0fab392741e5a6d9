// One burst in the jitter buffer: its numbers and times, and which slot holds which packet. Pure.
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
