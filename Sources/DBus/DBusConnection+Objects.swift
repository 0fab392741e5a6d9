// Exported objects: answering calls, the standard interfaces, and signals of our own.
import Logging
import MonotonicTime

extension DBusConnection {
    // MARK: Exporting

    /// Exports interfaces at an object path, and announces them through the object managers above it.
    /// - Throws: `DBusError.invalid` when one of them is there already; `.limitReached`.
    public func export(_ exports: [DBusExport], at path: DBusObjectPath) throws(DBusError) {
        try objects.add(exports, at: path)
        for manager in objects.managers(of: path) {
            try? emit(
                at: manager, "org.freedesktop.DBus.ObjectManager", "InterfacesAdded",
                [.objectPath(path), ObjectTree.describe(exports)])
        }
    }

    /// Withdraws interfaces (nil: all) at an object path, and announces that through the object managers above it.
    public func unexport(_ interfaces: Set<String>? = nil, at path: DBusObjectPath) {
        let removed = objects.remove(interfaces, at: path)
        guard !removed.isEmpty else { return }
        for manager in objects.managers(of: path) {
            try? emit(
                at: manager, "org.freedesktop.DBus.ObjectManager", "InterfacesRemoved",
                [.objectPath(path), .strings(removed)])
        }
    }

    /// Serves `org.freedesktop.DBus.ObjectManager` at `path` for all objects below it.
    public func exportObjectManager(at path: DBusObjectPath) { objects.addManager(path) }

    /// Ends that.
    public func unexportObjectManager(at path: DBusObjectPath) { objects.removeManager(path) }

    /// Changes exported properties; signals those that are different from before, in one signal.
    /// - Throws: `DBusError.invalid` and `.unexpectedType` when they do not fit what is exported.
    public func setProperties(
        _ values: [String: DBusValue], of interface: String, at path: DBusObjectPath
    ) throws(DBusError) {
        let (changed, invalidated) = try objects.set(values, at: path, interface: interface)
        guard !changed.isEmpty || !invalidated.isEmpty else { return }
        // Without a bus there is nobody to tell; whoever comes reads the new values.
        try? emit(
            at: path, "org.freedesktop.DBus.Properties", "PropertiesChanged",
            [.string(interface), .properties(changed), .strings(invalidated)])
    }

    /// The current value of an exported property.
    public func property(_ name: String, of interface: String, at path: DBusObjectPath) -> DBusValue? {
        objects.export(path, interface)?.values[name]
    }

    /// Emits a signal of an exported object, to all or to one.
    /// - Throws: `DBusError.invalid` when the interface is exported there and does not declare the signal so;
    ///   `.disconnected` without a bus.
    public func emitSignal(
        _ member: String, of interface: String, at path: DBusObjectPath, _ arguments: [DBusValue] = [],
        to destination: String? = nil
    ) throws(DBusError) {
        if let export = objects.export(path, interface) {
            guard let signal = export.interface.signal(member) else {
                throw .invalid("\(interface) declares no signal \(member)")
            }
            let declared = signal.arguments.map(\.type.code).joined()
            guard arguments.signature.rawValue == declared else {
                throw .unexpectedType(expected: declared, got: arguments.signature.rawValue)
            }
        }
        try emit(at: path, interface, member, arguments, to: destination)
    }

    private func emit(
        at path: DBusObjectPath, _ interface: String, _ member: String, _ arguments: [DBusValue],
        to destination: String? = nil
    ) throws(DBusError) {
        try send(
            OutgoingMessage(
                kind: .signal(path: path, interface: interface, member: member, destination: destination),
                arguments: arguments))
    }

    // MARK: Answering

    func serve(_ message: DBusMessage) {
        guard let sender = message.sender, let path = message.path, let member = message.member else { return }
        do {
            switch try answer(message, sender: sender, path: path, member: member) {
            case .now(let arguments): reply(to: message, .success(arguments))
            case .call(let handler, let call, let signature):
                run(message, returning: signature) { _ in try await handler(call) }
            case .set(let setter, let call):
                run(message, returning: "") { connection in
                    let accepted = try await setter(call)
                    try connection.setProperties([call.member: accepted], of: call.interface, at: call.path)
                    return []
                }
            }
        } catch {
            reply(to: message, .failure(error))
        }
    }

    /// Runs on the loop from its start, so that calls are begun in the order they came.
    private typealias Work = @Sendable (isolated DBusConnection) async throws -> [DBusValue]

    private enum Answer {
        case now([DBusValue])
        case call(DBusMethodHandler, DBusMethodCall, returning: String)
        case set(DBusPropertySetter, DBusMethodCall)
    }

