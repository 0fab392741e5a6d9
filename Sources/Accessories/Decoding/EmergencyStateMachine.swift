// The emergency control: a guard against accidents, then an alert and an urgent part in the transmission.
import MonotonicTime

/// An emergency control that is held. (One that tells no release toggles, by `GestureStateMachine`.)
struct EmergencyStateMachine: Sendable {
    enum Event: Sendable {
        case pressed
        /// It came up, or the accessory is gone.
        case released
        /// The transmission was ended from elsewhere: a fresh press is needed for the next.
        case endedBySystem
        /// `nextDeadline` has come.
        case deadline
    }

    enum Action: Equatable, Sendable {
        /// The emergency is declared, or over.
        case alert(Bool)
        /// It takes part in the transmission from now on.
        case begin
        /// It takes no part any more.
        case end
    }

    private enum State {
        case up
        case guarding(until: Instant)
        case declared(isTransmitting: Bool)
    }

    /// It counts once it has been held for so long.
    let hold: Duration
    private var state = State.up

    init(hold: Duration) { self.hold = hold }

    var isTransmitting: Bool { if case .declared(isTransmitting: true) = state { true } else { false } }

    var nextDeadline: Instant? { if case .guarding(let until) = state { until } else { nil } }

    mutating func handle(_ event: Event, at now: Instant) -> [Action] {
        // A guard that has passed comes first, whatever the event.
        var actions: [Action] = []
        if case .guarding(let until) = state, until <= now { actions += declare() }
        switch (event, state) {
        case (.pressed, .up) where hold > .zero:
            state = .guarding(until: now + hold)
        case (.pressed, .up):
            actions += declare()
        case (.released, .declared(let isTransmitting)):
            state = .up
            actions += (isTransmitting ? [.end] : []) + [.alert(false)]
        case (.released, .guarding):
            state = .up
        case (.endedBySystem, .declared(isTransmitting: true)) where actions.isEmpty:
            // Somebody still holds it: the alert stays, only the transmission is over. A guard that runs, or has passed
            // just now, goes on, for what ended was not its transmission.
            state = .declared(isTransmitting: false)
            actions.append(.end)
        default:
            break
        }
        return actions
    }

    private mutating func declare() -> [Action] {
        state = .declared(isTransmitting: true)
        return [.alert(true), .begin]
    }
}
