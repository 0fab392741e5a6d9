// All accessories together: which device is whose, one scan for all, and one transmission of all their buttons.
import BlueZ
import MonotonicTime

/// The rules of the room. Its adapter is `AccessoryService`.
struct AccessoriesStateMachine: Sendable {
    /// Accessories in use at a time.
    static let accessoriesMax = 64

    enum Event: Sendable {
        case radio(RadioState)
        case device(DeviceFacts)
        case deviceRemoved(DeviceIdentifier)
        /// A characteristic's value changed (PropertiesChanged).
        case value(characteristic: CharacteristicIdentifier, bytes: [UInt8])
        case completed(BluetoothCommand, BluetoothFailure?)
        /// Whether BlueZ reconnects known devices by itself now.
        case autoConnect(isArmed: Bool)
        /// The transmission was ended from elsewhere; a fresh press is needed for the next.
        case transmissionEnded
        /// Everything is released: the machine goes to sleep, or the daemon ends.
        case releaseAll(AccessoryRelease)
        case deadline
    }

    enum Action: Equatable, Sendable {
        case command(BluetoothCommand)
        case event(AccessoryEvent)
        /// A value was not understood; for the log.
        case ignored(AccessoryID, reason: String, count: Int)
    }

    private struct Accessory: Sendable {
        var gatt: GATTAccessoryStateMachine
        var controls: ControlsStateMachine?
        var inputs: [CharacteristicIdentifier: Int] = [:]
        var battery: Int?
        var reported: AccessoryStatus?
        let isAutomatic: Bool
    }

    private enum Discovery {
        case off, starting, on, stopping
        /// BlueZ would not scan; not asked again for this search. What others scan for is seen all the same.
        case refused
    }

    private let library: ProfileLibrary
    private let takesKnownDevices: Bool
    private var accessories: [AccessoryID: Accessory] = [:]
    private var order: [AccessoryID] = []
    private var held = HeldSources<AccessorySource>()
    private var radio = RadioState.noService
    private var discovery = Discovery.off
    /// Connections wait until the scan has ended: BlueZ would resume it in the middle of the link's set-up.
    private var connectsAfterDiscovery: [BluetoothCommand] = []
    private var registered: Set<BluetoothUUID> = []
    private var autoConnects = false

    private var isScanning: Bool {
        switch discovery {
        case .starting, .on, .stopping: true
        case .off, .refused: false
        }
    }

    /// - Parameter takesKnownDevices: Devices that BlueZ trusts, or is paired with, and that match a profile, are taken
    ///   without configuration.
    init(_ configurations: [AccessoryConfiguration], library: ProfileLibrary, takesKnownDevices: Bool) {
        self.library = library
        self.takesKnownDevices = takesKnownDevices
        for configuration in configurations.prefix(Self.accessoriesMax) { add(configuration, isAutomatic: false) }
    }

    private mutating func add(_ configuration: AccessoryConfiguration, isAutomatic: Bool) {
        guard accessories[configuration.id] == nil else { return }
        var gatt = GATTAccessoryStateMachine(configuration, library: library)
        gatt.autoConnects = autoConnects
        accessories[configuration.id] = Accessory(gatt: gatt, isAutomatic: isAutomatic)
        order.append(configuration.id)
    }

    // MARK: What the adapter asks

    var statuses: [AccessoryStatus] { order.compactMap { status(of: $0) } }

    var nextDeadline: Instant? {
        accessories.values.compactMap { accessory -> Instant? in
            [accessory.gatt.nextDeadline, accessory.controls?.nextDeadline].compactMap { $0 }.min()
        }.min()
    }

    // MARK: Events

