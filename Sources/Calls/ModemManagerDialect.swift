// ModemManager's calls: org.freedesktop.ModemManager1.Modem.Voice and .Call (ModemManager's D-Bus reference).
import DBus

/// A line is a modem with `Modem.Voice`. Calls are objects of their own, outside the object manager, and are asked one by one.
struct ModemManagerDialect: CallDialect {
    private static let service = CallService.modemManager.busName
    private static let root: DBusObjectPath = "/org/freedesktop/ModemManager1"
    private static let voice = "org.freedesktop.ModemManager1.Modem.Voice"
    private static let call = "org.freedesktop.ModemManager1.Call"

    var rules: [DBusMatchRule] {
        [
            DBusMatchRule(sender: Self.service, path: Self.root, interface: StandardInterface.objectManager),
            DBusMatchRule(sender: Self.service, interface: Self.voice),
            DBusMatchRule(sender: Self.service, interface: Self.call, member: "StateChanged"),
            DBusMatchRule(
                sender: Self.service, interface: StandardInterface.properties, member: "PropertiesChanged",
                argument0: Self.call),
        ]
    }

    var opening: CallQuestion {
        CallQuestion(path: Self.root, interface: StandardInterface.objectManager, method: "GetManagedObjects")
    }

    func news(answering question: CallQuestion, _ arguments: [DBusValue]) throws(DBusError) -> [CallUpdate] {
        switch question.method {
        case "GetManagedObjects":
            let objects: ManagedObjects = try arguments.argument(0)
            let modems = objects.filter { $0.value[Self.voice] != nil }.sorted { $0.key < $1.key }
            var news: [CallUpdate] = [.lines(modems.map(\.key))]
            for (path, interfaces) in modems { news += try Self.voiceAppeared(at: path, interfaces[Self.voice] ?? [:]) }
            return news
        default:
            return [.changed(question.path, try Self.facts(try arguments.argument(0)))]
        }
    }

    func news(_ signal: CallSignal) throws(DBusError) -> [CallUpdate] {
        let arguments = signal.arguments
        switch (signal.interface, signal.member) {
        case (StandardInterface.objectManager, "InterfacesAdded"):
            let interfaces: [String: [String: DBusValue]] = try arguments.argument(1)
            guard let voice = interfaces[Self.voice] else { return [] }
            return try Self.voiceAppeared(at: try arguments.argument(0), voice)
        case (StandardInterface.objectManager, "InterfacesRemoved"):
            let interfaces: [String] = try arguments.argument(1)
            return interfaces.contains(Self.voice) ? [.lineGone(try arguments.argument(0))] : []
        case (Self.voice, "CallAdded"):
            let path: DBusObjectPath = try arguments.argument(0)
            return [.call(path, line: signal.path, CallFacts()), .ask(Self.question(path))]
        case (Self.voice, "CallDeleted"): return [.ended(try arguments.argument(0))]
        case (Self.call, "StateChanged"):
            return [.changed(signal.path, CallFacts(state: try Self.state(try arguments.argument(1))))]
        case (StandardInterface.properties, "PropertiesChanged"):
            guard try arguments.argument(0, as: String.self) == Self.call else { return [] }
            return [.changed(signal.path, try Self.facts(try arguments.argument(1)))]
        default: return []
        }
    }

    private static func voiceAppeared(
        at modem: DBusObjectPath, _ voice: [String: DBusValue]
    ) throws(DBusError) -> [CallUpdate] {
        let calls: [DBusObjectPath] = try property("Calls", of: voice) ?? []
        var listed: [DBusObjectPath: CallFacts] = [:]
        for call in calls { listed[call] = CallFacts() }
        return [.calls(line: modem, listed)] + calls.map { .ask(question($0)) }
    }

    private static func question(_ call: DBusObjectPath) -> CallQuestion {
        CallQuestion(
            path: call, interface: StandardInterface.properties, method: "GetAll", arguments: [.string(self.call)])
    }

    private static func facts(_ properties: [String: DBusValue]) throws(DBusError) -> CallFacts {
        let number: Int32? = try property("State", of: properties)
        var facts = CallFacts(number: try property("Number", of: properties))
        if let number { facts.state = try state(number) }
        return facts
    }

    private static func state(_ number: Int32) throws(DBusError) -> CallState {
        guard states.indices.contains(Int(number)) else { throw .invalid("call state \(number)") }
        return states[Int(number)]
    }

    /// `MMCallState`, from 0 on. "Unknown", the first, is a call that was made ready and not dialled.
    private static let states: [CallState] = [.over, .dialing, .alerting, .incoming, .active, .held, .waiting, .over]
}
