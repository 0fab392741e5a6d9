// The path of a press: from a value, a key or bytes of an accessory to an intent, an action or an emergency.
// Intents and actions come first in the result, because the adapter carries it out in order.
import MonotonicTime

/// Owns the controls of all accessories, the transmission that they hold together, the emergencies that are declared, and which controls
/// do nothing at the moment.
struct PressRouter: Sendable {
    /// Presses of one accessory in a second beyond this many are no person's, and are ignored.
    static let pressesPerSecondMax = 100

    /// What follows from something that an accessory told.
    struct Outcome {
        /// To be done: intents before everything that only tells of them.
        var actions: [AccessoriesStateMachine.Action]
        /// A control of the accessory is down now, or none is any more; nil: as before.
        var isDown: Bool?
        /// What people are shown of the accessory may be different.
        var isShown: Bool
    }

    /// One accessory.
    private struct Entry {
        var controls: ControlsStateMachine?
        /// Percent, as the accessory itself tells.
        var battery: Int?
        /// Which of its local devices hold a key: a key of two devices is down while either is.
        var heldKeys: [UInt16: Set<LocalDeviceID>] = [:]
        /// Its controls are reported and do nothing.
        var isTested = false
        /// The controls of an accessory that was configured anew, until it is recognised.
        var former: ControlsStateMachine?
        var pace = TokenBucket(
            depth: PressRouter.pressesPerSecondMax, perSecond: PressRouter.pressesPerSecondMax, at: .zero)
        var refusedPressCount = 0
    }

    private var entries: [AccessoryID: Entry] = [:]
    private var held = HeldSources<AccessorySource>()
    /// Emergency controls of which it was told that they are active.
    private var alerts: Set<AccessorySource> = []
    /// Controls do nothing, whosever they are.
    private(set) var isQuiet = false

    // MARK: What is so

    /// Nobody transmits, and there is no emergency.
    var isIdle: Bool { held.isEmpty && alerts.isEmpty }

    /// Somebody transmits.
    var isHeld: Bool { !held.isEmpty }

    /// A control of any accessory is down.
    var isAnyDown: Bool { entries.values.contains { $0.controls?.isDown == true } }

    /// A control of the accessory takes part in the transmission.
    func isHeld(by id: AccessoryID) -> Bool { held.sources.contains { $0.accessory == id } }

    /// The accessory's controls; nil until it has a profile.
    func controls(of id: AccessoryID) -> ControlsStateMachine? { entries[id]?.controls }

    /// Something goes on that only the accessory itself can end.
    func needsHearing(_ id: AccessoryID) -> Bool { entries[id]?.controls?.needsHearing == true }

    func battery(of id: AccessoryID) -> Int? { entries[id]?.battery }

    func nextDeadline(of id: AccessoryID) -> Instant? { entries[id]?.controls?.nextDeadline }

    // MARK: Accessories

    /// An accessory is new, or is built anew: then it is still tested, and has no controls until it is recognised.
    mutating func add(_ id: AccessoryID) { entries[id] = Entry(isTested: entries[id]?.isTested ?? false) }

    /// An accessory is gone, and holds nothing any more.
    mutating func remove(_ id: AccessoryID) { entries[id] = nil }

    /// An accessory's values are decoded by another profile. Nothing is held any more.
    mutating func use(_ profile: AccessoryProfile, for configuration: AccessoryConfiguration) {
        var controls = ControlsStateMachine(
            profile, gesture: configuration.gesture, bindings: configuration.bindings)
        if let former = entries[configuration.id]?.former, former.profile.inputs == profile.inputs, former.isCertain {
            controls.assume(down: former.down)
        }
        entries[configuration.id]?.former = nil
        entries[configuration.id]?.controls = controls
    }

    /// An accessory's values are not decoded any more. Nothing is held any more.
    mutating func forgetControls(of id: AccessoryID) { entries[id]?.controls = nil }

    /// What an accessory held before it was configured anew it held for something else: no press, if its inputs are the same.
    /// Nil when that has no meaning any more, because it is out of reach.
    mutating func setFormer(_ controls: ControlsStateMachine?, of id: AccessoryID) { entries[id]?.former = controls }

    mutating func forgetBattery(of id: AccessoryID) { entries[id]?.battery = nil }

    mutating func forgetKeys(of id: AccessoryID) { entries[id]?.heldKeys = [:] }

    /// - Returns: False when that changes nothing.
    mutating func setTested(_ id: AccessoryID, _ isOn: Bool) -> Bool {
        guard let isTested = entries[id]?.isTested, isTested != isOn else { return false }
        entries[id]?.isTested = isOn
        return true
    }

    /// - Returns: False when that changes nothing.
    mutating func setQuiet(_ isOn: Bool) -> Bool {
        defer { isQuiet = isOn }
        return isQuiet != isOn
    }

    /// The transmission was ended from elsewhere. Who ended it knows: no `transmitEnded` is told.
    mutating func transmissionEnded() { held = HeldSources() }

    // MARK: Keys

