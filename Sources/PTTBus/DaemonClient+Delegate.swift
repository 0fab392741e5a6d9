// Being a program with a channel manager: serving org.pttd.Delegate1 and registering with the daemon.
import DBus
import FoundationEssentials
import PushToTalkCore

/// Answers a call of the daemon, starting on the client's loop. An error that it throws is sent to the daemon as a
/// failure.
public typealias DelegateHandler = nonisolated(nonsending) @Sendable (DelegateCall) async throws -> DelegateAnswer

extension DaemonClient {
    /// Where a program serves its delegate when it does not choose a path.
    public static let delegatePath: DBusObjectPath = "/org/pttd/delegate"

    /// Serves `org.pttd.Delegate1` at `path`. The daemon makes one call at a time; calls of anybody else are refused.
    ///
    /// - Throws: `DBusError.invalid` when a delegate is served there already.
    public func serveDelegate(
        at path: DBusObjectPath = DaemonClient.delegatePath, _ handler: @escaping DelegateHandler
    ) async throws(DBusError) {
        let interface = try PTTBus.declaration(of: PTTBus.delegateInterface)
        var methods: [String: DBusMethodHandler] = [:]
        for method in interface.methods {
            methods[method.name] = { [weak self] call in
                guard let self, await self.owner == call.sender else {
                    throw DBusErrorReply.accessDenied("only \(PTTBus.name) calls this object")
                }
                return try await handler(try DelegateCall(member: call.member, arguments: call.arguments)).values
            }
        }
        try await bus.export([try DBusExport(interface, methods: methods)], at: path)
    }

    /// Takes a served delegate back.
    public func unserveDelegate(at path: DBusObjectPath = DaemonClient.delegatePath) async {
        await bus.unexport([PTTBus.delegateInterface], at: path)
    }

    /// Takes a well-known name, by which D-Bus can start this program.
    ///
    /// - Throws: `DBusError.nameTaken`, or why the bus refuses the name.
    public func takeName(_ name: String) async throws(DBusError) {
        try await bus.requestName(name)
    }

    /// Registers as a program with a channel manager. It returns after the delegate was told about the restoration of
    /// its channel.
    ///
    /// - Parameters:
    ///   - name: A well-known name that this client owns (`takeName`); empty: this program is not started again.
    ///   - delegate: Where `serveDelegate` serves it.
    /// - Returns: The program's channel; nil while it has none.
    /// - Throws: `.bus`, whose `instantiationError` is the daemon's; `.notRunning`.
    public func registerApplication(
        name: String = "", delegate: DBusObjectPath = DaemonClient.delegatePath
    ) async throws(DaemonClientError) -> UUID? {
        let answer = try await callManager(
            "RegisterApplication", [.string(name), .objectPath(delegate), .properties([:])], Self.longTimeout)
        return answer.first?.propertiesValue?["ActiveChannel"]?.stringValue.flatMap { UUID(uuidString: $0) }
    }

    /// Has no channel manager any more. The channel stays.
    public func unregisterApplication() async throws(DaemonClientError) {
        try await callManager("UnregisterApplication")
    }
}
