// All accessories together: which device is whose, one scan for all, and one transmission of all their buttons.
import BlueZ
import MonotonicTime

/// The rules of the room. Its adapter is `AccessoryService`.
struct AccessoriesStateMachine: Sendable {
    /// Accessories in use at a time.
    static let accessoriesMax = 64
    /// Local devices known at a time.
    static let localDevicesMax = 128

    enum Event: Sendable {
        case radio(RadioState)
        case device(DeviceFacts)
        case deviceRemoved(DeviceIdentifier)
        /// A characteristic's value changed (PropertiesChanged).
        case value(characteristic: CharacteristicIdentifier, bytes: [UInt8])
        /// A characteristic was read for us.
        case read(characteristic: CharacteristicIdentifier, bytes: [UInt8])
        /// A device sends more values a second than are looked at; nil: not any more.
        case flooding(DeviceIdentifier, valuesPerSecond: Int?)
        case streamBytes(device: DeviceIdentifier, StreamKind, [UInt8])
        case streamClosed(device: DeviceIdentifier, StreamKind)
        case streamOffered(device: DeviceIdentifier, StreamKind)
        case local(LocalDeviceReport)
        case completed(BluetoothCommand, BluetoothFailure?)
        /// Whether BlueZ reconnects known devices by itself now.
        case autoConnect(isArmed: Bool)
        /// The transmission was ended from elsewhere; a fresh press is needed for the next.
        case transmissionEnded
        /// Everything is released: the machine goes to sleep, or the daemon ends.
        case releaseAll(AccessoryRelease)
        /// A person adds, changes or removes.
        case configure(AccessoryConfiguration)
        case unconfigure(AccessoryID)
        case profile(AccessoryProfile)
        /// A person wants to see what is in reach.
        case scan(Bool)
        /// A person connects a device, or is done: no scan meanwhile.
        case connecting(Bool)
        case test(AccessoryID, Bool)
        case quiet(Bool)
        case feedback(AccessoryFeedback)
        case deadline
    }

    enum Action: Equatable, Sendable {
        case command(BluetoothCommand)
        case event(AccessoryEvent)
        /// A value was not understood; for the log.
        case ignored(AccessoryID, reason: String, count: Int)
        /// Something does not work as well as it could; for the log, once.
        case note(AccessoryID, String)
    }

    var library: ProfileLibrary
    let takesKnownDevices: Bool
    /// Of accessories that are taken without being configured.
    let isBondedOnly: Bool
    var accessories: [AccessoryID: FleetAccessory] = [:]
    var order: [AccessoryID] = []
    var held = HeldSources<AccessorySource>()
    /// Emergency controls of which it was told that they are active.
    var alerts: Set<AccessorySource> = []
    /// Controls do nothing, whosever they are.
    var isQuiet = false
    var feedback = AccessoryFeedback.idle
    var radio = RadioState.noService
    var scanning = ScanState()
    var registered: Set<BluetoothUUID> = []
    var autoConnects = false
    /// The one that is being asked for.
    var asked: DeviceIdentifier?
    /// Who carries presses, from the first one on; and whose.
    var carriers: [PressCarrier: CarrierWatch] = [:]
    var carried: [PressCarrier: CarrierUsers] = [:]
    /// Devices that send more values a second than are looked at. As bounded as `devices`.
    var floods: [DeviceIdentifier: Int] = [:]

    /// What BlueZ knows, and whose it is. As bounded as `BlueZTree`.
    var devices: [DeviceIdentifier: DeviceFacts] = [:]
    var owners: [DeviceIdentifier: AccessoryID] = [:]
    /// Where the values of a characteristic go: the path of a press, one look-up.
    var inputs: [CharacteristicIdentifier: (owner: AccessoryID, index: Int)] = [:]
    var localDevices: [LocalDeviceID: LocalDeviceFacts] = [:]
    var localOwners: [LocalDeviceID: AccessoryID] = [:]
    var localProblems: [LocalDeviceID: String] = [:]

    /// - Parameters:
    ///   - takesKnownDevices: Devices that BlueZ trusts, or is paired with, and that match a profile, are taken without
    ///     configuration.
    ///   - isBondedOnly: Those have to be bonded.
    init(
        _ configurations: [AccessoryConfiguration], library: ProfileLibrary, takesKnownDevices: Bool,
        isBondedOnly: Bool = false
    ) {
        self.library = library
        self.takesKnownDevices = takesKnownDevices
        self.isBondedOnly = isBondedOnly
        for configuration in configurations.prefix(Self.accessoriesMax) where accessories[configuration.id] == nil {
            add(configuration, isAutomatic: false)
        }
    }