    /// A key of a local device went down or came up. Nil when another device of the accessory holds it, or nothing changes.
    mutating func key(
        _ device: LocalDeviceID, _ code: UInt16, _ isDown: Bool, of id: AccessoryID, at now: Instant
    ) -> Outcome? {
        guard entries[id]?.controls != nil else { return nil }
        var holders = entries[id]?.heldKeys[code] ?? []
        let wasDown = !holders.isEmpty
        if isDown { holders.insert(device) } else { holders.remove(device) }
        entries[id]?.heldKeys[code] = holders.isEmpty ? nil : holders
        guard wasDown == holders.isEmpty else { return nil }
        return handle(id, .key(code: code, isDown: isDown), at: now)
    }

    /// A local device is gone, and holds no keys any more.
    ///
    /// - Returns: The keys that come up.
    mutating func lose(_ device: LocalDeviceID, of id: AccessoryID) -> [UInt16] {
        let heldKeys = entries[id]?.heldKeys ?? [:]
        for code in heldKeys.keys { entries[id]?.heldKeys[code]?.remove(device) }
        let released = heldKeys.filter { $0.value == [device] }.keys.sorted()
        for code in released { entries[id]?.heldKeys[code] = nil }
        return released
    }

    // MARK: Controls

    /// Tells an accessory's controls something. Nil when it has none.
    mutating func handle(
        _ id: AccessoryID, _ event: ControlsStateMachine.Event, _ reason: AccessoryRelease = .released, at now: Instant
    ) -> Outcome? {
        guard let wasDown = entries[id]?.controls?.isDown, let was = entries[id]?.controls?.doubtfulness,
            let told = entries[id]?.controls?.handle(event, at: now)
        else { return nil }
        // What is done comes first, what is told of it second.
        var intents: [AccessoriesStateMachine.Action] = []
        var reports: [AccessoriesStateMachine.Action] = []
        let controls = entries[id]?.controls
        var isShown = controls?.doubtfulness != was
        for action in told {
            switch action {
            case .control(let control, let isDown):
                let source = AccessorySource(accessory: id, control: control)
                reports.append(.event(.control(source, isDown: isDown, at: now)))
            case .begin(let control):
                isShown = true
                let source = AccessorySource(accessory: id, control: control)
                let isEmergency = controls?.action(of: control) == .emergency
                // An emergency is counted with its alert, which comes first.
                let counts =
                    isEmergency ? !isSilent(id) && alerts.contains(source) : admit(source, at: now, &reports)
                guard counts else { continue }
                intents += intent(held.begin(source, isEmergency ? .emergency : .normal), .released, at: now)
            case .end(let control):
                isShown = true
                intents += intent(held.end(AccessorySource(accessory: id, control: control)), reason, at: now)
            case .fire(let control):
                let source = AccessorySource(accessory: id, control: control)
                guard let action = controls?.action(of: control), admit(source, at: now, &reports) else { continue }
                intents.append(.event(.action(action, source, at: now)))
            case .emergency(let control, let isActive):
                let source = AccessorySource(accessory: id, control: control)
                // An end is told even while controls do nothing, but only of what was told.
                let isNews =
                    isActive
                    ? !alerts.contains(source) && admit(source, at: now, &reports) : alerts.contains(source)
                guard isNews else { continue }
                if isActive { alerts.insert(source) } else { alerts.remove(source) }
                reports.append(.event(.emergency(source, isActive: isActive, at: now)))
            case .battery(let level):
                entries[id]?.battery = level
                isShown = true
            case .ignored(let reason, let count):
                reports.append(.ignored(id, reason: reason, count: count))
            }
        }
        let isDown = controls?.isDown
        return Outcome(actions: intents + reports, isDown: isDown == wasDown ? nil : isDown, isShown: isShown)
    }

    private func isSilent(_ id: AccessoryID) -> Bool { isQuiet || entries[id]?.isTested == true }

    /// Whether a press does something. One that cannot be a person's is reported.
    private mutating func admit(
        _ source: AccessorySource, at now: Instant, _ reports: inout [AccessoriesStateMachine.Action]
    ) -> Bool {
        let id = source.accessory
        guard !isSilent(id) else { return false }
        guard entries[id]?.pace.take(at: now) == false else { return true }
        entries[id]?.refusedPressCount &+= 1
        let count = entries[id]?.refusedPressCount ?? 1
        reports.append(
            .ignored(id, reason: "more than \(Self.pressesPerSecondMax) presses in a second", count: count))
        return false
    }

    private func intent(
        _ change: HeldSources<AccessorySource>.Change?, _ reason: AccessoryRelease, at now: Instant
    ) -> [AccessoriesStateMachine.Action] {
        switch change {
        case .began(let source, let urgency): [.event(.intent(.transmitBegan(source, urgency), at: now))]
        case .escalated(let source): [.event(.intent(.transmitEscalated(source), at: now))]
        case .ended(let source): [.event(.intent(.transmitEnded(source, reason), at: now))]
        case nil: []
        }
    }
}
