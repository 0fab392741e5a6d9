// One control of an accessory: from its edges to what it does, whatever that is.
import MonotonicTime
import Vocabulary

/// The windows against bounce, the gesture, and the emergency's guard of one control, behind one face.
struct ControlMachine: Sendable {
    /// What follows.
    enum Action: Equatable, Sendable {
        /// It takes part in the transmission from now on.
        case begin
        /// It takes no part any more.
        case end
        /// It was pressed, and does something else than to talk.
        case fire
        /// An emergency is declared, or over.
        case alert(Bool)
    }

    /// What becomes of it by a value that says neither that it is pressed nor that it is released.
    enum Doubt {
        /// It counts as released: it is held to talk, or nothing depends on it.
        case release
        /// What it began is over, and a fresh press is needed for the next.
        case end
        /// Nothing: it is not held, and a press that is told again must not count twice.
        case nothing
    }

    let action: ControlAction
    let doubt: Doubt
    private var gesture: GestureStateMachine
    private var emergency: EmergencyStateMachine?

    /// - Parameters:
    ///   - gesture: The configured one; nil: the profile's.
    ///   - binding: The configured action; nil: the control's own.
    init(_ control: Control, profile: AccessoryProfile, gesture configured: Gesture?, binding: ControlAction?) {
        action = binding ?? profile.defaultAction(of: control)
        let gesture: Gesture
        switch action {
        case .none:
            gesture = .none
        case .transmit:
            gesture = profile.talkGesture(of: control, wanted: configured)
        case .emergency where profile.toggleOnly.contains(control):
            gesture = .toggle
        case .emergency:
            gesture = .hold
            emergency = EmergencyStateMachine(hold: profile.emergencyHold)
        case .channelUp, .channelDown, .nearbyNext, .replayLast, .command:
            // Its edges after the windows; what is done is done on the first.
            gesture = .hold
        }
        self.gesture = GestureStateMachine(gesture, timing: profile.timing)
        doubt =
            switch (action, gesture) {
            case (.none, _), (.transmit, .hold), (.transmit, .none), (.emergency, .hold): .release
            case (.transmit, .hybrid): .end
            default: .nothing
            }
    }

    /// Whether it takes part in the transmission.
    var isActive: Bool {
        switch action {
        case .transmit: gesture.isActive
        case .emergency: emergency?.isTransmitting ?? gesture.isActive
        case .none, .channelUp, .channelDown, .nearbyNext, .replayLast, .command: false
        }
    }

    var nextDeadline: Instant? { earliest(gesture.nextDeadline, emergency?.nextDeadline) }

    mutating func handle(_ event: GestureStateMachine.Event, at now: Instant) -> [Action] {
        guard action != .none else { return [] }
        if emergency != nil { return guarded(event, at: now) }
        let edges: [GestureStateMachine.Action]
        if case .endedBySystem = event, action != .transmit, action != .emergency {
            edges = []
        } else {
            edges = gesture.handle(event, at: now)
        }
        return edges.flatMap { edge -> [Action] in
            switch (action, edge) {
            case (.transmit, .begin): [.begin]
            case (.transmit, .end): [.end]
            case (.emergency, .begin): [.alert(true), .begin]
            case (.emergency, .end): [.end, .alert(false)]
            case (_, .begin): [.fire]
            case (_, .end): []
            }
        }
    }

    private mutating func guarded(_ event: GestureStateMachine.Event, at now: Instant) -> [Action] {
        if case .endedBySystem = event { return emergency?.handle(event, at: now) ?? [] }
        var actions = emergency?.handle(.deadline, at: now) ?? []
        for edge in gesture.handle(event, at: now) {
            actions += emergency?.handle(edge == .begin ? .pressed : .released, at: now) ?? []
        }
        return actions
    }
}

/// The earlier of two times, either of which may not be. It is asked after every press, so that nothing is allocated.
func earliest(_ one: Instant?, _ other: Instant?) -> Instant? {
    guard let one else { return other }
    guard let other else { return one }
    return min(one, other)
}
