// A scripted notification server and tray on a private bus.
import BusTestSupport
import DBus
import Glibc
import Logging
import PushToTalkCore
import Reactor
import Synchronization
import Testing

@testable import SystemUI

/// An `org.freedesktop.Notifications` that remembers what it was asked.
final class NotificationServer: Sendable {
    struct Notification: Sendable {
        let replaced: UInt32
        let icon: String
        let summary: String
        let body: String
        let actions: [String]
        let hints: [String: DBusValue]
    }

    static let name = "org.freedesktop.Notifications"
    static let path: DBusObjectPath = "/org/freedesktop/Notifications"
    let connection: DBusConnection
    let notifications = Recorder<Notification>()
    let closed = Recorder<UInt32>()
    let questions = Recorder<Void>()
    private let capabilities: [String]
    private let next = Mutex<UInt32>(0)

    init(on connection: DBusConnection, capabilities: [String] = ["body", "actions", "icon-static"]) async throws {
        self.connection = connection
        self.capabilities = capabilities
        try await connection.export([try interface()], at: Self.path)
        try await connection.requestName(Self.name)
    }

    private func interface() throws -> DBusExport {
        let interface = DBusInterface(
            Self.name,
            methods: [
                .init("GetCapabilities", out: [.init("", .array(.string))]),
                .init(
                    "Notify",
                    in: [
                        .string, .uint32, .string, .string, .string, .array(.string),
                        .dictionary(key: .string, value: .variant), .int32,
                    ].map { .init("", $0) }, out: [.init("", .uint32)]),
                .init("CloseNotification", in: [.init("", .uint32)]),
            ])
        return try DBusExport(
            interface,
            methods: [
                "GetCapabilities": { [questions, capabilities] _ in
                    questions.record(())
                    return [.strings(capabilities)]
                },
                "Notify": { [weak self] call in try self?.notify(call.arguments) ?? [] },
                "CloseNotification": { [closed] call in
                    closed.record(try call.arguments.argument(0))
                    return []
                },
            ])
    }

    private func notify(_ arguments: [DBusValue]) throws -> [DBusValue] {
        let replaced: UInt32 = try arguments.argument(1)
        notifications.record(
            Notification(
                replaced: replaced, icon: try arguments.argument(2), summary: try arguments.argument(3),
                body: try arguments.argument(4), actions: try arguments.argument(5),
                hints: arguments[6].propertiesValue ?? [:]))
        let number =
            replaced != 0
            ? replaced
            : next.withLock { next in
                next += 1
                return next
            }
        return [.uint32(number)]
    }

    /// Sends a signal of the right form, or of any other.
    func emit(_ signal: String, _ arguments: [DBusValue]) async throws {
        // What is exported may only send what it declares; nonsense goes out from a bare path.
        let export = try interface()
        await connection.unexport(at: Self.path)
        try await connection.emitSignal(signal, of: Self.name, at: Self.path, arguments)
        try await connection.export([export], at: Self.path)
    }

    /// Returns when the other one has read everything that was sent before: a bus keeps the order of messages.
    func waitUntilRead(by other: DBusConnection) async throws {
        let name = try #require(await other.uniqueName)
        _ = try await connection.call(
            destination: name, path: "/", interface: "org.freedesktop.DBus.Peer", method: "Ping")
    }

    func leave() async { await connection.close() }
}

/// An `org.kde.StatusNotifierWatcher` that remembers who registered.
final class Watcher: Sendable {
    static let name = "org.kde.StatusNotifierWatcher"
    let connection: DBusConnection
    let items = Recorder<String>()
    let signals = Recorder<String>()

    init(on connection: DBusConnection) async throws {
        self.connection = connection
        let interface = DBusInterface(
            Self.name, methods: [.init("RegisterStatusNotifierItem", in: [.init("service", .string)])])
        let export = try DBusExport(
            interface,
            methods: [
                "RegisterStatusNotifierItem": { [items] call in
                    items.record(try call.arguments.argument(0))
                    return []
                }
            ])
        try await connection.export([export], at: "/StatusNotifierWatcher")
        try await connection.addMatch(DBusMatchRule(interface: StatusNotifierItem.interface)) { [signals] signal in
            signals.record(signal.member ?? "")
        }
        try await connection.requestName(Self.name)
    }

    /// What a host reads of an item.
    func properties(of item: String) async throws -> [String: DBusValue] {
        try await connection.getProperties(
            of: StatusNotifierItem.interface, destination: item, path: StatusNotifierItem.path)
    }

    func leave() async { await connection.close() }
}

/// A user interface on a bus of its own.
struct Desktop: Sendable {
    let fixture: BusFixture
    let connection: DBusConnection
    let ui: SystemUI
    let wishes = Recorder<SystemUIEvent>()
    var directory: String { fixture.bus.directory }

    init(_ fixture: BusFixture) async throws {
        self.fixture = fixture
        connection = try await fixture.connect()
        ui = SystemUI(
            bus: connection, logger: fixture.logger, runtimeDirectory: fixture.bus.directory
        ) { [wishes] wish in wishes.record(wish) }
        try await ui.start()
    }

    func end() async {
        await ui.stop()
        await connection.close()
    }

    static func state(
        speaker: String? = nil, isTransmitting: Bool = false, image: PTImage? = nil,
        status: PTServiceStatus = .ready
    ) -> SystemUIState {
        SystemUIState(
            channel: SystemUIState.Channel(
                descriptor: PTChannelDescriptor(name: "Kitchen", image: image), serviceStatus: status),
            speaker: speaker.map { PTParticipant(name: $0, image: nil) }, isTransmitting: isTransmitting)
    }
}

/// The names of the files in a directory.
func files(in path: String) -> [String] {
    guard let stream = opendir(path) else { return [] }
    defer { closedir(stream) }
    var names: [String] = []
    while let entry = readdir(stream) {
        names.append(
            withUnsafePointer(to: &entry.pointee.d_name) { tuple in
                tuple.withMemoryRebound(to: CChar.self, capacity: 256) { String(cString: $0) }
            })
    }
    return names.filter { $0 != "." && $0 != ".." }.sorted()
}

/// The bytes of a file; nil when it cannot be read.
func contents(of path: String) -> [UInt8]? {
    guard let file = fopen(path, "r") else { return nil }
    defer { fclose(file) }
    var bytes = [UInt8](repeating: 0, count: 1 << 16)
    let count = fread(&bytes, 1, bytes.count, file)
    return Array(bytes.prefix(count))
}
