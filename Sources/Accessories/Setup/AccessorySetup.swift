// Setting up accessories for people: scanning, adding, changing, removing. Learning is in AccessorySetup+Learning.swift. The rules are
// in the state machines beside it.
import BlueZ
import Logging
import MonotonicTime
import Reactor
import Settings

/// What setting up tells, on the loop, in order.
public enum AccessorySetupEvent: Sendable {
    /// A scan found a device, or something about it is different.
    case found(ScannedDevice)
    /// A device is no longer known to the system's Bluetooth.
    case lost(address: String)
    /// Where the addition of this address is.
    case progress(address: String, AdditionStep)
    /// Where the learning session is.
    case learning(LearningReport)
    /// An accessory has come, gone or changed in a way that no `AccessoryEvent` tells.
    case changed
}

/// Who put an accessory where it is.
public enum AccessoryOrigin: String, Hashable, Sendable {
    /// pttd.toml.
    case configuration
    /// A person, over D-Bus.
    case added
    /// Nobody: the system trusts it and a profile fits, or a udev rule names it.
    case automatic
}

/// Sets accessories up, beside the service that uses them; lives on its loop.
public actor AccessorySetup {
    /// The loop it lives on.
    public nonisolated let loop: EventLoop
    /// The loop as its executor.
    public nonisolated var unownedExecutor: UnownedSerialExecutor { loop.asUnownedSerialExecutor() }

    private struct Addition {
        var machine: AddStateMachine
        var isScanning = false
        let answer: CheckedContinuation<Result<[String], AccessorySetupError>, Never>
    }

    let service: AccessoryService
    let store: AccessoryStore
    let logger: Logger
    let handler: @Sendable (AccessorySetupEvent) -> Void
    let allowsCommands: Bool
    private let isBondedOnly: Bool
    private let configured: [AccessoryID: AccessoryConfiguration]
    private var contents: AccessoryStore.Contents
    private var observation: Int?
    private(set) var radio = RadioState.noService
    private var scan: ScanStateMachine
    private var isScannedByPerson = false
    private var isScanAsked = false
    private var additions: [String: Addition] = [:]
    var learning: LearningSession?
    /// Local devices, while something observes.
    var localDevices: [LocalDeviceID: LocalDeviceFacts] = [:]
    private var timer: EventLoop.Timer?
    private var isStopped = false

    /// - Parameters:
    ///   - service: Made with the settings of `restored`.
    ///   - handler: Called on the loop for each event, in order.
    public init(
        service: AccessoryService, restored: RestoredAccessories, store: AccessoryStore, logger: Logger,
        handler: @escaping @Sendable (AccessorySetupEvent) -> Void
    ) {
        self.service = service
        self.store = store
        self.logger = logger
        self.handler = handler
        loop = service.loop
        configured = restored.configured
        contents = restored.contents
        allowsCommands = restored.settings.allowsCommands
        isBondedOnly = restored.settings.isBondedOnly
        scan = ScanStateMachine(library: restored.settings.library)
    }

    /// Ends everything that is under way.
    public func stop() {
        cancelLearning()
        for address in additions.keys.sorted() { cancelAdding(address: address) }
        isScannedByPerson = false
        isStopped = true
        observeAsNeeded()
    }

    /// What the service's handler was told; give it all of it.
    public func happened(_ event: AccessoryEvent) {
        guard case .changed(let status) = event, !isStopped else { return }
        for address in additions.keys.sorted() { add(address, .status(status)) }
        if observation != nil { carryOut(scan.handle(.accessories(accessoryAddresses), at: .now)) }
    }

    /// Who put an accessory where it is.
    public func origin(of id: AccessoryID) -> AccessoryOrigin {
        if configured[id] != nil { return .configuration }
        return contents.accessories.contains { $0.id == id } ? .added : .automatic
    }

    // MARK: Scanning

    /// Begins or ends a person's scan. What is found is told; what is known is in `devices`.
    ///
    /// - Throws: When there is no Bluetooth.
    public func setScanning(_ isOn: Bool) throws(AccessorySetupError) {
        isScannedByPerson = isOn
        observeAsNeeded()
        if isOn, radio != .on {
            isScannedByPerson = false
            observeAsNeeded()
            throw noRadio
        }
        scanAsNeeded()
    }

    private var noRadio: AccessorySetupError {
        AccessorySetupError(
            .notFound,
            radio == .noService
                ? "the Bluetooth service is not running: systemctl start bluetooth"
                : "no Bluetooth adapter is on: plug one in, or 'rfkill unblock bluetooth', 'bluetoothctl power on'")
    }

    /// The devices that are known now, the strongest first; while a person scans.
    public var devices: [ScannedDevice] { isScannedByPerson ? scan.devices : [] }

    // MARK: Adding and removing

    /// Adds an accessory; returns when its presses arrive and it has been written down.
    ///
    /// - Returns: Its id, and what the installer should know.
    /// - Throws: Why not; then nothing is as if it had been tried.
    public func add(_ addition: AccessoryAddition) async throws(AccessorySetupError) -> (
        id: AccessoryID, notes: [String]
    ) {
        try check(addition)
        let names = takenNames
        let machine = AddStateMachine(addition, library: library, at: .now) { device in
            AccessoryNames.unique(AccessoryNames.name(from: device.name, fallback: "button")) { names.contains($0) }
        }
        let result = await withCheckedContinuation { continuation in
            additions[addition.address] = Addition(machine: machine, answer: continuation)
            observeAsNeeded()
            guard radio == .on else { return finish(addition.address, .failure(noRadio)) }
            carryOut(machine.firstActions, of: addition.address)
            if let device = scan.device(address: addition.address) { add(addition.address, .device(device)) }
            schedule()
        }
        switch result {
        case .success(let notes):
            guard let id = contents.accessories.last(where: { $0.address == addition.address })?.id else {
                throw AccessorySetupError(.notFound, "the accessory has been removed again")
            }
            return (id, notes)
        case .failure(let error): throw error
        }
    }

    var library: ProfileLibrary { service.assumeIsolated { $0.library } }

    private func unconfigure(_ id: AccessoryID) { service.assumeIsolated { $0.unconfigure(id) } }

    private var takenNames: Set<String> {
        Set(service.assumeIsolated { $0.statuses.map(\.id.text) })
            .union(configured.keys.map(\.text)).union(contents.accessories.map(\.id.text))
            .union(additions.values.compactMap { $0.machine.configuration?.id.text })
    }

    private func check(_ addition: AccessoryAddition) throws(AccessorySetupError) {
        guard additions[addition.address] == nil else {
            throw AccessorySetupError(.busy, "\(addition.address) is being added already; wait for it")
        }
        if let name = addition.name {
            guard AccessoryNames.isValid(name) else {
                throw AccessorySetupError(
                    .invalid, "'\(name)' is no name: use letters, digits, '-' and '_', at most 64")
            }
            guard !takenNames.contains(name) else {
                throw AccessorySetupError(
                    .alreadyConfigured, "there is an accessory '\(name)' already; choose another name")
            }
        }
        let (library, configurations) = service.assumeIsolated { ($0.library, $0.configurations) }
        if let id = addition.profileID, library[id] == nil {
            throw AccessorySetupError(
                .invalid, "there is no profile '\(id)'; 'pttctl profile list' shows those there are")
        }
        let accessory =
            configurations.first { $0.address == addition.address && origin(of: $0.id) != .automatic }?.id
            ?? accessoryAddresses[addition.address].flatMap { origin(of: $0) == .automatic ? nil : $0 }
        if let accessory {
            throw AccessorySetupError(
                .alreadyConfigured, "\(addition.address) is accessory '\(accessory)' already; remove that first")
        }
        guard configured.count + contents.accessories.count < AccessoriesStateMachine.accessoriesMax else {
            throw AccessorySetupError(
                .busy, "there are \(AccessoriesStateMachine.accessoriesMax) accessories; remove one first")
        }
    }

    /// Whoever adds this device wants it no more.
    public func cancelAdding(address: String) { add(address, .cancelled) }

    /// Forgets an accessory, and has BlueZ forget the device.
    public func remove(_ id: AccessoryID) async throws(AccessorySetupError) {
        let status = try status(of: id)
        guard configured[id] == nil else {
            throw AccessorySetupError(
                .refused, "'\(id)' is in pttd.toml: remove [accessory.\(id)] there, and restart pttd")
        }
        let address = status.address.isEmpty ? contents.accessories.first { $0.id == id }?.address : status.address
        guard contents.accessories.contains(where: { $0.id == id }) || address != nil else {
            throw AccessorySetupError(.refused, "'\(id)' comes from a udev rule: remove that rule, then unplug it")
        }
        var new = contents
        new.accessories.removeAll { $0.id == id }
        new.changes[id] = nil
        try save(new)
        let device = address.flatMap { known(address: $0) }
        unconfigure(id)
        handler(.changed)
        guard let device else { return }
        let failure = await service.perform(.remove(device: device.id))
        if let failure, failure != .doesNotExist {
            logger.notice(
                "BlueZ has not forgotten a removed accessory", metadata: ["id": "\(id)", "why": "\(failure)"])
        }
    }

    /// The device as BlueZ knows it now.
    private func known(address: String) -> DeviceFacts? {
        let seen = Seen()
        let token = service.assumeIsolated { service in
            service.observe { report in
                guard case .bluetooth(.device(let facts)) = report, facts.address.uppercased() == address.uppercased()
                else { return }
                seen.loopOnly = facts
            }
        }
        service.assumeIsolated { $0.removeObserver(token) }
        return seen.loopOnly
    }

    /// Filled on the loop, before `observe` returns.
    private final class Seen: @unchecked Sendable { var loopOnly: DeviceFacts? }

    // MARK: Changing

    /// Has a control do something else; nil: what it does otherwise.
    public func bind(_ control: Control, to action: ControlAction?, of id: AccessoryID) throws(AccessorySetupError) {
        let status = try status(of: id)
        if let profile = status.profileID.flatMap({ library[$0] }),
            !profile.controls.contains(control)
        {
            let known = profile.controls.map(\.rawValue).joined(separator: ", ")
            throw AccessorySetupError(
                .invalid, "'\(id)' has no control '\(control.rawValue)'; it has \(known.isEmpty ? "none" : known)")
        }
        if case .command? = action, !allowsCommands {
            throw AccessorySetupError(
                .refused, "only a user's own daemon runs commands: systemctl --user start pttd, and bind it there")
        }
        try change(status) { $0.bindings[control] = action }
    }

    /// Has talk controls work otherwise; nil: as the profile says.
    public func setGesture(_ gesture: Gesture?, of id: AccessoryID) throws(AccessorySetupError) {
        let status = try status(of: id)
        let profile = status.profileID.flatMap { library[$0] }
        if let gesture, gesture == .hold || gesture == .hybrid, let profile,
            profile.toggleOnly.contains(where: { profile.defaultAction(of: $0) == .transmit })
        {
            throw AccessorySetupError(
                .refused, "'\(id)' tells no release, so it can only toggle: one press begins, the next one ends")
        }
        try change(status) { $0.gesture = gesture }
    }

    /// Says whether an accessory has to be bonded.
    public func setBondedOnly(_ isBondedOnly: Bool, of id: AccessoryID) throws(AccessorySetupError) {
        try change(try status(of: id)) { $0.isBondedOnly = isBondedOnly }
    }

    /// Tries an accessory: its controls are reported and do nothing. Nothing is done for one that is gone.
    public func setTesting(_ id: AccessoryID, _ isOn: Bool) throws(AccessorySetupError) {
        if isOn { _ = try status(of: id) }
        service.assumeIsolated { $0.setTesting(id, isOn) }
    }

    private func status(of id: AccessoryID) throws(AccessorySetupError) -> AccessoryStatus {
        guard let status = service.assumeIsolated({ $0.statuses.first { $0.id == id } }) else { throw .unknown(id) }
        return status
    }

    /// Changes what is kept of an accessory, writes it down, and has the service use it.
    private func change(
        _ status: AccessoryStatus, _ body: (inout AccessoryStore.Change) -> Void
    ) throws(AccessorySetupError) {
        var new = contents
        let result: AccessoryConfiguration
        if let original = configured[status.id] {
            var change = new.changes[status.id] ?? AccessoryStore.Change()
            body(&change)
            new.changes[status.id] = change.isEmpty ? nil : change
            result = change.applied(to: original)
        } else {
            // Taken by itself until now; what a person has said about it makes it that person's.
            let index = new.accessories.firstIndex { $0.id == status.id }
            var accessory =
                index.map { new.accessories[$0] }
                ?? AccessoryConfiguration(
                    id: status.id, address: status.address.isEmpty ? nil : status.address,
                    profileID: status.address.isEmpty ? status.profileID : nil, isBondedOnly: isBondedOnly)
            var change = AccessoryStore.Change(
                gesture: accessory.gesture, isBondedOnly: accessory.isBondedOnly, bindings: accessory.bindings)
            body(&change)
            accessory.gesture = change.gesture
            accessory.isBondedOnly = change.isBondedOnly ?? isBondedOnly
            accessory.bindings = change.bindings
            if let index { new.accessories[index] = accessory } else { new.accessories.append(accessory) }
            result = accessory
        }
        try save(new)
        service.assumeIsolated { $0.configure(result) }
        handler(.changed)
    }

    private func save(_ new: AccessoryStore.Contents) throws(AccessorySetupError) {
        do throws(AtomicFile.Failure) {
            try store.save(new)
            contents = new
        } catch {
            throw AccessorySetupError(.notSaved, "\(error); nothing was changed")
        }
    }

    /// The device as the scan knows it.
    func scannedDevice(_ address: String) -> DeviceFacts? { scan.device(address: address) }

    /// Has an accessory work by another profile; false when that is not possible.
    func useProfile(_ profileID: String, of id: AccessoryID) -> Bool {
        // pttd.toml says its profile, or leaves it to be recognised.
        guard let index = contents.accessories.firstIndex(where: { $0.id == id }) else {
            return configured[id]?.profileID == nil
        }
        var new = contents
        new.accessories[index].profileID = profileID
        do throws(AccessorySetupError) { try save(new) } catch {
            logger.error("accessory's profile not kept", metadata: ["id": "\(id)", "why": "\(error)"])
            return false
        }
        let configuration = new.accessories[index]
        service.assumeIsolated { $0.configure(configuration) }
        handler(.changed)
        return true
    }

    // MARK: Observing

    private var accessoryAddresses: [String: AccessoryID] {
        let statuses = service.assumeIsolated { $0.statuses }
        return Dictionary(
            statuses.filter { !$0.address.isEmpty }.map { ($0.address.uppercased(), $0.id) }
        ) { first, _ in first }
    }

    /// Observes while there is a reason to: nothing is done for every press otherwise.
    func observeAsNeeded() {
        let isNeeded = !isStopped && (isScannedByPerson || !additions.isEmpty || learning != nil)
        if isNeeded, observation == nil {
            scan = ScanStateMachine(library: library)
            carryOut(scan.handle(.accessories(accessoryAddresses), at: .now))
            // Told at once: what is known already.
            observation = -1
            observation = service.assumeIsolated { service in
                service.observe { [weak self] report in self?.assumeIsolated { $0.received(report) } }
            }
        } else if !isNeeded, let token = observation {
            observation = nil
            service.assumeIsolated { $0.removeObserver(token) }
            scan = ScanStateMachine(library: ProfileLibrary([]))
            localDevices = [:]
        }
        scanAsNeeded()
        schedule()
    }

    func scanAsNeeded() {
        let isWanted =
            isScannedByPerson || additions.values.contains { $0.isScanning } || learning?.isScanning == true
        guard isWanted != isScanAsked else { return }
        isScanAsked = isWanted
        service.assumeIsolated { $0.setScanning(isWanted) }
    }

    private func received(_ report: AccessoryReport) {
        guard observation != nil else { return }
        switch report {
        case .bluetooth(let report): received(report)
        case .local(let report):
            switch report {
            case .added(let facts): localDevices[facts.id] = facts
            case .removed(let id): localDevices[id] = nil
            case .key, .bytes, .problem: break
            }
            learn(report)
        }
    }

    private func received(_ report: BluetoothReport) {
        switch report {
        case .radio(let state):
            radio = state
            if state == .noService { carryOut(scan.handle(.reset, at: .now)) }
        case .device(let facts):
            carryOut(scan.handle(.device(facts), at: .now))
            add(facts.address.uppercased(), .device(facts))
        case .deviceRemoved(let id):
            let address = scan.address(of: id)
            carryOut(scan.handle(.deviceRemoved(id), at: .now))
            if let address { add(address, .deviceRemoved) }
        case .heard(let id, let strength): carryOut(scan.handle(.heard(id, signalStrength: strength), at: .now))
        default: break
        }
        learn(report)
    }

    private func carryOut(_ actions: [ScanStateMachine.Action]) {
        for action in actions where isScannedByPerson {
            switch action {
            case .found(let device): handler(.found(device))
            case .lost(let address): handler(.lost(address: address))
            }
        }
        schedule()
    }

    // MARK: Additions

    private func add(_ address: String, _ event: AddStateMachine.Event) {
        guard var addition = additions[address] else { return }
        let actions = addition.machine.handle(event, at: .now)
        // Kept before the actions are carried out: they cause more events.
        additions[address] = addition
        carryOut(actions, of: address)
        schedule()
    }

    private func carryOut(_ actions: [AddStateMachine.Action], of address: String) {
        for action in actions {
            switch action {
            case .progress(let step): handler(.progress(address: address, step))
            case .scan(let isOn):
                additions[address]?.isScanning = isOn
                scanAsNeeded()
            case .configure(let configuration):
                // What was taken by itself is in the way of what a person adds.
                if let old = accessoryAddresses[address] { service.assumeIsolated { $0.unconfigure(old) } }
                service.assumeIsolated { $0.configure(configuration) }
            case .unconfigure(let id): service.assumeIsolated { $0.unconfigure(id) }
            case .command(let command):
                Task {
                    let failure = await service.perform(command)
                    add(address, .completed(command, failure))
                }
            case .save(let configuration):
                var new = contents
                new.accessories.append(configuration)
                do throws(AccessorySetupError) {
                    try save(new)
                    add(address, .saved(nil))
                } catch {
                    add(address, .saved(error.description))
                }
            case .finished(let result): finish(address, result)
            }
        }
    }

    private func finish(_ address: String, _ result: Result<[String], AccessorySetupError>) {
        guard let addition = additions.removeValue(forKey: address) else { return }
        switch result {
        case .success: logger.notice("accessory added", metadata: ["address": "\(address)"])
        case .failure(let error):
            logger.notice("accessory not added", metadata: ["address": "\(address)", "why": "\(error)"])
        }
        handler(.changed)
        addition.answer.resume(returning: result)
        observeAsNeeded()
    }

    // MARK: Time

    func schedule() {
        timer?.cancel()
        timer = nil
        let deadlines =
            [scan.nextDeadline, learning?.nextDeadline] + additions.values.map(\.machine.nextDeadline)
        guard let next = deadlines.compactMap({ $0 }).min(), observation != nil else { return }
        timer = loop.schedule(at: next) { [weak self] in self?.assumeIsolated { $0.elapsed() } }
    }

    private func elapsed() {
        let now = Instant.now
        if let due = scan.nextDeadline, due <= now { carryOut(scan.handle(.deadline, at: now)) }
        for (address, addition) in additions {
            if let due = addition.machine.nextDeadline, due <= now { add(address, .deadline) }
        }
        learningElapsed(at: now)
        schedule()
    }
}