    // MARK: What the adapter asks

    var statuses: [AccessoryStatus] { order.compactMap { status(of: $0) } }

    var configurations: [AccessoryConfiguration] { order.compactMap { accessories[$0]?.configuration } }

    var nextDeadline: Instant? {
        var next: Instant?
        for accessory in accessories.values { next = earliest(next, accessory.nextDeadline) }
        for watch in carriers.values { next = earliest(next, watch.nextDeadline) }
        return earliest(next, mayAsk ? nextAsked.flatMap { accessories[$0]?.link.asksAfter } : nil)
    }

    // MARK: Events

    mutating func handle(_ event: Event, at now: Instant) -> [Action] {
        var actions: [Action] = []
        switch event {
        // The paths of a press: nothing else needs to be looked at.
        case .value(let characteristic, let bytes):
            return heard(through: .bluetoothd, at: now) + waited(characteristic, at: now)
                + value(characteristic, bytes, at: now)
        case .streamBytes(let device, let kind, let bytes): return stream(device, kind, bytes, at: now)
        case .local(.key(let device, let code, let isDown, _)): return key(device, code, isDown, at: now)
        case .local(.bytes(let device, let bytes, _)): return serial(device, bytes, at: now)
        case .feedback(let feedback): return show(feedback, at: now)
        // Ten times a second while a control is held.
        case .completed(.probe(let carrier), let failure): return probed(carrier, failure, at: now)
        case .deadline:
            actions += carriersDue(at: now)
            guard let due = nextDeadline, due <= now else { return actions }
            actions += deadline(at: now)

        case .radio(let state):
            radio = state
            if state != .on { resetRadio(state) }
            for id in order { actions += link(id, .radio(state), at: now) }
        case .device(let facts): actions += device(facts, at: now)
        case .deviceRemoved(let device):
            floods[device] = nil
            actions += deviceRemoved(device, at: now)
        case .read(let characteristic, let bytes): actions += read(characteristic, bytes, at: now)
        case .flooding(let device, let rate): actions += flooding(device, rate)
        case .streamClosed(let device, let kind):
            if let id = owners[device] { actions += link(id, .streamClosed(kind), at: now) }
        case .streamOffered(let device, let kind):
            if let id = owners[device] { actions += link(id, .streamOffered(kind), at: now) }
        case .local(let report): actions += local(report, at: now)
        case .completed(let command, let failure): actions += completed(command, failure, at: now)
        case .autoConnect(let isArmed):
            autoConnects = isArmed
            for id in order { actions += link(id, .autoConnect(isArmed: isArmed), at: now) }
        case .transmissionEnded: actions += transmissionEnded(at: now)
        case .releaseAll(let reason): for id in order { actions += release(id, reason, at: now) }
        case .configure(let configuration): actions += configure(configuration, at: now)
        case .unconfigure(let id): actions += unconfigure(id, at: now)
        case .profile(let profile): actions += learn(profile, at: now)
        case .scan(let isWanted): scanning.isWantedByPerson = isWanted
        case .connecting(let isBeginning): scanning.personConnects += isBeginning ? 1 : -1
        case .test(let id, let isOn): actions += test(id, isOn, at: now)
        case .quiet(let isOn): actions += quiet(isOn, at: now)
        }
        actions += ask(at: now) + scan() + register() + changes()
        return actions
    }

    private mutating func resetRadio(_ state: RadioState) {
        scanning.reset()
        if state == .noService {
            registered = []
            autoConnects = false
            devices = [:]
            floods = [:]
            forget(.bluetoothd)
        }
    }

    private mutating func deadline(at now: Instant) -> [Action] {
        var actions: [Action] = []
        for id in order {
            guard let accessory = accessories[id] else { continue }
            func isDue(_ deadline: Instant?) -> Bool { deadline.map { $0 <= now } ?? false }
            if isDue(accessory.controls?.nextDeadline) { actions += controls(id, .deadline, .released, at: now) }
            if isDue(accessory.link.nextDeadline) { actions += link(id, .deadline, at: now) }
            if isDue(accessory.light.nextDeadline) { actions += light(id, .deadline, at: now) }
            if isDue(accessory.tightening.nextDeadline) { actions += tighten(id, .deadline, at: now) }
        }
        return actions
    }
}
