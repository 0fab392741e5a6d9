// The pairing agent (org.bluez.Agent1): BlueZ asks, and what this client has begun is agreed to.
import DBus
import Logging

extension BlueZClient {
    private var agentPath: DBusObjectPath { Self.child(basePath, "agent") }

    /// Registers a pairing agent, now and whenever bluetoothd returns. It is asked about devices that we pair, not
    /// instead of the desktop's agent.
    ///
    /// Pairing is agreed to for the devices that `pair` was called for, and services for trusted devices; all else is rejected.
    public func registerAgent() async throws(BlueZError) {
        if isAgentRegistered == nil {
            isAgentRegistered = false
            do throws(DBusError) {
                let export = try export(Self.agentInterface, as: "agent") { try $0.asked($1) }
                try await connection.export([export], at: agentPath)
            } catch {
                isAgentRegistered = nil
                throw BlueZError(error, during: "export the pairing agent")
            }
        }
        if isAvailable, isAgentRegistered == false { try await registerAgentNow() }
    }

    /// Ends that.
    func unregisterAgent() async {
        guard let wasRegistered = isAgentRegistered else { return }
        isAgentRegistered = nil
        if wasRegistered {
            // BlueZ forgets the agents of programs that leave; one that it does not know needs no taking back.
            _ = try? await call(
                BlueZName.manager, BlueZName.agentManager, "UnregisterAgent", [.objectPath(agentPath)],
                during: "unregister the pairing agent")
        }
        await connection.unexport(at: agentPath)
    }

    private func registerAgentNow() async throws(BlueZError) {
        let current = life
        // What a box in a rack can show and ask: nothing.
        try await call(
            BlueZName.manager, BlueZName.agentManager, "RegisterAgent",
            [.objectPath(agentPath), .string("NoInputNoOutput")], during: "register the pairing agent",
            accepting: [.alreadyDone])
        if current == life, isAgentRegistered != nil { isAgentRegistered = true }
    }

    func registerAgentAgain() {
        guard isAgentRegistered == false else { return }
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

    private func asked(_ call: DBusMethodCall) throws -> [DBusValue] {
        if call.member == "Release" { isAgentRegistered = false }
        if call.member == "Release" || call.member == "Cancel" { return [] }
        guard let path = call.arguments.first?.objectPathValue, case .device(let device) = BlueZObject(path) else {
            throw DBusErrorReply("org.bluez.Error.Rejected", "no device at that path")
        }
        let isAgreed =
            switch call.member {
            case "RequestConfirmation", "RequestAuthorization": pairing[device] != nil
            case "AuthorizeService": tree.devices[device]?.isTrusted == true || pairing[device] != nil
            // To be typed on the device; nothing to decide.
            case "DisplayPinCode", "DisplayPasskey": true
            default: false
            }
        logger.info("pairing request answered", metadata: ["method": "\(call.member)", "device": "\(device)"])
        guard isAgreed else { throw DBusErrorReply("org.bluez.Error.Rejected", "rejected") }
        return []
    }
}
