// One scan for all accessories and people, and the services for which BlueZ reconnects by itself.
import BlueZ
import MonotonicTime

/// Where the scan is, and who wants it.
struct ScanState: Sendable {
    enum Phase: Sendable {
        case off, starting, on, stopping
        /// BlueZ would not scan; not asked again for this search. What others scan for is seen all the same.
        case refused
    }

    var phase = Phase.off
    /// Connections wait until the scan has ended: BlueZ would resume it in the middle of the link's set-up.
    var waiting: [BluetoothCommand] = []
    var isWantedByPerson = false
    /// How often a scan has begun.
    var count = 0
    /// Devices that a person has connected just now.
    var personConnects = 0

    var isScanning: Bool {
        switch phase {
        case .starting, .on, .stopping: true
        case .off, .refused: false
        }
    }

    /// There is no adapter to scan with.
    mutating func reset() {
        phase = .off
        waiting = []
    }
}

extension AccessoriesStateMachine {
    mutating func scan() -> [Action] {
        guard radio == .on else { return [] }
        let isWanted = scanning.isWantedByPerson || accessories.values.contains { $0.link.wantsDiscovery }
        let isDisturbing =
            !scanning.waiting.isEmpty || scanning.personConnects > 0
            || accessories.values.contains { $0.link.isConnecting }
        switch (scanning.phase, isWanted && !isDisturbing) {
        case (.off, true):
            scanning.phase = .starting
            return [.command(.startDiscovery)]
        case (.on, false):
            scanning.phase = .stopping
            return [.command(.stopDiscovery)]
        case (.refused, false):
            scanning.phase = .off
            return []
        default:
            return []
        }
    }

    /// BlueZ's answer to a command. Commands for a device are told to every link, which knows its own.
    mutating func completed(_ command: BluetoothCommand, _ failure: BluetoothFailure?, at now: Instant) -> [Action] {
        if case .connect(let device) = command, device == asked { asked = nil }
        switch command {
        case .startDiscovery:
            guard scanning.phase == .starting else { return [] }
            scanning.phase = failure == nil ? .on : .refused
            if failure == nil { scanning.count &+= 1 }
        case .stopDiscovery:
            guard scanning.phase == .stopping else { return [] }
            // "InProgress" too means that it stops.
            scanning.phase = .off
        case .autoConnect:
            // What came of it is told by `autoConnect`, now and whenever it changes.
            return []
        case .write(let characteristic, _):
            guard let id = owners[characteristic.device] else { return [] }
            return light(id, .completed(failure), at: now)
        case .setLink(let device, _):
            guard let id = owners[device] else { return [] }
            return tighten(id, .completed(failure), at: now)
        default:
            return order.flatMap { link($0, .completed(command, failure), at: now) }
        }
        guard !scanning.isScanning else { return [] }
        let waiting = scanning.waiting
        scanning.waiting = []
        return waiting.map { .command($0) }
    }

    mutating func register() -> [Action] {
        guard radio == .on else { return [] }
        // Services are only ever added: a registration that is taken back and made again would leave a gap.
        let count = registered.count
        for accessory in accessories.values { registered.formUnion(accessory.link.servicesToRegister) }
        guard registered.count > count else { return [] }
        return [.command(.autoConnect(services: registered))]
    }
}
