// Who waits for the floor of one channel, in which order, and what each has been told of it. Pure.

/// The requests that wait for a floor: those of higher priority first, and of the same priority in the order they came.
struct FloorQueue: Sendable, Equatable {
    typealias Request = FloorControlStateMachine.Request

    /// The most requests that wait; beyond, the last in order is refused.
    static let lengthMaximum = 64

    private struct Entry: Sendable, Equatable {
        let request: Request
        /// The place that it was told, from 1; nil: none yet.
        var told: Int?
    }

    /// What becomes of a request that waits.
    enum Outcome: Sendable, Equatable {
        /// It is at this place now, from 1, and has not been told so.
        case moved(Request, position: Int)
        /// It does not wait any more: it may not.
        case refused(Request)
        /// It does not wait any more: too many do.
        case full(Request)
    }

    private var entries: [Entry] = []

    var isEmpty: Bool { entries.isEmpty }

    /// Whether this request waits.
    func contains(_ request: Request) -> Bool { entries.contains { $0.request == request } }

    /// The place that this request was told; nil: none.
    func toldPosition(of request: Request) -> Int? { entries.first { $0.request == request }?.told }

    /// A request joins, behind all that matter as much.
    mutating func insert(_ request: Request) {
        let index = entries.firstIndex { $0.request.priority < request.priority } ?? entries.endIndex
        entries.insert(Entry(request: request), at: index)
    }

    /// The first one leaves, to be granted.
    mutating func popFirst() -> Request? { entries.isEmpty ? nil : entries.removeFirst().request }

    /// What a member asked for does not wait any more.
    mutating func remove(where matches: (Request) -> Bool) -> Request? {
        guard let index = entries.firstIndex(where: { matches($0.request) }) else { return nil }
        return entries.remove(at: index).request
    }

    /// What has to be told now, each once.
    ///
    /// - Parameters:
    ///   - holdsFirst: The floor is free in a moment: the first one is answered then, its audio being held, and need not know that it
    ///     waits.
    ///   - isOpen: Whether requests may wait longer than that; else, and when they do not want to, they are refused.
    mutating func settle(holdsFirst: Bool, isOpen: Bool) -> [Outcome] {
        var outcomes: [Outcome] = []
        var index = 0
        while index < entries.count {
            let entry = entries[index]
            let isHeld = holdsFirst && index == 0 && entry.told == nil
            if !isHeld, !(isOpen && entry.request.mayQueue) {
                entries.remove(at: index)
                outcomes.append(.refused(entry.request))
                continue
            }
            if index >= Self.lengthMaximum {
                entries.remove(at: index)
                outcomes.append(.full(entry.request))
                continue
            }
            if !isHeld, entry.told != index + 1 {
                entries[index].told = index + 1
                outcomes.append(.moved(entry.request, position: index + 1))
            }
            index += 1
        }
        return outcomes
    }
}
