// One accessory's controls: from the values it notifies to the begin and end of its part in a transmission.
import MonotonicTime

/// Decodes an accessory's values by its profile, derives edges from state, and applies each control's gesture.
public struct ControlsStateMachine: Sendable {
    /// What comes from the accessory or the system.
    public enum Event: Sendable {
        /// A value of the profile's input with this index.
        case value(input: Int, bytes: [UInt8])
        /// A key of the profile's input device went down or came up.
        case key(code: UInt16, isDown: Bool)
        /// A value that need not be news: read, cached, or from before the subscription. It never begins a transmission.
        case staleValue(input: Int, bytes: [UInt8])
        /// The accessory is gone, or no longer heard.
        case lost
        /// The transmission was ended from elsewhere: a fresh press is needed for the next.
        case endedBySystem
        /// `nextDeadline` has come.
        case deadline
    }

    /// What follows.
    public enum Action: Equatable, Sendable {
        /// A control went down or came up.
        case control(Control, isDown: Bool)
        /// A control takes part in the transmission from now on.
        case begin(Control)
        /// A control takes no part any more.
        case end(Control)
        /// The accessory told its battery level in percent.
        case battery(Int)
        /// A value was not understood; the count of such values so far.
        case ignored(reason: String, count: Int)
    }

    /// The profile by which values are decoded.
    public let profile: AccessoryProfile
    private var decoders: [InputDecoder]
    private var down: Set<Control> = []
    /// Those of `down` that only a stale value told.
    private var unannounced: Set<Control> = []
    /// Inputs that have told news since the accessory came: a stale value must not overwrite it.
    private var fresh: Set<Int> = []
    private var gestures: [Control: GestureStateMachine]
    /// In the order of the profile, so that what happens at once happens in one order.
    private let order: [Control]
    private var ignoredCount = 0

    /// All controls up.
    ///
    /// - Parameter gesture: Replaces the profile's gesture for its talk controls (those whose gesture is not `none`).
    public init(_ profile: AccessoryProfile, gesture: Gesture? = nil) {
        self.profile = profile
        decoders = profile.inputs.map { InputDecoder($0.rule) }
        order = profile.inputs.flatMap(\.rule.controls)
        gestures = [:]
        for control in order {
            let own = profile.gestures[control] ?? .hold
            gestures[control] = GestureStateMachine(
                own == .none ? .none : profile.talkGesture(of: control, wanted: gesture), timing: profile.timing)
        }
    }

    /// Whether any control takes part in the transmission.
    public var isActive: Bool { gestures.values.contains { $0.isActive } }

    /// When `deadline` must be handled.
    public var nextDeadline: Instant? { gestures.values.compactMap(\.nextDeadline).min() }

    /// Applies an event.
    public mutating func handle(_ event: Event, at now: Instant) -> [Action] {
        switch event {
        case .value(let input, let bytes):
            guard decoders.indices.contains(input) else { return [] }
            fresh.insert(input)
            return decode(bytes, input: input) { $0.take($1, at: now) }
        case .key(let code, let isDown):
            return decoders.indices.flatMap { index -> [Action] in
                guard case .controls(let states) = decoders[index].decode(key: code, isDown: isDown) else { return [] }
                return states.flatMap { take($0, at: now) }
            }
        case .staleValue(let input, let bytes):
            guard decoders.indices.contains(input), !fresh.contains(input) else { return [] }
            // It only tells what a later value is to be compared with.
            return decode(bytes, input: input) { machine, state in
                machine.setDown(state)
                if state.isDown {
                    machine.unannounced.insert(state.control)
                } else {
                    machine.unannounced.remove(state.control)
                }
                return []
            }
        case .lost:
            fresh = []
            for index in decoders.indices { decoders[index].reset() }
            return order.flatMap { control -> [Action] in
                let wasDown = down.remove(control) != nil && unannounced.remove(control) == nil
                return (wasDown ? [.control(control, isDown: false)] : []) + gesture(control, .lost, at: now)
            }
        case .endedBySystem:
            return order.flatMap { gesture($0, .endedBySystem, at: now) }
        case .deadline:
            return order.flatMap { gesture($0, .deadline, at: now) }
        }
    }

    /// A control is down or up from now on, if it was not so before.
    private mutating func take(_ state: ControlState, at now: Instant) -> [Action] {
        guard down.contains(state.control) != state.isDown else { return [] }
        setDown(state)
        // Nobody was told that it went down, so nobody is told that it came up.
        guard unannounced.remove(state.control) == nil else { return [] }
        return [.control(state.control, isDown: state.isDown)]
            + gesture(state.control, state.isDown ? .pressed : .released, at: now)
    }

    private mutating func setDown(_ state: ControlState) {
        if state.isDown { down.insert(state.control) } else { down.remove(state.control) }
    }

    private mutating func decode(
        _ bytes: [UInt8], input: Int, _ apply: (inout Self, ControlState) -> [Action]
    ) -> [Action] {
        let batteryBefore = decoders[input].battery
        let down = down
        let value = decoders[input].decode(bytes) { down.contains($0) }
        var actions: [Action] = []
        if let battery = decoders[input].battery, battery != batteryBefore { actions.append(.battery(battery)) }
        switch value {
        case .controls(let states):
            for state in states { actions += apply(&self, state) }
        case .garbage(let reason):
            ignoredCount &+= 1
            actions.append(.ignored(reason: reason, count: ignoredCount))
        }
        return actions
    }

    private mutating func gesture(
        _ control: Control, _ event: GestureStateMachine.Event, at now: Instant
    ) -> [Action] {
        guard var machine = gestures[control] else { return [] }
        let actions = machine.handle(event, at: now)
        gestures[control] = machine
        return actions.map { $0 == .begin ? .begin(control) : .end(control) }
    }
}
