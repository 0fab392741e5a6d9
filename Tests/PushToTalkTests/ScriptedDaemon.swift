// org.pttd as a test tells it to be: for what a real pttd does rarely, or never.
import BusTestSupport
import DBus
import Foundation
import PTTBus
import PushToTalkCore
import Reactor

/// Stands for pttd on a bus.
actor ScriptedDaemon {
    typealias Answer = nonisolated(nonsending) @Sendable (DBusMethodCall) async throws -> [DBusValue]

    let loop: EventLoop
    nonisolated var unownedExecutor: UnownedSerialExecutor { loop.asUnownedSerialExecutor() }
    let bus: DBusConnection
    /// Every call, as `Method(argument, …)`.
    nonisolated let calls = Recorder<String>()
    private var answers: [String: Answer] = [:]
    private var refusals: [String: PTChannelError.Code] = [:]
    private var application: (sender: String, path: DBusObjectPath)?
    /// The channel that an application which registers gets back.
    private var restored: UUID?

    init(_ fixture: BusFixture, restoring: UUID? = nil, answers: [String: Answer] = [:]) async throws {
        loop = fixture.loop
        self.answers = answers
        restored = restoring
        bus = try await fixture.connect()
        try await export("/org/pttd", PTTBus.managerInterface)
        try await bus.requestName(PTTBus.name)
    }

    /// From now on `method` is answered so.
    func answer(_ method: String, _ answer: @escaping Answer) { answers[method] = answer }

    /// From now on `method` is refused with this code.
    func refuse(_ method: String, _ code: PTChannelError.Code) {
        refusals[method] = code
    }

    func restore(_ uuid: UUID?) { restored = uuid }

    /// Calls the application.
    @discardableResult
    func tell(_ method: String, _ arguments: [DBusValue] = []) async throws -> [DBusValue] {
        guard let application else { throw DBusErrorReply.failed("no application has registered") }
        return try await bus.call(
            destination: application.sender, path: application.path, interface: PTTBus.delegateInterface,
            method: method, arguments: arguments)
    }

    /// Makes a call whose answer is not waited for, and ends the registration right after it.
    func endRegistration(after method: String, _ arguments: [DBusValue]) async throws {
        guard let application else { throw DBusErrorReply.failed("no application has registered") }
        try await bus.send(
            destination: application.sender, path: application.path, interface: PTTBus.delegateInterface,
            method: method, arguments: arguments)
        try await bus.emitSignal(
            PTTBus.registrationEnded, of: PTTBus.managerInterface, at: "/org/pttd", to: application.sender)
    }

    func showChannel(_ uuid: UUID) async throws {
        try await export(try DBusObjectPath(PTTBus.channelPath(uuid.busText)), PTTBus.channelInterface)
    }

    /// Leaves the bus as a killed process does.
    func die() async { await bus.close() }

    private func export(_ path: DBusObjectPath, _ name: String) async throws {
        let interface = try DBusIntrospection(xml: PTTBus.xml(of: name)).interface(name)!
        var methods: [String: DBusMethodHandler] = [:]
        for method in interface.methods {
            methods[method.name] = handle
        }
        let values = interface.properties.map { ($0.name, Self.empty($0.type)) }
        try await bus.export(
            [try DBusExport(interface, properties: Dictionary(uniqueKeysWithValues: values), methods: methods)],
            at: path)
    }

    private static func empty(_ type: DBusType) -> DBusValue {
        switch type {
        case .boolean: .boolean(false)
        case .uint32: .uint32(0)
        case .double: .double(0)
        case .objectPath: .objectPath("/")
        case .array(.byte): .bytes([])
        case .array(let element): .array(element, [])
        default: .string("")
        }
    }

    /// A method, for a closure would take a way round by the global executor, and calls would overtake each other.
    private nonisolated(nonsending) func handle(_ call: DBusMethodCall) async throws -> [DBusValue] {
        try await called(call)
    }

    private func called(_ call: DBusMethodCall) async throws -> [DBusValue] {
        calls.record("\(call.member)(\(call.arguments.map(Self.text).joined(separator: ", ")))")
        if call.member == "RegisterApplication" {
            application = (call.sender, call.arguments[1].objectPathValue!)
        }
        if let code = refusals[call.member] { throw PTTBus.reply(PTChannelError(code)) }
        if let answer = answers[call.member] { return try await answer(call) }
        switch call.member {
        case "RegisterApplication":
            guard let restored else { return [.properties([:])] }
            try await tell("DidJoinChannel", [.string(restored.busText), .int32(1)])
            return [.properties(["ActiveChannel": .string(restored.busText)])]
        case "JoinChannel":
            let uuid = UUID(uuidString: call.arguments[0].stringValue!)!
            try await showChannel(uuid)
            try await tell("DidJoinChannel", [.string(uuid.busText), .int32(0)])
            return [.objectPath(try DBusObjectPath(PTTBus.channelPath(uuid.busText)))]
        default: return []
        }
    }

    private static func text(_ value: DBusValue) -> String {
        switch value.unwrapped {
        case .string(let text): text
        case .boolean(let truth): "\(truth)"
        case .objectPath(let path): "\(path)"
        case .bytes(let bytes): "\(bytes.count) bytes"
        case .dictionary(_, _, let entries):
            "["
                + entries.map { "\(text($0.key)): \(text($0.value))" }.sorted().joined(separator: ", ") + "]"
        default: "\(value)"
        }
    }
}

extension UUID {
    /// As org.pttd writes it.
    var busText: String { uuidString.lowercased() }
}
