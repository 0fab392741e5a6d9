// The machine's own devices: which of them are one accessory, and by which profile their keys or bytes are read.
import BlueZ
import MonotonicTime

extension AccessoriesStateMachine {
    mutating func local(_ report: LocalDeviceReport, at now: Instant) -> [Action] {
        switch report {
        case .added(let facts):
            guard localDevices[facts.id] != nil || localDevices.count < Self.localDevicesMax else {
                return [.note(AccessoryID(facts.name), "not used: \(Self.localDevicesMax) devices are the limit")]
            }
            localDevices[facts.id] = facts
            localProblems[facts.id] = nil
            return localAdded(facts, at: now)
        case .removed(let device):
            return localRemoved(device, at: now)
        case .problem(let device, let problem):
            let isNews = localProblems[device] != problem
            localProblems[device] = localProblems.count < Self.localDevicesMax ? problem : nil
            guard let id = localOwners[device] else {
                // It could not be opened at all: nobody's, but to be known.
                guard isNews, let problem else { return [] }
                return [.note(AccessoryID(device.text), problem)]
            }
            return readLocal(id, at: now)
        case .key(let device, let code, let isDown, _):
            return key(device, code, isDown, at: now)
        case .bytes(let device, let bytes, _):
            return serial(device, bytes, at: now)
        }
    }

    mutating func localAdded(_ facts: LocalDeviceFacts, at now: Instant) -> [Action] {
        var actions: [Action] = []
        let id: AccessoryID
        if let owner = localOwners[facts.id] ?? owner(of: facts) {
            id = owner
        } else {
            // An installer has tagged it: it is an accessory, whether it is configured or not.
            id = facts.id == .mediaPlayer ? .mediaPlayer : AccessoryID(facts.accessoryName ?? facts.name)
            if accessories[id] == nil {
                guard order.count < Self.accessoriesMax else {
                    return [.note(id, "not used: \(Self.accessoriesMax) accessories are the limit")]
                }
                let configuration = AccessoryConfiguration(
                    id: id, address: facts.address, isBondedOnly: isBondedOnly && facts.address != nil)
                add(configuration, isAutomatic: true)
            }
        }
        localOwners[facts.id] = id
        accessories[id]?.nodes.insert(facts.id)
        // The installer gave its keys to us: they count, whatever else the device offers.
        if let accessory = accessories[id], accessory.kind != .passive(problem: nil) {
            actions += replaceLink(id, .passive(problem: nil), device: accessory.link.device, at: now)
        }
        actions += readLocal(id, at: now)
        // The Bluetooth device that it came by, if BlueZ has told of it.
        if let address = facts.address?.uppercased(), accessories[id]?.link.device == nil {
            for device in devices.values where device.address.uppercased() == address && owners[device.id] == nil {
                actions += link(id, .device(device), at: now) + link(id, .radio(radio), at: now)
            }
        }
        return actions
    }

    /// The accessory that a local device belongs to: the one that its rule names, the one with its address, the one with
    /// its name.
    private func owner(of facts: LocalDeviceFacts) -> AccessoryID? {
        if facts.id == .mediaPlayer { return accessories[.mediaPlayer] == nil ? nil : .mediaPlayer }
        if let name = facts.accessoryName { return accessories[AccessoryID(name)] == nil ? nil : AccessoryID(name) }
        if let address = facts.address?.uppercased(),
            let owner = order.first(where: { id in
                let accessory = accessories[id]
                return accessory?.configuration.address == address
                    || accessory?.link.device?.address.uppercased() == address
            })
        {
            return owner
        }
        return order.first { id in
            guard let accessory = accessories[id], accessory.configuration.address == nil else { return false }
            if accessory.isAutomatic { return id.text == facts.name && accessory.isLocal }
            return accessory.link.device == nil && accessory.configuration.name?.matches(facts.name) ?? false
        }
    }

