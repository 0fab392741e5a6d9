// Several buttons, one transmission (invariant I3).

/// The sources that ask for a transmission. The first one begins it, the last one ends it.
public struct HeldSources<Source: Hashable & Sendable>: Sendable {
    /// What becomes of the transmission.
    public enum Change: Equatable, Sendable {
        /// It begins, by this source.
        case began(Source)
        /// It ends, by this source.
        case ended(Source)
    }

    private var held: Set<Source> = []

    /// Nobody holds.
    public init() {}

    /// Whether any source holds.
    public var isEmpty: Bool { held.isEmpty }

    /// Whether `source` holds.
    public func contains(_ source: Source) -> Bool { held.contains(source) }

    /// `source` holds from now on. Nil when others did already, or it did itself.
    public mutating func begin(_ source: Source) -> Change? {
        let wasEmpty = held.isEmpty
        return held.insert(source).inserted && wasEmpty ? .began(source) : nil
    }

    /// `source` holds no more. Nil while others do, or when it did not.
    public mutating func end(_ source: Source) -> Change? {
        held.remove(source) != nil && held.isEmpty ? .ended(source) : nil
    }
}
