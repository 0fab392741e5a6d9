// The path of a press: from a value, a key or bytes to an intent, an action or an emergency.
import BlueZ
import MonotonicTime

extension AccessoriesStateMachine {
    // MARK: In

    mutating func value(_ characteristic: CharacteristicIdentifier, _ bytes: [UInt8], at now: Instant) -> [Action] {
        guard let (id, input) = inputs[characteristic] else { return [] }
        let isNews = accessories[id]?.link.hearsNews ?? false
        let event: ControlsStateMachine.Event =
            isNews ? .value(input: input, bytes: bytes) : .staleValue(input: input, bytes: bytes)
        return controls(id, event, .released, at: now)
    }

    /// What was read may tell of a press that was over, or began, before the subscription.
    mutating func read(_ characteristic: CharacteristicIdentifier, _ bytes: [UInt8], at now: Instant) -> [Action] {
        guard let (id, input) = inputs[characteristic], accessories[id]?.link.hearsNews == true else { return [] }
        return controls(id, .readValue(input: input, bytes: bytes), .released, at: now)
    }

    /// Begins and ends to name a device that sends too much.
    mutating func flooding(_ device: DeviceIdentifier, _ rate: Int?) -> [Action] {
        let isNew = rate != nil && floods[device] == nil
        floods[device] = rate
        guard isNew, let rate else { return [] }
        return [.note(owners[device] ?? AccessoryID("\(device)"), Self.floodProblem(rate))]
    }

    static func floodProblem(_ rate: Int) -> String {
        "it sends \(rate) values a second, of which only the newest are looked at: switch it off, or have it repaired"
    }

    mutating func stream(_ device: DeviceIdentifier, _ kind: StreamKind, _ bytes: [UInt8], at now: Instant) -> [Action]
    {
        guard let id = owners[device], accessories[id]?.kind == .stream(kind),
            accessories[id]?.link.hearsNews == true
        else { return [] }
        return (kind == .handsFree ? heard(through: .blueALSA, at: now) : [])
            + controls(id, .value(input: 0, bytes: bytes), .released, at: now)
    }

    mutating func key(_ device: LocalDeviceID, _ code: UInt16, _ isDown: Bool, at now: Instant) -> [Action] {
        guard let id = localOwners[device], isHeard(device, id) else { return [] }
        var holders = accessories[id]?.heldKeys[code] ?? []
        let wasDown = !holders.isEmpty
        if isDown { holders.insert(device) } else { holders.remove(device) }
        accessories[id]?.heldKeys[code] = holders.isEmpty ? nil : holders
        guard wasDown == holders.isEmpty else { return [] }
        return controls(id, .key(code: code, isDown: isDown), .released, at: now)
    }

    mutating func serial(_ device: LocalDeviceID, _ bytes: [UInt8], at now: Instant) -> [Action] {
        guard let id = localOwners[device], isHeard(device, id) else { return [] }
        return controls(id, .value(input: 0, bytes: bytes), .released, at: now)
    }

    /// Wired devices need no bond; those that came by Bluetooth may.
    private func isHeard(_ device: LocalDeviceID, _ id: AccessoryID) -> Bool {
        guard let accessory = accessories[id], accessory.controls != nil else { return false }
        guard accessory.configuration.isBondedOnly, localDevices[device]?.address != nil else { return true }
        return !isBarred(accessory.link.device, accessory.configuration)
    }

    // MARK: Controls

    mutating func controls(
        _ id: AccessoryID, _ event: ControlsStateMachine.Event, _ reason: AccessoryRelease, at now: Instant
    ) -> [Action] {
        guard let wasDown = accessories[id]?.controls?.isDown,
            let wasDoubtful = accessories[id]?.controls?.doubtfulness,
            let told = accessories[id]?.controls?.handle(event, at: now)
        else { return [] }
        var actions: [Action] = []
        var isShown = accessories[id]?.controls?.doubtfulness != wasDoubtful
        for action in told {
            switch action {
            case .control(let control, let isDown):
                let source = AccessorySource(accessory: id, control: control)
                actions.append(.event(.control(source, isDown: isDown, at: now)))
            case .begin(let control):
                actions += begin(AccessorySource(accessory: id, control: control), at: now)
                isShown = true
            case .end(let control):
                let source = AccessorySource(accessory: id, control: control)
                actions += intent(held.end(source), reason, at: now)
                isShown = true
            case .fire(let control):
                actions += fire(AccessorySource(accessory: id, control: control), at: now)
            case .emergency(let control, let isActive):
                actions += emergency(AccessorySource(accessory: id, control: control), isActive, at: now)
            case .battery(let level):
                accessories[id]?.battery = level
                isShown = true
            case .ignored(let reason, let count):
                actions.append(.ignored(id, reason: reason, count: count))
            }
        }
        if let isDown = accessories[id]?.controls?.isDown, isDown != wasDown {
            actions += tighten(id, isDown ? .pressed : .released, at: now)
        }
        if isShown { actions += changes(of: id) }
        return actions + watchCarriers(of: id, at: now)
    }

