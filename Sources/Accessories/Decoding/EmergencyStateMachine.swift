// The emergency control: a guard against accidents, then an alert and an urgent part in the transmission.
import MonotonicTime

/// An emergency control that is held. (One that tells no release toggles, by `GestureStateMachine`.)
struct EmergencyStateMachine: Sendable {
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

    mutating func handle(_ event: GestureStateMachine.Event, at now: Instant) -> [ControlMachine.Action] {
        // A guard that has passed comes first, whatever the event.
        var actions: [ControlMachine.Action] = []
        if case .guarding(let until) = state, until <= now { actions += declare() }
        switch (event, state) {
        case (.pressed, .up) where hold > .zero:
            state = .guarding(until: now + hold)
        case (.pressed, .up):
            actions += declare()
        case (.released, .declared(let isTransmitting)), (.lost, .declared(let isTransmitting)):
            state = .up
            actions += (isTransmitting ? [.end] : []) + [.alert(false)]
        case (.released, .guarding), (.lost, .guarding):
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

    private mutating func declare() -> [ControlMachine.Action] {
        state = .declared(isTransmitting: true)
        return [.alert(true), .begin]
    }
}
