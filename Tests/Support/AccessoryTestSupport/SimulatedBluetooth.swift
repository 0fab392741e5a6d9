// A small BlueZ in simulated time, to run the rules against: devices, links, notifications, failures on demand.
import BlueZ
import MonotonicTime

@testable import Accessories

/// Answers the rules' commands as BlueZ would, at once or after a time, and records what they report.
struct SimulatedBluetooth {
    var machine: AccessoriesStateMachine
    var now = Instant.zero
    var devices: [DeviceIdentifier: DeviceFacts] = [:]
    /// Devices in range and awake.
    var awake: Set<DeviceIdentifier> = []
    /// Services registered for automatic connection.
    var registered: Set<BluetoothUUID> = []
    var isScanning = false
    var notifying: Set<CharacteristicIdentifier> = []
    var commands: [BluetoothCommand] = []
    var events: [AccessoryEvent] = []
    var ignored = 0
    var notes: [String] = []
    /// What was asked of links, and written; not among `commands`.
    var linkCommands: [BluetoothCommand] = []
    var writes: [BluetoothCommand] = []
    /// Writes get no answer for now.
    var holdsWrites = false
    /// Streams that are open.
    var streams: Set<DeviceIdentifier> = []
    /// Failures to answer with, first come, first served.
    var failures: [(matches: (BluetoothCommand) -> Bool, failure: BluetoothFailure)] = []
    /// Devices BlueZ finds by scanning.
    var undiscovered: [DeviceFacts] = []
    /// Commands that get no answer for now.
    var holdsConnects = false
    /// The same of the begin and end of scans.
    var holdsScans = false
    /// What each characteristic tells who reads it, and what was read; not among `commands`.
    var values: [CharacteristicIdentifier: [UInt8]] = [:]
    var reads: [CharacteristicIdentifier] = []
    /// The service neither answers nor hands anything on; what is notified meanwhile waits.
    var hangs = false
    var waiting: [AccessoriesStateMachine.Event] = []
    /// What is read is answered by `goOn`.
    var holdsReads = false
    var probes = 0
    /// Devices that are paired know nothing of it at once.
    var forgetsPairings = false

    init(
        _ configurations: [AccessoryConfiguration], takesKnownDevices: Bool = false, isBondedOnly: Bool = false,
        library: ProfileLibrary = ProfileLibrary.load(directory: nil).library
    ) {
        machine = AccessoriesStateMachine(
            configurations, library: library, takesKnownDevices: takesKnownDevices, isBondedOnly: isBondedOnly)
    }

    // MARK: Time and events

    mutating func send(_ event: AccessoriesStateMachine.Event) {
        var queue = [event]
        while !queue.isEmpty {
            for action in machine.handle(queue.removeFirst(), at: now) {
                switch action {
                case .event(let event): events.append(event)
                case .ignored: ignored += 1
                case .note(let id, let text): notes.append("\(id): \(text)")
                case .command(let command):
                    switch command {
                    case .setLink: linkCommands.append(command)
                    case .write: writes.append(command)
                    case .read(let characteristic): reads.append(characteristic)
                    case .probe: probes += 1
                    default: commands.append(command)
                    }
                    queue += perform(command)
                }
            }
            precondition(commands.count < 100_000, "the rules run in a circle")
        }
    }

    /// Lets time pass, with every deadline run when it is due.
    mutating func advance(_ duration: Duration) {
        let end = now + duration
        var repeats = 0
        while let deadline = machine.nextDeadline, deadline <= end {
            repeats = deadline > now ? 0 : repeats + 1
            precondition(repeats < 10, "a deadline that has passed stays")
            now = max(now, deadline)
            send(.deadline)
        }
        now = end
    }

    // MARK: BlueZ's side