    /// Finds what answers a call. Its arguments are read only when they are of the declared types.
    private func answer(
        _ head: DBusMessage, sender: String, path: DBusObjectPath, member: String
    ) throws -> Answer {
        guard objects.exists(path) else { throw DBusErrorReply.unknownObject("no object at \(path)") }
        switch head.interface {
        case "org.freedesktop.DBus.Introspectable" where member == "Introspect":
            try expect([], head)
            return .now([.string(objects.introspection(of: path))])
        case "org.freedesktop.DBus.ObjectManager" where member == "GetManagedObjects":
            guard objects.managers.contains(path) else { break }
            try expect([], head)
            return .now([objects.managedObjects(below: path)])
        case "org.freedesktop.DBus.Properties": return try answerProperties(head, sender, path, member)
        default: break
        }
        let exports = objects.objects[path] ?? []
        // A call may leave the interface out: the first that has the method takes it.
        let named = exports.filter { head.interface == nil || $0.interface.name == head.interface }
        if named.isEmpty, let interface = head.interface {
            throw DBusErrorReply.unknownInterface("no interface \(interface) at \(path)")
        }
        for export in named {
            guard let method = export.interface.method(member) else { continue }
            let call = DBusMethodCall(
                sender: sender, path: path, interface: export.interface.name, member: member,
                arguments: try arguments(method.input.map(\.type), head))
            let signature = method.output.map(\.type.code).joined()
            if let starter = export.starters[member] {
                return .call({ try await starter($0).value }, call, returning: signature)
            }
            if let handler = export.methods[member] { return .call(handler, call, returning: signature) }
        }
        throw DBusErrorReply.unknownMethod("no method \(member) at \(path)")
    }

    private func answerProperties(
        _ head: DBusMessage, _ sender: String, _ path: DBusObjectPath, _ member: String
    ) throws -> Answer {
        switch member {
        case "GetAll":
            let interface: String = try arguments([.string], head).argument(0)
            guard !interface.isEmpty else {
                let all = (objects.objects[path] ?? []).reduce(into: [String: DBusValue]()) { result, export in
                    result.merge(export.values) { first, _ in first }
                }
                return .now([.properties(all)])
            }
            return .now([.properties(try exported(path, interface).values)])
        case "Get":
            let arguments = try arguments([.string, .string], head)
            let name: String = try arguments.argument(1)
            guard let value = try exported(path, try arguments.argument(0)).values[name] else {
                throw DBusErrorReply.unknownProperty("no property \(name.prefix(80))")
            }
            return .now([.variant(value)])
        case "Set":
            let arguments = try arguments([.string, .string, .variant], head)
            let interface: String = try arguments.argument(0)
            let name: String = try arguments.argument(1)
            guard case .variant(let value) = arguments[2] else { throw DBusErrorReply.invalidArguments("no variant") }
            let export = try exported(path, interface)
            guard let property = export.interface.property(name) else {
                throw DBusErrorReply.unknownProperty("no property \(name.prefix(80))")
            }
            guard let setter = export.setters[name] else {
                throw DBusErrorReply.propertyReadOnly("property \(name) is read-only")
            }
            guard value.type == property.type else {
                throw DBusErrorReply.invalidArguments(
                    "property \(name) is of type '\(property.type)', not '\(value.type)'")
            }
            let call = DBusMethodCall(
                sender: sender, path: path, interface: interface, member: name, arguments: [value])
            return .set(setter, call)
        default: throw DBusErrorReply.unknownMethod("no method \(member)")
        }
    }

    private func exported(_ path: DBusObjectPath, _ interface: String) throws -> DBusExport {
        guard let export = objects.export(path, interface) else {
            throw DBusErrorReply.unknownInterface("no interface \(interface.prefix(80)) at \(path)")
        }
        return export
    }

    private func expect(_ types: [DBusType], _ head: DBusMessage) throws {
        let expected = types.map(\.code).joined()
        guard head.signature == expected else {
            throw DBusErrorReply.invalidArguments("expected arguments of type '\(expected)', got '\(head.signature)'")
        }
    }

    /// The arguments of a call, if they are of these types and not too much.
    private func arguments(_ types: [DBusType], _ head: DBusMessage) throws -> [DBusValue] {
        try expect(types, head)
        do throws(DBusError) { return try read(head).arguments } catch {
            guard case .limitReached(let limit) = error else { throw error }
            throw DBusErrorReply.limitsExceeded(limit)
        }
    }