    mutating func handle(_ event: Event, at now: Instant) -> [Action] {
        var actions: [Action] = []
        switch event {
        case .value(let characteristic, let bytes):
            // The path of a press: nothing else needs to be looked at.
            return value(characteristic, bytes, at: now)
        case .radio(let state):
            radio = state
            if state != .on { resetRadio(state) }
            for id in order { actions += gatt(id, .radio(state), at: now) }
        case .device(let facts):
            actions += device(facts, at: now)
        case .deviceRemoved(let device):
            for id in order where accessories[id]?.gatt.device?.id == device {
                actions += gatt(id, .device(nil), at: now) + remove(id)
            }
        case .completed(let command, let failure):
            actions += completed(command, failure, at: now)
        case .autoConnect(let isArmed):
            autoConnects = isArmed
            for id in order { actions += gatt(id, .autoConnect(isArmed: isArmed), at: now) }
        case .transmissionEnded:
            for id in order { _ = controls(id, .endedBySystem, reason: .released, at: now) }
            held = HeldSources()
        case .releaseAll(let reason):
            for id in order { actions += controls(id, .lost, reason: reason, at: now) }
        case .deadline:
            for id in order {
                actions += controls(id, .deadline, reason: .released, at: now)
                if let due = accessories[id]?.gatt.nextDeadline, due <= now { actions += gatt(id, .deadline, at: now) }
            }
        }
        actions += scan() + register() + changes()
        return actions
    }

    private mutating func resetRadio(_ state: RadioState) {
        discovery = .off
        connectsAfterDiscovery = []
        if state == .noService {
            registered = []
            autoConnects = false
        }
    }

    // MARK: Devices

    private mutating func device(_ facts: DeviceFacts, at now: Instant) -> [Action] {
        if let owner = order.first(where: { accessories[$0]?.gatt.device?.id == facts.id }) {
            return gatt(owner, .device(facts), at: now)
        }
        let wanting = order.first { id in
            guard let gatt = accessories[id]?.gatt,
                gatt.configuration.matches(address: facts.address, name: facts.name)
            else { return false }
            // A second device of the same name takes over only when it is there and the first one is not.
            return gatt.device == nil || (gatt.device?.isConnected == false && facts.isConnected)
        }
        if let wanting { return gatt(wanting, .device(facts), at: now) }
        guard takesKnownDevices, facts.isTrusted || facts.isPaired, order.count < Self.accessoriesMax,
            library.candidate(name: facts.name, services: facts.services) != nil
        else { return [] }
        let id = AccessoryID(facts.address)
        add(AccessoryConfiguration(id: id, address: facts.address), isAutomatic: true)
        return gatt(id, .radio(radio), at: now) + gatt(id, .device(facts), at: now)
    }

    /// An automatic accessory goes with its device; a configured one stays and is searched for.
    private mutating func remove(_ id: AccessoryID) -> [Action] {
        guard accessories[id]?.isAutomatic == true else { return [] }
        accessories[id] = nil
        order.removeAll { $0 == id }
        return [.event(.removed(id))]
    }

    private mutating func gatt(
        _ id: AccessoryID, _ event: AccessoryLinkEvent, at now: Instant
    ) -> [Action] {
        guard let actions = accessories[id]?.gatt.handle(event, at: now) else { return [] }
        return actions.flatMap { action -> [Action] in
            switch action {
            case .command(.connect(let device)) where isScanning:
                connectsAfterDiscovery.append(.connect(device: device))
                return []
            case .command(let command):
                return [.command(command)]
            case .recognised(let profile, let inputs):
                accessories[id]?.inputs = inputs
                guard accessories[id]?.controls?.profile != profile else { return [] }
                let released = controls(id, .lost, reason: .disconnected, at: now)
                let gesture = accessories[id]?.gatt.configuration.gesture
                accessories[id]?.controls = ControlsStateMachine(profile, gesture: gesture)
                return released
            case .lost(let reason):
                accessories[id]?.battery = nil
                return controls(id, .lost, reason: reason, at: now)
            }
        }
    }

    private mutating func completed(
        _ command: BluetoothCommand, _ failure: BluetoothFailure?, at now: Instant
    ) -> [Action] {
        switch command {
        case .startDiscovery:
            guard discovery == .starting else { return [] }
            discovery = failure == nil ? .on : .refused
        case .stopDiscovery:
            guard discovery == .stopping else { return [] }
            // "InProgress" too means that it stops.
            discovery = .off
        case .autoConnect:
            // What came of it is told by `autoConnect`, now and whenever it changes.
            return []
        default:
            return order.flatMap { gatt($0, .completed(command, failure), at: now) }
        }
        guard !isScanning else { return [] }
        let waiting = connectsAfterDiscovery
        connectsAfterDiscovery = []
        return waiting.map { .command($0) }
    }

    // MARK: Values

