// The pairing agent (org.bluez.Agent1): BlueZ asks, a handler decides.
import DBus
import Logging

/// What this machine can show and ask when it pairs.
public enum AgentCapability: String, Hashable, Sendable {
    /// Neither: pairing is confirmed without the user. What a box in a rack has.
    case noInputNoOutput = "NoInputNoOutput"
    /// It can show a number.
    case displayOnly = "DisplayOnly"
    /// It can show a number and ask yes or no.
    case displayYesNo = "DisplayYesNo"
    /// It can ask for a number.
    case keyboardOnly = "KeyboardOnly"
    /// All of it.
    case keyboardDisplay = "KeyboardDisplay"
}

/// What BlueZ asks the agent.
public enum AgentRequest: Hashable, Sendable {
    /// Is this the number the device shows?
    case confirm(DeviceIdentifier, passkey: UInt32)
    /// May the device pair, without any number?
    case authorize(DeviceIdentifier)
    /// May the device use this service?
    case authorizeService(DeviceIdentifier, BluetoothUUID?)
    /// Which number does the device show?
    case passkey(DeviceIdentifier)
    /// Which PIN has the device (classic, before 2.1)?
    case pinCode(DeviceIdentifier)
    /// Show this, to be typed on the device; nothing to decide.
    case display(DeviceIdentifier, String)

    /// The device that it is about.
    public var device: DeviceIdentifier {
        switch self {
        case .confirm(let device, _), .authorize(let device), .authorizeService(let device, _), .passkey(let device),
            .pinCode(let device), .display(let device, _):
            return device
        }
    }
}

/// What the agent answers.
public enum AgentAnswer: Hashable, Sendable {
    /// Yes.
    case accept
    /// No.
    case reject
    /// This number, for `passkey`: 0…999999.
    case passkey(UInt32)
    /// This PIN, for `pinCode`: 1…16 characters.
    case pinCode(String)
}

/// Decides on a request, starting on the loop.
public typealias AgentHandler = nonisolated(nonsending) @Sendable (AgentRequest) async -> AgentAnswer

struct AgentState {
    var capability: AgentCapability
    var handler: AgentHandler?
    var isRegistered = false
}

extension BlueZClient {
    private var agentPath: DBusObjectPath { Self.child(basePath, "agent") }

    /// Registers a pairing agent, now and whenever bluetoothd returns. It is asked about devices that we pair, not
    /// instead of the desktop's agent.
    ///
    /// - Parameter handler: Decides. Without one, pairing is agreed to for the devices that `pair` was called for,
    ///   and services for trusted devices; all else is rejected.
    public func registerAgent(
        _ capability: AgentCapability = .noInputNoOutput, handler: AgentHandler? = nil
    ) async throws(BlueZError) {
        let isExported = agent != nil
        if agent?.isRegistered == true { await takeAgentBack() }
        agent = AgentState(capability: capability, handler: handler)
        if !isExported {
            do throws(DBusError) {
                try await connection.export([agentExport()], at: agentPath)
            } catch {
                throw BlueZError(error, during: "export the pairing agent")
            }
        }
        if isAvailable { try await registerAgentNow() }
    }

    /// Ends that.
    public func unregisterAgent() async {
        guard agent != nil else { return }
        if agent?.isRegistered == true { await takeAgentBack() }
        agent = nil
        await connection.unexport(at: agentPath)
    }

    private func takeAgentBack() async {
        agent?.isRegistered = false
        // BlueZ forgets the agents of programs that leave; one that it does not know needs no taking back.
        _ = try? await call(
            BlueZName.manager, BlueZName.agentManager, "UnregisterAgent", [.objectPath(agentPath)],
            timeout: BlueZTimeout.short, during: "unregister the pairing agent")
    }

    private func registerAgentNow() async throws(BlueZError) {
        guard let capability = agent?.capability else { return }
        let current = life
        do throws(BlueZError) {
            _ = try await call(
                BlueZName.manager, BlueZName.agentManager, "RegisterAgent",
                [.objectPath(agentPath), .string(capability.rawValue)], timeout: BlueZTimeout.short,
                during: "register the pairing agent")
        } catch {
            guard error.kind == .alreadyDone else { throw error }
        }
        if current == life { agent?.isRegistered = true }
    }

