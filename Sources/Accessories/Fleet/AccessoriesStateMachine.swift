// All accessories together: passes each event to the object that owns the rule, and what follows from it to the next object.
import BlueZ
import MonotonicTime

/// The rules of the module. `AccessoryService` is their adapter.
///
/// This type owns the list of accessories, and decides which accessory a device belongs to. It composes:
///
/// * `DeviceRegistry`: the facts about devices, and the accessory of each device and characteristic;
/// * `FleetAccessory`: the link, the light and the link parameters of one accessory;
/// * `PressRouter`: the controls of all accessories, and the transmission that they hold together;
/// * `ConnectionScheduler`: scans, and connections that wait for their end;
/// * `CarrierMonitor`: whether bluetoothd and BlueALSA still deliver presses.
struct AccessoriesStateMachine: Sendable {
    enum Event: Sendable {
        case bluetooth(BluetoothReport)
        case local(LocalDeviceReport)
        case completed(BluetoothCommand, BluetoothFailure?)
        /// The transmission was ended from elsewhere; a fresh press is needed for the next.
        case transmissionEnded
        /// Everything is released: the machine goes to sleep, or the daemon ends.
        case releaseAll(AccessoryRelease)
        /// The machine has slept, which was told before by `releaseAll(.suspended)`.
        case woke
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

    private static let accessoriesMax = AccessorySettings.accessoriesMax

    private(set) var library: ProfileLibrary
    private let takesKnownDevices: Bool
    /// Of accessories that are taken without being configured.
    private let isBondedOnly: Bool
    private var accessories: [AccessoryID: FleetAccessory] = [:]
    /// As they were added.
    private var order: [AccessoryID] = []
    private var feedback = AccessoryFeedback.idle
    private var radio = RadioState.noService
    private var registry = DeviceRegistry()
    private var scheduler = ConnectionScheduler()
    private var presses = PressRouter()
    private var carriers = CarrierMonitor()
    /// What follows from the event that is being handled.
    private var actions: [Action] = []

    /// - Parameters:
    ///   - takesKnownDevices: Devices that bluetoothd trusts, or is paired with, and that match a profile, are taken without
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

    var statuses: [AccessoryStatus] { order.compactMap { condition(of: $0)?.status } }

    var configurations: [AccessoryConfiguration] { order.compactMap { accessories[$0]?.configuration } }

    var links: [any AccessoryLink] { order.compactMap { accessories[$0]?.link } }

    /// Somebody transmits by an accessory.
    var isHeld: Bool { presses.isHeld }

    /// Nobody transmits by an accessory, and none has declared an emergency.
    var isIdle: Bool { presses.isIdle }

    /// What is known of the radio and of devices, as it was reported.
    var reports: [AccessoryReport] { [.bluetooth(.radio(radio))] + registry.reports }

    func device(address: String) -> DeviceFacts? { registry.device(address: address) }

    /// How often a scan has begun, and whether one is on.
    var scans: (count: Int, isOn: Bool) { (scheduler.scanCount, scheduler.isOn) }

    var nextDeadline: Instant? {
        var next = carriers.nextDeadline
        for (id, accessory) in accessories {
            next = earliest(next, earliest(accessory.nextDeadline, presses.nextDeadline(of: id)))
        }
        return earliest(next, nextAsked?.time)
    }

    // MARK: Events

