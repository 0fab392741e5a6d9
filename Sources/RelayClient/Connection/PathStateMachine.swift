// Decides when a connection migrates to another network, and when it is given up instead. Pure rules.
import MonotonicTime
import QUIC

/// The network path of one connection, as this machine's routes change under it.
///
/// A change of the route to the relay migrates the connection at once, so a talker does not have to wait. Without a
/// route the connection lives until its idle timeout. If another address of the relay can be reached, for example of
/// the other family, the connection continues there. If none is known but there is a network, the name is resolved
/// again. An unanswered migration is retried, and then the connection is replaced by a new one.
struct PathStateMachine: Sendable {
    /// One of the relay's addresses, and the route to it.
    struct Way: Sendable, Equatable {
        let address: SocketAddress
        let route: NetworkRoute
    }

    /// The alternatives while no route leads to the address in use.
    enum Elsewhere: Sendable, Equatable {
        case nothing
        /// A network of the other family, but no address of the relay is known there.
        case network
        /// Another address of the relay.
        case way(Way)

        /// The alternative to `address`: the first of the `known` addresses that has a route. If `address` has a route,
        /// there is none.
        ///
        /// - Parameter route: The way to an address by this machine's routes; nothing is sent.
        init(than address: SocketAddress, among known: [SocketAddress], route: (SocketAddress) -> NetworkRoute?) {
            self = .nothing
            guard route(address) == nil else { return }
            for other in known where other != address {
                guard let found = route(other) else { continue }
                self = .way(Way(address: other, route: found))
                return
            }
            // Addresses of documentation (RFC 5737, RFC 3849) stand for all that the default routes lead to.
            let otherFamily = SocketAddress(address.isIPv4 ? "2001:db8::1" : "192.0.2.1", port: 9)
            if let otherFamily, route(otherFamily) != nil { self = .network }
        }
    }

    /// What may happen.
    enum Event: Sendable, Equatable {
        /// This machine's interfaces, addresses or routes have changed; now this is the way to the relay, if there is one.
        case changed(NetworkRoute?, elsewhere: Elsewhere = .nothing)
        /// The machine slept: what the other end and the routers know of the connection may be over.
        case woke(NetworkRoute?, elsewhere: Elsewhere = .nothing)
        /// The move is done: the relay answered on the new path.
        case validated
        /// Nobody answered on the new path.
        case failed
        /// The connection cannot move now.
        case refused
        /// `nextDeadline` has come, or may have.
        case deadline
    }

    /// What is to be done.
    enum Action: Sendable, Equatable {
        /// Move the connection to a new socket.
        case move
        /// Move it to a new socket, and to that address of the relay.
        case moveTo(SocketAddress)
        /// Look up the relay's name, and tell of it as of a change.
        case lookUp
        /// Give the connection up, and make a new one.
        case reconnect
        /// For the log: there is no route to the relay.
        case noteOffline
        /// For the log: the connection continues on this route, this long after the change.
        case noteMoved(NetworkRoute, after: Duration)
    }

    /// The minimum time between two migrations. Each uses up a connection id, and the relay issues four in advance.
    static let moveInterval: Duration = .milliseconds(250)
    /// Moves that may fail or be refused in a row.
    static let attemptsMaximum = 3
    /// After this a move that could not be made is tried again.
    static let retryInterval: Duration = .milliseconds(500)
    /// So long the route to the address in use may take to come, when another address can be reached already: a network's IPv4 and
    /// IPv6 do not come in one instant.
    static let otherAddressTimeout: Duration = .milliseconds(250)
    /// Before each time that the name is looked up, and no more often: a new network's resolver may not be known at once.
    static let lookUpPauses: [Duration] = [.milliseconds(250), .seconds(1), .seconds(2), .seconds(4), .seconds(8)]

    private enum State: Sendable, Equatable {
        /// The connection is on `route`.
        case settled
        /// A move waits for its time.
        case waiting(until: Instant)
        /// A move is under way.
        case moving
        /// There is no route to the relay. Its name was resolved `lookUps` times, and will be again at `next`.
        case offline(lookUps: Int, next: Instant?)
        /// Only another address can be reached, and is used from then on.
        case leaving(Way, at: Instant)
        /// The connection was given up.
        case over
    }

