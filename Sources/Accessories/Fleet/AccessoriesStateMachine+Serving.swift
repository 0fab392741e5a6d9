// What is done for an accessory that works: its start commands, its light, and its link's parameters.
import BlueZ
import MonotonicTime

extension AccessoriesStateMachine {
    /// Follows whether the accessory works.
    mutating func serve(_ id: AccessoryID, at now: Instant) -> [Action] {
        let watching = watchCarriers(of: id, at: now)
        guard let accessory = accessories[id] else { return watching }
        let isServed = accessory.kind == .gatt && accessory.link.isReady
        guard isServed != accessory.isServed else { return watching }
        accessories[id]?.isServed = isServed
        guard isServed, let profile = accessory.link.profile, let device = accessory.link.device else {
            return watching + light(id, .lost, at: now) + tighten(id, .lost, at: now)
        }
        func find(_ service: BluetoothUUID, _ characteristic: BluetoothUUID) -> CharacteristicIdentifier? {
            device.characteristics.first { $0.service == service && $0.characteristic == characteristic }?.id
        }
        let start = profile.startCommands.compactMap { command in
            find(command.service, command.characteristic).map {
                LightStateMachine.Write(characteristic: $0, value: command.value)
            }
        }
        let place = profile.light.flatMap { find($0.service, $0.characteristic) }
        let values = profile.light?.values ?? [:]
        return watching + light(id, .ready(start: start, light: place, values: values), at: now)
            + tighten(id, .ready(idle: profile.idleLink), at: now)
    }

    /// Shows on every light what the channel does.
    mutating func show(_ feedback: AccessoryFeedback, at now: Instant) -> [Action] {
        if feedback != .refused { self.feedback = feedback }
        return order.flatMap { light($0, .feedback(feedback), at: now) }
    }

    mutating func light(_ id: AccessoryID, _ event: LightStateMachine.Event, at now: Instant) -> [Action] {
        guard let actions = accessories[id]?.light.handle(event, at: now) else { return [] }
        return actions.map { action in
            switch action {
            case .write(let write): .command(.write(characteristic: write.characteristic, value: write.value))
            case .note(let text): .note(id, text)
            }
        }
    }

    mutating func tighten(_ id: AccessoryID, _ event: LinkTightening.Event, at now: Instant) -> [Action] {
        guard let actions = accessories[id]?.tightening.handle(event, at: now) else { return [] }
        return actions.compactMap { action in
            switch action {
            case .set(let parameters):
                return accessories[id]?.link.device.map { .command(.setLink(device: $0.id, parameters)) }
            case .note(let text):
                accessories[id]?.note = text
                return .note(id, text)
            }
        }
    }
}