    mutating func handle(_ event: Event, at now: Instant) -> [Action] {
        defer { actions = [] }
        switch event {
        // The paths of a press: nothing else needs to be looked at.
        case .bluetooth(.value(let characteristic, let bytes, _)):
            value(characteristic, bytes, at: now)
            return actions
        case .bluetooth(.streamBytes(let device, let kind, let bytes, _)):
            stream(device, kind, bytes, at: now)
            return actions
        case .bluetooth(.heard): return []
        case .local(.key(let device, let code, let isDown, _)):
            guard let id = owner(ofHeard: device) else { return [] }
            apply(presses.key(device, code, isDown, of: id, at: now), id, at: now)
            return actions
        case .local(.bytes(let device, let bytes, _)):
            if let id = owner(ofHeard: device) { controls(id, .value(input: 0, bytes: bytes), at: now) }
            return actions
        case .feedback(let feedback):
            if feedback != .refused { self.feedback = feedback }
            for id in order { light(id, .feedback(feedback), at: now) }
            return actions
        // Ten times a second while a control is held.
        case .completed(.probe(let carrier), let failure):
            carryOut(carriers.probed(carrier, failure, at: now), at: now)
            return actions
        case .deadline:
            carryOut(carriers.deadline(at: now), at: now)
            guard let due = nextDeadline, due <= now else { return actions }
            deadline(at: now)

        case .bluetooth(let report):
            let before = wirelessLocals
            bluetooth(report, at: now)
            releaseUnheard(before, at: now)
        case .local(let report): local(report, at: now)
        case .completed(let command, let failure): completed(command, failure, at: now)
        case .transmissionEnded:
            presses.transmissionEnded()
            for id in order { controls(id, .endedBySystem, at: now) }
        case .releaseAll(let reason): for id in order { release(id, reason, at: now) }
        case .woke: carryOut(carriers.woke(at: now), at: now)
        case .configure(let configuration): configure(configuration, at: now)
        case .unconfigure(let id):
            guard accessories[id] != nil else { break }
            dismiss(id, at: now)
            // Its device may be taken again without configuration, if bluetoothd still knows and trusts it.
            offerAll(at: now)
        case .profile(let profile): learn(profile, at: now)
        case .scan(let isWanted): scheduler.setWantedByPerson(isWanted)
        case .connecting(let isBeginning): scheduler.personConnects(isBeginning)
        // Both at its begin and at its end a fresh press is needed: what is held was held for something else.
        case .test(let id, let isOn): if presses.setTested(id, isOn) { controls(id, .disarmed, at: now) }
        case .quiet(let isOn):
            if presses.setQuiet(isOn) { for id in order { controls(id, .disarmed, at: now) } }
        }
        ask(at: now)
        connect()
        for id in order { tellChanges(of: id) }
        return actions
    }

    private mutating func deadline(at now: Instant) {
        func isDue(_ deadline: Instant?) -> Bool { deadline.map { $0 <= now } ?? false }
        for id in order {
            if isDue(presses.nextDeadline(of: id)) { controls(id, .deadline, at: now) }
            if isDue(accessories[id]?.link.nextDeadline) { link(id, .deadline, at: now) }
            actions += accessories[id]?.servingDeadline(at: now) ?? []
        }
    }

    /// bluetoothd's answer to a command. Those for a device are told to every link, which knows its own.
    private mutating func completed(_ command: BluetoothCommand, _ failure: BluetoothFailure?, at now: Instant) {
        let waiting = scheduler.completed(command, failure)
        switch command {
        // What came of the last one is told by `autoConnect`, now and whenever it changes.
        case .startDiscovery, .stopDiscovery, .autoConnect: break
        case .write(let characteristic, _):
            if let id = registry.owner(of: characteristic.device) { light(id, .completed(failure), at: now) }
        case .setLink(let device, _):
            if let id = registry.owner(of: device) { tighten(id, .completed(failure), at: now) }
        case .read(let characteristic):
            if let id = registry.owner(of: characteristic.device) { controls(id, .answered, at: now) }
        default: for id in order { link(id, .completed(command, failure), at: now) }
        }
        actions += waiting.map { .command($0) }
    }

    // MARK: Presses

    private mutating func value(_ characteristic: CharacteristicIdentifier, _ bytes: [UInt8], at now: Instant) {
        carryOut(carriers.heard(through: .bluetoothd, at: now), at: now)
        guard let (id, input) = registry.input(of: characteristic) else { return }
        // What may have waited in a bluetoothd that hung tells of no press, though its link was lost and made anew in the hang.
        if carriers.handsOnBacklog(.bluetoothd, at: now) { controls(id, .resumed, at: now) }
        let isNews = accessories[id]?.link.hearsNews ?? false
        controls(id, isNews ? .value(input: input, bytes: bytes) : .staleValue(input: input, bytes: bytes), at: now)
    }

    private mutating func stream(_ device: DeviceIdentifier, _ kind: StreamKind, _ bytes: [UInt8], at now: Instant) {
        guard let id = registry.owner(of: device), accessories[id]?.kind == .stream(kind),
            accessories[id]?.link.hearsNews == true
        else { return }
        if kind == .handsFree { carryOut(carriers.heard(through: .blueALSA, at: now), at: now) }
        controls(id, .value(input: 0, bytes: bytes), at: now)
    }