    /// Everything that an accessory holds comes up.
    mutating func release(_ id: AccessoryID, _ reason: AccessoryRelease, at now: Instant) -> [Action] {
        switch reason {
        case .suspended:
            // Its link is still there: what somebody holds goes on to be told, and must not begin anew.
            return controls(id, .disarmed, reason, at: now) + tighten(id, .left, at: now)
        case .removed, .stopped:
            accessories[id]?.heldKeys = [:]
            return controls(id, .lost, reason, at: now) + tighten(id, .left, at: now)
        case .released, .disconnected, .adapterOff, .bluetoothStopped, .unplugged:
            accessories[id]?.heldKeys = [:]
            return controls(id, .lost, reason, at: now)
        }
    }

    mutating func transmissionEnded(at now: Instant) -> [Action] {
        // Who ended it knows: no `transmitEnded` is told.
        held = HeldSources()
        return order.flatMap { controls($0, .endedBySystem, .released, at: now) }
    }

    mutating func test(_ id: AccessoryID, _ isOn: Bool, at now: Instant) -> [Action] {
        guard let isTested = accessories[id]?.isTested, isTested != isOn else { return [] }
        accessories[id]?.isTested = isOn
        // Both at its begin and at its end a fresh press is needed: what is held was held for something else.
        return controls(id, .disarmed, .released, at: now)
    }

    mutating func quiet(_ isOn: Bool, at now: Instant) -> [Action] {
        guard isQuiet != isOn else { return [] }
        isQuiet = isOn
        return order.flatMap { controls($0, .disarmed, .released, at: now) }
    }

    // MARK: Out

    private func isSilent(_ id: AccessoryID) -> Bool { isQuiet || accessories[id]?.isTested == true }

    private mutating func begin(_ source: AccessorySource, at now: Instant) -> [Action] {
        guard !isSilent(source.accessory) else { return [] }
        let isEmergency = accessories[source.accessory]?.controls?.action(of: source.control) == .emergency
        if isEmergency {
            // Counted with its alert, which comes first.
            guard alerts.contains(source) else { return [] }
        } else if let flood = admit(source.accessory, at: now) {
            return flood
        }
        return intent(held.begin(source, isEmergency ? .emergency : .normal), .released, at: now)
    }

    private mutating func fire(_ source: AccessorySource, at now: Instant) -> [Action] {
        guard !isSilent(source.accessory),
            let action = accessories[source.accessory]?.controls?.action(of: source.control)
        else { return [] }
        return admit(source.accessory, at: now) ?? [.event(.action(action, source, at: now))]
    }

    private mutating func emergency(_ source: AccessorySource, _ isActive: Bool, at now: Instant) -> [Action] {
        if isActive {
            guard !isSilent(source.accessory), !alerts.contains(source) else { return [] }
            if let flood = admit(source.accessory, at: now) { return flood }
            alerts.insert(source)
        } else {
            // An end is told even while controls do nothing, but only of what was told.
            guard alerts.remove(source) != nil else { return [] }
        }
        return [.event(.emergency(source, isActive: isActive, at: now))]
    }

    /// Nil for a press that may be a person's.
    private mutating func admit(_ id: AccessoryID, at now: Instant) -> [Action]? {
        guard accessories[id]?.admitsPress(at: now) == false else { return nil }
        let count = accessories[id]?.refusedPressCount ?? 0
        return [
            .ignored(id, reason: "more than \(FleetAccessory.pressesPerSecondMax) presses in a second", count: count)
        ]
    }

    private func intent(
        _ change: HeldSources<AccessorySource>.Change?, _ reason: AccessoryRelease, at now: Instant
    ) -> [Action] {
        switch change {
        case .began(let source, let urgency): [.event(.intent(.transmitBegan(source, urgency), at: now))]
        case .escalated(let source): [.event(.intent(.transmitEscalated(source), at: now))]
        case .ended(let source): [.event(.intent(.transmitEnded(source, reason), at: now))]
        case nil: []
        }
    }
}