    private mutating func localRemoved(_ device: LocalDeviceID, at now: Instant) -> [Action] {
        let isSerialPort = localDevices.removeValue(forKey: device)?.isSerialPort ?? false
        localProblems[device] = nil
        guard let id = localOwners.removeValue(forKey: device), let accessory = accessories[id] else { return [] }
        if seededFault("a-device-that-is-gone-releases-nothing") { return [] }
        // Which of its ports told what is not kept: with one of them everything comes up.
        var actions = isSerialPort ? release(id, .unplugged, at: now) : []
        for (code, holders) in accessory.heldKeys.sorted(by: { $0.key < $1.key }) where holders == [device] {
            accessories[id]?.heldKeys[code] = nil
            actions += controls(id, .key(code: code, isDown: false), .unplugged, at: now)
        }
        for code in accessory.heldKeys.keys { accessories[id]?.heldKeys[code]?.remove(device) }
        accessories[id]?.nodes.remove(device)
        guard accessories[id]?.nodes.isEmpty == true else { return actions + readLocal(id, at: now) }
        actions += release(id, .unplugged, at: now)
        accessories[id]?.localProblem = nil
        // What else the device offers counts again.
        accessories[id]?.judged = nil
        guard accessory.isAutomatic, accessory.link.device == nil else { return actions }
        return actions + remove(id, at: now)
    }

    /// Chooses the profile by which the local devices of an accessory are read, or says what is missing.
    mutating func readLocal(_ id: AccessoryID, at now: Instant) -> [Action] {
        guard let accessory = accessories[id], accessory.isLocal else { return [] }
        var problem: String?
        var found: AccessoryProfile?
        for node in accessory.nodes.sorted() {
            guard let facts = localDevices[node] else { continue }
            switch profile(of: facts, accessory.configuration) {
            // One of several devices may be of no use, the consumer keys of a keyboard say.
            case .success(let profile): found = found ?? profile
            case .failure(let failure): problem = problem ?? failure.text
            }
            problem = localProblems[node] ?? problem
        }
        let failing = accessory.nodes.sorted().compactMap { localProblems[$0] }.first
        accessories[id]?.localProblem = failing ?? (found == nil ? problem : nil)
        guard let found else {
            let released = release(id, .disconnected, at: now)
            accessories[id]?.controls = nil
            return released
        }
        return use(found, for: id, at: now)
    }

    private struct Unfitting: Error { var text: String }

    private func profile(
        of facts: LocalDeviceFacts, _ configuration: AccessoryConfiguration
    ) -> Result<AccessoryProfile, Unfitting> {
        let transport: AccessoryProfile.Transport = facts.isSerialPort ? .serial : .input
        let what = facts.isSerialPort ? "a serial port" : "an input device"
        let fitting = library.profiles.filter { $0.transport == transport }.map(\.id).joined(separator: ", ")
        let isNamedByRule = facts.profileID != nil
        if let id = facts.profileID ?? configuration.profileID {
            let place =
                isNamedByRule ? "ENV{PTTD_PROFILE} in its udev rule" : "profile in [accessory.\"\(configuration.id)\"]"
            guard let profile = library[id] else {
                return .failure(Unfitting(text: "there is no profile \"\(id)\": correct \(place) (\(fitting))"))
            }
            guard profile.transport == transport, !profile.inputs.isEmpty else {
                return .failure(
                    Unfitting(text: "profile \"\(id)\" is not one of \(what): correct \(place) (\(fitting))"))
            }
            return .success(profile)
        }
        if let profile = library.candidate(local: facts) { return .success(profile) }
        let text =
            facts.id == .mediaPlayer
            ? "no profile fits the play keys: write profile = \"…\" in [accessory.media-player] (\(fitting))"
            : "no profile fits \"\(facts.name)\": write ENV{PTTD_PROFILE}=\"…\" in its udev rule (\(fitting)), "
                + "or learn it with 'pttctl accessory learn'"
        return .failure(Unfitting(text: text))
    }
}
