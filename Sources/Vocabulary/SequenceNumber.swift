// Numbers of RTP that wrap: comparing them, and extending them to numbers that do not wrap.

extension UInt16 {
    /// How far `self` is ahead of `other`, modulo 65536: -32768…32767 (RFC 1982).
    public func sequenceDistance(from other: UInt16) -> Int {
        Int(Int16(bitPattern: self &- other))
    }
}

extension UInt32 {
    /// How far `self` is ahead of `other` in samples, modulo 2³² (RFC 1982's comparison, for RTP time stamps).
    public func timestampDistance(from other: UInt32) -> Int {
        Int(Int32(bitPattern: self &- other))
    }
}

/// Extends RTP sequence numbers by the number of wraps, so that they can be compared and counted.
public struct SequenceExtender: Sendable, Hashable {
    /// The highest extended number so far; nil before the first.
    public private(set) var highest: Int64?

    /// An extender that has seen nothing.
    public init() {}

    /// The extended number of `sequence`: the one nearest to the highest seen so far. The first number is not changed.
    public mutating func extend(_ sequence: UInt16) -> Int64 {
        let extended = peek(sequence)
        highest = max(highest ?? extended, extended)
        return extended
    }

    /// The extended number of `sequence`, without remembering it. It is negative for one from before the first, if the
    /// first was near 0.
    public func peek(_ sequence: UInt16) -> Int64 {
        guard let highest else { return Int64(sequence) }
        let low = UInt16(truncatingIfNeeded: highest)
        return highest + Int64(sequence.sequenceDistance(from: low))
    }
}