    private mutating func perform(_ command: BluetoothCommand) -> [AccessoriesStateMachine.Event] {
        if let index = failures.firstIndex(where: { $0.matches(command) }) {
            return [.completed(command, failures.remove(at: index).failure)]
        }
        switch command {
        case .read(let characteristic):
            // BlueZ signals what was read, and then answers.
            let bytes = values[characteristic] ?? [0]
            let answer: [AccessoriesStateMachine.Event] = [
                .value(characteristic: characteristic, bytes: bytes),
                .read(characteristic: characteristic, bytes: bytes),
                .completed(command, nil),
            ]
            guard holdsReads else { return answer }
            waiting += answer
            return []
        case .probe:
            guard hangs else { return [.completed(command, nil)] }
            waiting.append(.completed(command, nil))
            return []
        case .cancelPairing:
            return [.completed(command, nil)]
        case .startDiscovery where holdsScans, .stopDiscovery where holdsScans:
            return []
        case .connect(let id):
            guard devices[id] != nil else { return [.completed(command, .doesNotExist)] }
            if holdsConnects { return [] }
            guard awake.contains(id) else { return [.completed(command, .timedOut)] }
            return link(id) + [.completed(command, nil)]
        case .disconnect(let id):
            return unlink(id) + [.completed(command, nil)]
        case .pair(let id):
            devices[id]?.isPaired = !forgetsPairings
            return changed(id) + [.completed(command, nil)]
        case .trust(let id):
            devices[id]?.isTrusted = true
            return changed(id) + [.completed(command, nil)]
        case .startNotify(let characteristic):
            notifying.insert(characteristic)
            return [.completed(command, nil)]
        case .startDiscovery:
            isScanning = true
            let found = undiscovered
            undiscovered = []
            for device in found { devices[device.id] = device }
            return [.completed(command, nil)] + found.map { .device($0) }
        case .stopDiscovery:
            isScanning = false
            return [.completed(command, nil)]
        case .autoConnect(let services):
            registered = services
            return [.completed(command, nil), .autoConnect(isArmed: true)]
        case .write where holdsWrites:
            return []
        case .write, .writeStream, .setLink:
            return [.completed(command, nil)]
        case .openStream(let id, _):
            guard awake.contains(id) else { return [.completed(command, .timedOut)] }
            streams.insert(id)
            return link(id) + [.completed(command, nil)]
        case .closeStream(let id, _):
            streams.remove(id)
            return [.completed(command, nil)]
        case .remove(let id):
            devices[id] = nil
            return [.deviceRemoved(id), .completed(command, nil)]
        }
    }

    private func changed(_ id: DeviceIdentifier) -> [AccessoriesStateMachine.Event] {
        devices[id].map { [.device($0)] } ?? []
    }

    /// The link comes up, then the services: two changes, as BlueZ tells them.
    private mutating func link(_ id: DeviceIdentifier) -> [AccessoriesStateMachine.Event] {
        devices[id]?.isConnected = true
        let up = changed(id)
        devices[id]?.servicesResolved = true
        return up + changed(id)
    }

    private mutating func unlink(_ id: DeviceIdentifier) -> [AccessoriesStateMachine.Event] {
        devices[id]?.isConnected = false
        devices[id]?.servicesResolved = false
        return changed(id)
    }

    mutating func add(_ device: DeviceFacts, awake isAwake: Bool = true) {
        devices[device.id] = device
        if isAwake { awake.insert(device.id) }
        send(.device(device))
    }

    mutating func change(_ id: DeviceIdentifier, _ change: (inout DeviceFacts) -> Void) {
        guard var device = devices[id] else { return }
        change(&device)
        devices[id] = device
        send(.device(device))
    }

    mutating func remove(_ id: DeviceIdentifier) {
        devices[id] = nil
        send(.deviceRemoved(id))
    }

    /// The device is gone from the air without a word.
    mutating func dropLink(_ id: DeviceIdentifier) {
        awake.remove(id)
        closeStream(id)
        for event in unlink(id) { send(event) }
    }

    /// The device advertises: BlueZ connects it when it is trusted and one of its services is registered.
    mutating func wake(_ id: DeviceIdentifier) {
        awake.insert(id)
        guard let device = devices[id], device.isTrusted, !device.isConnected,
            device.services.contains(where: registered.contains)
        else { return }
        for event in link(id) { send(event) }
    }

    mutating func notify(_ characteristic: CharacteristicIdentifier, _ bytes: [UInt8]) {
        values[characteristic] = bytes
        guard notifying.contains(characteristic) else { return }
        guard !hangs else { return waiting.append(.value(characteristic: characteristic, bytes: bytes)) }
        send(.value(characteristic: characteristic, bytes: bytes))
    }

    /// The service goes on where it stopped.
    mutating func goOn() {
        (hangs, holdsReads) = (false, false)
        let events = waiting
        waiting = []
        for event in events { send(event) }
    }

    /// Bytes of an open stream.
    mutating func stream(_ id: DeviceIdentifier, _ bytes: [UInt8], _ kind: StreamKind = .serialPort) {
        guard streams.contains(id) else { return }
        send(.streamBytes(device: id, kind, bytes))
    }

    /// The stream ends; the device may still be there.
    mutating func closeStream(_ id: DeviceIdentifier, _ kind: StreamKind = .serialPort) {
        guard streams.remove(id) != nil else { return }
        send(.streamClosed(device: id, kind))
    }

