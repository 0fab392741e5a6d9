// Carries out the requests of org.pttd about accessories, and reports the modules' events on the bus.
import Accessories
import AccessorySetup
import DaemonAPI
import Headsets
import MonotonicTime
import PTTBus
import Reactor
import Vocabulary

/// Joins setting up accessories with the bus. It lives on their loop, and holds no rules.
actor AccessoryAdministrator: AccessoryControls {
    nonisolated let loop: EventLoop
    nonisolated var unownedExecutor: UnownedSerialExecutor { loop.asUnownedSerialExecutor() }

    private let api: DaemonAPI
    private let service: AccessoryService
    private let setup: AccessorySetup
    private let headsets: Headsets
    /// Returns when the current state of the accessories was published.
    private let publish: @Sendable () async -> Void
    /// Emergency controls that are active.
    private var emergencies: Set<AccessorySource> = []

    /// - Parameters:
    ///   - setup: Whose events come by `happened`.
    ///   - publish: Tells the accessories as they are (`properties`) and returns when that is done.
    init(
        api: DaemonAPI, service: AccessoryService, setup: AccessorySetup, headsets: Headsets,
        publish: @escaping @Sendable () async -> Void
    ) {
        self.headsets = headsets
        self.api = api
        self.service = service
        self.setup = setup
        self.publish = publish
        loop = setup.loop
    }

    // MARK: What is told

    /// The accessories as they are.
    var properties: [AccessoryProperties] {
        let (statuses, configurations, library) = service.assumeIsolated {
            ($0.statuses, $0.configurations, $0.library)
        }
        return statuses.map { status in
            AccessoryProperties(
                status, origin: setup.assumeIsolated { $0.origin(of: status.id) },
                configuration: configurations.first { $0.id == status.id },
                profile: status.profileID.flatMap { library[$0] },
                sound: headsets.assumeIsolated { $0.summary(of: status.id.text) })
        }
    }

    /// Handles every event of the accessory service.
    func happened(_ event: AccessoryEvent) {
        switch event {
        case .control(let source, let isDown, let time):
            api.assumeIsolated {
                $0.control(source.control.rawValue, of: source.accessory.text, isDown: isDown, at: time)
            }
        case .emergency(let source, let isActive, _):
            if isActive { emergencies.insert(source) } else { emergencies.remove(source) }
            let isAnyActive = !emergencies.isEmpty
            api.assumeIsolated {
                $0.emergency(
                    isActive, accessory: source.accessory.text, control: source.control.rawValue,
                    isAnyActive: isAnyActive)
            }
        case .intent, .action, .changed, .removed: break
        }
        setup.assumeIsolated { $0.happened(event) }
    }

    /// Handles every event of the set-up.
    func happened(_ event: AccessorySetupEvent) {
        api.assumeIsolated { api in
            switch event {
            case .found(let device): api.found(device)
            case .lost(let address): api.lost(address: address)
            case .progress(let address, let step): api.addProgress(address: address, step)
            case .learning(let report): api.update(learning: report)
            case .changed: break
            }
        }
        if case .changed = event { Task { await self.publish() } }
    }

    // MARK: What is asked

    func setScanning(_ isOn: Bool) async throws(AccessoryError) { try await setup.setScanning(isOn) }

    func discoveredDevices() async -> [DiscoveredDevice] { await setup.devices }

    func add(_ addition: AccessoryAddition) async throws(AccessoryError) -> (id: String, notes: [String]) {
        let added = try await setup.add(addition)
        await publish()
        return (added.id.text, added.notes)
    }

    func cancelAdding(address: String) async { await setup.cancelAdding(address: address) }

    func remove(_ accessory: String) async throws(AccessoryError) {
        try await setup.remove(AccessoryID(accessory))
        await publish()
    }

    func bind(_ control: String, to action: String, of accessory: String) async throws(AccessoryError) {
        guard let known = Control(rawValue: control) else {
            let names = Control.allCases.map(\.rawValue).joined(separator: ", ")
            throw AccessoryError(.invalid, "there is no control '\(control)'; there are \(names)")
        }
        let wanted = action == "default" ? nil : ControlAction(action)
        guard action == "default" || wanted != nil else {
            throw AccessoryError(
                .invalid,
                "'\(action)' is not an action; use 'transmit', 'emergency', 'channel-up', 'channel-down', "
                    + "'nearby-next', 'replay-last', 'none', "
                    + "'default', or 'command: PROGRAM ARGUMENTS'")
        }
        try await setup.bind(known, to: wanted, of: AccessoryID(accessory))
        await publish()
    }

    func setGesture(_ gesture: Gesture?, of accessory: String) async throws(AccessoryError) {
        try await setup.setGesture(gesture, of: AccessoryID(accessory))
        await publish()
    }

    func setBondedOnly(_ bondedOnly: Bool, of accessory: String) async throws(AccessoryError) {
        try await setup.setBondedOnly(bondedOnly, of: AccessoryID(accessory))
        await publish()
    }

    func setTesting(_ accessory: String, _ isOn: Bool) async throws(AccessoryError) {
        try await setup.setTesting(AccessoryID(accessory), isOn)
    }

    func startLearning(_ request: LearningRequest) async throws(AccessoryError) {
        try await setup.startLearning(request)
    }

    func cancelLearning() async { await setup.cancelLearning() }

    func proceedLearning() async { await setup.proceedLearning() }

    func profiles() async -> [ProfileDescription] {
        await service.library.profiles.map { ProfileDescription($0) }
    }
}

extension AccessoryProperties {
    /// How an accessory is doing, and how it is configured.
    init(
        _ status: AccessoryStatus, origin: AccessoryOrigin, configuration: AccessoryConfiguration?,
        profile: AccessoryProfile?, sound: String?
    ) {
        self.init()
        id = status.id.text
        name = status.name
        address = status.address
        transport = status.transport?.rawValue ?? ""
        self.profile = status.profileID ?? ""
        profileTitle = status.profileTitle ?? ""
        self.origin = origin.rawValue
        connected = status.isConnected
        ready = status.isReady
        bonded = status.isBonded
        bondedOnly = configuration?.isBondedOnly ?? false
        let talk = profile?.controls.first { status.actions[$0] == .transmit || $0 == .ptt }
        if let talk, let profile {
            gesture = profile.talkGesture(of: talk, wanted: configuration?.gesture).rawValue
        }
        bindings = [:]
        for (control, action) in status.actions { bindings[control.rawValue] = action.text }
        battery = status.battery
        self.sound = sound ?? ""
        held = status.isHeld
        problem = status.problem ?? ""
    }
}

extension ProfileDescription {
    /// A profile of the library.
    init(_ profile: AccessoryProfile) {
        self.init(
            id: profile.id, title: profile.title, transport: profile.transport.rawValue,
            confidence: profile.confidence.rawValue, isExperimental: profile.isExperimental, refusal: profile.refusal)
    }
}
