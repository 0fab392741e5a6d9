// One accessory's controls: from the values it notifies to the begin and end of its part in a transmission.
import MonotonicTime
import Vocabulary

/// Decodes an accessory's values by its profile, derives edges from state, and applies each control's gesture.
public struct ControlsStateMachine: Sendable {
    /// What comes from the accessory or the system.
    public enum Event: Sendable {
        /// A value of the profile's input with this index.
        case value(input: Int, bytes: [UInt8])
        /// A value that need not be news: read, cached, or from before the subscription. It never begins a transmission.
        case staleValue(input: Int, bytes: [UInt8])
        /// The accessory is heard from now on; whether its link may be older than that, so that any control may have been down before.
        case heard(isKept: Bool)
        /// What carries its values goes on after it hung: what comes first has waited, and is no press.
        case resumed
        /// The accessory is asked for a value from now on, and has answered or will not.
        case asked, answered
        /// The accessory was asked for a value after it was heard. What has been notified since is newer.
        case readValue(input: Int, bytes: [UInt8])
        /// A key of the accessory's input device went down or came up.
        case key(code: UInt16, isDown: Bool)
        /// The accessory is gone, or no longer heard.
        case lost
        /// The transmission was ended from elsewhere: a fresh press is needed for the next.
        case endedBySystem
        /// What is down counts for nothing from now on, until it has come up and gone down anew.
        case disarmed
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
        /// A control was pressed that does something else than to talk.
        case fire(Control)
        /// An emergency control was held for as long as its guard asks, or is held no more.
        case emergency(Control, isActive: Bool)
        /// The accessory told its battery level in percent.
        case battery(Int)
        /// A value was not understood; the count of such values so far.
        case ignored(reason: String, count: Int)
    }

    /// The profile by which values are decoded.
    public let profile: AccessoryProfile
    private var decoders: [InputDecoder]
    private(set) var down: Set<Control> = []
    /// Those of `down` that only a stale value told, or that were down before.
    private var unannounced: Set<Control> = []
    /// Which controls may have been down before they were heard.
    private var doubt: PressDoubt
    /// What is down was known before the accessory was heard.
    private var isKnown = false
    /// Inputs that have told news since the accessory came: a stale value must not overwrite it.
    private var fresh: Set<Int> = []
    private var machines: [Control: ControlMachine]
    /// In the order of the profile, so that what happens at once happens in one order.
    private let order: [Control]
    /// What each control does.
    public let actions: [Control: ControlAction]
    /// The inputs that are keys.
    private let keyInputs: [Int]
    private var ignoredCount = 0
    /// Why the configured gesture is not the one in use, and what to write; nil when it is.
    public private(set) var refusedGesture: String?

    /// All controls up.
    ///
    /// - Parameters:
    ///   - gesture: Replaces the profile's gesture for its talk controls (those whose gesture is not `none`).
    ///   - bindings: Replaces what controls do.
    public init(_ profile: AccessoryProfile, gesture: Gesture? = nil, bindings: [Control: ControlAction] = [:]) {
        self.profile = profile
        decoders = profile.inputs.map { InputDecoder($0.rule) }
        doubt = PressDoubt(retold: profile.retoldControls)
        order = profile.inputs.flatMap(\.rule.controls).reduce(into: []) { if !$0.contains($1) { $0.append($1) } }
        keyInputs = profile.inputs.indices.filter { if case .keys = profile.inputs[$0].rule { true } else { false } }
        machines = [:]
        for control in order {
            machines[control] = ControlMachine(control, profile: profile, gesture: gesture, binding: bindings[control])
        }
        actions = machines.mapValues(\.action)
        let talkers = order.filter { machines[$0]?.action == .transmit && profile.toggleOnly.contains($0) }
        if let gesture, gesture != .toggle, let talker = talkers.first {
            refusedGesture =
                "its \(talker.rawValue) control tells no release, so gesture = \"\(gesture.rawValue)\" is not possible "
                + "and each press toggles: write gesture = \"toggle\""
        }
    }

    /// Whether any control takes part in the transmission.
    public var isActive: Bool { machines.values.contains { $0.isActive } }

    /// Whether any control is down.
    public var isDown: Bool { !down.isEmpty }

    /// Whether something goes on that only the accessory itself can end.
    var needsHearing: Bool { isActive || down.contains { !unannounced.contains($0) } }

    /// Whether it is known of every control that it is up, or down: whatever is pressed counts.
    var isCertain: Bool { doubt.isCertain }

    /// What people are told of it.
    enum Doubtfulness { case none, unknown, heldFromBefore }

    var doubtfulness: Doubtfulness { isHeldFromBefore ? .heldFromBefore : isCertain ? .none : .unknown }

    /// A control was down before it was heard, and still is.
    var isHeldFromBefore: Bool { !unannounced.isEmpty }

    /// What the control does.
    public func action(of control: Control) -> ControlAction { actions[control] ?? .none }

