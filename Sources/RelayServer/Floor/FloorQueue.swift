// The queue for the floor of one channel: its order, and the positions that were reported. Pure.

/// The requests that wait for a floor, in the order in which they will have it: by the channel's rules, those of higher priority
/// first, and of the same priority in the order they came.
struct FloorQueue: Sendable, Equatable {
    typealias Request = FloorControlStateMachine.Request

    /// The most requests that wait; beyond, the last in order is refused.
    static let lengthMaximum = 64

    private struct Entry: Sendable, Equatable {
        let request: Request
        /// The reported position, counted from 1; nil: none yet.
        var told: Int?
        /// Somebody more important came later: what is free in a moment may not be for this one.
        var isOvertaken = false
    }

    /// What becomes of a request that waits.
    enum Outcome: Sendable, Equatable {
        /// Its position, counted from 1, has changed and was not reported yet.
        case moved(Request, position: Int)
        /// It does not wait any more: it may not.
        case refused(Request)
        /// It does not wait any more: too many do.
        case full(Request)
    }

    private var entries: [Entry] = []

    var isEmpty: Bool { entries.isEmpty }

    /// The requests, in order.
    var requests: [Request] { entries.map(\.request) }

    /// Whether this request waits.
    func contains(_ request: Request) -> Bool { entries.contains { $0.request == request } }

    /// The request at a place, from 0; nil: nobody is so far behind.
    func request(at index: Int) -> Request? { entries.indices.contains(index) ? entries[index].request : nil }

    /// The position that was reported for this request; nil: none.
    func toldPosition(of request: Request) -> Int? { entries.first { $0.request == request }?.told }

    /// A request joins, before the first one that it overtakes by the channel's rules.
    mutating func insert(_ request: Request, rules: FloorRules) {
        let index =
            entries.firstIndex { rules.overtakes(request.priority, $0.request.priority) } ?? entries.endIndex
        entries.insert(Entry(request: request), at: index)
        for behind in entries.indices.dropFirst(index + 1) { entries[behind].isOvertaken = true }
    }

    /// Replaces the request that waits under an earlier media key by `request`, at the same position, which has to be
    /// reported again. False: there is none.
    mutating func renew(_ request: Request) -> Bool {
        guard let index = entries.firstIndex(where: { request.renews($0.request) }) else { return false }
        entries[index] = Entry(request: request, isOvertaken: entries[index].isOvertaken)
        return true
    }

    /// A request joins before all others.
    mutating func insertFirst(_ request: Request) { entries.insert(Entry(request: request), at: 0) }

    /// The first one that matches leaves: it is granted, or does not want the floor any more.
    mutating func remove(where matches: (Request) -> Bool) -> Request? {
        guard let index = entries.firstIndex(where: { matches($0.request) }) else { return nil }
        return entries.remove(at: index).request
    }

    /// Removes the requests beyond the first `length`, in order.
    mutating func cut(to length: Int) -> [Request] {
        let rest = entries.dropFirst(length).map(\.request)
        entries.removeLast(rest.count)
        return rest
    }

    /// The reports to send now, each once.
    ///
    /// - Parameters:
    ///   - held: The number of requests that will get the floor in a moment. They are answered then and their audio is
    ///     held, so no waiting is reported, except to requests that were overtaken, which may wait longer.
    ///   - isOpen: Whether requests may wait longer than that. Otherwise, and if a request does not want to wait, it is
    ///     refused.
    mutating func settle(held: Int, isOpen: Bool) -> [Outcome] {
        var outcomes: [Outcome] = []
        var index = 0
        while index < entries.count {
            let entry = entries[index]
            let isHeld = index < held && entry.told == nil && !entry.isOvertaken
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
