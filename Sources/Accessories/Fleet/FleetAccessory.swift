// One accessory: its link, and what is done for it while the link works: start commands, light, link parameters.
import BlueZ
import MonotonicTime

/// Owns the link of one accessory, its light, the parameters of its link, and the status that was last reported. `PressRouter` owns its
/// controls.
struct FleetAccessory: Sendable {
    typealias Action = AccessoriesStateMachine.Action

    let configuration: AccessoryConfiguration
    /// It was taken without being configured.
    let isAutomatic: Bool
    private(set) var kind: AccessoryLinkKind
    private(set) var link: any AccessoryLink
    /// Of its device, for people, while bluetoothd does not know that.
    private(set) var lastName: String?
    private(set) var lastAddress: String?
    /// What is wrong with its local devices.
    var localProblem: String?
    /// What does not work as well as it could.
    private(set) var note: String?
    private var light: LightStateMachine
    private var tightening = LinkTightening()
    /// The link works, as light and tightening know it.
    private var isServed = false
    /// What `kind` was chosen from: it is looked at only when that is different.
    private var judged: Marks?
    /// What was told of it last.
    private var reported: AccessoryStatus?

    /// What tells a device's family, and whether it may be used.
    private struct Marks: Equatable, Sendable {
        var id: DeviceIdentifier
        var name: String?
        var services: Set<BluetoothUUID>
        var isBonded: Bool

        init(_ facts: DeviceFacts) {
            (id, name, services, isBonded) = (facts.id, facts.name, facts.services, facts.isBonded)
        }
    }

    /// An accessory without a device.
    ///
    /// - Parameters:
    ///   - autoConnects: bluetoothd reconnects known devices by itself now.
    ///   - feedback: What its light is to show.
    ///   - former: The accessory that it replaces.
    init(
        _ configuration: AccessoryConfiguration, isAutomatic: Bool, library: ProfileLibrary, autoConnects: Bool,
        feedback: AccessoryFeedback, former: FleetAccessory?
    ) {
        self.configuration = configuration
        self.isAutomatic = isAutomatic
        kind = AccessoryLinkKind.fitting(configuration, isLocal: false, device: nil, library: library)
        link = kind.makeLink(configuration, library, autoConnects: autoConnects)
        light = LightStateMachine(feedback)
        reported = former?.reported
    }

    var id: AccessoryID { configuration.id }

    /// Who carries its presses; nil: the kernel.
    var carrier: PressCarrier? { kind.carrier }

    var nextDeadline: Instant? {
        earliest(link.nextDeadline, earliest(light.nextDeadline, tightening.nextDeadline))
    }

    // MARK: Whose a device is

    /// Whether a Bluetooth device that is nobody's is this accessory's.
    func wants(_ facts: DeviceFacts) -> Bool {
        guard configuration.matches(address: facts.address, name: facts.name) else { return false }
        // A second device of the same name takes over only when it is there and the first one is not.
        guard let own = link.device else { return true }
        return !own.isConnected && facts.isConnected
    }

    /// Whether a device with this address, in capitals, is this accessory's.
    func hasAddress(_ address: String) -> Bool {
        configuration.address == address || link.device?.address.uppercased() == address
    }

    /// Whether a local device that no rule names has this accessory's name.
    ///
    /// - Parameter isLocal: A local device is given to the accessory.
    func hasName(of facts: LocalDeviceFacts, isLocal: Bool) -> Bool {
        guard configuration.address == nil else { return false }
        if isAutomatic { return isLocal && id.text == facts.name }
        return link.device == nil && configuration.name?.matches(facts.name) ?? false
    }

    /// Whether this accessory, which was taken without being configured, is the one that a configuration means.
    func isMeant(by configuration: AccessoryConfiguration, locals: [LocalDeviceFacts]) -> Bool {
        if let device = link.device, configuration.matches(address: device.address, name: device.name) { return true }
        return locals.contains { facts in
            guard facts.accessoryName == nil else { return false }
            if let address = configuration.address { return facts.address?.uppercased() == address }
            return configuration.name?.matches(facts.name) ?? false
        }
    }

    // MARK: Its link

    /// The kind of link that fits a device better than the one there is; nil: none, or the link has settled.
    mutating func betterKind(for facts: DeviceFacts, isLocal: Bool, library: ProfileLibrary) -> AccessoryLinkKind? {
        guard judged != Marks(facts) || link.device == nil else { return nil }
        judged = Marks(facts)
        let wanted = AccessoryLinkKind.fitting(configuration, isLocal: isLocal, device: facts, library: library)
        return wanted != kind && (wanted.isRefusal || link.profile == nil) ? wanted : nil
    }

    /// Has the device looked at again when it is next told of.
    mutating func judgeAgain() { judged = nil }

    /// Another link takes over.
    mutating func replaceLink(
        by kind: AccessoryLinkKind, device: DeviceFacts?, library: ProfileLibrary, autoConnects: Bool
    ) {
        self.kind = kind
        judged = device.map(Marks.init)
        (lastName, lastAddress) = (nil, nil)
        link = kind.makeLink(configuration, library, autoConnects: autoConnects)
    }

    /// Tells its link something.
    mutating func handle(_ event: AccessoryLinkEvent, at now: Instant) -> [AccessoryLinkAction] {
        if case .device(let facts?) = event {
            let isOther = link.device.map { $0.id != facts.id } ?? false
            lastName = facts.name ?? (isOther ? nil : lastName)
            lastAddress = facts.address
        }
        return link.handle(event, at: now)
    }

    // MARK: Light and parameters

    /// Follows whether its link works.
    mutating func serve(at now: Instant) -> [Action] {
        let isServed = kind == .gatt && link.isReady
        guard isServed != self.isServed else { return [] }
        self.isServed = isServed
        guard isServed, let profile = link.profile, let device = link.device else {
            return light(.lost, at: now) + tighten(.lost, at: now)
        }
        let start = profile.startCommands.compactMap { command in
            device.find(command.service, command.characteristic).map {
                BluetoothCommand.write(characteristic: $0, value: command.value)
            }
        }
        let place = profile.light.flatMap { device.find($0.service, $0.characteristic) }
        return light(.ready(start: start, light: place, values: profile.light?.values ?? [:]), at: now)
            + tighten(.ready(idle: profile.idleLink), at: now)
    }

    mutating func light(_ event: LightStateMachine.Event, at now: Instant) -> [Action] {
        light.handle(event, at: now).map { action in
            switch action {
            case .write(let command): .command(command)
            case .note(let text): .note(id, text)
            }
        }
    }

    mutating func tighten(_ event: LinkTightening.Event, at now: Instant) -> [Action] {
        tightening.handle(event, at: now).compactMap { action in
            switch action {
            case .set(let parameters): return link.device.map { .command(.setLink(device: $0.id, parameters)) }
            case .note(let text):
                note = text
                return .note(id, text)
            }
        }
    }

    /// Deadlines of its light and its link's parameters.
    mutating func servingDeadline(at now: Instant) -> [Action] {
        var actions: [Action] = []
        if let due = light.nextDeadline, due <= now { actions += light(.deadline, at: now) }
        if let due = tightening.nextDeadline, due <= now { actions += tighten(.deadline, at: now) }
        return actions
    }

    // MARK: What is told of it

    /// Whether its status is news.
    mutating func report(_ status: AccessoryStatus) -> Bool {
        defer { reported = status }
        return status != reported
    }
}
