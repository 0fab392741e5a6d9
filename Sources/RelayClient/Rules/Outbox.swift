// A queue of events that keeps their order even if a handler causes further events. Pure.

/// Events that wait to be delivered. A handler may cause further events, which are delivered after the waiting ones, in
/// the same round.
struct Outbox<Event> {
    private var waiting: [Event] = []
    private var place = 0
    private var isTelling = false

    /// Whether a round has to be begun for what waits.
    var needsRound: Bool { !isTelling && place < waiting.count }

    mutating func add(_ event: Event) { waiting.append(event) }

    /// Begins a round; false if one is in progress, which delivers everything.
    mutating func beginRound() -> Bool {
        guard !isTelling else { return false }
        isTelling = true
        return true
    }

    /// The next event to deliver; nil ends the round.
    mutating func next() -> Event? {
        guard place < waiting.count else {
            waiting.removeAll(keepingCapacity: true)
            place = 0
            isTelling = false
            return nil
        }
        defer { place += 1 }
        return waiting[place]
    }
}