    mutating func key(_ device: LocalDeviceFacts, _ code: UInt16, _ isDown: Bool) {
        send(.local(.key(device.id, code: code, isDown: isDown, at: now)))
    }

    mutating func stopService() {
        for id in devices.keys {
            devices[id]?.isConnected = false
            devices[id]?.servicesResolved = false
        }
        registered = []
        notifying = []
        streams = []
        isScanning = false
        send(.radio(.noService))
    }

    /// bluetoothd tells its devices first, then that it is there.
    mutating func startService() {
        for device in devices.values.sorted(by: { $0.id < $1.id }) { send(.device(device)) }
        send(.radio(.on))
    }

    // MARK: Results

    var intents: [String] { events.intentWords }

    /// Actions and emergencies, in words.
    var happenings: [String] {
        events.compactMap {
            switch $0 {
            case .action(let action, let source, _): "\(action) by \(source)"
            case .emergency(let source, let isActive, _): "emergency \(source) \(isActive ? "on" : "off")"
            default: nil
            }
        }
    }

    func status(_ id: String) -> AccessoryStatus? { machine.statuses.first { $0.id.text == id } }
}

/// Bluetooth's reports, as tests write them. The time of a value is the one with which the rules are told.
extension AccessoriesStateMachine.Event {
    static func radio(_ state: RadioState) -> Self { .bluetooth(.radio(state)) }
    static func device(_ facts: DeviceFacts) -> Self { .bluetooth(.device(facts)) }
    static func deviceRemoved(_ id: DeviceIdentifier) -> Self { .bluetooth(.deviceRemoved(id)) }
    static func autoConnect(isArmed: Bool) -> Self { .bluetooth(.autoConnect(isArmed: isArmed)) }
    static func value(characteristic: CharacteristicIdentifier, bytes: [UInt8]) -> Self {
        .bluetooth(.value(characteristic: characteristic, bytes: bytes, at: .zero))
    }
    static func read(characteristic: CharacteristicIdentifier, bytes: [UInt8]) -> Self {
        .bluetooth(.read(characteristic: characteristic, bytes: bytes))
    }
    static func flooding(_ device: DeviceIdentifier, valuesPerSecond: Int?) -> Self {
        .bluetooth(.flooding(device: device, valuesPerSecond: valuesPerSecond))
    }
    static func streamBytes(device: DeviceIdentifier, _ kind: StreamKind, _ bytes: [UInt8]) -> Self {
        .bluetooth(.streamBytes(device: device, kind, bytes, at: .zero))
    }
    static func streamClosed(device: DeviceIdentifier, _ kind: StreamKind) -> Self {
        .bluetooth(.streamClosed(device: device, kind))
    }
}

extension DeviceFacts {
    /// A device with the characteristics of a shipped profile.
    static func button(
        _ profileID: String, number: Int = 1, name: String? = "PTT-Z", isTrusted: Bool = false, isPaired: Bool = false
    ) -> DeviceFacts {
        let profile = ProfileLibrary.load(directory: nil).library[profileID]!
        let path = "/org/bluez/hci0/dev_00_11_22_33_44_0\(number)"
        return DeviceFacts(
            id: DeviceIdentifier(path: path)!, address: "00:11:22:33:44:0\(number)", name: name,
            services: Set(profile.services), isPaired: isPaired,
            isTrusted: isTrusted, isConnected: false, servicesResolved: false, battery: nil,
            characteristics: profile.inputs.enumerated().map { index, input in
                CharacteristicFacts(
                    id: CharacteristicIdentifier(path: "\(path)/service0010/char001\(index)")!, service: input.service!,
                    characteristic: input.characteristic!)
            })
    }

    var key: CharacteristicIdentifier { characteristics[0].id }
}

extension LocalDeviceFacts {
    /// A tagged input device.
    static func keys(
        _ node: String, name: String = "Foot Switch", address: String? = nil, accessory: String? = nil,
        profile: String? = "foot-switch", keys: Set<UInt16> = [183]
    ) -> LocalDeviceFacts {
        LocalDeviceFacts(
            id: LocalDeviceID(node), name: name, address: address, device: nil, accessoryName: accessory,
            profileID: profile, properties: [:], keys: keys, isSerialPort: false)
    }
}

extension AccessoryProfile {
    /// A shipped profile by its id.
    static func shipped(_ id: String) -> AccessoryProfile { ProfileLibrary.load(directory: nil).library[id]! }

    /// A profile from text.
    static func read(_ text: String) -> AccessoryProfile {
        try! AccessoryProfile(bytes: Array(text.utf8), file: "test.toml")
    }
}