    /// The accessory that a local device belongs to, if its keys count.
    private func owner(ofHeard device: LocalDeviceID) -> AccessoryID? {
        registry.local(device).map(isBarred) == false ? registry.owner(of: device) : nil
    }

    private mutating func controls(
        _ id: AccessoryID, _ event: ControlsStateMachine.Event, _ reason: AccessoryRelease = .released, at now: Instant
    ) {
        apply(presses.handle(id, event, reason, at: now), id, at: now)
    }

    private mutating func apply(_ outcome: PressRouter.Outcome?, _ id: AccessoryID, at now: Instant) {
        guard let outcome else { return }
        actions += outcome.actions
        if let isDown = outcome.isDown { tighten(id, isDown ? .pressed : .released, at: now) }
        if outcome.isShown { tellChanges(of: id) }
        watchCarriers(of: id, at: now)
    }

    /// Everything that an accessory holds comes up.
    private mutating func release(_ id: AccessoryID, _ reason: AccessoryRelease, at now: Instant) {
        if reason == .suspended {
            // Its link is still there: what somebody holds goes on to be told, and must not begin anew.
            controls(id, .disarmed, reason, at: now)
        } else {
            presses.forgetKeys(of: id)
            controls(id, .lost, reason, at: now)
        }
        if [.suspended, .removed, .stopped].contains(reason) { tighten(id, .left, at: now) }
    }

    /// Has an accessory's values decoded by a profile.
    private mutating func use(_ profile: AccessoryProfile, for id: AccessoryID, at now: Instant) {
        guard let configuration = accessories[id]?.configuration, presses.controls(of: id)?.profile != profile else {
            return
        }
        release(id, .disconnected, at: now)
        presses.use(profile, for: configuration)
    }

    // MARK: Carriers

    /// An accessory's controls or its link have changed, or it is gone: what are the carriers needed for?
    private mutating func watchCarriers(of id: AccessoryID, at now: Instant) {
        let accessory = accessories[id]
        carryOut(
            carriers.update(
                id, carrier: accessory?.carrier, isExpected: radio == .on && presses.controls(of: id) != nil,
                isHolding: presses.needsHearing(id), at: now), at: now)
    }

    private mutating func carryOut(_ followUps: [CarrierMonitor.Action], at now: Instant) {
        for following in followUps {
            switch following {
            case .probe(let carrier): actions.append(.command(.probe(carrier)))
            case .lost(let carrier, let holding, let expected):
                let holders = order.filter(holding.contains)
                for id in holders { release(id, .disconnected, at: now) }
                if let holder = holders.first {
                    actions.append(.note(holder, "what is held is released: \(carrier.problem)"))
                } else if let user = order.first(where: expected.contains) {
                    actions.append(.note(user, carrier.problem))
                }
                for id in order where accessories[id]?.carrier == carrier { tellChanges(of: id) }
            case .back(let carrier):
                for id in order where accessories[id]?.carrier == carrier && accessories[id]?.link.isReady == true {
                    controls(id, .resumed, at: now)
                    tellChanges(of: id)
                }
            }
        }
    }

    // MARK: Bluetooth devices

    private mutating func bluetooth(_ report: BluetoothReport, at now: Instant) {
        switch report {
        case .radio(let state):
            radio = state
            scheduler.setRadio(state)
            if state == .noService {
                registry.removeAllBluetooth()
                carriers.forget(.bluetoothd)
            }
            for id in order { link(id, .radio(state), at: now) }
        case .device(let facts): device(facts, at: now)
        case .deviceRemoved(let device):
            registry.remove(device)
            guard let id = registry.owner(of: device) else { break }
            link(id, .device(nil), at: now)
            // An automatic accessory goes with its device; a configured one stays and is searched for.
            if accessories[id]?.isAutomatic == true, !registry.isLocal(id) { remove(id, at: now) }
            // Another adapter may know it, too.
            offerAll(at: now)
        case .read(let characteristic, let bytes):
            // It may tell of a press that was over, or began, before the subscription.
            guard let (id, input) = registry.input(of: characteristic), accessories[id]?.link.hearsNews == true else {
                break
            }
            controls(id, .readValue(input: input, bytes: bytes), at: now)
        case .flooding(let device, let rate):
            guard registry.setFlood(rate, of: device), let rate else { break }
            let id = registry.owner(of: device) ?? AccessoryID("\(device)")
            actions.append(.note(id, AccessoryCondition.floodProblem(rate)))
        case .streamClosed(let device, let kind):
            if let id = registry.owner(of: device) { link(id, .streamClosed(kind), at: now) }
        case .streamOffered(let device, let kind):
            if let id = registry.owner(of: device) { link(id, .streamOffered(kind), at: now) }
        case .autoConnect(let isArmed):
            scheduler.autoConnects = isArmed
            for id in order { link(id, .autoConnect(isArmed: isArmed), at: now) }
        case .value, .streamBytes, .heard: break
        }
    }