    private func run(_ message: DBusMessage, returning signature: String, _ work: @escaping Work) {
        let caller = message.sender ?? ""
        let running = runningHandlersOfCaller[caller] ?? 0
        let hasRoom =
            runningHandlers < DBusLimits.runningHandlers && running < DBusLimits.runningHandlersPerCaller
        // An end is taken whatever runs, for it may be what the others wait for. `CallGate` bounds how many come.
        let isEnd = callFloods?.gate.bound.endings.contains(message.member ?? "") ?? false
        guard hasRoom || isEnd else {
            return reply(to: message, .failure(DBusErrorReply.limitsExceeded("too many calls at once")))
        }
        runningHandlers += 1
        runningHandlersOfCaller[caller] = running + 1
        let current = generation
        Task {
            let result: Result<[DBusValue], any Error>
            do { result = .success(try await work(self)) } catch { result = .failure(error) }
            runningHandlers -= 1
            let left = (runningHandlersOfCaller[caller] ?? 1) - 1
            runningHandlersOfCaller[caller] = left == 0 ? nil : left
            // The caller was on a bus that is gone.
            guard current == generation else { return }
            if case .success(let values) = result, values.signature.rawValue != signature {
                logger.error(
                    "handler's answer is not of the declared type",
                    metadata: ["method": "\(message.member ?? "")", "got": "\(values.signature)"])
                return reply(to: message, .failure(DBusErrorReply.failed("internal error: wrong type of answer")))
            }
            reply(to: message, result)
        }
    }

    func reply(to call: DBusMessage, _ result: Result<[DBusValue], any Error>) {
        guard call.wantsReply, let sender = call.sender else { return }
        let answer: OutgoingMessage
        switch result {
        case .success(let arguments):
            answer = OutgoingMessage(kind: .reply(serial: call.serial, destination: sender), arguments: arguments)
        case .failure(let error): answer = Self.errorAnswer(to: call, sender, error)
        }
        let bytes: Int
        do throws(DBusError) { bytes = try ValueCheck(answer.arguments).bytes } catch {
            return post(Self.unsent(call, sender, error), of: call)
        }
        switch ledger.answer(sender, bytes: bytes + AnswerLedger.overhead, at: .now) {
        case .send(let asks):
            post(answer, of: call)
            if asks { ping(sender) }
        case .refuse(let tells):
            if tells { warnOfCaller(call) }
            let error = DBusErrorReply.limitsExceeded("this caller does not read its answers")
            post(Self.errorAnswer(to: call, sender, error), of: call)
        case .withhold(let tells): if tells { warnOfCaller(call) }
        }
    }

    private func warnOfCaller(_ call: DBusMessage) {
        logger.warning(
            "a caller does not read its answers; it gets no more until it reads them",
            metadata: [
                "caller": "\(call.sender ?? "")", "bytes": "\(ledger.unread(of: call.sender ?? ""))",
                "ofAll": "\(ledger.unread)",
            ])
    }

    private func post(_ answer: OutgoingMessage, of call: DBusMessage) {
        do throws(DBusError) {
            try send(answer)
        } catch {
            warn("answer not sent", of: call, ["why": "\(error)"])
            guard case .reply(_, let sender) = answer.kind, case .invalid = error else { return }
            post(Self.unsent(call, sender, error), of: call)
        }
    }

    private static func errorAnswer(to call: DBusMessage, _ sender: String, _ error: any Error) -> OutgoingMessage {
        let (name, text) = errorReply(error)
        return OutgoingMessage(
            kind: .error(serial: call.serial, destination: sender, name: name), arguments: [.string(text)])
    }

    private static func unsent(_ call: DBusMessage, _ sender: String, _ error: DBusError) -> OutgoingMessage {
        errorAnswer(to: call, sender, DBusErrorReply.failed("the answer could not be sent: \(error)"))
    }

    private static func errorReply(_ error: any Error) -> (name: String, text: String) {
        func clean(_ text: String) -> String { String(text.prefix(1024).map { $0 == "\0" ? "?" : $0 }) }
        let failed = "org.freedesktop.DBus.Error.Failed"
        switch error {
        case let reply as DBusErrorReply:
            do { try DBusName.checkError(reply.name) } catch { return (failed, clean(reply.message)) }
            return (reply.name, clean(reply.message))
        case DBusError.remote(let name, let message): return (name, clean(message))
        case let error as DBusError: return (failed, clean(error.description))
        default: return (failed, clean("\(error)"))
        }
    }

    // MARK: Properties of others

    /// Reads one property of another's object.
    public func getProperty(
        _ name: String, of interface: String, destination: String, path: DBusObjectPath,
        timeout: Duration = DBusConnection.defaultTimeout
    ) async throws(DBusError) -> DBusValue {
        let answer = try await call(
            destination: destination, path: path, interface: "org.freedesktop.DBus.Properties", method: "Get",
            arguments: [.string(interface), .string(name)], timeout: timeout)
        return try answer.argument(0, as: DBusValue.self)
    }

    /// Reads all properties of an interface of another's object.
    public func getProperties(
        of interface: String, destination: String, path: DBusObjectPath,
        timeout: Duration = DBusConnection.defaultTimeout
    ) async throws(DBusError) -> [String: DBusValue] {
        let answer = try await call(
            destination: destination, path: path, interface: "org.freedesktop.DBus.Properties", method: "GetAll",
            arguments: [.string(interface)], timeout: timeout)
        guard let properties = answer.first?.propertiesValue else {
            throw .unexpectedType(expected: "a{sv}", got: answer.signature.rawValue)
        }
        return properties
    }
}
