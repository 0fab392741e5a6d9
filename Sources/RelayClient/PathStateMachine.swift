// When a connection moves to another network, and when it is given up instead. Pure rules.
import MonotonicTime
import QUIC

/// The network path of one connection, as this machine's routes change under it.
///
/// A change of the route to the relay moves the connection at once: whoever talks has nothing to wait for. While there
/// is no route, nothing is done, and the connection lives until its idle time-out. A move that nobody answers is tried
/// again, then the connection is given up for a new one.
struct PathStateMachine: Sendable {
    /// What may happen.
    enum Event: Sendable, Equatable {
        /// This machine's interfaces, addresses or routes have changed; now this is the way to the relay, if there is one.
        case changed(NetworkRoute?)
        /// The machine slept: what the other end and the routers know of the connection may be over.
        case woke(NetworkRoute?)
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
        /// Give the connection up, and make a new one.
        case reconnect
        /// For the log: there is no way to the relay.
        case noteOffline
        /// For the log: the connection goes on by this route, so long after the change.
        case noteMoved(NetworkRoute, after: Duration)
    }

    /// Between two moves: each uses up a connection id, of which the relay gives four in advance.
    static let moveInterval: Duration = .milliseconds(250)
    /// Moves that may fail or be refused in a row.
    static let attemptsMaximum = 3
    /// After this a move that could not be made is tried again.
    static let retryInterval: Duration = .milliseconds(500)

    private enum State: Sendable, Equatable {
        /// The connection is on `route`.
        case settled
        /// A move waits for its time.
        case waiting(until: Instant)
        /// A move is under way.
        case moving
        /// There is no way to the relay.
        case offline
        /// The connection was given up.
        case over
    }

    private var state: State
    private var route: NetworkRoute?
    private var changedAt = Instant.zero
    private var lastMove: Instant?
    private var attempts = 0

    /// A connection that begins on `route`.
    init(route: NetworkRoute?) {
        self.route = route
        state = route == nil ? .offline : .settled
    }

    /// When `.deadline` must be delivered, at the latest; `nil` when there is nothing to wait for.
    var nextDeadline: Instant? {
        if case .waiting(let until) = state { until } else { nil }
    }

    /// Takes an event and says what is to be done.
    mutating func handle(_ event: Event, at now: Instant) -> [Action] {
        if state == .over { return [] }
        switch event {
        case .changed(let new): return changed(to: new, at: now)
        case .woke(let new):
            // Even the same address may have another mapping in the routers now.
            if new != nil, new == route { state = .offline }
            return changed(to: new, at: now)
        case .validated:
            guard state == .moving, let route else { return [] }
            state = .settled
            attempts = 0
            return [.noteMoved(route, after: now - changedAt)]
        case .failed: return state == .moving ? tryAgain(at: now, after: .zero) : []
        case .refused: return state == .moving ? tryAgain(at: now, after: Self.retryInterval) : []
        case .deadline:
            guard case .waiting(let until) = state, until <= now else { return [] }
            return move(at: now)
        }
    }

    private mutating func changed(to new: NetworkRoute?, at now: Instant) -> [Action] {
        guard let new else {
            guard state != .offline else { return [] }
            state = .offline
            return [.noteOffline]
        }
        guard new != route || state == .offline else { return [] }
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
