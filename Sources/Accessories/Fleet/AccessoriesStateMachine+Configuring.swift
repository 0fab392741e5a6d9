// What people change while the daemon runs: accessories that are added, changed or removed, and learned profiles.
import BlueZ
import MonotonicTime

extension AccessoriesStateMachine {
    /// Adds an accessory, or has it be as it is described now. What it holds is released first.
    mutating func configure(_ configuration: AccessoryConfiguration, at now: Instant) -> [Action] {
        var actions: [Action] = []
        if accessories[configuration.id] == nil, order.count >= Self.accessoriesMax {
            return [.note(configuration.id, "not added: \(Self.accessoriesMax) accessories are the limit")]
        }
        // One that was taken without being configured gives way to its configuration.
        for id in order where id != configuration.id {
            guard let accessory = accessories[id], accessory.isAutomatic, isMeant(accessory, by: configuration) else {
                continue
            }
            actions += release(id, .removed, at: now) + closeStream(id) + remove(id, at: now)
        }
        return actions + rebuild(configuration, isAutomatic: false, at: now)
    }

    private func isMeant(_ accessory: FleetAccessory, by configuration: AccessoryConfiguration) -> Bool {
        if let device = accessory.link.device, configuration.matches(address: device.address, name: device.name) {
            return true
        }
        return accessory.nodes.contains { node in
            guard let facts = localDevices[node], facts.accessoryName == nil else { return false }
            if let address = configuration.address { return facts.address?.uppercased() == address }
            return configuration.name?.matches(facts.name) ?? false
        }
    }

    /// Takes an accessory out. Its device may be taken again without configuration, if BlueZ still knows and trusts it.
    mutating func unconfigure(_ id: AccessoryID, at now: Instant) -> [Action] {
        guard accessories[id] != nil else { return [] }
        return release(id, .removed, at: now) + closeStream(id) + remove(id, at: now) + offerAll(at: now)
    }

    /// A profile is new, or different: those that are read by it, or by none yet, are looked at again.
    mutating func learn(_ profile: AccessoryProfile, at now: Instant) -> [Action] {
        library.add(profile)
        var actions: [Action] = []
        for id in order {
            guard let accessory = accessories[id] else { continue }
            accessories[id]?.judged = nil
            let current = accessory.controls?.profile.id
            guard current == nil || current == profile.id else { continue }
            actions += rebuild(accessory.configuration, isAutomatic: accessory.isAutomatic, at: now)
        }
        return actions + offerAll(at: now)
    }

    private mutating func rebuild(
        _ configuration: AccessoryConfiguration, isAutomatic: Bool, at now: Instant
    ) -> [Action] {
        let id = configuration.id
        let former = accessories[id]
        // What a characteristic tells as held was held before, for something else.
        let before =
            former?.kind == .gatt ? former?.controls.map { ($0.profile.inputs, $0.down, $0.isCertain) } : nil
        var actions = release(id, .removed, at: now) + closeStream(id)
        detach(id)
        add(configuration, isAutomatic: isAutomatic)
        if let former {
            accessories[id]?.isTested = former.isTested
            accessories[id]?.reported = former.reported
        }
        actions += link(id, .radio(radio), at: now)
        accessories[id]?.before = before
        return actions + offerAll(at: now)
    }
}