    func registerAgentAgain() {
        guard agent != nil, agent?.isRegistered == false else { return }
        Task {
            do throws(BlueZError) {
                try await registerAgentNow()
            } catch {
                logger.warning("no pairing agent", metadata: ["reason": "\(error)"])
            }
        }
    }

    // MARK: What BlueZ calls

    private static let agentInterface = DBusInterface(
        BlueZName.agent,
        methods: [
            .init("Release"), .init("Cancel"),
            .init("RequestPinCode", in: [.init("device", .objectPath)], out: [.init("pincode", .string)]),
            .init("DisplayPinCode", in: [.init("device", .objectPath), .init("pincode", .string)]),
            .init("RequestPasskey", in: [.init("device", .objectPath)], out: [.init("passkey", .uint32)]),
            .init(
                "DisplayPasskey",
                in: [.init("device", .objectPath), .init("passkey", .uint32), .init("entered", .uint16)]),
            .init("RequestConfirmation", in: [.init("device", .objectPath), .init("passkey", .uint32)]),
            .init("RequestAuthorization", in: [.init("device", .objectPath)]),
            .init("AuthorizeService", in: [.init("device", .objectPath), .init("uuid", .string)]),
        ])

    private func agentExport() throws(DBusError) -> DBusExport {
        var methods: [String: DBusMethodHandler] = [:]
        for method in Self.agentInterface.methods {
            methods[method.name] = { [weak self] call in
                guard let self else { throw DBusErrorReply("org.bluez.Error.Canceled", "the agent is gone") }
                return try await self.asked(call)
            }
        }
        return try DBusExport(Self.agentInterface, methods: methods)
    }

    private func asked(_ call: DBusMethodCall) async throws -> [DBusValue] {
        // Others on the bus could otherwise ask for the user's PIN.
        guard call.sender == owner else { throw DBusErrorReply.accessDenied("only bluetoothd may call this agent") }
        if call.member == "Release" {
            agent?.isRegistered = false
            return []
        }
        if call.member == "Cancel" { return [] }
        guard let request = Self.request(call) else {
            throw DBusErrorReply("org.bluez.Error.Rejected", "no device at that path")
        }
        let answer = await answer(request)
        logger.info("pairing request answered", metadata: ["method": "\(call.member)", "device": "\(request.device)"])
        switch (request, answer) {
        case (.display, _): return []
        case (.confirm, .accept), (.authorize, .accept), (.authorizeService, .accept): return []
        case (.passkey, .passkey(let number)) where number <= 999_999: return [.uint32(number)]
        case (.pinCode, .pinCode(let text)) where (1...16).contains(text.utf8.count): return [.string(text)]
        default: throw DBusErrorReply("org.bluez.Error.Rejected", "rejected")
        }
    }

    private func answer(_ request: AgentRequest) async -> AgentAnswer {
        if let handler = agent?.handler { return await handler(request) }
        switch request {
        case .confirm(let device, _), .authorize(let device): return pairing[device] != nil ? .accept : .reject
        case .authorizeService(let device, _):
            return tree.devices[device]?.isTrusted == true || pairing[device] != nil ? .accept : .reject
        case .passkey, .pinCode, .display: return .reject
        }
    }

    private static func request(_ call: DBusMethodCall) -> AgentRequest? {
        guard let path = call.arguments.first?.objectPathValue, case .device(let device) = BlueZObject(path) else {
            return nil
        }
        let argument = call.arguments.count > 1 ? call.arguments[1] : .string("")
        switch call.member {
        case "RequestPinCode": return .pinCode(device)
        case "DisplayPinCode": return .display(device, argument.stringValue ?? "")
        case "RequestPasskey": return .passkey(device)
        case "DisplayPasskey":
            let digits = String(argument.integerValue ?? 0)
            return .display(device, String(repeating: "0", count: max(0, 6 - digits.count)) + digits)
        case "RequestConfirmation": return .confirm(device, passkey: argument.get() ?? 0)
        case "RequestAuthorization": return .authorize(device)
        case "AuthorizeService": return .authorizeService(device, BluetoothUUID(argument.stringValue ?? ""))
        default: return nil
        }
    }
}
