// A client of the daemon: it finds, reads and watches the daemon. The requests are in DaemonClient+Requests.swift.
import DBus
import Logging
import Reactor

/// A client of the daemon on one bus.
///
/// It outlives the daemon. When the daemon leaves the bus, `watch` reports `.running(false)` and requests fail with
/// `.notRunning`. When it is back, `watch` reports `.running(true)` and requests work again. A program with a channel
/// manager then registers again. What the client held (the talk key, a registration) ended with the old daemon.
public actor DaemonClient {
    /// What changed.
    public enum Event: Sendable {
        /// The snapshot before and after.
        case changed(from: DaemonSnapshot, to: DaemonSnapshot)
        /// `org.pttd.Channel1.TransmissionFailed`.
        case transmissionFailed(channel: DBusObjectPath, code: Int, message: String)
        /// A signal of the daemon about accessories, in addition to their properties.
        case accessory(AccessorySignal)
        /// The daemon left the bus, or came (back) to it.
        case running(Bool)
    }

    /// The loop it lives on.
    public nonisolated let loop: EventLoop
    /// The loop, as the actor's executor.
    public nonisolated var unownedExecutor: UnownedSerialExecutor { loop.asUnownedSerialExecutor() }
    static let root: DBusObjectPath = "/org/pttd"
    let bus: DBusConnection
    private var handler: (@Sendable (Event) -> Void)?
    /// The latest state; kept up to date while `watch` runs.
    public private(set) var snapshot = DaemonSnapshot()
    /// The daemon's unique name; nil while it is not running.
    private(set) var owner: String?
    /// The changes since the begin of each `refresh` in progress.
    private var changesMeanwhile: [UInt64: [Change]] = [:]
    private var nextReading: UInt64 = 0
    private typealias Change = (inout DaemonSnapshot) -> Void
    /// The most changes that may come during a `refresh`.
    private static let changesMax = 4_096

    /// A daemon that has come and cannot be read is read again after each of these.
    private static let readingPauses: [Duration] = [.milliseconds(200), .seconds(1), .seconds(5)]

    /// How long the daemon may take to answer what does not wait for others.
    let answerLimit: Duration
    private let logger: Logger

    private init(_ bus: DBusConnection, loop: EventLoop, answerLimit: Duration, logger: Logger) {
        self.bus = bus
        self.answerLimit = answerLimit
        self.loop = loop
        self.logger = logger
    }

    /// Whether the daemon is on the bus.
    public var isRunning: Bool { owner != nil }

    /// This client's unique name; nil while there is no bus.
    public var uniqueName: String? { get async { await bus.uniqueName } }

    /// Finds the daemon: on the given bus, or else on the session bus and then on the system bus.
    ///
    /// - Parameter answerLimit: How long the daemon may take to answer what does not wait for others.
    /// - Throws: `.notRunning`, or why the bus refused.
    public static func find(
        on address: DBusAddress? = nil, loop: EventLoop, logger: Logger,
        answerLimit: Duration = DBusConnection.defaultTimeout
    ) async throws(DaemonClientError) -> DaemonClient {
        let candidates = address.map { [$0] } ?? [.session, .system]
        var failure: DBusError?
        for candidate in candidates {
            let bus = DBusConnection(to: candidate, on: loop, logger: logger)
            do {
                try await bus.connect()
                let client = DaemonClient(bus, loop: loop, answerLimit: answerLimit, logger: logger)
                try await client.followOwner()
                if await client.isRunning {
                    try await client.refresh()
                    return client
                }
            } catch DBusError.timedOut(let call) {
                // It is there, and hangs: it is not on another bus.
                await bus.close()
                throw .bus(.timedOut(call))
            } catch {
                // A refusal by policy says more than an absent bus.
                if failure == nil || error.remoteName != nil { failure = error }
            }
            await bus.close()
        }
        if let failure, failure.remoteName != nil || address != nil { throw .bus(failure) }
        throw .notRunning(looked: candidates.map { "\($0)" })
    }

    private func followOwner() async throws(DBusError) {
        _ = try await bus.watchName(PTTBus.name) { [weak self] owner in
            self?.assumeIsolated { $0.ownerChanged(owner) }
        }
    }

    /// Reads everything again.
    ///
    /// - Throws: What made reading fail; `.limitReached` when too much changed meanwhile.
    public func refresh() async throws(DBusError) { _ = try await replaceSnapshot() }

    /// Reads everything again, and returns the snapshot that this replaced.
    private func replaceSnapshot() async throws(DBusError) -> DaemonSnapshot {
        let reading = nextReading
        nextReading += 1
        changesMeanwhile[reading] = []
        defer { changesMeanwhile[reading] = nil }
        var new = DaemonSnapshot()
        let answer = try await bus.call(
            destination: PTTBus.name, path: Self.root, interface: "org.freedesktop.DBus.ObjectManager",
            method: "GetManagedObjects", startsService: false)
        for (path, interfaces) in answer.first?.dictionaryValue ?? [:] {
            guard let path = path.objectPathValue, let interfaces = interfaces.dictionaryValue else { continue }
            for (interface, properties) in interfaces {
                new.set(interface.stringValue ?? "", properties.propertiesValue ?? [:], at: path)
            }
        }
        for interface in [PTTBus.managerInterface, PTTBus.accessoryManagerInterface, PTTBus.nearbyInterface] {
            let properties = try await bus.getProperties(of: interface, destination: PTTBus.name, path: Self.root)
            new.set(interface, properties, at: Self.root)
        }
        // What was told between the two answers is in neither; told again, what came before them does no harm.
        let changes = changesMeanwhile[reading] ?? []
        guard changes.count < Self.changesMax else { throw .limitReached("\(Self.changesMax) changes while reading") }
        for change in changes { change(&new) }
        defer { snapshot = new }
        return snapshot
    }

    /// Calls `handler` on the loop for everything that happens from now on.
    public func watch(_ handler: @escaping @Sendable (Event) -> Void) async throws(DBusError) {
        let isFirst = self.handler == nil
        self.handler = handler
        if isFirst {
            try await bus.addMatch(DBusMatchRule(sender: PTTBus.name, pathNamespace: Self.root)) {
                [weak self] message in
                self?.assumeIsolated { $0.received(message) }
            }
        }
        if isRunning { try await refresh() }
    }

    private func ownerChanged(_ new: String?) {
        let old = owner
        guard old != new else { return }
        owner = new
        // A daemon that was replaced at once has gone and come, too.
        if old != nil {
            handler?(.running(false))
            tell { $0 = DaemonSnapshot() }
        }
        if let new {
            handler?(.running(true))
            Task { await self.read(new) }
        }
    }

    /// Reads a daemon that has come. It may be busy with its start.
    private func read(_ new: String) async {
        var pauses = Self.readingPauses[...]
        while owner == new {
            do throws(DBusError) { return try await refreshAndTell() } catch {
                guard owner == new else { return }
                guard let pause = pauses.popFirst() else {
                    return logger.warning(
                        "pttd does not tell its state: only what changes is shown; try again, or restart pttd",
                        metadata: ["why": "\(error)"])
                }
                try? await Task.sleep(for: pause)
            }
        }
    }

    private func refreshAndTell() async throws(DBusError) {
        let old = try await replaceSnapshot()
        if old != snapshot { handler?(.changed(from: old, to: snapshot)) }
    }

    private func received(_ message: DBusMessage) {
        guard let path = message.path else { return }
        switch (message.interface, message.member) {
        case ("org.freedesktop.DBus.Properties", "PropertiesChanged"):
            guard let interface = message.arguments.first?.stringValue, message.arguments.count > 1,
                let properties = message.arguments[1].propertiesValue
            else { return }
            tell { $0.set(interface, properties, at: path) }
        case ("org.freedesktop.DBus.ObjectManager", "InterfacesAdded"):
            guard message.arguments.count > 1, let added = message.arguments[0].objectPathValue else { return }
            tell {
                for (interface, properties) in message.arguments[1].dictionaryValue ?? [:] {
                    $0.set(interface.stringValue ?? "", properties.propertiesValue ?? [:], at: added)
                }
            }
        case ("org.freedesktop.DBus.ObjectManager", "InterfacesRemoved"):
            guard message.arguments.count > 1, let removed = message.arguments[0].objectPathValue else { return }
            tell { $0.remove(message.arguments[1].arrayValue?.compactMap(\.stringValue) ?? [], at: removed) }
        case (PTTBus.channelInterface, "TransmissionFailed"):
            guard message.arguments.count > 1 else { return }
            handler?(
                .transmissionFailed(
                    channel: path, code: Int(message.arguments[0].integerValue ?? 0),
                    message: message.arguments[1].stringValue ?? ""))
        default:
            if let signal = AccessorySignal(message) { handler?(.accessory(signal)) }
        }
    }

    private func tell(_ change: @escaping Change) {
        for (reading, changes) in changesMeanwhile where changes.count < Self.changesMax {
            changesMeanwhile[reading, default: []].append(change)
        }
        let old = snapshot
        change(&snapshot)
        if old != snapshot { handler?(.changed(from: old, to: snapshot)) }
    }

    /// Leaves the bus.
    public func close() async { await bus.close() }
}
