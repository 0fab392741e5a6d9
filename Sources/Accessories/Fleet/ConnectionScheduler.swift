// When there is a scan and when a connection is made. The two disturb each other, so one waits for the other.
import BlueZ
import MonotonicTime

/// Owns the state of the scan, which all accessories and people share; the connections that wait for its end; the device that is being
/// asked for; and the services for which bluetoothd reconnects by itself.
struct ConnectionScheduler: Sendable {
    /// What the links of all accessories need now.
    struct Needs {
        /// A link looks for a device that bluetoothd does not know.
        var isScanWanted = false
        /// A link is being made.
        var isConnecting = false
        /// The services that bluetoothd should reconnect for.
        var services: Set<BluetoothUUID> = []
    }

    private enum Phase {
        case off, starting, on, stopping
        /// bluetoothd would not scan; not asked again for this search. What others scan for is seen all the same.
        case refused
    }

    private var radio = RadioState.noService
    private var phase = Phase.off
    /// Connections wait until the scan has ended: bluetoothd would resume it in the middle of the link's set-up.
    private var waiting: [BluetoothCommand] = []
    private var isWantedByPerson = false
    /// Devices that a person connects now.
    private var personConnects = 0
    /// The device that is being asked for, though bluetoothd should connect it by itself.
    private var asked: DeviceIdentifier?
    private var registered: Set<BluetoothUUID> = []
    /// bluetoothd reconnects known devices by itself now.
    var autoConnects = false
    /// How often a scan has begun.
    private(set) var scanCount = 0

    /// A scan is on.
    var isOn: Bool { phase == .on }

    private var isScanning: Bool {
        switch phase {
        case .starting, .on, .stopping: true
        case .off, .refused: false
        }
    }

    // MARK: Events

    mutating func setRadio(_ state: RadioState) {
        radio = state
        guard state != .on else { return }
        // There is no adapter to scan with.
        phase = .off
        waiting = []
        if state == .noService { (registered, autoConnects) = ([], false) }
    }

    /// A person wants to see what is in reach.
    mutating func setWantedByPerson(_ isWanted: Bool) { isWantedByPerson = isWanted }

    /// A person connects a device, or is done.
    mutating func personConnects(_ isBeginning: Bool) { personConnects += isBeginning ? 1 : -1 }

    /// A command of a link. A connection is kept until the scan has ended.
    ///
    /// - Returns: Whether the command is to be carried out now.
    mutating func admit(_ command: BluetoothCommand) -> Bool {
        switch command {
        case .connect, .openStream:
            if isScanning { waiting.append(command) }
            return !isScanning
        case .closeStream(let device, let kind): withdraw(.openStream(device: device, kind))
        default: break
        }
        return true
    }

    /// A connection that waits is not made.
    mutating func withdraw(_ command: BluetoothCommand) { waiting.removeAll { $0 == command } }

    /// A command has been answered.
    ///
    /// - Returns: The commands that have waited for it.
    mutating func completed(_ command: BluetoothCommand, _ failure: BluetoothFailure?) -> [BluetoothCommand] {
        switch (command, phase) {
        case (.connect(let device), _):
            if device == asked { asked = nil }
            return []
        case (.startDiscovery, .starting):
            phase = failure == nil ? .on : .refused
            if failure == nil { scanCount &+= 1 }
        // "InProgress" too means that it stops.
        case (.stopDiscovery, .stopping): phase = .off
        default: return []
        }
        guard !isScanning else { return [] }
        defer { waiting = [] }
        return waiting
    }

    // MARK: What is to be done

    /// Whether a device may be asked for, though bluetoothd should connect it by itself: one at a time, and not while a scan runs or a
    /// person connects or learns something.
    var mayAsk: Bool {
        radio == .on && asked == nil && !isScanning && !isWantedByPerson && personConnects == 0
    }

    /// A device is being asked for, until its connection is answered.
    mutating func asks(for device: DeviceIdentifier) { asked = device }

    /// Brings the scan and the registered services in line with what is needed.
    mutating func commands(for needs: Needs) -> [BluetoothCommand] {
        guard radio == .on else { return [] }
        var commands: [BluetoothCommand] = []
        let isWanted = isWantedByPerson || needs.isScanWanted
        switch (phase, isWanted && waiting.isEmpty && personConnects == 0 && !needs.isConnecting) {
        case (.off, true):
            phase = .starting
            commands.append(.startDiscovery)
        case (.on, false):
            phase = .stopping
            commands.append(.stopDiscovery)
        case (.refused, false): phase = .off
        default: break
        }
        // Services are only ever added: a registration that is taken back and made again would leave a gap.
        if !needs.services.isSubset(of: registered) {
            registered.formUnion(needs.services)
            commands.append(.autoConnect(services: registered))
        }
        return commands
    }
}