    private mutating func device(_ facts: DeviceFacts, at now: Instant) {
        registry.update(facts)
        if let owner = registry.owner(of: facts.id) {
            let isKnown = facts.isTrusted || facts.isPaired
            guard !isKnown, accessories[owner]?.isAutomatic == true, !registry.isLocal(owner) else {
                return assign(facts, to: owner, at: now)
            }
            // It was taken because bluetoothd trusted it or was paired with it, and neither is so any more.
            return dismiss(owner, at: now)
        }
        if let wanting = order.first(where: { accessories[$0]?.wants(facts) == true }) {
            return assign(facts, to: wanting, at: now)
        }
        let id = AccessoryID(facts.address)
        // A second adapter may know the device of an accessory, too.
        let isTaken = accessories.values.contains { $0.hasAddress(facts.address.uppercased()) }
        guard takesKnownDevices, facts.isTrusted || facts.isPaired, order.count < Self.accessoriesMax,
            library.takesUnasked(facts), !isTaken, accessories[id] == nil
        else { return }
        add(AccessoryConfiguration(id: id, address: facts.address, isBondedOnly: isBondedOnly), isAutomatic: true)
        assign(facts, to: id, at: now)
        link(id, .radio(radio), at: now)
    }

    /// A device is an accessory's, and as it is now. A kind of link that fits it better takes over, until the link has settled.
    private mutating func assign(_ facts: DeviceFacts, to id: AccessoryID, at now: Instant) {
        let isLocal = registry.isLocal(id)
        guard let kind = accessories[id]?.betterKind(for: facts, isLocal: isLocal, library: library) else {
            return link(id, .device(facts), at: now)
        }
        replaceLink(id, by: kind, device: facts, at: now)
    }

    /// Devices and local devices that are nobody's, after the accessories have changed.
    private mutating func offerAll(at now: Instant) {
        for facts in registry.unownedLocal { localAdded(facts, at: now) }
        for facts in registry.unowned where registry.owner(of: facts.id) == nil { device(facts, at: now) }
    }

    // MARK: Local devices

    private mutating func local(_ report: LocalDeviceReport, at now: Instant) {
        switch report {
        case .added(let facts):
            guard registry.add(facts) else {
                let text = "not used: \(DeviceRegistry.localDevicesMax) devices are the limit"
                return actions.append(.note(AccessoryID(facts.name), text))
            }
            localAdded(facts, at: now)
        case .removed(let device): localRemoved(device, at: now)
        case .problem(let device, let problem):
            let isNews = registry.setProblem(problem, of: device)
            if let id = registry.owner(of: device) {
                readLocal(id, at: now)
            } else if isNews, let problem {
                // It could not be opened at all: nobody's, but to be known.
                actions.append(.note(AccessoryID(device.text), problem))
            }
        case .key, .bytes: break
        }
    }

    private mutating func localAdded(_ facts: LocalDeviceFacts, at now: Instant) {
        // An installer has tagged it: it is an accessory, whether it is configured or not.
        let id = registry.owner(of: facts.id) ?? owner(of: facts) ?? newID(of: facts)
        if accessories[id] == nil {
            guard order.count < Self.accessoriesMax else {
                return actions.append(.note(id, "not used: \(Self.accessoriesMax) accessories are the limit"))
            }
            add(AccessoryConfiguration(id: id, address: facts.address, isBondedOnly: isBondedOnly), isAutomatic: true)
        }
        registry.assign(facts.id, to: id)
        if let accessory = accessories[id], accessory.kind != .passive(problem: nil) {
            replaceLink(id, by: .passive(problem: nil), device: accessory.link.device, at: now)
        }
        readLocal(id, at: now)
        // The Bluetooth device that it came by, if bluetoothd has told of it.
        guard let address = facts.address?.uppercased(), accessories[id]?.link.device == nil else { return }
        for device in registry.unowned where device.address.uppercased() == address {
            link(id, .device(device), at: now)
            link(id, .radio(radio), at: now)
        }
    }

