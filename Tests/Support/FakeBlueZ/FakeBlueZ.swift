// bluetoothd with an adapter and virtual buttons, for tests, the demonstration and the benchmark. Behaves as BlueZ 5.66.
import DBus
import Logging
import MonotonicTime
import Reactor

/// What becomes of a pairing.
enum PairBehaviour: String {
    case succeeds = "ok"
    /// The device is paired, and `Pair` is never answered.
    case isNotAnswered = "unanswered"
    /// `Pair` is never answered, and nothing happens.
    case hangs = "hang"
    /// The device hangs up; `Pair` is never answered.
    case hangsUp = "hangup"
    /// The device is forgotten; `Pair` is never answered.
    case vanishes = "vanish"
}

/// A simulated button and its radio.
public struct Peripheral: Sendable {
    /// The name that commands use.
    public let name: String
    /// What it is.
    public let profile: PeripheralProfile
    /// Its address, `AA:BB:CC:DD:EE:FF`.
    public let address: String
    /// The name it advertises: the profile's, or else `name`.
    public let advertisedName: String
    var advertises = true
    var isLinked = false
    var value: [UInt8]
    var battery: UInt8 = 77
    /// How many of the next links break while they are set up.
    var linksToAbort = 0
    var pairing = PairBehaviour.succeeds

    var isAdvertising: Bool { advertises && !isLinked }
    var services: [String] { [profile.service] + (profile.hasBattery ? [PeripheralProfile.short("180f")] : []) }

    /// A button that advertises.
    public init(name: String, profile: PeripheralProfile, address: String) {
        self.name = name
        self.profile = profile
        self.address = address
        advertisedName = profile.advertisedName ?? name
        value = profile.released
    }

    /// Parses `NAME=PROFILE[,ADDRESS]`; without an address it is `C4:00:00:00:00:` and `index`. Nil when it is not that.
    public init?(_ argument: String, index: Int) {
        let parts = argument.split(separator: "=", maxSplits: 1)
        guard parts.count == 2 else { return nil }
        let options = parts[1].split(separator: ",")
        guard let kind = options.first, let profile = PeripheralProfile.named(String(kind)) else { return nil }
        let digits = String(index & 0xff, radix: 16, uppercase: true)
        let address =
            options.count > 1 ? String(options[1]) : "C4:00:00:00:00:" + (digits.count == 1 ? "0" : "") + digits
        guard address.split(separator: ":").count == 6, address.utf8.count == 17 else { return nil }
        self.init(name: String(parts[0]), profile: profile, address: address.uppercased())
    }
}

