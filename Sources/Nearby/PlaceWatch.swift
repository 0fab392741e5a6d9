// Probes the addresses of hosts. Pure.
import MonotonicTime
import RelayProtocol

/// Probes each address from time to time, so that a machine that vanished without notice is recognised as gone.
struct PlaceWatch {
    /// The time between two probes of an address that answers.
    static let interval = Duration.seconds(4)
    /// How long an answer may take.
    static let answerTimeout = Duration.seconds(2)
    /// The number of consecutive unanswered probes after which an address counts as gone.
    static let unansweredMaximum = 2
    /// The longest time between two probes of an address that does not answer.
    static let intervalMaximum = Duration.seconds(15)
    /// Probes per second to all addresses together.
    static let probesPerSecond = 64
    /// The burst of that rate limit.
    static let probesAtOnce = 8
    /// Probes per second to one address, however many channels are announced there: an announcement may name an
    /// unrelated machine.
    static let probesPerSecondOfHost = 4

    private struct State {
        var next: Instant
        /// The probe that waits for its answer, and until when.
        var waiting: (number: UInt64, until: Instant)?
        var unanswered = 0
    }

    private var places: [RelayPlace: State] = [:]
    private var placeOfProbe: [UInt64: RelayPlace] = [:]
    private var bucket: TokenBucket?
    private var bucketOfHost: [String: TokenBucket] = [:]
    private var spread = 0

    var nextDeadline: Instant? { places.values.map { $0.waiting?.until ?? $0.next }.min() }
    var count: Int { places.count }

    /// Whether the host may be there: it has answered, or was not probed often enough.
    func isThere(_ place: RelayPlace) -> Bool {
        (places[place]?.unanswered ?? 0) < Self.unansweredMaximum
    }

    /// Watches these places, and no others, from now on.
    mutating func watch(_ wanted: Set<RelayPlace>, at now: Instant) {
        for (place, state) in places where !wanted.contains(place) {
            if let waiting = state.waiting { placeOfProbe[waiting.number] = nil }
            places[place] = nil
        }
        // The order of a set is chance, and the first probes are to be the same in every run.
        for place in wanted.filter({ places[$0] == nil }).sorted(by: { $0.description < $1.description }) {
            // Multiples of the golden section fall evenly, however many there are.
            spread = (spread + 618) % 1_000
            places[place] = State(next: now + Self.interval * spread / 1_000)
        }
        if places.isEmpty { (bucket, bucketOfHost) = (nil, [:]) }
        let hosts = Set(places.keys.map(\.host))
        if bucketOfHost.count > hosts.count { bucketOfHost = bucketOfHost.filter { hosts.contains($0.key) } }
    }

    /// The host has said something new, so it may be there again.
    mutating func revive(_ place: RelayPlace, at now: Instant) {
        guard let state = places[place], state.unanswered >= Self.unansweredMaximum else { return }
        places[place]?.unanswered = 0
        if state.waiting == nil { places[place]?.next = now }
    }

    /// - Returns: Whether the place counts as there from now on and did not before.
    mutating func answered(_ number: UInt64) -> Bool {
        guard let place = placeOfProbe.removeValue(forKey: number), var state = places[place],
            state.waiting?.number == number
        else { return false }
        let wasGone = state.unanswered >= Self.unansweredMaximum
        state.waiting = nil
        state.unanswered = 0
        places[place] = state
        return wasGone
    }

    /// What is due: the probes to be sent.
    ///
    /// - Returns: Whether a place counts as gone from now on.
    mutating func handleTimeout(
        at now: Instant, _ tickets: inout Tickets, _ actions: inout [NearbyStateMachine.Action]
    ) -> Bool {
        var isOneGone = false
        var due: [(place: RelayPlace, next: Instant)] = []
        for (place, state) in places {
            if let waiting = state.waiting, waiting.until <= now {
                placeOfProbe[waiting.number] = nil
                places[place]?.waiting = nil
                places[place]?.unanswered += 1
                // The pause that follows has begun with the probe.
                places[place]?.next = waiting.until - Self.answerTimeout + Self.pause(state.unanswered + 1)
                if state.unanswered + 1 == Self.unansweredMaximum { isOneGone = true }
            }
            if let state = places[place], state.waiting == nil, state.next <= now { due.append((place, state.next)) }
        }
        due.sort { ($0.next, $0.place.description) < ($1.next, $1.place.description) }
        for (place, _) in due { probe(place, at: now, &tickets, &actions) }
        return isOneGone
    }

    private mutating func probe(
        _ place: RelayPlace, at now: Instant, _ tickets: inout Tickets, _ actions: inout [NearbyStateMachine.Action]
    ) {
        var all =
            bucket
            ?? TokenBucket(
                depth: Self.probesAtOnce, perSecond: Self.probesPerSecond - Self.probesAtOnce, at: now)
        var host =
            bucketOfHost[place.host]
            ?? TokenBucket(depth: Self.probesPerSecondOfHost, perSecond: Self.probesPerSecondOfHost, at: now)
        defer { (bucket, bucketOfHost[place.host]) = (all, host) }
        guard host.holds(1, at: now), all.take(at: now) else {
            places[place]?.next = max(host.nextToken(at: now), all.nextToken(at: now))
            return
        }
        _ = host.take(at: now)
        let number = tickets.next()
        places[place]?.waiting = (number, now + Self.answerTimeout)
        places[place]?.next = now + Self.interval
        placeOfProbe[number] = place
        actions.append(.probe(place, number: number))
    }

    /// The time to the next probe after `unanswered` unanswered ones.
    private static func pause(_ unanswered: Int) -> Duration {
        unanswered < unansweredMaximum ? interval : min(interval * (1 << min(unanswered - 1, 4)), intervalMaximum)
    }
}