    /// The accessory that a local device belongs to: the one that its rule names, the one with its address, the one with its name.
    private func owner(of facts: LocalDeviceFacts) -> AccessoryID? {
        let named = facts.id == .mediaPlayer ? .mediaPlayer : facts.accessoryName.map(AccessoryID.init)
        if let named { return accessories[named] == nil ? nil : named }
        if let address = facts.address?.uppercased(),
            let owner = order.first(where: { accessories[$0]?.hasAddress(address) == true })
        {
            return owner
        }
        return order.first { accessories[$0]?.hasName(of: facts, isLocal: registry.isLocal($0)) == true }
    }

    /// The name of the accessory that a local device is, if it is nobody's.
    private func newID(of facts: LocalDeviceFacts) -> AccessoryID {
        if facts.id == .mediaPlayer { return .mediaPlayer }
        if let name = facts.accessoryName { return AccessoryID(name) }
        let id = AccessoryID(facts.name)
        // Another one of its kind, which has the name already.
        if let address = facts.address, let other = accessories[id]?.configuration.address,
            address.uppercased() != other
        {
            return AccessoryID(address)
        }
        return id
    }

    private mutating func localRemoved(_ device: LocalDeviceID, at now: Instant) {
        let (facts, owner) = registry.remove(device)
        guard let facts, let id = owner, let accessory = accessories[id] else { return }
        if seededFault("a-device-that-is-gone-releases-nothing") { return }
        release(facts, of: id, .unplugged, at: now)
        guard !registry.isLocal(id) else { return readLocal(id, at: now) }
        accessories[id]?.localProblem = nil
        // What else the device offers counts again.
        accessories[id]?.judgeAgain()
        if accessory.isAutomatic, accessory.link.device == nil { remove(id, at: now) }
    }

    /// What a local device holds comes up; everything of its accessory, if no other device is left that could end it.
    private mutating func release(
        _ facts: LocalDeviceFacts, of id: AccessoryID, _ reason: AccessoryRelease, at now: Instant
    ) {
        let isLast = !registry.localDevices(of: id).contains { $0.id != facts.id && isLinked($0) && !isBarred($0) }
        // Which of its ports told what is not kept: with one of them everything comes up.
        guard !isLast, !facts.isSerialPort else { return release(id, reason, at: now) }
        for code in presses.lose(facts.id, of: id) {
            controls(id, .key(code: code, isDown: false), reason, at: now)
        }
    }

    /// Chooses the profile by which the local devices of an accessory are read, or says what is missing.
    private mutating func readLocal(_ id: AccessoryID, at now: Instant) {
        let locals = registry.localDevices(of: id)
        guard let configuration = accessories[id]?.configuration, !locals.isEmpty else { return }
        var problem: String?
        var found: AccessoryProfile?
        for facts in locals {
            do throws(UnfittingDevice) {
                let profile = try library.profile(of: facts, configuration)
                // One of several devices may be of no use, the consumer keys of a keyboard say.
                found = found ?? profile
            } catch {
                problem = problem ?? error.problem
            }
        }
        let failing = locals.compactMap { registry.problem(of: $0.id) }.first
        accessories[id]?.localProblem = failing ?? (found == nil ? problem : nil)
        if let found { return use(found, for: id, at: now) }
        release(id, .disconnected, at: now)
        presses.forgetControls(of: id)
    }

    // MARK: Local devices that came by Bluetooth

    /// A local device that came by Bluetooth, before an event.
    private struct WirelessLocal {
        let facts: LocalDeviceFacts
        let isLinked: Bool
        let isBarred: Bool
    }

    private var wirelessLocals: [WirelessLocal] {
        registry.wirelessLocals.map { WirelessLocal(facts: $0, isLinked: isLinked($0), isBarred: isBarred($0)) }
    }

    /// Whether a local device is connected. The kernel keeps the node of a HID-over-GATT button, and its keys as they were, when the
    /// link is lost.
    private func isLinked(_ facts: LocalDeviceFacts) -> Bool {
        guard let address = facts.address else { return true }
        return radio == .on && registry.device(address: address)?.isReachable == true
    }

