// Which RTP sequence numbers of one burst have arrived: loss, duplicates and completeness. Pure.
import Vocabulary

/// The sequence numbers seen of one talk burst, in the manner of RFC 3550 appendix A.1.
///
/// The relay uses it to know whether everything up to a release's last sequence is there; a listener, for its
/// reception reports and the end of a burst.
public struct SequenceRecord: Sendable, Equatable {
    /// What an arriving sequence number was.
    public enum Arrival: Sendable, Equatable {
        /// Seen for the first time.
        case new
        /// Seen before.
        case duplicate
        /// More than `window` packets behind the highest one, so it is unknown whether it was seen.
        case tooOld
    }

    /// How far behind the highest sequence number a packet may arrive, in packets: 10 s of those of 10 ms, as lost ones are
    /// sent again.
    public static let window = 1_024

    /// Packets that arrived, without duplicates.
    public private(set) var received = 0
    /// Packets between the lowest and the highest number that are known not to come, and are none that were lost.
    public private(set) var skipped = 0
    private var lowest: Int64 = 0
    private var top: Int64 = 0
    /// Bit `number % window` says whether that number was seen, for the last `window` numbers.
    private var seen = InlineArray<16, UInt64>(repeating: 0)

    /// Whether `lowest` and `top` mean something.
    private var isPlaced = false

    /// Nothing seen yet.
    public init() {}

    /// A record that begins behind `sequence`: that number and all before it count as seen, though none of them is `received`.
    public init(after sequence: UInt16) {
        top = Int64(sequence)
        lowest = top + 1
        seen = InlineArray(repeating: .max)
        isPlaced = true
    }

    /// The highest sequence number seen, or the one that the record begins behind; `nil` before the first packet.
    public var highest: UInt16? { isPlaced ? UInt16(truncatingIfNeeded: top) : nil }

    /// The lowest sequence number seen; `nil` before the first packet.
    public var first: UInt16? { received == 0 ? nil : UInt16(truncatingIfNeeded: lowest) }

    /// The packets between the lowest and the highest sequence number, both included, but for those that were skipped.
    public var expected: Int { isPlaced ? Int(top - lowest + 1) - skipped : 0 }

    /// The packets missing between the lowest and the highest sequence number.
    public var lost: Int { expected - received }

    /// Takes note of an arrived `sequence`.
    public mutating func insert(_ sequence: UInt16) -> Arrival {
        guard isPlaced else {
            lowest = Int64(sequence)
            top = lowest
            mark(lowest)
            received = 1
            isPlaced = true
            return .new
        }
        let extended = extend(sequence)
        if extended > top {
            advance(to: extended)
        } else {
            guard top - extended < Int64(Self.window) else { return .tooOld }
            guard !isMarked(extended) else { return .duplicate }
            lowest = min(lowest, extended)
        }
        mark(extended)
        received += 1
        return .new
    }

    /// Notes that no packet between the highest number and `sequence` will arrive; `sequence` is the next one. It
    /// ignores a number that is not higher.
    public mutating func skip(to sequence: UInt16) {
        guard isPlaced else { return }
        let extended = extend(sequence)
        guard extended > top + 1 else { return }
        skipped += Int(extended - top - 1)
        // As if they had come: one that does is late, and there is no place for it any more.
        if extended - 1 - top >= Int64(Self.window) {
            seen = InlineArray(repeating: .max)
        } else {
            for number in (top + 1)..<extended { mark(number) }
        }
        top = extended - 1
    }

    /// Whether `sequence` was seen, or is too old to tell.
    public func wasSeen(_ sequence: UInt16) -> Bool {
        guard isPlaced else { return false }
        let extended = extend(sequence)
        guard extended <= top else { return false }
        return top - extended >= Int64(Self.window) || isMarked(extended)
    }

    /// Whether both have seen the same.
    public static func == (lhs: Self, rhs: Self) -> Bool {
        lhs.isPlaced == rhs.isPlaced && lhs.received == rhs.received && lhs.skipped == rhs.skipped
            && lhs.lowest == rhs.lowest && lhs.top == rhs.top
            && lhs.seen.indices.allSatisfy { lhs.seen[$0] == rhs.seen[$0] }
    }

    private mutating func advance(to extended: Int64) {
        if extended - top >= Int64(Self.window) {
            seen = InlineArray(repeating: 0)
        } else {
            for skipped in (top + 1)...extended { seen[Self.word(skipped)] &= ~Self.bit(skipped) }
        }
        top = extended
    }

    private mutating func mark(_ extended: Int64) { seen[Self.word(extended)] |= Self.bit(extended) }
    private func isMarked(_ extended: Int64) -> Bool { seen[Self.word(extended)] & Self.bit(extended) != 0 }
    private static func word(_ extended: Int64) -> Int { Int(extended >> 6 & 15) }
    private static func bit(_ extended: Int64) -> UInt64 { 1 << UInt64(extended & 63) }

    /// Whether `sequence` lies after `other` in the order of serial numbers (RFC 1982).
    public static func isAfter(_ sequence: UInt16, _ other: UInt16) -> Bool {
        sequence.sequenceDistance(from: other) > 0
    }

    /// Whether everything from the lowest sequence number seen to `last` has arrived.
    public func isComplete(through last: UInt16) -> Bool {
        received > 0 && highest == last && lost == 0
    }

    private func extend(_ sequence: UInt16) -> Int64 {
        top + Int64(sequence.sequenceDistance(from: UInt16(truncatingIfNeeded: top)))
    }
}
