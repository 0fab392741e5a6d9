// BlueZ as one actor: follows bluetoothd, feeds the tree, reports events.
import DBus
import Logging
import MonotonicTime
import Reactor

/// The machine's Bluetooth, through bluetoothd.
///
/// It lives on the connection's loop and calls its handler there, in order. It survives restarts of bluetoothd and the
/// loss of the bus: everything is reported as removed, and reported again afterwards; the agent and the reconnection
/// profile are registered again. Values of characteristics flow after `startNotify`, whose signal match is in place
/// since `start()`, so that no first notification is lost.
public actor BlueZClient {
    /// The loop it lives on.
    public nonisolated let loop: EventLoop
    /// The loop, as the actor's executor.
    public nonisolated var unownedExecutor: UnownedSerialExecutor { loop.asUnownedSerialExecutor() }

    nonisolated let connection: DBusConnection
    nonisolated let logger: Logger
    /// Where our own objects for BlueZ are.
    nonisolated let basePath: DBusObjectPath
    private let handler: @Sendable (BlueZEvent) -> Void

    var tree = BlueZTree()
    /// bluetoothd's unique name; nil while it is not there.
    private(set) var owner: String?
    /// Counts bluetoothd's lives, so that what was awaited in one is not taken for news of the next.
    private(set) var life = 0
    private(set) var isLoaded = false
    private var buffered: [DBusMessage] = []
    private var hasOverflowed = false
    private var matches: [DBusMatch] = []
    private var watch: DBusNameWatch?
    private var loadAttempts = 0
    /// The services that devices reconnect for, by adapter.
    var reconciler = AdapterRegistrations<Set<BluetoothUUID>>()
    var isReconciling = false
    var reconcileTimer: EventLoop.Timer?
    /// Whether bluetoothd knows the pairing agent; nil: none is wanted.
    var isAgentRegistered: Bool?
    var serial: SerialProfileState?
    var offer: LocalOffer?
    /// Devices that we are pairing: the only ones whose pairing the agent agrees to.
    var pairing: [DeviceIdentifier: Pairing] = [:]

    /// Signals kept while the tree is being read.
    private static let bufferedMaximum = 4096
    private static let loadRetry = Duration.seconds(2)
    private static let loadTimeout = Duration.seconds(10)

    /// A client that does nothing before `start()`.
    ///
    /// - Parameters:
    ///   - connection: A connection to the system bus; connected or not yet.
    ///   - basePath: Below it our objects for BlueZ (agent, reconnection profile) are exported.
    ///   - handler: Called on the loop for each event.
    public init(
        on connection: DBusConnection, basePath: DBusObjectPath = "/pttd/bluez", logger: Logger,
        handler: @escaping @Sendable (BlueZEvent) -> Void
    ) {
        self.connection = connection
        loop = connection.loop
        self.basePath = basePath
        self.logger = logger
        self.handler = handler
    }

    // MARK: What there is

    /// Whether bluetoothd is there and has been read.
    public var isAvailable: Bool { isLoaded }
    /// All adapters, by path.
    public var adapters: [Adapter] { tree.adapters.values.sorted { $0.identifier < $1.identifier } }
    /// All devices, by path.
    public var devices: [Device] { tree.devices.values.sorted { $0.identifier < $1.identifier } }
    /// The adapter, if it is there.
    public func adapter(_ identifier: AdapterIdentifier) -> Adapter? { tree.adapters[identifier] }
    /// The device, if it is known.
    public func device(_ identifier: DeviceIdentifier) -> Device? { tree.devices[identifier] }
    /// The characteristic, if it is there.
    public func characteristic(_ identifier: CharacteristicIdentifier) -> Characteristic? {
        tree.characteristics[identifier]
    }
    /// The characteristics of a device, by path.
    public func characteristics(of device: DeviceIdentifier) -> [Characteristic] {
        tree.characteristics.values.filter { $0.identifier.device == device && $0.service != nil }
            .sorted { $0.identifier < $1.identifier }
    }

    // MARK: Life

    /// Starts to follow bluetoothd. bluetoothd may be absent: `available` is reported when it appears.
    /// - Throws: When the bus refuses the signal matches.
    public func start() async throws(BlueZError) {
        guard watch == nil, matches.isEmpty else { return }
        await connection.bound(Self.bound) { [weak self] flood in self?.assumeIsolated { $0.flooded(flood) } }
        do throws(DBusError) {
            // Matches before the first question, so that nothing falls between.
            for rule in [
                DBusMatchRule(sender: BlueZName.service, interface: BlueZName.objectManager),
                DBusMatchRule(
                    sender: BlueZName.service, pathNamespace: BlueZName.manager, interface: BlueZName.properties,
                    member: "PropertiesChanged"),
                DBusMatchRule(
                    sender: BlueZName.service, pathNamespace: BlueZName.manager, interface: BlueZName.device,
                    member: "Disconnected"),
            ] {
                let match = try await connection.addMatch(rule) { [weak self] message in
                    self?.assumeIsolated { $0.received(message) }
                }
                matches.append(match)
            }
            watch = try await connection.watchName(BlueZName.service) { [weak self] owner in
                self?.assumeIsolated { $0.ownerChanged(owner) }
            }
        } catch {
            await stop()
            throw BlueZError(error, during: "follow bluetoothd")
        }
    }

    /// Ends it: no event is reported any more; agent and profile are taken back.
    public func stop() async {
        await connection.bound(nil)
        await unregisterAll()
        await unregisterSerialProfile()
        if let watch { await connection.unwatchName(watch) }
        watch = nil
        for match in matches { await connection.removeMatch(match) }
        matches = []
        life += 1
        owner = nil
        isLoaded = false
        tree = BlueZTree()
    }

    func report(_ events: [BlueZEvent]) {
        for complaint in tree.takeComplaints().prefix(20) {
            logger.warning(
                "a signal of BlueZ breaks the rules of its interface; ignored", metadata: ["what": "\(complaint)"])
        }
        for event in events {
            handler(event)
            noticed(event)
            if !pairing.isEmpty { noticedPairing(event) }
        }
    }

    private func ownerChanged(_ new: String?) {
        guard new != owner else { return }
        if owner != nil { left() }
        owner = new
        guard new != nil else { return }
        life += 1
        loadAttempts = 0
        load()
    }

    private func left() {
        life += 1
        let wasLoaded = isLoaded
        isLoaded = false
        buffered = []
        hasOverflowed = false
        reconciler.forgetAll()
        if isAgentRegistered == true { isAgentRegistered = false }
        serial?.isRegistered = false
        serial?.timer?.cancel()
        logger.info("bluetoothd has left the bus")
        report(tree.clear())
        if wasLoaded { report([.unavailable]) }
    }

    private func load() {
        let current = life
        Task { await load(life: current) }
    }

    private func load(life current: Int) async {
        guard current == life else { return }
        do throws(DBusError) {
            let answer = try await connection.callForMessage(
                destination: BlueZName.service, path: "/", interface: BlueZName.objectManager,
                method: "GetManagedObjects", timeout: Self.loadTimeout, startsService: false)
            guard current == life else { return }
            let objects: [DBusObjectPath: [String: [String: DBusValue]]] = try answer.arguments.argument(0)
            loaded(objects, serial: answer.serial)
        } catch {
            guard current == life else { return }
            loadAttempts += 1
            logger.warning(
                "cannot read bluetoothd's objects; trying again",
                metadata: ["reason": "\(error)", "attempt": "\(loadAttempts)"])
            loop.schedule(after: Self.loadRetry * min(loadAttempts, 15)) { [weak self] in
                self?.assumeIsolated { if current == $0.life, !$0.isLoaded { $0.load() } }
            }
        }
    }

    private func loaded(_ objects: [DBusObjectPath: [String: [String: DBusValue]]], serial: UInt32) {
        guard !hasOverflowed else {
            logger.warning("too many signals while reading bluetoothd's objects; reading again")
            hasOverflowed = false
            buffered = []
            return load()
        }
        isLoaded = true
        let events = tree.load(objects)
        let later = buffered.filter { $0.serial > serial }
        buffered = []
        logger.info("bluetoothd is on the bus", metadata: ["adapters": "\(tree.adapters.count)"])
        report(events)
        for message in later { apply(message) }
        report([.available])
        registerAgentAgain()
        registerSerialAgain()
    }

    // MARK: Signals

    private func received(_ message: DBusMessage) {
        guard isLoaded else {
            // Its reading is under way: what is newer than the answer is applied after it.
            guard owner != nil else { return }
            if buffered.count < Self.bufferedMaximum { buffered.append(message) } else { hasOverflowed = true }
            return
        }
        apply(message)
    }

    private func apply(_ message: DBusMessage) {
        guard let path = message.path else { return }
        do throws(DBusError) {
            let arguments = message.arguments
            switch (message.interface, message.member) {
            case (BlueZName.objectManager, "InterfacesAdded"):
                report(tree.interfacesAdded(try arguments.argument(0), try arguments.argument(1)))
            case (BlueZName.objectManager, "InterfacesRemoved"):
                report(tree.interfacesRemoved(try arguments.argument(0), try arguments.argument(1)))
            case (BlueZName.properties, "PropertiesChanged"):
                report(
                    tree.propertiesChanged(
                        path, try arguments.argument(0), try arguments.argument(1),
                        invalidated: try arguments.argument(2), at: message.receivedAt))
            case (BlueZName.device, "Disconnected"):
                tree.disconnecting(path, reason: try arguments.argument(0))
            default: return
            }
        } catch {
            logger.warning(
                "malformed signal from BlueZ; ignored",
                metadata: ["path": "\(path)", "signal": "\(message.member ?? "")", "reason": "\(error)"])
        }
    }

    /// A person makes at most about twenty edges a second, and an accessory may repeat each. A higher rate does not
    /// come from a person. The burst size allows for values that arrive in pieces.
    private static let bound = DBusSignalBound(
        sender: BlueZName.service, namespace: BlueZName.manager, groupElements: 4,
        properties: [.init(BlueZName.characteristic, "Value"), .init(BlueZName.battery, "Percentage")],
        burst: 64, interval: .milliseconds(20))

    private func flooded(_ flood: DBusSignalFlood) {
        guard case .device(let device) = BlueZObject(flood.group), tree.devices[device] != nil else { return }
        report([.flooding(device, perSecond: flood.perSecond)])
    }

    // MARK: Calls

    /// Calls a method of bluetoothd.
    ///
    /// - Parameter harmless: Kinds of errors that are as good as an empty answer, because it is so already.
    @discardableResult
    func call(
        _ path: DBusObjectPath, _ interface: String, _ method: String, _ arguments: [DBusValue] = [],
        timeout: Duration = BlueZTimeout.short, during operation: String, accepting harmless: [BlueZError.Kind] = []
    ) async throws(BlueZError) -> [DBusValue] {
        do throws(BlueZError) {
            guard owner != nil else { throw BlueZError(.unavailable, "bluetoothd is not running", during: operation) }
            do throws(DBusError) {
                return try await connection.call(
                    destination: BlueZName.service, path: path, interface: interface, method: method,
                    arguments: arguments, timeout: timeout, startsService: false)
            } catch {
                throw BlueZError(error, during: operation)
            }
        } catch {
            guard harmless.contains(error.kind) else { throw error }
            return []
        }
    }

    /// An implementation of `interface` that only bluetoothd may call; `what` names it in refusals.
    func export(
        _ interface: DBusInterface, as what: String,
        _ body: @escaping @Sendable (isolated BlueZClient, DBusMethodCall) throws -> [DBusValue]
    ) throws(DBusError) -> DBusExport {
        var methods: [String: DBusMethodHandler] = [:]
        for method in interface.methods {
            methods[method.name] = { [weak self] call in
                guard let self else { throw DBusErrorReply("org.bluez.Error.Canceled", "the \(what) is gone") }
                return try await self.called(call, what, body)
            }
        }
        return try DBusExport(interface, methods: methods)
    }

    private func called(
        _ call: DBusMethodCall, _ what: String,
        _ body: @Sendable (isolated BlueZClient, DBusMethodCall) throws -> [DBusValue]
    ) throws -> [DBusValue] {
        // Others on the bus could otherwise pair a device, or hand in a descriptor and press the button.
        guard call.sender == owner else { throw DBusErrorReply.accessDenied("only bluetoothd may call this \(what)") }
        return try body(self, call)
    }
}

/// A pairing of ours that is under way.
struct Pairing {
    let asking: Task<BlueZError?, Never>
    /// Runs once the device is paired.
    var timer: EventLoop.Timer?
}

/// How long BlueZ may take.
enum BlueZTimeout {
    /// Properties, registrations.
    static let short = Duration.seconds(10)
    /// One GATT transaction: ATT gives up after 30 s (Bluetooth Core, Vol 3, Part F, 3.3.3).
    static let attribute = Duration.seconds(35)
    /// Connecting, with its own retries: BlueZ gives up an LE connection after 20 s, GATT discovery after 30 s.
    static let connect = Duration.seconds(60)
    /// Pairing: connecting, and then the pairing itself, which both sides give up after 30 s (Bluetooth Core, Vol 3, Part H, 3.4).
    static let pair = Duration.seconds(45)
}
