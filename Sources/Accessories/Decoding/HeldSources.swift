// Several buttons, one transmission (invariant I3).
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

    private var held: Set<Source> = []
    /// The transmission stays urgent until it ends, also when the urgent source ends before the others.
    private var isUrgent = false

    /// Nobody holds.
    public init() {}

    /// Whether any source holds.
    public var isEmpty: Bool { held.isEmpty }

    /// Those that hold.
    public var sources: Set<Source> { held }

    /// Whether `source` holds.
    public func contains(_ source: Source) -> Bool { held.contains(source) }

    /// `source` holds from now on. Nil when that changes nothing: others did already, and it is not more urgent.
    public mutating func begin(_ source: Source, _ urgency: TransmitUrgency = .normal) -> Change? {
        let wasEmpty = held.isEmpty || seededFault("each-source-begins-anew")
        guard held.insert(source).inserted else { return nil }
        let isEscalated = urgency == .emergency && !isUrgent
        if urgency == .emergency { isUrgent = true }
        if wasEmpty { return .began(source, urgency) }
        return isEscalated ? .escalated(source) : nil
    }

    /// `source` holds no more. Nil while others do, or when it did not.
    public mutating func end(_ source: Source) -> Change? {
        if seededFault("losing-one-source-ends-all"), held.contains(source) { held = [source] }
        if seededFault("a-release-is-forgotten") { return nil }
        guard held.remove(source) != nil, held.isEmpty else { return nil }
        isUrgent = false
        return .ended(source)
    }
}
