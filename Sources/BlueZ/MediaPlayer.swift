// A media player that plays nothing: BlueZ calls it for the play and pause keys of headsets (AVRCP).
import DBus
import Logging
import MonotonicTime
import Reactor

/// A key of a headset, as BlueZ passes it to a media player. BlueZ does not report its release.
public enum MediaKey: String, CaseIterable, Hashable, Sendable {
    /// Play.
    case play = "Play"
    /// Pause.
    case pause = "Pause"
    /// Play or pause.
    case playPause = "PlayPause"
    /// Stop.
    case stop = "Stop"
    /// Next track.
    case next = "Next"
    /// Previous track.
    case previous = "Previous"
}

/// What happens with the media player.
public enum MediaPlayerEvent: Hashable, Sendable {
    /// Whether any adapter of BlueZ knows it, and so sends keys.
    case registered(Bool)
    /// A key was pressed, and when that was taken off the bus.
    case pressed(MediaKey, at: Instant)
    /// What keeps it from being registered, and what to do; nil: nothing any more.
    case problem(String?)
}

/// An object of `org.mpris.MediaPlayer2.Player`, registered by `org.bluez.Media1.RegisterPlayer` on every adapter that is on, and again
/// when bluetoothd returns.
///
/// It always says that it is paused: a headset that believes so sends Play for every press, sends nothing by itself when it is taken off
/// the ear, and one that keeps a state of its own alternates Play and Pause; each of them is a press. With several players BlueZ gives
/// the keys of a headset to the one that was registered first before the headset connected.
///
/// It lives on the connection's loop and calls its handler there, in order.
public actor MediaPlayer {
    /// The loop it lives on.
    public nonisolated let loop: EventLoop
    /// The loop, as the actor's executor.
    public nonisolated var unownedExecutor: UnownedSerialExecutor { loop.asUnownedSerialExecutor() }

    static let playerInterface = "org.mpris.MediaPlayer2.Player"
    static let mediaInterface = "org.bluez.Media1"

    private let connection: DBusConnection
    private let path: DBusObjectPath
    private let logger: Logger
    private let handler: @Sendable (MediaPlayerEvent) -> Void
    /// The path of the player, by adapter. What is registered with an adapter that is switched off stays: BlueZ keeps it.
    private var registration = AdapterRegistrations<DBusObjectPath>()
    /// The adapters that are on.
    private var powered: Set<AdapterIdentifier> = []
    /// bluetoothd's unique name; nil while it is not there.
    private var owner: String?
    /// Counts bluetoothd's lives, so that the answer of one is not taken for that of the next.
    private var life = 0
    private var matches: [DBusMatch] = []
    private var watch: DBusNameWatch?
    private var reconciling: Task<Void, Never>?
    private var timer: EventLoop.Timer?
    private var readAttempts = 0
    private var isToldRegistered = false
    private var toldProblem: String?

    /// A player that does nothing before `start()`.
    ///
    /// - Parameters:
    ///   - connection: A connection to the system bus; connected or not yet.
    ///   - path: Where it is exported.
    ///   - handler: Called on the loop for each event.
    public init(
        on connection: DBusConnection, path: DBusObjectPath = "/pttd/player", logger: Logger,
        handler: @escaping @Sendable (MediaPlayerEvent) -> Void
    ) {
        self.connection = connection
        loop = connection.loop
        self.path = path
        self.logger = logger
        self.handler = handler
    }

    private var isWanted: Bool { registration.wanted != nil }

    // MARK: Life

    /// Exports the player and registers it with every adapter. A failure is reported as `.problem` and retried.
    public func start() async {
        guard !isWanted else { return }
        registration.want(path)
        do throws(DBusError) {
            try await connection.export([export()], at: path)
            for rule in [
                DBusMatchRule(sender: BlueZName.service, interface: BlueZName.objectManager),
                DBusMatchRule(
                    sender: BlueZName.service, pathNamespace: BlueZName.manager, interface: BlueZName.properties,
                    member: "PropertiesChanged", argument0: BlueZName.adapter),
            ] {
                matches.append(
                    try await connection.addMatch(rule) { [weak self] message in
                        self?.assumeIsolated { $0.received(message) }
                    })
            }
            watch = try await connection.watchName(BlueZName.service) { [weak self] owner in
                self?.assumeIsolated { $0.ownerChanged(owner) }
            }
        } catch {
            tell("the media player cannot be offered to BlueZ: \(error)")
        }
    }

    /// Takes the player back. No event is reported any more.
    public func stop() async {
        guard isWanted else { return }
        registration.want(nil)
        timer?.cancel()
        // What is under way first, then what it left registered.
        await reconciling?.value
        await reconcile()
        life += 1
        owner = nil
        if let watch { await connection.unwatchName(watch) }
        watch = nil
        for match in matches { await connection.removeMatch(match) }
        matches = []
        await connection.unexport(at: path)
        isToldRegistered = false
        toldProblem = nil
    }

    private func ownerChanged(_ new: String?) {
        guard new != owner else { return }
        owner = new
        life += 1
        readAttempts = 0
        registration.forgetAll()
        powered = []
        tellRegistered()
        if new != nil { read() }
    }

    /// Asks which adapters there are.
    private func read() {
        let current = life
        Task {
            do throws(DBusError) {
                let answer = try await connection.call(
                    destination: BlueZName.service, path: "/", interface: BlueZName.objectManager,
                    method: "GetManagedObjects", timeout: BlueZTimeout.short, startsService: false)
                guard current == life else { return }
                let objects: [DBusObjectPath: [String: [String: DBusValue]]] = try answer.argument(0)
                for (path, interfaces) in objects { added(path, interfaces) }
                scheduleReconcile()
            } catch {
                guard current == life, isWanted else { return }
                tell("bluetoothd's adapters cannot be read for the media player; retrying: \(error)")
                readAttempts += 1
                timer?.cancel()
                timer = loop.schedule(after: .seconds(min(readAttempts, 60))) {
                    [weak self] in
                    self?.assumeIsolated { if current == $0.life { $0.read() } }
                }
            }
        }
    }

    private func received(_ message: DBusMessage) {
        guard owner != nil, let path = message.path else { return }
        do throws(DBusError) {
            let arguments = message.arguments
            switch message.member {
            case "InterfacesAdded": added(try arguments.argument(0), try arguments.argument(1))
            case "InterfacesRemoved":
                guard case .adapter(let adapter) = BlueZObject(try arguments.argument(0)) else { return }
                let interfaces: [String] = try arguments.argument(1)
                guard interfaces.contains(Self.mediaInterface) || interfaces.contains(BlueZName.adapter) else { return }
                registration.forget(adapter)
                powered.remove(adapter)
                tellRegistered()
            case "PropertiesChanged":
                let changed: [String: DBusValue] = try arguments.argument(1)
                guard case .adapter(let adapter) = BlueZObject(path), let isPowered = changed["Powered"]?.boolValue
                else {
                    return
                }
                setPowered(isPowered, adapter)
            default: return
            }
            scheduleReconcile()
        } catch {
            logger.warning("Malformed signal from BlueZ; ignored", metadata: ["reason": "\(error)"])
        }
    }

    private func added(_ path: DBusObjectPath, _ interfaces: [String: [String: DBusValue]]) {
        guard case .adapter(let adapter) = BlueZObject(path), let properties = interfaces[BlueZName.adapter] else {
            return
        }
        setPowered(properties["Powered"]?.boolValue ?? false, adapter)
    }

    private func setPowered(_ isPowered: Bool, _ adapter: AdapterIdentifier) {
        if isPowered { powered.insert(adapter) } else { powered.remove(adapter) }
        registration.retry(adapter)
    }

    // MARK: Registration

    private func scheduleReconcile() {
        guard isWanted, reconciling == nil else { return }
        reconciling = Task {
            await reconcile()
            reconciling = nil
        }
    }

    private func reconcile() async {
        while owner != nil, let step = registration.next(adapters: powered.sorted(), at: .now) {
            switch step {
            case .register(let adapter): await register(adapter)
            case .unregister(let adapter): await unregister(adapter)
            }
        }
        timer?.cancel()
        guard isWanted, owner != nil, let deadline = registration.nextDeadline else { return }
        timer = loop.schedule(at: deadline) { [weak self] in self?.assumeIsolated { $0.scheduleReconcile() } }
    }

    private func register(_ adapter: AdapterIdentifier) async {
        let current = life
        do throws(DBusError) {
            _ = try await connection.call(
                destination: BlueZName.service, path: adapter.path, interface: Self.mediaInterface,
                method: "RegisterPlayer", arguments: [.objectPath(path), .properties(Self.properties)],
                timeout: BlueZTimeout.short, startsService: false)
            guard current == life else { return }
            registration.didRegister(adapter, path)
        } catch {
            guard current == life else { return }
            if error.remoteName == "org.bluez.Error.AlreadyExists" {
                registration.didRegister(adapter, path)
            } else {
                registration.didFail(adapter, at: .now)
                tell(
                    "\(BlueZError(error, during: "register a media player on \(adapter)")); the keys of headsets do not arrive; "
                        + "retrying (check that bluetoothd runs with its plug-in avrcp)")
            }
        }
        tellRegistered()
    }

    private func unregister(_ adapter: AdapterIdentifier) async {
        let current = life
        do throws(DBusError) {
            _ = try await connection.call(
                destination: BlueZName.service, path: adapter.path, interface: Self.mediaInterface,
                method: "UnregisterPlayer", arguments: [.objectPath(path)], timeout: BlueZTimeout.short,
                startsService: false)
        } catch {
            // Not registered there (any more) is what was wanted.
            logger.debug("Unregistering the media player", metadata: ["adapter": "\(adapter)", "reason": "\(error)"])
        }
        if current == life { registration.didUnregister(adapter) }
    }

    private func tellRegistered() {
        guard isWanted else { return }
        let isRegistered = !registration.registered.isEmpty
        if isRegistered { tell(nil) }
        guard isRegistered != isToldRegistered else { return }
        isToldRegistered = isRegistered
        handler(.registered(isRegistered))
    }

    private func tell(_ problem: String?) {
        guard problem != toldProblem, isWanted else { return }
        toldProblem = problem
        if let problem { logger.warning("Media player", metadata: ["problem": "\(problem)"]) }
        handler(.problem(problem))
    }

    // MARK: The player

    /// What BlueZ reads of them (profiles/audio/media.c): whether it may call, and the status that it tells headsets.
    private static let properties: [String: DBusValue] = [
        "Identity": .string("Push to talk"), "PlaybackStatus": .string("Paused"), "CanControl": .boolean(true),
        "CanPlay": .boolean(true), "CanPause": .boolean(true), "CanGoNext": .boolean(true),
        "CanGoPrevious": .boolean(true),
    ]

    private static let interface = DBusInterface(
        playerInterface, methods: MediaKey.allCases.map { .init($0.rawValue) },
        properties: properties.keys.sorted().map { name in
            .init(name, properties[name]?.type ?? .boolean, changeSignal: .constant)
        })

    private func export() throws(DBusError) -> DBusExport {
        // Starters: presses must not overtake each other.
        var starters: [String: DBusMethodStarter] = [:]
        for key in MediaKey.allCases {
            starters[key.rawValue] = { [weak self] call in
                let time = Instant.now
                let isTaken = self?.assumeIsolated { $0.called(key, by: call.sender, at: time) } ?? false
                return Task {
                    guard isTaken else { throw DBusErrorReply.accessDenied("only bluetoothd may call this player") }
                    return []
                }
            }
        }
        return try DBusExport(Self.interface, properties: Self.properties, starters: starters)
    }

    /// Others on the bus could otherwise open the microphone.
    private func called(_ key: MediaKey, by sender: String, at time: Instant) -> Bool {
        guard sender == owner else {
            logger.warning("A call of the media player was refused", metadata: ["sender": "\(sender)"])
            return false
        }
        if isWanted { handler(.pressed(key, at: time)) }
        return true
    }
}