    /// Whether the keys of a local device do not count, for want of a bond. Wired devices need none.
    private func isBarred(_ facts: LocalDeviceFacts) -> Bool {
        guard let address = facts.address, let id = registry.owner(of: facts.id),
            accessories[id]?.configuration.isBondedOnly == true
        else { return false }
        return registry.device(address: address)?.isBonded != true
    }

    /// What is held by local devices whose link, or bond, was there before and is not any more comes up.
    private mutating func releaseUnheard(_ before: [WirelessLocal], at now: Instant) {
        for local in before {
            let isLost = local.isLinked && !isLinked(local.facts) || !local.isBarred && isBarred(local.facts)
            guard isLost, let address = local.facts.address, let id = registry.owner(of: local.facts.id) else {
                continue
            }
            let reason: AccessoryRelease =
                switch radio {
                case .noService: .bluetoothStopped
                case .off: .adapterOff
                case .on: registry.device(address: address) == nil ? .removed : .disconnected
                }
            release(local.facts, of: id, reason, at: now)
        }
    }

    // MARK: Accessories

    private mutating func add(_ configuration: AccessoryConfiguration, isAutomatic: Bool) {
        let id = configuration.id
        accessories[id] = FleetAccessory(
            configuration, isAutomatic: isAutomatic, library: library, autoConnects: scheduler.autoConnects,
            feedback: feedback, former: accessories[id])
        presses.add(id)
        if !order.contains(id) { order.append(id) }
    }

    /// Takes an accessory out, with everything that points at it.
    private mutating func remove(_ id: AccessoryID, at now: Instant) {
        registry.release(id)
        presses.remove(id)
        accessories[id] = nil
        order.removeAll { $0 == id }
        watchCarriers(of: id, at: now)
        actions.append(.event(.removed(id)))
    }

    /// Ends everything of an accessory, and takes it out.
    private mutating func dismiss(_ id: AccessoryID, at now: Instant) {
        release(id, .removed, at: now)
        closeLink(id)
        remove(id, at: now)
    }

    /// Adds an accessory, or has it be as it is described now. What it holds is released first.
    private mutating func configure(_ configuration: AccessoryConfiguration, at now: Instant) {
        if accessories[configuration.id] == nil, order.count >= Self.accessoriesMax {
            let text = "not added: \(Self.accessoriesMax) accessories are the limit"
            return actions.append(.note(configuration.id, text))
        }
        // One that was taken without being configured gives way to its configuration.
        for id in order where id != configuration.id {
            guard let accessory = accessories[id], accessory.isAutomatic,
                accessory.isMeant(by: configuration, locals: registry.localDevices(of: id))
            else { continue }
            dismiss(id, at: now)
        }
        rebuild(configuration, isAutomatic: false, at: now)
    }

    /// A profile is new, or different: accessories that are read by it, or by none yet, are looked at again.
    private mutating func learn(_ profile: AccessoryProfile, at now: Instant) {
        library.add(profile)
        for id in order {
            accessories[id]?.judgeAgain()
            let current = presses.controls(of: id)?.profile.id
            guard let accessory = accessories[id], current == nil || current == profile.id else { continue }
            rebuild(accessory.configuration, isAutomatic: accessory.isAutomatic, at: now)
        }
        offerAll(at: now)
    }

    private mutating func rebuild(_ configuration: AccessoryConfiguration, isAutomatic: Bool, at now: Instant) {
        let id = configuration.id
        let former = accessories[id]?.kind == .gatt ? presses.controls(of: id) : nil
        release(id, .removed, at: now)
        closeLink(id)
        registry.release(id)
        add(configuration, isAutomatic: isAutomatic)
        link(id, .radio(radio), at: now)
        presses.setFormer(former, of: id)
        offerAll(at: now)
    }

    // MARK: Links

    /// Tells an accessory's link something, and carries out what it asks for.
    private mutating func link(_ id: AccessoryID, _ event: AccessoryLinkEvent, at now: Instant) {
        guard let asked = accessories[id]?.handle(event, at: now) else { return }
        let device = accessories[id]?.link.device
        if device?.isReachable != true { presses.setFormer(nil, of: id) }
        registry.assign(device?.id, to: id)
        for action in asked {
            switch action {
            case .command(let command):
                if case .read = command { controls(id, .asked, at: now) }
                if scheduler.admit(command) { actions.append(.command(command)) }
            case .recognised(let profile, let found):
                registry.route(found, to: id)
                use(profile, for: id, at: now)
            case .heard(let isKept):
                controls(id, .heard(isKept: isKept), at: now)
                // A link that was made in a hang: its presses waited, too.
                if carriers.handsOnBacklog(accessories[id]?.carrier, at: now) { controls(id, .resumed, at: now) }
            case .lost(let reason):
                presses.forgetBattery(of: id)
                release(id, reason, at: now)
            }
        }
        serve(id, at: now)
    }

