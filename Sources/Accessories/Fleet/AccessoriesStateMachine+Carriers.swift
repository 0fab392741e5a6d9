// What is held through bluetoothd or BlueALSA is held only while that gives signs of life.
import MonotonicTime

extension AccessoriesStateMachine {
    /// Who carries an accessory's presses; nil: the kernel.
    func carrier(of id: AccessoryID) -> PressCarrier? {
        switch accessories[id]?.kind {
        case .gatt: .bluetoothd
        case .stream(.handsFree): .blueALSA
        case .stream(.serialPort), .passive, nil: nil
        }
    }

    /// An accessory's controls have changed: is its carrier watched?
    mutating func watchCarrier(of id: AccessoryID, at now: Instant) -> [Action] {
        guard let carrier = carrier(of: id) else { return [] }
        let isHeld = accessories[id]?.controls?.needsHearing ?? false
        guard isHeld != heldThrough[carrier]?.contains(id) ?? false else { return [] }
        if isHeld { heldThrough[carrier, default: []].insert(id) } else { heldThrough[carrier]?.remove(id) }
        return tell(carrier, .held(heldThrough[carrier]?.isEmpty == false), at: now)
    }

    /// A value came through it.
    mutating func heard(through carrier: PressCarrier, at now: Instant) -> [Action] {
        guard carriers[carrier] != nil else { return [] }
        return tell(carrier, .alive, at: now)
    }

    mutating func carriersDue(at now: Instant) -> [Action] {
        PressCarrier.allCases.flatMap { carrier -> [Action] in
            guard let due = carriers[carrier]?.nextDeadline, due <= now else { return [] }
            return tell(carrier, .deadline, at: now)
        }
    }

    mutating func probed(_ carrier: PressCarrier, _ failure: BluetoothFailure?, at now: Instant) -> [Action] {
        // Whoever has left the bus does not hang; any other error is an answer.
        if failure == .serviceGone { forget(carrier) }
        guard carriers[carrier] != nil else { return [] }
        return tell(carrier, .answered(failure != .timedOut), at: now)
    }

    mutating func tell(_ carrier: PressCarrier, _ event: CarrierWatch.Event, at now: Instant) -> [Action] {
        carriers[carrier, default: CarrierWatch()].handle(event, at: now).flatMap { action -> [Action] in
            switch action {
            case .probe: [.command(.probe(carrier))]
            case .lost: lost(carrier, at: now)
            case .back:
                // What was held when it hung may be told again, and what was pressed meanwhile is told now.
                order.filter { self.carrier(of: $0) == carrier && accessories[$0]?.link.isReady == true }
                    .flatMap { controls($0, .resumed, .released, at: now) + changes(of: $0) }
            }
        }
    }

    private mutating func lost(_ carrier: PressCarrier, at now: Instant) -> [Action] {
        let holders = order.filter { heldThrough[carrier]?.contains($0) ?? false }
        var actions = holders.first.map { [Action.note($0, "what is held is released: \(carrier.problem)")] } ?? []
        for id in holders { actions += release(id, .disconnected, at: now) }
        for id in order where self.carrier(of: id) == carrier { actions += changes(of: id) }
        return actions
    }

    /// The service has ended: it does not hang.
    mutating func forget(_ carrier: PressCarrier) { carriers[carrier] = nil }
}
