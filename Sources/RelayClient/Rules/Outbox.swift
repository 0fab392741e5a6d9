// What is to be told, in order, whatever those who are told do meanwhile. Pure.

/// Events that wait to be told. Who is told may cause further ones, which are told after those that wait, by the same round.
struct Outbox<Event> {
    private var waiting: [Event] = []
    private var place = 0
    private var isTelling = false

    /// Whether a round has to be begun for what waits.
    var needsRound: Bool { !isTelling && place < waiting.count }

    mutating func add(_ event: Event) { waiting.append(event) }

    /// Begins a round; false: one is under way, and tells everything.
    mutating func beginRound() -> Bool {
        guard !isTelling else { return false }
        isTelling = true
        return true
    }

    /// The next one to be told; nil ends the round.
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
