// Several buttons or holders of the talk key, one transmission (invariant I3).
import MonotonicTime

/// The sources that ask for a transmission. The first one begins it, an urgent one makes it urgent, the last one ends it.
public struct HeldSources<Source: Hashable & Sendable>: Sendable {
    /// What becomes of the transmission.
    public enum Change: Equatable, Sendable {
        /// It begins, by this source.
        case began(Source, TransmitUrgency)
        /// It goes on, and is urgent from now on, by this source.
        case escalated(Source)
        /// It ends, by this source.
        case ended(Source)
    }

    /// Those that hold.
    public private(set) var sources: Set<Source> = []
    /// The transmission stays urgent until it ends, also when the urgent source ends before the others.
    public private(set) var isUrgent = false

    /// Nobody holds.
    public init() {}

    /// Whether any source holds.
    public var isEmpty: Bool { sources.isEmpty }

    /// `source` holds from now on. Nil when that changes nothing: it or others did already, and it is not more urgent.
    public mutating func begin(_ source: Source, _ urgency: TransmitUrgency = .normal) -> Change? {
        let isFirst = sources.isEmpty || seededFault("each-source-begins-anew")
        let isEscalated = urgency == .emergency && !isUrgent
        guard sources.insert(source).inserted || isEscalated else { return nil }
        if isEscalated { isUrgent = true }
        if isFirst { return .began(source, urgency) }
        return isEscalated ? .escalated(source) : nil
    }

    /// `source` holds no more. Nil while others do, or when it did not.
    public mutating func end(_ source: Source) -> Change? {
        if seededFault("losing-one-source-ends-all"), sources.contains(source) { sources = [source] }
        if seededFault("a-release-is-forgotten") { return nil }
        guard sources.remove(source) != nil, sources.isEmpty else { return nil }
        isUrgent = false
        return .ended(source)
    }
}
