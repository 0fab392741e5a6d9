// Programs with a channel manager: registering, and leaving.
import DBus
import FoundationEssentials
import Logging
import PTTBus
import PushToTalkCore

/// A program that registers or has registered. It lives on the API's loop.
final class Registration {
    enum State {
        /// Its restoration is under way.
        case coming
        /// It has a channel manager.
        case registered
        /// It was over before its restoration was.
        case over
    }

    let application: Application
    var state = State.coming
    /// Whether it was reported to the controls, and not refused.
    var isKnown = false

    init(_ application: Application) { self.application = application }
}

extension DaemonAPI {
    func registerApplication(_ call: DBusMethodCall) async throws -> [DBusValue] {
        let arguments = Arguments(call)
        let name: String = try arguments.value(0)
        let path: DBusObjectPath = try arguments.value(1)
        _ = try arguments.options(2, known: [])
        try await checkOwner(of: name, is: call.sender)
        guard applications[call.sender]?.state != .coming else {
            throw PTInstantiationError(.instantiationAlreadyInProgress)
        }
        // Who registers again starts over; who has lost its name to another cannot be started by it any more.
        for (caller, registration) in applications
        where caller == call.sender || (!name.isEmpty && registration.application.id.name == name) {
            await endRegistration(of: caller)
        }
        guard applications[call.sender] == nil else {
            throw PTInstantiationError(.instantiationAlreadyInProgress)
        }
        guard applications.count < PTTBusLimits.applications else {
            throw DBusErrorReply.limitsExceeded("\(PTTBusLimits.applications) programs have a channel manager")
        }
        let registration = Registration(application(call.sender, name, path))
        applications[call.sender] = registration
        do {
            try await hold(.application, for: call.sender)
            let channel = try await restored(registration)
            guard registration.state == .coming, isHolding(.application, call.sender) else { throw Self.callerLeft }
            registration.state = .registered
            return [.properties(channel.map { ["ActiveChannel": .string($0.uuidString.lowercased())] } ?? [:])]
        } catch {
            await abandon(registration)
            throw error
        }
    }

    /// Throws unless `caller` owns the well-known `name`, or `name` is empty.
    private func checkOwner(of name: String, is caller: String) async throws {
        guard !name.isEmpty else { return }
        do throws(DBusError) { try DBusName.checkBus(name) } catch {
            throw DBusErrorReply.invalidArguments("\(error); write it like org.example.Radio, or leave it empty")
        }
        guard !DBusName.isUnique(name) else {
            throw DBusErrorReply.invalidArguments(
                "'\(name)' is a unique name, which D-Bus cannot start; give a well-known one, or leave it empty")
        }
        guard try await bus.owner(of: name) == caller else {
            throw PTInstantiationError(
                .missingEntitlement,
                explanation: "the caller does not own the bus name \(name); request it before registering")
        }
    }

    private func application(_ caller: String, _ name: String, _ path: DBusObjectPath) -> Application {
        Application(
            id: ApplicationID(busName: caller, name: name),
            delegate: ApplicationDelegate(
                bus: bus, busName: caller, path: path, limit: delegateLimit, logger: logger,
                overflowed: { [weak self] in
                    guard let self else { return }
                    Task { await self.dismiss(caller) }
                }))
    }

    private func restored(_ registration: Registration) async throws -> UUID? {
        let controls = try controls
        registration.isKnown = true
        do {
            return try await controls.register(registration.application)
        } catch {
            registration.isKnown = false
            throw error
        }
    }

    /// Ends a registration that was not completed.
    private func abandon(_ registration: Registration) async {
        let id = registration.application.id
        if applications[id.busName] === registration { applications[id.busName] = nil }
        registration.state = .over
        await registration.application.delegate.end()
        await drop(.application, for: id.busName)
        if registration.isKnown { await (try? controls)?.applicationLeft(id) }
    }

    /// The program's delegate is not called any more.
    func detach(_ caller: String) {
        guard let registration = applications[caller] else { return }
        registration.application.delegate.assumeIsolated { $0.end() }
        if registration.state == .coming { registration.state = .over }
    }

    /// Ends the registration of a program that does not take its delegate's calls, and tells the program. It may read that, behind
    /// those calls, when it goes on.
    private func dismiss(_ caller: String) async {
        let isRegistered = applications[caller]?.state == .registered
        await endRegistration(of: caller)
        // A registration that is not complete has an answer that tells.
        guard isRegistered else { return }
        do throws(DBusError) {
            try await bus.emitSignal(
                PTTBus.registrationEnded, of: PTTBus.managerInterface, at: Self.managerPath, to: caller)
        } catch {
            logger.warning(
                "program not told that its registration has ended",
                metadata: ["program": "\(caller)", "why": "\(error)"])
        }
    }

    /// Ends the program's registration. A registration in progress fails with its own call.
    func endRegistration(of caller: String) async {
        detach(caller)
        guard let registration = applications[caller], registration.state == .registered else { return }
        applications[caller] = nil
        await drop(.application, for: caller)
        await (try? controls)?.applicationLeft(registration.application.id)
    }
}
