// The daemon as its clients see it: found, read, watched and asked.
import DBus
import Logging
import Reactor

/// Everything that `org.pttd` says at one moment.
public struct DaemonSnapshot: Sendable, Hashable {
    /// The daemon.
    public var manager = ManagerProperties()
    /// Its channels by object path.
    public var channels: [DBusObjectPath: ChannelProperties] = [:]
    /// Its accessories by object path.
    public var accessories: [DBusObjectPath: AccessoryProperties] = [:]

    /// Nothing yet.
    public init() {}

    /// The channel that is joined.
    public var activeChannel: (path: DBusObjectPath, properties: ChannelProperties)? {
        channels[manager.activeChannel].map { (manager.activeChannel, $0) }
    }

    mutating func set(_ interface: String, _ properties: [String: DBusValue], at path: DBusObjectPath) {
        switch interface {
        case PTTBus.managerInterface: manager = ManagerProperties(properties: manager.properties + properties)
        case PTTBus.channelInterface:
            channels[path] = ChannelProperties(properties: (channels[path] ?? .init()).properties + properties)
        case PTTBus.accessoryInterface:
            accessories[path] = AccessoryProperties(properties: (accessories[path] ?? .init()).properties + properties)
        default: break
        }
    }

    mutating func remove(_ interfaces: [String], at path: DBusObjectPath) {
        if interfaces.contains(PTTBus.channelInterface) { channels[path] = nil }
        if interfaces.contains(PTTBus.accessoryInterface) { accessories[path] = nil }
    }
}

private func + (lhs: [String: DBusValue], rhs: [String: DBusValue]) -> [String: DBusValue] {
    lhs.merging(rhs) { _, new in new }
}

/// Why a client has no daemon to talk to. The description tells the user what to do.
public enum DaemonClientError: Error, CustomStringConvertible {
    /// `org.pttd` is on none of the buses that were looked at.
    case notRunning(looked: [String])
    /// A bus refused, or the call failed.
    case bus(DBusError)

    /// What is wrong and what to do.
    public var description: String {
        switch self {
        case .notRunning(let looked):
            "pttd is not running (looked for \(PTTBus.name) on the \(looked.joined(separator: " and the "))); "
                + "start it: 'systemctl --user start pttd', or 'sudo systemctl start pttd' for the whole machine"
        case .bus(.remote(let name, let message)) where name.hasSuffix(".AccessDenied"):
            "the bus does not let you talk to pttd (\(message)); join the group: 'sudo adduser $USER pttd', and log in again"
        case .bus(.remote(let name, let message)) where name.hasPrefix(PTTBus.errorPrefix): message
        case .bus(let error): "\(error)"
        }
    }
}

