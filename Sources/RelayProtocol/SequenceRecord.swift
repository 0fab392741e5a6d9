// Which RTP sequence numbers of one burst have arrived: loss, duplicates and completeness. Pure.

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
        /// More than `window` packets behind the highest, so it cannot be told whether it was seen.
        case tooOld
    }

    /// How far behind the highest sequence number a packet may arrive, in packets.
    public static let window = 64

    /// Packets that arrived, without duplicates.
    public private(set) var received = 0
    private var lowest: Int64 = 0
    private var top: Int64 = 0
    private var seen: UInt64 = 0

    /// Nothing seen yet.
    public init() {}

    /// The highest sequence number seen; `nil` before the first packet.
    public var highest: UInt16? { received == 0 ? nil : UInt16(truncatingIfNeeded: top) }

    /// The lowest sequence number seen; `nil` before the first packet.
    public var first: UInt16? { received == 0 ? nil : UInt16(truncatingIfNeeded: lowest) }

    /// The packets between the lowest and the highest sequence number, both included.
    public var expected: Int { received == 0 ? 0 : Int(top - lowest + 1) }

    /// The packets missing between the lowest and the highest sequence number.
    public var lost: Int { expected - received }

    /// Takes note of an arrived `sequence`.
    public mutating func insert(_ sequence: UInt16) -> Arrival {
        guard received > 0 else {
            lowest = Int64(sequence)
            top = lowest
            seen = 1
            received = 1
            return .new
        }
        let extended = extend(sequence)
        if extended > top {
            let ahead = extended - top
            seen = ahead >= Int64(Self.window) ? 0 : seen << UInt64(ahead)
            seen |= 1
            top = extended
        } else {
            let behind = top - extended
            guard behind < Int64(Self.window) else { return .tooOld }
            let bit = UInt64(1) << UInt64(behind)
            guard seen & bit == 0 else { return .duplicate }
            seen |= bit
            lowest = min(lowest, extended)
        }
        received += 1
        return .new
    }

    /// Whether `sequence` was seen, or is too old to tell.
    public func wasSeen(_ sequence: UInt16) -> Bool {
        guard received > 0 else { return false }
        let behind = top - extend(sequence)
        guard behind >= 0 else { return false }
        return behind >= Int64(Self.window) || seen & UInt64(1) << UInt64(behind) != 0
    }

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
