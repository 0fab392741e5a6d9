// Serving org.pttd: objects, properties and calls on the bus. What the calls do is the business of `DaemonControls`.
import DBus
import Logging
import PTTBus
import PushToTalkCore
import Reactor

/// What the bus can ask of the daemon.
public protocol DaemonControls: Actor {
    /// `caller` presses the talk key of the active channel.
    ///
    /// - Parameter caller: Its unique name.
    /// - Throws: Why nothing is transmitted.
    func pressTalkKey(caller: String) async throws(PTChannelError)

    /// `caller` lets go, or has left the bus.
    ///
    /// - Returns: Whether it held the key.
    func releaseTalkKey(caller: String) async -> Bool
}

/// `org.pttd` on one bus. Give it what is so; it tells the bus what changed.
public actor DaemonAPI {
    /// The loop it lives on.
    public nonisolated let loop: EventLoop
    /// The loop, as the actor's executor.
    public nonisolated var unownedExecutor: UnownedSerialExecutor { loop.asUnownedSerialExecutor() }

    private static let managerPath: DBusObjectPath = "/org/pttd"
    private let bus: DBusConnection
    private let logger: Logger
    private weak var controls: (any DaemonControls)?
    private var manager = ManagerProperties()
    private var channel: (path: DBusObjectPath, properties: ChannelProperties)?
    private var accessories: [AccessoryProperties] = []
    /// A caller that holds the talk key, or is about to.
    private enum Caller {
        /// Its watch is being set up.
        case coming
        /// Its leaving of the bus will be told.
        case watched(DBusNameWatch)
    }

    private var callers: [String: Caller] = [:]

    /// The service on `bus`, which must live on the same loop.
    public init(bus: DBusConnection, controls: any DaemonControls, logger: Logger) {
        self.bus = bus
        loop = bus.loop
        self.controls = controls
        self.logger = logger
        manager.version = PTTBus.version
    }

    /// Exports the objects and takes the name.
    ///
    /// - Throws: `DBusError`: the bus cannot be reached (it is tried again in the background), another pttd has the name, or the
    ///   bus's policy forbids it.
    public func start() async throws(DBusError) {
        let interface = try Self.interface(PTTBus.managerInterface)
        await bus.exportObjectManager(at: Self.managerPath)
        try await bus.export([try DBusExport(interface, properties: manager.properties)], at: Self.managerPath)
        do {
            try await bus.connect(retrying: true)
        } catch {
            // The name is asked for when the bus comes.
            try? await bus.requestName(PTTBus.name)
            throw error
        }
        try await bus.requestName(PTTBus.name)
    }

    /// Gives the name back and leaves the bus.
    public func stop() async {
        try? await bus.releaseName(PTTBus.name)
        await bus.close()
    }

    private static func interface(_ name: String) throws(DBusError) -> DBusInterface {
        guard let interface = try DBusIntrospection(xml: PTTBus.xml(of: name)).interface(name) else {
            throw .invalid("the XML of \(name) does not declare it")
        }
        return interface
    }

    // MARK: What is so

    /// The channel that is joined, or none.
    public func update(channel new: ChannelProperties?) async {
        do throws(DBusError) {
            guard let new else { return try await removeChannel() }
            let path = try DBusObjectPath(PTTBus.channelPath(new.uuid))
            if let channel, channel.path == path {
                self.channel = (path, new)
                return try await bus.setProperties(new.properties, of: PTTBus.channelInterface, at: path)
            }
            try await removeChannel()
            channel = (path, new)
            try await bus.export([try channelExport(new)], at: path)
            try await setActive(path)
        } catch {
            logger.error("channel not shown on the bus", metadata: ["error": "\(error)"])
        }
    }

    private func removeChannel() async throws(DBusError) {
        guard let old = channel else { return }
        channel = nil
        try await setActive("/")
        await bus.unexport(at: old.path)
    }

    private func setActive(_ path: DBusObjectPath) async throws(DBusError) {
        manager.activeChannel = path
        try await bus.setProperties(manager.properties, of: PTTBus.managerInterface, at: Self.managerPath)
    }

    /// The accessories, each in its place.
    public func update(accessories new: [AccessoryProperties]) async {
        do throws(DBusError) {
            let interface = try Self.interface(PTTBus.accessoryInterface)
            for (index, accessory) in new.enumerated() {
                let path = try DBusObjectPath(PTTBus.accessoryPath(index))
                if index < accessories.count {
                    try await bus.setProperties(accessory.properties, of: PTTBus.accessoryInterface, at: path)
                } else {
                    try await bus.export([try DBusExport(interface, properties: accessory.properties)], at: path)
                }
            }
            for index in new.count..<max(new.count, accessories.count) {
                await bus.unexport(at: try DBusObjectPath(PTTBus.accessoryPath(index)))
            }
            accessories = new
        } catch {
            logger.error("accessories not shown on the bus", metadata: ["error": "\(error)"])
        }
    }

    /// A begin was refused, or a transmission was ended by something else than a release.
    public func transmissionFailed(_ error: PTChannelError) async {
        guard let channel else { return }
        try? await bus.emitSignal(
            "TransmissionFailed", of: PTTBus.channelInterface, at: channel.path,
            [.int32(Int32(error.code.rawValue)), .string(error.explanation)])
    }

    // MARK: Calls

    private func channelExport(_ properties: ChannelProperties) throws(DBusError) -> DBusExport {
        try DBusExport(
            try Self.interface(PTTBus.channelInterface), properties: properties.properties,
            methods: [
                "BeginTransmitting": { [weak self] call in
                    try await self?.begin(call.sender)
                    return []
                },
                "StopTransmitting": { [weak self] call in
                    try await self?.end(call.sender)
                    return []
                },
            ])
    }

    private func begin(_ caller: String) async throws {
        guard let controls else {
            throw PTTBus.reply(PTChannelError(.unknown, explanation: "pttd is ending; try again when it runs"))
        }
        // Watched before the press, so that a caller who is gone by now is noticed.
        try await watch(caller)
        do throws(PTChannelError) {
            try await controls.pressTalkKey(caller: caller)
        } catch {
            // Answered with an error: this press is over, and the next one counts.
            _ = await controls.releaseTalkKey(caller: caller)
            await unwatch(caller)
            throw PTTBus.reply(error)
        }
    }

    private func end(_ caller: String) async throws {
        await unwatch(caller)
        guard await controls?.releaseTalkKey(caller: caller) == true else {
            throw PTTBus.reply(
                PTChannelError(.transmissionNotFound, explanation: "this caller does not hold the talk key"))
        }
    }

    private func watch(_ caller: String) async throws {
        guard callers[caller] == nil else { return }
        callers[caller] = .coming
        let watch: DBusNameWatch
        do {
            watch = try await bus.watchName(caller) { [weak self] owner in
                guard owner == nil else { return }
                self?.assumeIsolated { $0.gone(caller) }
            }
        } catch {
            callers[caller] = nil
            throw error
        }
        // A caller may be gone before its watch was there; then nobody would ever let go for it.
        guard callers[caller] != nil, await bus.uniqueName != nil else {
            callers[caller] = nil
            await bus.unwatchName(watch)
            throw PTTBus.reply(PTChannelError(.unknown, explanation: "the caller has left the bus"))
        }
        callers[caller] = .watched(watch)
    }

    private func unwatch(_ caller: String) async {
        guard case .watched(let watch)? = callers.removeValue(forKey: caller) else { return }
        await bus.unwatchName(watch)
    }

    private func gone(_ caller: String) {
        if case .coming? = callers[caller] { callers[caller] = nil }
        Task { await left(caller) }
    }

    private func left(_ caller: String) async {
        await unwatch(caller)
        if await controls?.releaseTalkKey(caller: caller) == true {
            logger.notice("talk key released: its holder left the bus", metadata: ["caller": "\(caller)"])
        }
    }
}
