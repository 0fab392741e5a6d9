// Setting up accessories for people: scanning, adding, changing, removing. Learning is in AccessorySetup+Learning.swift. The rules are
// in the state machines beside it.
import Accessories
import BlueZ
import Files
import Logging
import MonotonicTime
import Reactor
import Settings
import Vocabulary

/// What setting up tells, on the loop, in order.
public enum AccessorySetupEvent: Sendable {
    /// A scan found a device, or something about it is different.
    case found(DiscoveredDevice)
    /// A device is no longer known to the system's Bluetooth.
    case lost(address: String)
    /// Where the addition of this address is.
    case progress(address: String, AddStep)
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

    struct Addition {
        var machine: AddStateMachine
        var isScanning = false
        /// Whether the person asks for a bond, and not only pttd.toml.
        let isBondedOnly: Bool
        /// How many scans there had been when it began.
        let scansBefore: Int
        let answer: CheckedContinuation<Result<[String], AccessoryError>, Never>
    }

    let service: AccessoryService
    let store: AccessoryStore
    /// The loop that writes `store`. It may wait for the disk.
    let disk: EventLoop
    let logger: Logger
    let handler: @Sendable (AccessorySetupEvent) -> Void
    let allowsCommands: Bool
    /// pttd.toml asks for a bond of all accessories.
    let isBondedOnly: Bool
    let configured: [AccessoryID: AccessoryConfiguration]
    /// What is on the disk.
    private(set) var contents: AccessoryStore.Contents
    /// Those that wait for an earlier change of `contents`; nil while none is under way.
    private(set) var editsWaiting: [CheckedContinuation<Void, Never>]?
    private var isObserving = false
    private(set) var radio = RadioState.noService
    var scan: ScanStateMachine
    private var isScannedByPerson = false
    private var isScanAsked = false
    var additions: [String: Addition] = [:]
    var learning: LearningSession?
    /// How many sessions there have been.
    var learningSessions = 0
    /// Local devices, while something observes.
    var localDevices: [LocalDeviceID: LocalDeviceFacts] = [:]
    private var timer: EventLoop.Timer?
    private var isStopped = false

    /// - Parameters:
    ///   - service: Made with the settings of `restored`.
    ///   - disk: The loop that writes `store`. It may wait for the disk.
    ///   - handler: Called on the loop for each event, in order.
    public init(
        service: AccessoryService, restored: RestoredAccessories, store: AccessoryStore, disk: EventLoop,
        logger: Logger,
        handler: @escaping @Sendable (AccessorySetupEvent) -> Void
    ) {
        self.service = service
        self.store = store
        self.disk = disk
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
        if isObserving { carryOut(scan.handle(.accessories(accessoryAddresses), at: .now)) }
    }

    /// Who put an accessory where it is.
    public func origin(of id: AccessoryID) -> AccessoryOrigin {
        if configured[id] != nil { return .configuration }
        return contents.accessories.contains { $0.id == id } ? .added : .automatic
    }

    /// Changes what is kept. One change follows the other, and none waits for the disk on this loop.
    ///
    /// - Parameter change: Called when earlier changes are over; what it throws ends this one.
    /// - Returns: What `change` returned, when its change is on the disk.
    /// - Throws: `.notSaved`; then everything is as it was before.
    func edit<T: Sendable>(
        _ change: @Sendable (inout AccessoryStore.Contents) throws(AccessoryError) -> T
    ) async throws(AccessoryError) -> T {
        if editsWaiting == nil {
            editsWaiting = []
        } else {
            await withCheckedContinuation { editsWaiting?.append($0) }
        }
        defer { if editsWaiting?.isEmpty == false { editsWaiting?.removeFirst().resume() } else { editsWaiting = nil } }
        var new = contents
        let result = try change(&new)
        do throws(FileError) {
            try await disk.perform { [store, new] () throws(FileError) in try store.save(new) }
        } catch {
            throw AccessoryError(.notSaved, "\(error); nothing was changed")
        }
        contents = new
        return result
    }

    // MARK: Scanning

    /// Begins or ends a person's scan. What is found is told; what is known is in `devices`.
    ///
    /// - Throws: When there is no Bluetooth.
    public func setScanning(_ isOn: Bool) throws(AccessoryError) {
        let wasScanned = isScannedByPerson
        isScannedByPerson = isOn
        observeAsNeeded()
        if isOn, radio != .on {
            // Whoever scans already goes on when the radio is back.
            isScannedByPerson = wasScanned
            observeAsNeeded()
            throw noRadio
        }
        scanAsNeeded()
    }

    var noRadio: AccessoryError {
        AccessoryError(
            .notFound,
            radio == .noService
                ? "the Bluetooth service is not running: systemctl start bluetooth"
                : "no Bluetooth adapter is on: plug one in, or 'rfkill unblock bluetooth', 'bluetoothctl power on'")
    }

    /// The devices that are known now, the strongest first; while a person scans.
    public var devices: [DiscoveredDevice] { isScannedByPerson ? scan.devices : [] }

    // MARK: Observing

    var accessoryAddresses: [String: AccessoryID] {
        let statuses = service.assumeIsolated { $0.statuses }
        return Dictionary(
            statuses.filter { !$0.address.isEmpty }.map { ($0.address.uppercased(), $0.id) }
        ) { first, _ in first }
    }

    /// Observes while there is a reason to: nothing is done for every press otherwise.
    func observeAsNeeded() {
        let isNeeded = !isStopped && (isScannedByPerson || !additions.isEmpty || learning != nil)
        if isNeeded, !isObserving {
            scan = ScanStateMachine(library: library)
            carryOut(scan.handle(.accessories(accessoryAddresses), at: .now))
            let known = service.assumeIsolated { service in
                service.observe { [weak self] report in self?.assumeIsolated { $0.received(report) } }
            }
            isObserving = true
            for report in known { received(report) }
        } else if !isNeeded, isObserving {
            isObserving = false
            service.assumeIsolated { _ = $0.observe(nil) }
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
        // What was known may have ended what it was observed for.
        guard isObserving else { return }
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

    func carryOut(_ actions: [ScanStateMachine.Action]) {
        for action in actions where isScannedByPerson {
            switch action {
            case .found(let device): handler(.found(device))
            case .lost(let address): handler(.lost(address: address))
            }
        }
        schedule()
    }

    // MARK: Time

    func schedule() {
        timer?.cancel()
        timer = nil
        let deadlines =
            [scan.nextDeadline, learning?.nextDeadline] + additions.values.map(\.machine.nextDeadline)
        guard let next = deadlines.compactMap({ $0 }).min(), isObserving else { return }
        timer = loop.schedule(at: next) { [weak self] in self?.assumeIsolated { $0.elapsed() } }
    }

    private func elapsed() {
        let now = Instant.now
        if let due = scan.nextDeadline, due <= now { carryOut(scan.handle(.deadline, at: now)) }
        let scans = service.assumeIsolated { $0.scans }
        for (address, addition) in additions {
            if scans.isOn || scans.count != addition.scansBefore { add(address, .scanned) }
            if let due = addition.machine.nextDeadline, due <= now { add(address, .deadline) }
        }
        learningElapsed(at: now)
        schedule()
    }
}
