// Which Bluetooth device is whose, and the link by which it is used.
import BlueZ
import MonotonicTime

extension AccessoriesStateMachine {
    static let unbondedProblem =
        "it is not bonded, and bonded-only asks for that, for anybody could imitate it: "
        + "bond it with 'bluetoothctl pair', or remove it and add it with 'pttctl accessory add --bonded-only'"

    // MARK: Devices

    mutating func device(_ facts: DeviceFacts, at now: Instant) -> [Action] {
        devices[facts.id] = facts
        if let owner = owners[facts.id] {
            guard isGivenUp(owner, facts) else { return assign(facts, to: owner, at: now) }
            return release(owner, .removed, at: now) + closeStream(owner) + remove(owner, at: now)
        }
        let wanting = order.first { id in
            guard let accessory = accessories[id],
                accessory.configuration.matches(address: facts.address, name: facts.name)
            else { return false }
            // A second device of the same name takes over only when it is there and the first one is not.
            guard let own = accessory.link.device else { return true }
            return !own.isConnected && facts.isConnected
        }
        if let wanting { return assign(facts, to: wanting, at: now) }
        guard takesKnownDevices, facts.isTrusted || facts.isPaired, order.count < Self.accessoriesMax,
            isTakenUnasked(facts)
        else { return [] }
        let id = AccessoryID(facts.address)
        guard accessories[id] == nil else { return [] }
        add(AccessoryConfiguration(id: id, address: facts.address, isBondedOnly: isBondedOnly), isAutomatic: true)
        return assign(facts, to: id, at: now) + link(id, .radio(radio), at: now)
    }

    /// It was taken because BlueZ trusted it or was paired with it, and neither is so any more.
    private func isGivenUp(_ id: AccessoryID, _ facts: DeviceFacts) -> Bool {
        guard let accessory = accessories[id], accessory.isAutomatic, !accessory.isLocal else { return false }
        return !facts.isTrusted && !facts.isPaired
    }

    /// Input devices are given to us by udev rules alone. What is refused is taken in order to say why.
    private func isTakenUnasked(_ facts: DeviceFacts) -> Bool {
        if library.refusal(name: facts.name, services: facts.services) != nil { return true }
        switch library.candidate(name: facts.name, services: facts.services)?.transport {
        case .gatt, .spp, .handsFree: return true
        case .input, .serial, nil: return false
        }
    }

    mutating func deviceRemoved(_ device: DeviceIdentifier, at now: Instant) -> [Action] {
        devices[device] = nil
        guard let id = owners[device] else { return [] }
        var actions = link(id, .device(nil), at: now)
        // An automatic accessory goes with its device; a configured one stays and is searched for.
        if let accessory = accessories[id], accessory.isAutomatic, !accessory.isLocal { actions += remove(id, at: now) }
        return actions
    }

    /// Devices and local devices that are nobody's, after the accessories have changed.
    mutating func offerAll(at now: Instant) -> [Action] {
        var actions: [Action] = []
        for facts in localDevices.values.sorted(by: { $0.id < $1.id }) where localOwners[facts.id] == nil {
            actions += localAdded(facts, at: now)
        }
        for facts in devices.values.sorted(by: { $0.id < $1.id }) where owners[facts.id] == nil {
            actions += device(facts, at: now)
        }
        return actions
    }

    // MARK: Accessories

    mutating func add(_ configuration: AccessoryConfiguration, isAutomatic: Bool) {
        let kind = kind(configuration, isLocal: false, device: nil)
        var link = makeLink(configuration, kind)
        link.autoConnects = autoConnects
        accessories[configuration.id] = FleetAccessory(
            configuration, isAutomatic: isAutomatic, kind: kind, link: link, feedback: feedback)
        if !order.contains(configuration.id) { order.append(configuration.id) }
    }

    /// Takes an accessory out, with everything that points at it.
    mutating func remove(_ id: AccessoryID, at now: Instant) -> [Action] {
        detach(id)
        accessories[id] = nil
        order.removeAll { $0 == id }
        return watchCarriers(of: id, at: now) + [.event(.removed(id))]
    }

    mutating func detach(_ id: AccessoryID) {
        inputs = inputs.filter { $0.value.owner != id }
        owners = owners.filter { $0.value != id }
        localOwners = localOwners.filter { $0.value != id }
    }

    // MARK: Links

    private func kind(
        _ configuration: AccessoryConfiguration, isLocal: Bool, device: DeviceFacts?
    ) -> FleetAccessory.LinkKind {
        if isLocal { return .passive(problem: nil) }
        if let device, isBarred(device, configuration) { return .passive(problem: Self.unbondedProblem) }
        var profile: AccessoryProfile?
        if let id = configuration.profileID {
            profile = library[id]
            // Named, a family that is usually refused is used, if it can be.
            if let profile, profile.inputs.isEmpty {
                return .passive(problem: profile.refusal ?? "profile \"\(profile.id)\" has no controls")
            }
        } else if let device {
            if let refusal = library.refusal(name: device.name, services: device.services) {
                return .passive(problem: refusal)
            }
            profile = library.candidate(name: device.name, services: device.services)
        }
        switch profile?.transport {
        case .spp: return .stream(.serialPort)
        case .handsFree: return .stream(.handsFree)
        case .input, .serial: return .passive(problem: nil)
        case .gatt: return .gatt
        case nil: return configuration.address == nil && configuration.name == nil ? .passive(problem: nil) : .gatt
        }
    }

    private func makeLink(_ configuration: AccessoryConfiguration, _ kind: FleetAccessory.LinkKind) -> any AccessoryLink
    {
        switch kind {
        case .gatt: GATTAccessoryStateMachine(configuration, library: library)
        case .stream(let kind): StreamAccessoryStateMachine(configuration, kind: kind, library: library)
        case .passive(let problem): PassiveLink(configuration, problem: problem)
        }
    }