    /// Another link takes over, with what is known; what is held by the former is released.
    private mutating func replaceLink(
        _ id: AccessoryID, by kind: AccessoryLinkKind, device: DeviceFacts?, at now: Instant
    ) {
        release(id, .disconnected, at: now)
        closeLink(id)
        registry.route([:], to: id)
        accessories[id]?.replaceLink(by: kind, device: device, library: library, autoConnects: scheduler.autoConnects)
        presses.forgetControls(of: id)
        presses.forgetBattery(of: id)
        serve(id, at: now)
        // As after a start: the device first, then that there is Bluetooth.
        if let device { link(id, .device(device), at: now) }
        link(id, .radio(radio), at: now)
    }

    /// Its link is given up: what the host keeps open for it ends, and what waits is not done.
    private mutating func closeLink(_ id: AccessoryID) {
        guard let accessory = accessories[id], let device = accessory.link.device?.id else { return }
        scheduler.withdraw(.connect(device: device))
        guard case .stream(let kind) = accessory.kind else { return }
        scheduler.withdraw(.openStream(device: device, kind))
        actions.append(.command(.closeStream(device: device, kind)))
    }

    private mutating func serve(_ id: AccessoryID, at now: Instant) {
        watchCarriers(of: id, at: now)
        actions += accessories[id]?.serve(at: now) ?? []
    }

    private mutating func light(_ id: AccessoryID, _ event: LightStateMachine.Event, at now: Instant) {
        actions += accessories[id]?.light(event, at: now) ?? []
    }

    private mutating func tighten(_ id: AccessoryID, _ event: LinkTightening.Event, at now: Instant) {
        actions += accessories[id]?.tighten(event, at: now) ?? []
    }

    // MARK: Scans and connections

    /// The device that may be asked for, though bluetoothd should connect it by itself, and from when on: the one that has waited
    /// longest since it was due. None while somebody presses, for the radio has better to do.
    private var nextAsked: (id: AccessoryID, time: Instant)? {
        guard scheduler.mayAsk, !presses.isQuiet, !presses.isAnyDown,
            !accessories.values.contains(where: { $0.link.isConnecting })
        else { return nil }
        var next: (id: AccessoryID, time: Instant)?
        for id in order {
            guard let time = accessories[id]?.link.asksAfter, next.map({ time < $0.time }) ?? true else { continue }
            next = (id, time)
        }
        return next
    }

    private mutating func ask(at now: Instant) {
        guard let (id, time) = nextAsked, time <= now, let device = accessories[id]?.link.device?.id else { return }
        let before = actions.count
        link(id, .ask, at: now)
        if actions[before...].contains(.command(.connect(device: device))) { scheduler.asks(for: device) }
    }

    private mutating func connect() {
        var needs = ConnectionScheduler.Needs()
        for accessory in accessories.values {
            needs.isScanWanted = needs.isScanWanted || accessory.link.wantsDiscovery
            needs.isConnecting = needs.isConnecting || accessory.link.isConnecting
            needs.services.formUnion(accessory.link.servicesToRegister)
        }
        actions += scheduler.commands(for: needs).map { .command($0) }
    }

    // MARK: What is told

    private mutating func tellChanges(of id: AccessoryID) {
        guard let status = condition(of: id)?.status, accessories[id]?.report(status) == true else { return }
        actions.append(.event(.changed(status)))
    }

    private func condition(of id: AccessoryID) -> AccessoryCondition? {
        guard let accessory = accessories[id] else { return nil }
        let locals = registry.localDevices(of: id)
        return AccessoryCondition(
            accessory: accessory, controls: presses.controls(of: id), battery: presses.battery(of: id),
            isHeld: presses.isHeld(by: id), locals: locals, isLocalBarred: locals.contains(where: isBarred),
            library: library, radio: radio,
            lostCarrier: accessory.carrier.flatMap { carriers.isLost($0) ? $0 : nil },
            floodRate: accessory.link.device.flatMap { registry.flood(of: $0.id) })
    }
}