/// A client of the daemon on one bus.
public actor DaemonClient {
    /// What changed.
    public enum Event: Sendable {
        /// The snapshot before and after.
        case changed(from: DaemonSnapshot, to: DaemonSnapshot)
        /// `org.pttd.Channel1.TransmissionFailed`.
        case transmissionFailed(channel: DBusObjectPath, code: Int, message: String)
        /// The daemon left the bus, or came (back) to it.
        case running(Bool)
    }

    /// The loop it lives on.
    public nonisolated let loop: EventLoop
    /// The loop, as the actor's executor.
    public nonisolated var unownedExecutor: UnownedSerialExecutor { loop.asUnownedSerialExecutor() }
    private let bus: DBusConnection
    private var handler: (@Sendable (Event) -> Void)?
    /// The latest state; kept up to date while `watch` runs.
    public private(set) var snapshot = DaemonSnapshot()

    private init(_ bus: DBusConnection, loop: EventLoop) {
        self.bus = bus
        self.loop = loop
    }

    /// Finds the daemon: on the given bus, or else on the session bus and then on the system bus.
    public static func find(
        on address: DBusAddress? = nil, loop: EventLoop, logger: Logger
    ) async throws(DaemonClientError) -> DaemonClient {
        let candidates = address.map { [$0] } ?? [.session, .system]
        var failure: DBusError?
        for candidate in candidates {
            let bus = DBusConnection(to: candidate, on: loop, logger: logger, reconnects: false)
            do {
                try await bus.connect()
                if try await bus.owner(of: PTTBus.name) != nil {
                    let client = DaemonClient(bus, loop: loop)
                    try await client.refresh()
                    return client
                }
            } catch {
                // A refusal by policy says more than an absent bus.
                if failure == nil || error.remoteName != nil { failure = error }
            }
            await bus.close()
        }
        if let failure, failure.remoteName != nil || address != nil { throw .bus(failure) }
        throw .notRunning(looked: candidates.map { "\($0)" })
    }

    /// Reads everything anew.
    public func refresh() async throws(DBusError) {
        let answer = try await bus.call(
            destination: PTTBus.name, path: Self.root, interface: "org.freedesktop.DBus.ObjectManager",
            method: "GetManagedObjects")
        var new = DaemonSnapshot()
        for (path, interfaces) in answer.first?.dictionaryValue ?? [:] {
            guard let path = path.objectPathValue, let interfaces = interfaces.dictionaryValue else { continue }
            for (interface, properties) in interfaces {
                new.set(interface.stringValue ?? "", properties.propertiesValue ?? [:], at: path)
            }
        }
        let manager = try await bus.getProperties(
            of: PTTBus.managerInterface, destination: PTTBus.name, path: Self.root)
        new.set(PTTBus.managerInterface, manager, at: Self.root)
        snapshot = new
    }

    /// Calls `handler` on the loop for everything that happens from now on.
    public func watch(_ handler: @escaping @Sendable (Event) -> Void) async throws(DBusError) {
        self.handler = handler
        try await bus.addMatch(DBusMatchRule(sender: PTTBus.name, pathNamespace: Self.root)) { [weak self] message in
            self?.assumeIsolated { $0.received(message) }
        }
        _ = try await bus.watchName(PTTBus.name) { [weak self] owner in
            self?.assumeIsolated { $0.ownerChanged(owner) }
        }
        try await refresh()
    }

    private static var root: DBusObjectPath { "/org/pttd" }
    private var isRunning = true

    private func ownerChanged(_ owner: String?) {
        guard isRunning != (owner != nil) else { return }
        isRunning = owner != nil
        handler?(.running(isRunning))
        if isRunning { Task { try? await self.refreshAndTell() } } else { tell { $0 = DaemonSnapshot() } }
    }

    private func refreshAndTell() async throws(DBusError) {
        let old = snapshot
        try await refresh()
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
        default: break
        }
    }

    private func tell(_ change: (inout DaemonSnapshot) -> Void) {
        let old = snapshot
        change(&snapshot)
        if old != snapshot { handler?(.changed(from: old, to: snapshot)) }
    }

    /// Presses the talk key of the active channel. It is held until `stopTransmitting`, or until this client leaves the bus.
    public func beginTransmitting() async throws(DaemonClientError) {
        try await callChannel("BeginTransmitting")
    }

    /// Presses the talk key without waiting; what is asked for after this is asked for after the press.
    ///
    /// - Parameter answer: Called once on the loop: with nil when the microphone records, or with why not.
    public func press(answer: @escaping @Sendable (DaemonClientError?) -> Void) {
        Task {
            do throws(DaemonClientError) {
                try await beginTransmitting()
                answer(nil)
            } catch {
                answer(error)
            }
        }
    }

    /// Lets go of the talk key.
    public func stopTransmitting() async throws(DaemonClientError) {
        try await callChannel("StopTransmitting")
    }

    private func callChannel(_ method: String) async throws(DaemonClientError) {
        guard let channel = snapshot.activeChannel else {
            throw .bus(.remote(name: PTTBus.errorPrefix + "ChannelNotFound", message: "no channel is joined"))
        }
        do {
            _ = try await bus.call(
                destination: PTTBus.name, path: channel.path, interface: PTTBus.channelInterface, method: method)
        } catch {
            throw .bus(error)
        }
    }

    /// Leaves the bus.
    public func close() async { await bus.close() }
}