    func isBarred(_ device: DeviceFacts?, _ configuration: AccessoryConfiguration) -> Bool {
        configuration.isBondedOnly && device?.isBonded != true
    }

    /// A device is an accessory's, and as it is now. What fits it better replaces the link, until that has settled.
    private mutating func assign(_ facts: DeviceFacts, to id: AccessoryID, at now: Instant) -> [Action] {
        guard let accessory = accessories[id] else { return [] }
        guard accessory.judged != facts.marks || accessory.link.device == nil else {
            return link(id, .device(facts), at: now)
        }
        accessories[id]?.judged = facts.marks
        let wanted = kind(accessory.configuration, isLocal: accessory.isLocal, device: facts)
        var isUnusable = false
        if case .passive(_?) = wanted { isUnusable = true }
        guard wanted != accessory.kind, isUnusable || accessory.link.profile == nil else {
            return link(id, .device(facts), at: now)
        }
        return replaceLink(id, wanted, device: facts, at: now)
    }

    /// Another link takes over, with what is known; what is held by the former is released.
    mutating func replaceLink(
        _ id: AccessoryID, _ kind: FleetAccessory.LinkKind, device: DeviceFacts?, at now: Instant
    ) -> [Action] {
        guard let configuration = accessories[id]?.configuration else { return [] }
        var actions = release(id, .disconnected, at: now) + closeStream(id)
        inputs = inputs.filter { $0.value.owner != id }
        var link = makeLink(configuration, kind)
        link.autoConnects = autoConnects
        accessories[id]?.kind = kind
        accessories[id]?.judged = device?.marks
        accessories[id]?.link = link
        accessories[id]?.controls = nil
        accessories[id]?.battery = nil
        actions += serve(id, at: now)
        // As after a start: the device first, then that there is Bluetooth.
        if let device { actions += self.link(id, .device(device), at: now) }
        return actions + self.link(id, .radio(radio), at: now)
    }

    /// Its link is given up: what the host keeps open for it ends, and what waits is not done.
    mutating func closeStream(_ id: AccessoryID) -> [Action] {
        guard let device = accessories[id]?.link.device else { return [] }
        scanning.waiting.removeAll { $0 == .connect(device: device.id) }
        guard case .stream(let kind)? = accessories[id]?.kind else { return [] }
        scanning.waiting.removeAll { $0 == .openStream(device: device.id, kind) }
        return [.command(.closeStream(device: device.id, kind))]
    }

    /// Tells an accessory's link something, and carries out what it asks for.
    mutating func link(_ id: AccessoryID, _ event: AccessoryLinkEvent, at now: Instant) -> [Action] {
        guard let asked = accessories[id]?.link.handle(event, at: now) else { return [] }
        let device = accessories[id]?.link.device?.id
        if accessories[id]?.link.device?.isReachable != true { accessories[id]?.before = nil }
        if let device, owners[device] != id {
            owners = owners.filter { $0.value != id }
            // Values of a former device are not this one's.
            inputs = inputs.filter { $0.value.owner != id }
            owners[device] = id
        } else if device == nil, owners.contains(where: { $0.value == id }) {
            owners = owners.filter { $0.value != id }
        }
        var actions: [Action] = []
        for action in asked {
            switch action {
            case .command(let command) where scanning.isScanning && command.isDisturbedByScan:
                scanning.waiting.append(command)
            case .command(let command):
                if case .closeStream(let device, let kind) = command {
                    scanning.waiting.removeAll { $0 == .openStream(device: device, kind) }
                }
                actions.append(.command(command))
            case .recognised(let profile, let found):
                actions += recognised(id, profile, found, at: now)
            case .heard(let isKept):
                actions += controls(id, .heard(isKept: isKept), .released, at: now)
                // A link that was made in a hang: its presses waited, too.
                if carrier(of: id).flatMap({ carriers[$0] })?.handsOnBacklog(at: now) == true {
                    actions += controls(id, .resumed, .released, at: now)
                }
            case .lost(let reason):
                accessories[id]?.battery = nil
                actions += release(id, reason, at: now)
            }
        }
        if let accessory = accessories[id], accessory.controls?.isDown == true, isLocalBarred(accessory) {
            // It is not heard any more, not even when it is let go.
            actions += release(id, .disconnected, at: now)
        }
        return actions + serve(id, at: now)
    }

    private mutating func recognised(
        _ id: AccessoryID, _ profile: AccessoryProfile, _ found: [CharacteristicIdentifier: Int], at now: Instant
    ) -> [Action] {
        inputs = inputs.filter { $0.value.owner != id }
        for (characteristic, index) in found { inputs[characteristic] = (id, index) }
        return use(profile, for: id, at: now)
    }

    /// Has an accessory's values decoded by a profile.
    mutating func use(_ profile: AccessoryProfile, for id: AccessoryID, at now: Instant) -> [Action] {
        guard let accessory = accessories[id], accessory.controls?.profile != profile else { return [] }
        let released = release(id, .disconnected, at: now)
        var controls = ControlsStateMachine(
            profile, gesture: accessory.configuration.gesture, bindings: accessory.configuration.bindings)
        if let before = accessory.before, before.inputs == profile.inputs, before.isCertain {
            controls.assume(down: before.down)
        }
        accessories[id]?.before = nil
        accessories[id]?.controls = controls
        return released
    }
}

extension BluetoothCommand {
    /// A scan of ours must have ended before it: the two break each other.
    var isDisturbedByScan: Bool {
        switch self {
        case .connect, .openStream: true
        default: false
        }
    }
}