    private mutating func value(_ characteristic: CharacteristicIdentifier, _ bytes: [UInt8], at now: Instant)
        -> [Action]
    {
        guard let id = order.first(where: { accessories[$0]?.inputs[characteristic] != nil }),
            let accessory = accessories[id], let input = accessory.inputs[characteristic]
        else { return [] }
        let isNews = accessory.gatt.hearsNews
        let actions = controls(
            id, isNews ? .value(input: input, bytes: bytes) : .staleValue(input: input, bytes: bytes),
            reason: .released, at: now)
        return actions + changes(of: id)
    }

    private mutating func controls(
        _ id: AccessoryID, _ event: ControlsStateMachine.Event, reason: AccessoryRelease, at now: Instant
    ) -> [Action] {
        guard let actions = accessories[id]?.controls?.handle(event, at: now) else { return [] }
        return actions.flatMap { action -> [Action] in
            switch action {
            case .control(let control, let isDown):
                return [.event(.control(AccessorySource(accessory: id, control: control), isDown: isDown, at: now))]
            case .begin(let control):
                return intent(held.begin(AccessorySource(accessory: id, control: control)), reason, at: now)
            case .end(let control):
                return intent(held.end(AccessorySource(accessory: id, control: control)), reason, at: now)
            case .battery(let level):
                accessories[id]?.battery = level
                return []
            case .ignored(let reason, let count):
                return [.ignored(id, reason: reason, count: count)]
            }
        }
    }

    private func intent(
        _ change: HeldSources<AccessorySource>.Change?, _ reason: AccessoryRelease, at now: Instant
    ) -> [Action] {
        switch change {
        case .began(let source): [.event(.intent(.transmitBegan(source, .normal), at: now))]
        case .ended(let source): [.event(.intent(.transmitEnded(source, reason), at: now))]
        case nil: []
        }
    }

    // MARK: What follows for all

    private mutating func scan() -> [Action] {
        guard radio == .on else { return [] }
        let wanted =
            accessories.values.contains { $0.gatt.wantsDiscovery } && connectsAfterDiscovery.isEmpty
            && !accessories.values.contains { $0.gatt.isConnecting }
        switch (discovery, wanted) {
        case (.off, true):
            discovery = .starting
            return [.command(.startDiscovery)]
        case (.on, false):
            discovery = .stopping
            return [.command(.stopDiscovery)]
        case (.refused, false):
            discovery = .off
            return []
        default:
            return []
        }
    }

    private mutating func register() -> [Action] {
        guard radio == .on else { return [] }
        let wanted = accessories.values.reduce(into: Set<BluetoothUUID>()) { $0.formUnion($1.gatt.servicesToRegister) }
        // Services are only ever added: a registration that is taken back and made again would leave a gap.
        guard !wanted.isSubset(of: registered) else { return [] }
        registered.formUnion(wanted)
        return [.command(.autoConnect(services: registered))]
    }

    private mutating func changes() -> [Action] { order.flatMap { changes(of: $0) } }

    private mutating func changes(of id: AccessoryID) -> [Action] {
        guard let status = status(of: id), status != accessories[id]?.reported else { return [] }
        accessories[id]?.reported = status
        return [.event(.changed(status))]
    }

    private func status(of id: AccessoryID) -> AccessoryStatus? {
        guard let accessory = accessories[id] else { return nil }
        let gatt = accessory.gatt
        let configuration = gatt.configuration
        var problem = gatt.problem
        switch radio {
        case .noService: problem = "the Bluetooth service is not running: systemctl start bluetooth"
        case .off:
            problem = "no Bluetooth adapter is on: plug one in, or 'rfkill unblock bluetooth', 'bluetoothctl power on'"
        case .on: break
        }
        let profile = gatt.profile ?? configuration.profileID.flatMap { library[$0] }
        return AccessoryStatus(
            id: id, name: gatt.lastName ?? configuration.name?.text ?? id.text,
            address: gatt.lastAddress ?? configuration.address ?? "", profileID: profile?.id,
            profileTitle: profile?.title, isConnected: gatt.device?.isConnected ?? false,
            transport: profile?.transport, isBonded: gatt.device?.isPaired ?? false, actions: [:],
            isReady: gatt.isReady, battery: gatt.profile?.battery == .text ? accessory.battery : gatt.device?.battery,
            isHeld: accessory.controls?.isActive ?? false, problem: problem)
    }
}