    /// When `deadline` must be handled.
    public var nextDeadline: Instant? {
        var next = doubt.nextDeadline
        for machine in machines.values { next = earliest(next, machine.nextDeadline) }
        return next
    }

    /// Applies an event.
    public mutating func handle(_ event: Event, at now: Instant) -> [Action] {
        switch event {
        case .value(let input, let bytes):
            guard decoders.indices.contains(input) else { return [] }
            fresh.insert(input)
            return decode(input, { $0.decode(bytes, isDown: $1) }) { $0.news(of: $1, at: now) }
        case .readValue(let input, let bytes):
            guard decoders.indices.contains(input), !fresh.contains(input) else { return [] }
            return decode(input, { $0.decode(bytes, isDown: $1) }) { $0.news(of: $1, at: now) }
        case .heard(let isKept):
            doubt.heard(isKept: isKept && !isKnown, at: now)
            isKnown = false
            return []
        case .resumed:
            doubt.resumed(at: now)
            return []
        case .asked:
            doubt.asked(at: now)
            return []
        case .answered:
            doubt.answered(at: now)
            return []
        case .key(let code, let isDown):
            return keyInputs.flatMap { input in
                decode(input, { decoder, _ in decoder.decode(key: code, isDown: isDown) }) { $0.news(of: $1, at: now) }
            }
        case .staleValue(let input, let bytes):
            guard decoders.indices.contains(input), !fresh.contains(input) else { return [] }
            // It only tells what a later value is to be compared with.
            return decode(input, { $0.decode(bytes, isDown: $1) }) { machine, state in
                guard state.isCertain else { return [] }
                machine.setDown(state)
                if state.isDown {
                    machine.unannounced.insert(state.control)
                } else {
                    machine.unannounced.remove(state.control)
                    machine.doubt.up(state.control)
                }
                return []
            }
        case .lost:
            fresh = []
            isKnown = false
            doubt.lost(down: down, at: now)
            for index in decoders.indices { decoders[index].reset() }
            return order.flatMap { control -> [Action] in
                let wasDown = down.remove(control) != nil && unannounced.remove(control) == nil
                return (wasDown ? [.control(control, isDown: false)] : []) + pass(control, .lost, at: now)
            }
        case .endedBySystem:
            return order.flatMap { pass($0, .endedBySystem, at: now) }
        case .disarmed:
            return order.flatMap { pass($0, .lost, at: now) }
        case .deadline:
            doubt.settle(at: now)
            return order.flatMap { pass($0, .deadline, at: now) }
        }
    }

    /// It is known that these controls are down and the others up: that they are told to be down, as some accessories do again and again,
    /// is no press.
    mutating func assume(down controls: Set<Control>) {
        isKnown = true
        let known = controls.intersection(order)
        down.formUnion(known)
        unannounced.formUnion(known)
    }

    private mutating func setDown(_ state: ControlState) {
        if state.isDown { down.insert(state.control) } else { down.remove(state.control) }
    }

    /// A value that is news said so.
    private mutating func news(of state: ControlState, at now: Instant) -> [Action] {
        let control = state.control
        if !state.isDown { doubt.up(control) }
        guard down.contains(control) != state.isDown else { return [] }
        if !state.isCertain {
            // Nobody talks with it, and a release that nothing has told is no reason to take what follows for a press.
            guard !unannounced.contains(control) else { return [] }
            switch machines[control]?.doubt {
            case .release: break
            case .end: return pass(control, .endedBySystem, at: now)
            case .nothing, nil: return []
            }
        }
        setDown(state)
        if state.isDown, !doubt.isPress(control, at: now) {
            unannounced.insert(control)
            return []
        }
        // Nobody was told that it went down, so nobody is told that it came up.
        guard unannounced.remove(control) == nil else { return [] }
        return [.control(control, isDown: state.isDown)]
            + pass(control, state.isDown ? .pressed : .released, at: now)
    }

    private mutating func decode(
        _ input: Int, _ value: (inout InputDecoder, (Control) -> Bool) -> DecodedValue,
        _ apply: (inout Self, ControlState) -> [Action]
    ) -> [Action] {
        let batteryBefore = decoders[input].battery
        let down = down
        let value = value(&decoders[input]) { down.contains($0) }
        var actions: [Action] = []
        if let battery = decoders[input].battery, battery != batteryBefore { actions.append(.battery(battery)) }
        switch value {
        case .controls(let states):
            for state in states { actions += apply(&self, state) }
        case .unclear(let states, let reason):
            for state in states { actions += apply(&self, state) }
            ignoredCount &+= 1
            actions.append(.ignored(reason: reason, count: ignoredCount))
        }
        return actions
    }

    private mutating func pass(_ control: Control, _ event: GestureStateMachine.Event, at now: Instant) -> [Action] {
        guard let actions = machines[control]?.handle(event, at: now) else { return [] }
        return actions.map { action in
            switch action {
            case .begin: .begin(control)
            case .end: .end(control)
            case .fire: .fire(control)
            case .alert(let isActive): .emergency(control, isActive: isActive)
            }
        }
    }
}
