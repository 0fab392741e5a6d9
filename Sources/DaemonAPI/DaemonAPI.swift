// Serves org.pttd: the service on the bus, and the properties of its objects. `DaemonControls` carries out the calls.
import DBus
import Logging
import MonotonicTime
import PTTBus
import PushToTalkCore
import Reactor
import Version
import Vocabulary

/// `org.pttd` on one bus. Give it the current state; it publishes the changes on the bus.
public actor DaemonAPI {
    /// The loop it lives on.
    public nonisolated let loop: EventLoop
    /// The loop, as the actor's executor.
    public nonisolated var unownedExecutor: UnownedSerialExecutor { loop.asUnownedSerialExecutor() }

    static let managerPath: DBusObjectPath = "/org/pttd"
    let bus: DBusConnection
    let logger: Logger
    private weak var weakControls: (any DaemonControls)?
    /// How long a program's delegate may take to answer.
    let delegateLimit: Duration
    private let calls: DBusCallBound?
    private var manager = ManagerProperties()
    private(set) var channel: (path: DBusObjectPath, properties: ChannelProperties)?
    private weak var weakAccessoryControls: (any AccessoryControls)?
    /// Where accessories are.
    var accessories: Set<DBusObjectPath> = []
    var accessoryManager = AccessoryManagerProperties()
    private weak var weakNearbyControls: (any NearbyControls)?
    var nearby = NearbyProperties()
    var learning: LearningSession?
    var learningNumber: UInt32 = 0
    var callers: [String: WatchedCaller] = [:]
    var applications: [String: Registration] = [:]
    var locks: InhibitorLocks
    var begins = PacedBegins()
    private var joins = CallRate("joins", caller: PTTBusLimits.joins, all: PTTBusLimits.joinsOfAll, at: .now)

    /// The service on `bus`, which must live on the same loop.
    ///
    /// - Parameters:
    ///   - controls: What the calls do; held weakly.
    ///   - delegateLimit: How long a program's delegate may take to answer.
    ///   - isBounded: Whether the limits `PTTBusLimits.calls` and `begins` apply; tests switch them off.
    @_semantics("optimize.no.crossmodule")  // Swift 6.3: "circular reference" where an importer inlines this.
    public init(
        bus: DBusConnection, controls: any DaemonControls, logger: Logger,
        delegateLimit: Duration = PTTBusLimits.delegateAnswer, isBounded: Bool = true
    ) {
        self.bus = bus
        loop = bus.loop
        locks = InhibitorLocks(loop: bus.loop)
        weakControls = controls
        self.logger = logger
        self.delegateLimit = delegateLimit
        calls = isBounded ? PTTBusLimits.calls : nil
        if !isBounded { begins.pace = .unbounded }
        manager.version = Version.number
    }

    isolated deinit {
        locks.removeAll()
        endAllWaiting()
    }

    /// What the calls do.
    var controls: any DaemonControls {
        get throws(PTChannelError) {
            guard let weakControls else {
                throw PTChannelError(.unknown, explanation: "pttd is ending; try again when it runs")
            }
            return weakControls
        }
    }

    /// What the calls about accessories do.
    var accessoryControls: any AccessoryControls {
        get throws(AccessoryError) {
            guard let weakAccessoryControls else {
                throw AccessoryError(.busy, "pttd is starting or ending; try again in a moment")
            }
            return weakAccessoryControls
        }
    }

    /// What the calls about channels nearby do.
    var nearbyControls: any NearbyControls {
        get throws(PTChannelError) {
            guard let weakNearbyControls else {
                throw PTChannelError(.unknown, explanation: "pttd is starting or ending; try again in a moment")
            }
            return weakNearbyControls
        }
    }

    /// Has these do what the calls about accessories ask; held weakly.
    public func serve(accessories controls: any AccessoryControls) { weakAccessoryControls = controls }

    /// Has these do what the calls about channels nearby ask; held weakly.
    public func serve(nearby controls: any NearbyControls) { weakNearbyControls = controls }

    private(set) var isExported = false

    /// Exports the objects and takes the name.
    ///
    /// - Throws: `DBusError`: the bus cannot be reached (it is tried again in the background), another pttd has the name, or the
    ///   bus's policy forbids it.
    public func start() async throws(DBusError) {
        await bus.bound(calls: calls)
        await bus.exportObjectManager(at: Self.managerPath)
        try await bus.export(
            [try managerExport(manager), try accessoryManagerExport(), try nearbyExport()], at: Self.managerPath)
        isExported = true
        do {
            try await bus.connect(retrying: true)
        } catch {
            // The name is asked for when the bus comes.
            try? await bus.requestName(PTTBus.name)
            throw error
        }
        try await bus.requestName(PTTBus.name)
    }

    /// Gives the name back and leaves the bus. Everybody's locks, registrations and talk keys end.
    public func stop() async {
        try? await bus.releaseName(PTTBus.name)
        await bus.close()
        endAllWaiting()
        locks.removeAll()
    }

    // MARK: What is so

    /// Counts a join that leads to the relay.
    /// - Throws: `LimitsExceeded`.
    func countJoin(of caller: String) throws(DBusErrorReply) { try joins.take(caller, at: .now) }

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

    /// How loud own speech is, as `ChannelProperties.inputLevel` has it; without a channel there is nothing to tell.
    public func update(inputLevel level: Double) {
        guard let path = channel?.path, channel?.properties.inputLevel != level else { return }
        channel?.properties.inputLevel = level
        show(["InputLevel": .double(level)], of: PTTBus.channelInterface, at: path, "input level")
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

    /// What uses the audio instead of push-to-talk, in words; empty: nothing.
    public func update(call: String) { update(\.call, call, "call") }

    /// Why the microphone, or the speaker, cannot be used, in words; empty: it can.
    public func update(microphoneProblem: String, speakerProblem: String) {
        update(\.microphoneProblem, microphoneProblem, "microphone's problem")
        update(\.speakerProblem, speakerProblem, "speaker's problem")
    }

    /// Why a restart would join another channel than the active one, in words; empty: it would not.
    public func update(restorationProblem: String) {
        update(\.restorationProblem, restorationProblem, "restoration problem")
    }

    /// The names of the configured channels, in their order.
    public func update(channels: [String]) { update(\.channels, channels, "configured channels") }

    private func update<Value: Equatable>(
        _ property: WritableKeyPath<ManagerProperties, Value>, _ value: Value, _ what: String
    ) {
        guard manager[keyPath: property] != value else { return }
        manager[keyPath: property] = value
        // Before the start there is nothing to change: the manager is exported with what is so then.
        guard isExported else { return }
        show(manager.properties, of: PTTBus.managerInterface, at: Self.managerPath, what)
    }

    /// Changes exported properties; `what` names them in the log when that fails.
    func show(_ properties: [String: DBusValue], of interface: String, at path: DBusObjectPath, _ what: String) {
        bus.assumeIsolated { bus in
            do throws(DBusError) {
                try bus.setProperties(properties, of: interface, at: path)
            } catch {
                logger.error("\(what) not shown on the bus", metadata: ["error": "\(error)"])
            }
        }
    }

    /// A begin was refused, or a transmission was ended by something else than a release.
    public func transmissionFailed(_ error: PTChannelError) async {
        guard let channel else { return }
        try? await bus.emitSignal(
            "TransmissionFailed", of: PTTBus.channelInterface, at: channel.path,
            [.int32(Int32(error.code.rawValue)), .string(error.explanation)])
    }

    /// Has the bus start the program with this well-known name, for a push or a restoration. It then registers by itself.
    ///
    /// - Throws: `DBusError.remote` when the bus does not know how to start it or it ends at once; `.timedOut`.
    public func startApplication(_ name: String) async throws(DBusError) {
        try await bus.startService(name)
    }
}
