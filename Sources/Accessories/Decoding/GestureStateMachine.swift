// From the edges of one control to the begin and end of its part in a transmission.
import MonotonicTime
import Vocabulary

/// Windows that keep bounce and accidents from becoming presses.
public struct GestureTiming: Hashable, Sendable {
    /// A release and press within this time are contact bounce or a doubled message. Delays every release by as much.
    public var debounce = Duration.zero
    /// A press counts only once it has been held this long. Delays every begin by as much.
    public var minimumHold = Duration.zero
    /// A hybrid press that lasts this long is a hold: its release ends. A shorter one stays on until the next press.
    public var hybridHold = Self.usualHybridHold

    /// The time between a short and a long press unless a profile says otherwise.
    public static let usualHybridHold = Duration.milliseconds(400)
}

/// The gesture of one control: hold to talk, press to begin and press again to end, or either by how long it is pressed.
public struct GestureStateMachine: Sendable {
    /// What happens to the control.
    public enum Event: Sendable {
        /// It went down.
        case pressed
        /// It came up.
        case released
        /// The accessory is gone; the control counts as up.
        case lost
        /// The transmission was ended from elsewhere: a fresh press is needed for the next.
        case endedBySystem
        /// `nextDeadline` has come.
        case deadline
    }

    /// What becomes of its part in the transmission.
    public enum Action: Equatable, Sendable {
        /// It begins.
        case begin
        /// It ends.
        case end
    }

    private enum Contact {
        case up
        /// Down, but not yet for `minimumHold`.
        case settling(until: Instant)
        case down
        /// Up since `at`, but perhaps bouncing.
        case bouncing(at: Instant, until: Instant)
    }

    private let gesture: Gesture
    private let timing: GestureTiming
    private var contact = Contact.up
    /// When the press that is down began.
    private var pressedAt = Instant.zero
    /// The press that is down began the part in the transmission: a hybrid one that lasts ends it with its release.
    private var pressBegan = false
    /// Whether this control takes part in the transmission.
    public private(set) var isActive = false

    /// A control that is up.
    init(_ gesture: Gesture, timing: GestureTiming = GestureTiming()) {
        self.gesture = gesture
        self.timing = timing
    }

    /// When `deadline` must be handled; nil while nothing is pending.
    public var nextDeadline: Instant? {
        switch contact {
        case .settling(let until), .bouncing(_, let until): until
        case .up, .down: nil
        }
    }

    /// Applies an event.
    public mutating func handle(_ event: Event, at now: Instant) -> [Action] {
        // A window that has passed comes first, whatever the event.
        let due = settle(at: now)
        switch event {
        case .pressed: return due + press(at: now)
        case .released: return due + release(at: now)
        case .lost:
            contact = .up
            if seededFault("a-lost-link-releases-nothing") { return due }
            return due + setActive(false)
        case .endedBySystem:
            return due + setActive(false)
        case .deadline:
            return due
        }
    }

    private mutating func settle(at now: Instant) -> [Action] {
        switch contact {
        case .settling(let until) where until <= now:
            contact = .down
            return accepted()
        case .bouncing(let releasedAt, let until) where until <= now:
            contact = .up
            return comeUp(releasedAt)
        default:
            return []
        }
    }

    private mutating func press(at now: Instant) -> [Action] {
        switch contact {
        case .up where timing.minimumHold > .zero:
            pressedAt = now
            contact = .settling(until: now + timing.minimumHold)
            return []
        case .up:
            pressedAt = now
            contact = .down
            return accepted()
        case .bouncing:
            contact = .down
            return []
        case .settling, .down:
            return []
        }
    }

    private mutating func release(at now: Instant) -> [Action] {
        switch contact {
        case .settling:
            contact = .up
            return []
        case .down where timing.debounce > .zero:
            contact = .bouncing(at: now, until: now + timing.debounce)
            return []
        case .down:
            contact = .up
            return comeUp(now)
        case .up, .bouncing:
            return []
        }
    }

    private mutating func accepted() -> [Action] {
        pressBegan = !isActive
        switch gesture {
        case .hold: return setActive(true)
        case .toggle, .hybrid: return setActive(!isActive)
        case .none: return []
        }
    }

    /// It came up, and stayed up.
    private mutating func comeUp(_ releasedAt: Instant) -> [Action] {
        switch gesture {
        case .hold: return setActive(false)
        case .hybrid where pressBegan && releasedAt - pressedAt >= timing.hybridHold: return setActive(false)
        case .hybrid, .toggle, .none: return []
        }
    }

    private mutating func setActive(_ active: Bool) -> [Action] {
        guard isActive != active else { return [] }
        isActive = active
        return [active ? .begin : .end]
    }
}