    private var state: State
    private var route: NetworkRoute?
    private var changedAt = Instant.zero
    private var lastMove: Instant?
    private var attempts = 0

    private static let offline = State.offline(lookUps: 0, next: nil)

    private var isOffline: Bool {
        switch state {
        case .offline, .leaving: true
        case .settled, .waiting, .moving, .over: false
        }
    }

    /// A connection that begins on `route`.
    init(route: NetworkRoute?) {
        self.route = route
        state = route == nil ? Self.offline : .settled
    }

    /// When `.deadline` must be delivered, at the latest; `nil` when there is nothing to wait for.
    var nextDeadline: Instant? {
        switch state {
        case .waiting(let until), .leaving(_, let until): until
        case .offline(_, let next): next
        case .settled, .moving, .over: nil
        }
    }

    /// Takes an event and says what is to be done.
    mutating func handle(_ event: Event, at now: Instant) -> [Action] {
        if state == .over { return [] }
        switch event {
        case .changed(let new, let elsewhere): return changed(to: new, elsewhere, at: now)
        case .woke where seededFault("a-sleep-is-not-noticed"): return []
        case .woke(let new, let elsewhere):
            // Even the same address may have another mapping in the routers now.
            if new != nil, new == route { state = Self.offline }
            return changed(to: new, elsewhere, at: now)
        case .validated:
            guard state == .moving, let route else { return [] }
            state = .settled
            attempts = 0
            return [.noteMoved(route, after: now - changedAt)]
        case .failed: return state == .moving ? tryAgain(at: now, after: .zero) : []
        case .refused: return state == .moving ? tryAgain(at: now, after: Self.retryInterval) : []
        case .deadline:
            guard let due = nextDeadline, due <= now else { return [] }
            switch state {
            case .leaving(let way, _):
                route = way.route
                // Where nobody answers at once, it is another machine's address.
                attempts = Self.attemptsMaximum - 1
                _ = move(at: now)
                return [.moveTo(way.address)]
            case .offline(let count, _):
                let pauses = Self.lookUpPauses
                state = .offline(lookUps: count + 1, next: count + 1 < pauses.count ? now + pauses[count + 1] : nil)
                return [.lookUp]
            case .settled, .waiting, .moving, .over: return move(at: now)
            }
        }
    }

    /// There is no route to the address in use.
    private mutating func leave(for elsewhere: Elsewhere, at now: Instant) -> [Action] {
        let notes: [Action] = isOffline ? [] : [.noteOffline]
        switch (elsewhere, state) {
        case (.nothing, _): state = Self.offline
        case (.network, .offline(let count, let next)) where count > 0 || next != nil: break
        case (.network, _): state = .offline(lookUps: 0, next: now + Self.lookUpPauses[0])
        case (.way(let way), .leaving(_, let until)): state = .leaving(way, at: until)
        case (.way(let way), _):
            changedAt = now
            let earliest = lastMove.map { $0 + Self.moveInterval } ?? now
            state = .leaving(way, at: max(now + Self.otherAddressTimeout, earliest))
        }
        return notes
    }

    private mutating func changed(to new: NetworkRoute?, _ elsewhere: Elsewhere, at now: Instant) -> [Action] {
        guard let new else { return leave(for: elsewhere, at: now) }
        guard new != route || isOffline, !seededFault("a-new-address-is-not-noticed") else { return [] }
        route = new
        changedAt = now
        attempts = 0
        let earliest = lastMove.map { $0 + Self.moveInterval } ?? now
        guard earliest <= now else {
            state = .waiting(until: earliest)
            return []
        }
        return move(at: now)
    }

    private mutating func move(at now: Instant) -> [Action] {
        state = .moving
        lastMove = now
        return [.move]
    }

    private mutating func tryAgain(at now: Instant, after pause: Duration) -> [Action] {
        if seededFault("a-move-that-nobody-answers-is-not-tried-again") { return [] }
        attempts += 1
        guard attempts < Self.attemptsMaximum else {
            state = .over
            return [.reconnect]
        }
        guard pause > .zero else { return move(at: now) }
        state = .waiting(until: now + pause)
        return []
    }
}
