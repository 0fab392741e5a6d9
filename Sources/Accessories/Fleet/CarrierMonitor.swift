// Watches bluetoothd and BlueALSA. A value that one of them delivers counts only while that service shows signs of life.
import MonotonicTime

/// Owns the watch on each carrier of presses, and the sets of accessories that need it.
struct CarrierMonitor: Sendable {
    enum Action: Sendable {
        /// Ask the carrier for a sign of life.
        case probe(PressCarrier)
        /// It hangs. What these accessories hold through it is released; the others may tell of presses through it.
        case lost(PressCarrier, holding: Set<AccessoryID>, expected: Set<AccessoryID>)
        /// It works again. What was held when it hung may be told again, and what was pressed meanwhile is told now.
        case back(PressCarrier)
    }

    /// The accessories that need a carrier.
    private struct Users {
        var expected: Set<AccessoryID> = []
        var holding: Set<AccessoryID> = []

        var need: CarrierWatch.Need { !holding.isEmpty ? .release : expected.isEmpty ? .nothing : .presses }
    }

    /// From the first use of a carrier on.
    private var watches: [PressCarrier: CarrierWatch] = [:]
    private var users: [PressCarrier: Users] = [:]

    var nextDeadline: Instant? { watches.values.reduce(nil) { earliest($0, $1.nextDeadline) } }

    /// Its presses cannot be heard.
    func isLost(_ carrier: PressCarrier?) -> Bool { carrier.flatMap { watches[$0] }?.isLost ?? false }

    /// Whether what the carrier hands on may have waited in it.
    func handsOnBacklog(_ carrier: PressCarrier?, at now: Instant) -> Bool {
        carrier.flatMap { watches[$0] }?.handsOnBacklog(at: now) ?? false
    }

    /// An accessory's link or controls have changed, or it is gone.
    ///
    /// - Parameters:
    ///   - own: Who carries its presses; nil: the kernel, or there are none.
    ///   - isExpected: Presses may arrive, though it may have to be connected before. What is pressed on a link that is made while
    ///     the carrier hangs waits in it, too.
    ///   - isHolding: Something goes on that only the accessory can end.
    mutating func update(
        _ id: AccessoryID, carrier own: PressCarrier?, isExpected: Bool, isHolding: Bool, at now: Instant
    ) -> [Action] {
        var actions: [Action] = []
        for carrier in PressCarrier.allCases {
            var users = users[carrier] ?? Users()
            let isOther = users.expected.change(id, carrier == own && isExpected)
            guard users.holding.change(id, carrier == own && isHolding) || isOther else { continue }
            self.users[carrier] = users
            actions += tell(carrier, .needed(users.need), at: now)
        }
        return actions
    }

    /// A value came through it.
    mutating func heard(through carrier: PressCarrier, at now: Instant) -> [Action] {
        watches[carrier] == nil ? [] : tell(carrier, .alive, at: now)
    }

    /// The question for a sign of life was answered.
    mutating func probed(_ carrier: PressCarrier, _ failure: BluetoothFailure?, at now: Instant) -> [Action] {
        // Whoever has left the bus does not hang; any other error is an answer.
        if failure == .serviceGone { forget(carrier) }
        return watches[carrier] == nil ? [] : tell(carrier, .answered(failure != .timedOut), at: now)
    }

    /// The machine has slept: what a carrier had to hand on before is told now, and is no press.
    mutating func woke(at now: Instant) -> [Action] {
        if seededFault("what-was-pressed-before-sleep-is-a-press") { return [] }
        return PressCarrier.allCases.flatMap { watches[$0] == nil ? [] : tell($0, .woke, at: now) }
    }

    /// The service has ended: it does not hang.
    mutating func forget(_ carrier: PressCarrier) { watches[carrier] = nil }

    mutating func deadline(at now: Instant) -> [Action] {
        PressCarrier.allCases.flatMap { carrier -> [Action] in
            guard let due = watches[carrier]?.nextDeadline, due <= now else { return [] }
            return tell(carrier, .deadline, at: now)
        }
    }

    private mutating func tell(_ carrier: PressCarrier, _ event: CarrierWatch.Event, at now: Instant) -> [Action] {
        watches[carrier, default: CarrierWatch()].handle(event, at: now).map { action in
            let users = users[carrier] ?? Users()
            return switch action {
            case .probe: .probe(carrier)
            case .lost: .lost(carrier, holding: users.holding, expected: users.expected)
            case .back: .back(carrier)
            }
        }
    }
}

extension Set {
    /// Puts a member in, or takes it out.
    ///
    /// - Returns: Whether that changed anything.
    fileprivate mutating func change(_ member: Element, _ isIn: Bool) -> Bool {
        isIn ? insert(member).inserted : remove(member) != nil
    }
}