/// A `org.bluez` on some bus, with adapter `hci0` and the given buttons.
///
/// What it does not simulate: other adapters, classic devices but for their serial port, descriptors, AcquireNotify.
public actor FakeBlueZ {
    /// How long things take, and how they go wrong.
    public struct Configuration: Sendable {
        /// From an advertisement heard to the link.
        public var linkDelay = Duration.milliseconds(10)
        /// From the link to usable services.
        public var resolveDelay = Duration.milliseconds(100)
        /// How long `Connect` waits for an advertisement.
        public var connectTimeout = Duration.seconds(20)
        /// How long a device that was only seen is remembered after the discovery.
        public var temporaryTimeout = Duration.seconds(30)
        /// How long after its start the daemon switches the adapter on (`AutoEnable`); nil: it is on from the start.
        public var powerOnDelay: Duration?
        /// Whether GATT objects come this long after `ServicesResolved`, as is seen after aborted links; nil: before.
        public var objectsLate: Duration?
        /// How often a button that advertises is heard again during a discovery; nil: once, when it begins.
        public var hearingPause: Duration?
        /// How long bluetoothd waits for a profile's answer to `NewConnection`.
        public var profileTimeout = Duration.seconds(2)
        /// The usual ones.
        public init() {}
    }

    /// What bluetoothd keeps about a device.
    struct Record {
        var isPermanent = false
        var isTrusted = false
        var isPaired = false
        /// `Disconnect` of an untrusted device.
        var isAutoConnectOff = false
        // Not stored:
        var isExported = false
        var areAttributesExported = false
        var areServicesResolved = false
        var isConnecting = false
        var hasBattery = false
        var subscribers: Set<String> = []
        var linkNumber = 0
    }

    /// A registered GATT application.
    struct Application: Hashable {
        let sender: String
        let path: DBusObjectPath
        let services: Set<String>
    }

    /// The loop it lives on.
    public nonisolated let loop: EventLoop
    /// The loop, as the actor's executor.
    public nonisolated var unownedExecutor: UnownedSerialExecutor { loop.asUnownedSerialExecutor() }

    nonisolated let adapterPath: DBusObjectPath = "/org/bluez/hci0"
    let address: DBusAddress
    let logger: Logger
    let configuration: Configuration
    var connection: DBusConnection?
    var peripherals: [String: Peripheral] = [:]
    var records: [String: Record] = [:]
    var hasAdapter = true
    var isPowered = true
    var discoverers: Set<String> = []
    var applications: Set<Application> = []
    var agents: [String: DBusObjectPath] = [:]
    var clientWatches: [String: DBusNameWatch] = [:]
    var connecting: [String: CheckedContinuation<Void, Never>] = [:]
    var unansweredPairs: [String: [CheckedContinuation<Void, Never>]] = [:]
    /// How often a pairing was to be given up.
    public internal(set) var cancelledPairings = 0
    var temporaryTimers: [String: EventLoop.Timer] = [:]
    /// The one profile that is registered.
    public internal(set) var serialClient: SerialClient?
    var ports: [String: SerialPort] = [:]
    var refusedRegistrations = 0
    var players: [Player] = []
    /// What is advertised.
    public internal(set) var advertisements: [FakeAdvertisement] = []
    /// The network that a client offers, and over which bridge.
    public internal(set) var offeredNetwork: (sender: String, bridge: String)?
    /// The networks of devices, by their names.
    var networks: [String: FakeNetwork] = [:]
    /// As without the AVRCP plug-in.
    var refusesPlayers = false
    var hearingTimer: EventLoop.Timer?
    var strengthOffset: Int16 = 1

    /// A daemon that is not running yet.
    public init(
        on address: DBusAddress, loop: EventLoop, logger: Logger, peripherals: [Peripheral],
        configuration: Configuration = Configuration()
    ) {
        self.address = address
        self.loop = loop
        self.logger = logger
        self.configuration = configuration
        for peripheral in peripherals {
            self.peripherals[peripheral.name] = peripheral
            records[peripheral.name] = Record()
        }
    }

    // MARK: Life of the daemon

    /// Starts the daemon: takes the name `org.bluez` with everything exported before.
    public func start() async throws {
        guard connection == nil else { return }
        let connection = DBusConnection(to: address, on: loop, logger: logger, reconnects: false)
        self.connection = connection
        isPowered = configuration.powerOnDelay == nil
        if let delay = configuration.powerOnDelay {
            loop.schedule(after: delay) { [weak self] in
                self?.assumeIsolated { fake in
                    _ = Task { try? await fake.setAdapterPowered(true) }
                }
            }
        }
        do {
            try await connection.connect()
            await connection.exportObjectManager(at: "/")
            try await connection.export([agentManager(), profileManager()], at: "/org/bluez")
            if hasAdapter { try await exportAdapter() }
            try await connection.requestName("org.bluez")
        } catch {
            self.connection = nil
            await connection.close()
            throw error
        }
        hearAll()
    }

    /// Ends the daemon: links break, what is not stored is forgotten.
    public func stop() async {
        guard let old = connection else { return }
        connection = nil
        for name in peripherals.keys { peripherals[name]?.isLinked = false }
        endSerialClient()
        forgetVolatile()
        applications = []
        advertisements = []
        (offeredNetwork, networks) = (nil, [:])
        players = []
        agents = [:]
        clientWatches = [:]
        await old.close()
    }

    private func forgetVolatile() {
        discoverers = []
        for name in Array(connecting.keys) { endConnecting(name) }
        for name in Array(unansweredPairs.keys) { endPairing(name) }
        for timer in temporaryTimers.values { timer.cancel() }
        temporaryTimers = [:]
        for (name, record) in records {
            var kept = Record()
            if record.isPermanent {
                kept.isPermanent = true
                kept.isTrusted = record.isTrusted
                kept.isPaired = record.isPaired
            }
            kept.linkNumber = record.linkNumber + 1
            records[name] = kept
        }
    }

    // MARK: Adapter

    private func exportAdapter() async throws {
        guard let connection else { return }
        try await connection.export(
            [adapterExport(), gattManager(), advertisingManager(), networkServer(), mediaExport()], at: adapterPath)
        for (name, record) in records where record.isPermanent { await exportDevice(name) }
    }

    /// Pulls the adapter out, or plugs it in.
    public func setAdapterPresent(_ isPresent: Bool) async throws {
        guard isPresent != hasAdapter else { return }
        hasAdapter = isPresent
        guard let connection else { return }
        if isPresent {
            isPowered = true
            try await exportAdapter()
            hearAll()
        } else {
            for name in peripherals.keys.sorted() { await unexportDevice(name) }
            for name in peripherals.keys {
                peripherals[name]?.isLinked = false
                hangUp(name)
            }
            for application in applications {
                try? await connection.send(
                    destination: application.sender, path: application.path, interface: "org.bluez.GattProfile1",
                    method: "Release")
            }
            applications = []
            advertisements = []
            players = []
            forgetVolatile()
            await connection.unexport(at: adapterPath)
        }
    }

    /// Switches the adapter on or off.
    public func setAdapterPowered(_ isOn: Bool) async throws {
        guard hasAdapter, isOn != isPowered else { return }
        isPowered = isOn
        if !isOn {
            for name in peripherals.keys.sorted() {
                await breakLink(name, advertisesAgain: true)
                endConnecting(name)
            }
            discoverers = []
        }
        try await connection?.setProperties(
            ["Powered": .boolean(isOn), "Discovering": .boolean(false)], of: "org.bluez.Adapter1", at: adapterPath)
        if isOn { hearAll() }
    }

    func startDiscovery(for sender: String) async throws {
        guard isPowered else { throw BlueZReply.notReady }
        guard discoverers.insert(sender).inserted else { throw BlueZReply.inProgress }
        await watchClient(sender)
        try await connection?.setProperties(
            ["Discovering": .boolean(true)], of: "org.bluez.Adapter1", at: adapterPath)
        hearAll()
        hearAgain()
    }

    func stopDiscovery(for sender: String) async throws {
        guard discoverers.remove(sender) != nil else { throw BlueZReply.failed("No discovery started") }
        guard discoverers.isEmpty else { return }
        try await connection?.setProperties(
            ["Discovering": .boolean(false)], of: "org.bluez.Adapter1", at: adapterPath)
        for (name, record) in records where record.isExported && !record.isPermanent { scheduleForgetting(name) }
    }

    func scheduleForgetting(_ name: String) {
        temporaryTimers[name]?.cancel()
        temporaryTimers[name] = loop.schedule(after: configuration.temporaryTimeout) { [weak self] in
            self?.assumeIsolated { fake in
                _ = Task { await fake.forgetTemporary(name) }
            }
        }
    }

    private func forgetTemporary(_ name: String) async {
        guard let record = records[name], record.isExported, !record.isPermanent,
            peripherals[name]?.isLinked == false
        else { return }
        await unexportDevice(name)
    }

    // MARK: Clients

    /// What a client started ends when it leaves the bus.
    func watchClient(_ sender: String) async {
        guard clientWatches[sender] == nil, let connection else { return }
        clientWatches[sender] = try? await connection.watchName(sender) { [weak self] owner in
            guard owner == nil else { return }
            self?.assumeIsolated { fake in
                _ = Task { await fake.clientLeft(sender) }
            }
        }
    }

    private func clientLeft(_ sender: String) async {
        if let watch = clientWatches.removeValue(forKey: sender) { await connection?.unwatchName(watch) }
        applications = applications.filter { $0.sender != sender }
        advertisements.removeAll { $0.sender == sender }
        players.removeAll { $0.sender == sender }
        agents[sender] = nil
        await forgetNetworks(of: sender)
        if serialClient?.sender == sender { endSerialClient() }
        if discoverers.contains(sender) { try? await stopDiscovery(for: sender) }
        for name in records.keys.sorted() { await unsubscribe(sender, from: name) }
    }

    func register(_ application: Application) throws {
        guard !applications.contains(where: { $0.sender == application.sender && $0.path == application.path }) else {
            throw BlueZReply.alreadyExists
        }
        applications.insert(application)
        hearAll()
    }

    func unregister(_ path: DBusObjectPath, _ sender: String) throws {
        let left = applications.filter { !($0.sender == sender && $0.path == path) }
        guard left.count < applications.count else { throw BlueZReply.doesNotExist }
        applications = left
    }
}

/// BlueZ's error answers.
enum BlueZReply {
    static let notReady = DBusErrorReply("org.bluez.Error.NotReady", "Resource Not Ready")
    static let inProgress = DBusErrorReply("org.bluez.Error.InProgress", "Operation already in progress")
    static let alreadyExists = DBusErrorReply("org.bluez.Error.AlreadyExists", "Already Exists")
    static let alreadyConnected = DBusErrorReply("org.bluez.Error.AlreadyConnected", "Already Connected")
    static let doesNotExist = DBusErrorReply("org.bluez.Error.DoesNotExist", "Does Not Exist")
    static let notConnected = DBusErrorReply("org.bluez.Error.NotConnected", "Not Connected")
    static let invalidArguments = DBusErrorReply("org.bluez.Error.InvalidArguments", "Invalid arguments in method call")
    static let notSupported = DBusErrorReply("org.bluez.Error.NotSupported", "Operation is not supported")
    static func notPermitted(_ words: String) -> DBusErrorReply { .init("org.bluez.Error.NotPermitted", words) }
    static func failed(_ words: String) -> DBusErrorReply { .init("org.bluez.Error.Failed", words) }
}
