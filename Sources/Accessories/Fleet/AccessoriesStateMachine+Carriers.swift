// What comes through bluetoothd or BlueALSA counts only while that gives signs of life.
import BlueZ
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

    /// An accessory's controls or its link have changed, or it is gone: what are the carriers needed for?
    mutating func watchCarriers(of id: AccessoryID, at now: Instant) -> [Action] {
        let own = carrier(of: id)
        let accessory = accessories[id]
        var actions: [Action] = []
        for carrier in PressCarrier.allCases {
            var users = carried[carrier] ?? CarrierUsers()
            let isOwn = carrier == own
            let isChanged = users.ready.change(id, isOwn && accessory?.link.isReady == true)
            let isHeld = isOwn && accessory?.controls?.needsHearing == true
            guard users.held.change(id, isHeld) || isChanged else { continue }
            carried[carrier] = users
            actions += tell(carrier, .needed(users.need), at: now)
        }
        return actions
    }

    /// A value came through it.
    mutating func heard(through carrier: PressCarrier, at now: Instant) -> [Action] {
        guard carriers[carrier] != nil else { return [] }
        return tell(carrier, .alive, at: now)
    }

    /// A value that may have waited in a bluetoothd that hung tells of no press, though its link was lost and made anew in the hang.
    mutating func waited(_ characteristic: CharacteristicIdentifier, at now: Instant) -> [Action] {
        guard carriers[.bluetoothd]?.handsOnBacklog(at: now) == true, let owner = inputs[characteristic]?.owner else {
            return []
        }
        return controls(owner, .resumed, .released, at: now)
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
        let users = carried[carrier] ?? CarrierUsers()
        let holders = order.filter(users.held.contains)
        var actions: [Action] = []
        if let holder = holders.first {
            actions.append(.note(holder, "what is held is released: \(carrier.problem)"))
        } else if let user = order.first(where: users.ready.contains) {
            actions.append(.note(user, carrier.problem))
        }
        for id in holders { actions += release(id, .disconnected, at: now) }
        for id in order where self.carrier(of: id) == carrier { actions += changes(of: id) }
        return actions
    }

    /// The service has ended: it does not hang.
    mutating func forget(_ carrier: PressCarrier) { carriers[carrier] = nil }
}

/// Who needs a carrier.
struct CarrierUsers: Sendable {
    /// Those that are connected through it.
    var ready: Set<AccessoryID> = []
    /// Those of which a control is held through it.
    var held: Set<AccessoryID> = []

    var need: CarrierWatch.Need { !held.isEmpty ? .release : ready.isEmpty ? .nothing : .presses }
}

extension Set {
    /// Puts a member in, or takes it out.
    ///
    /// - Returns: Whether that changed anything.
    fileprivate mutating func change(_ member: Element, _ isIn: Bool) -> Bool {
        isIn ? insert(member).inserted : remove(member) != nil
    }
}
