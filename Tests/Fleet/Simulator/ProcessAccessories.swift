// The accessories of one pttd: the shipped rules, with what `AccessoryService` does around them.
import MonotonicTime

@testable import Accessories

final class ProcessAccessories {
    private unowned let process: Process
    private let world: World
    private let clock: MachineClock
    private(set) var machine: AccessoriesStateMachine
    private var pending: [AccessoriesStateMachine.Action] = []
    private var isCarryingOut = false
    private lazy var alarm = Alarm(clock, of: self) { $0.handle(.deadline) }
    /// I3: begins and ends alternate.
    private(set) var isTransmitting = false
    /// Talk controls that went down since the last fresh start, and have not come up.
    private var holding: Set<AccessorySource> = []

    init(process: Process) {
        self.process = process
        world = process.world
        clock = process.device.clock
        machine = AccessoriesStateMachine(
            process.device.buttons.map(\.configuration), library: process.device.fleet.library, takesKnownDevices: false
        )
    }

    func handle(_ event: AccessoriesStateMachine.Event) {
        guard process.isAlive else { return }
        switch event {
        case .transmissionEnded:
            isTransmitting = false
            holding = []
        case .releaseAll: holding = []
        default: break
        }
        let actions = machine.handle(event, at: clock.now)
        record(event)
        // An intent comes before the edge that led to it.
        for case .event(.control(let source, let isDown, _)) in actions where source.control == .ptt {
            if isDown { holding.insert(source) } else { holding.remove(source) }
        }
        pending += actions
        guard !isCarryingOut else { return }
        isCarryingOut = true
        var index = 0
        while index < pending.count {
            carryOut(pending[index])
            index += 1
        }
        pending.removeAll(keepingCapacity: true)
        isCarryingOut = false
        alarm.set(machine.nextDeadline)
    }

    private func record(_ event: AccessoriesStateMachine.Event) {
        let coverage = process.device.fleet.coverage
        guard coverage.isOn else { return }
        let state = machine.isHeld ? "held" : "idle"
        if case .bluetooth(let report) = event {
            coverage.record("accessories", state: state, event: report)
        } else {
            coverage.record("accessories", state: state, event: event)
        }
        for link in machine.links {
            if let link = link as? GATTAccessoryStateMachine { coverage.record("gatt", state: link.phase) }
        }
    }

    private func carryOut(_ action: AccessoriesStateMachine.Action) {
        switch action {
        case .command(let command):
            if case .probe = command {} else { world.note(process.name, "asks for \(Coverage.name(command))") }
            process.device.bluez.perform(command) { [self] failure in handle(.completed(command, failure)) }
        case .event(let event): told(event)
        case .ignored, .note: break
        }
    }

    private func told(_ event: AccessoryEvent) {
        switch event {
        case .intent(let intent, _):
            world.note(process.name, "accessories: \(intent)")
            switch intent {
            case .transmitBegan:
                if isTransmitting { world.fail("I3", "\(process.name): the accessories begin twice") }
                isTransmitting = true
            case .transmitEscalated:
                if !isTransmitting { world.fail("I3", "\(process.name): what is not held becomes urgent") }
            case .transmitEnded:
                if !isTransmitting { world.fail("I3", "\(process.name): the accessories end twice") }
                isTransmitting = false
                if let held = holding.first {
                    world.fail("I3", "\(process.name): the accessories end, and \(held) is held")
                }
            }
            process.director.accessoryWants(intent)
        case .control, .action, .emergency, .changed, .removed: break
        }
    }

    /// Presses of this button arrive.
    func isReady(_ button: Button) -> Bool {
        machine.statuses.first { $0.id == button.configuration.id }?.isReady ?? false
    }

    var report: String {
        machine.statuses.map { "\($0.id) ready=\($0.isReady) connected=\($0.isConnected) \($0.problem ?? "")" }
            .joined(separator: "; ")
    }
}
