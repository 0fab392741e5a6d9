// oFono's calls: org.ofono.Manager, Modem, VoiceCallManager and VoiceCall (oFono's doc/*-api.txt).
import DBus

/// A line is a modem; it has calls while `org.ofono.VoiceCallManager` is among its interfaces. PipeWire's replacement
/// for oFono (its "ofono" service for HFP) reports no interfaces; it is asked for calls anyway.
struct OfonoDialect: CallDialect {
    private static let service = CallService.ofono.busName
    private static let manager = "org.ofono.Manager"
    private static let modem = "org.ofono.Modem"
    private static let calls = "org.ofono.VoiceCallManager"
    private static let call = "org.ofono.VoiceCall"

    var rules: [DBusMatchRule] {
        [
            DBusMatchRule(sender: Self.service, interface: Self.manager),
            DBusMatchRule(sender: Self.service, interface: Self.modem, member: "PropertyChanged"),
            DBusMatchRule(sender: Self.service, interface: Self.calls),
            DBusMatchRule(sender: Self.service, interface: Self.call, member: "PropertyChanged"),
        ]
    }

    var opening: CallQuestion { CallQuestion(path: "/", interface: Self.manager, method: "GetModems") }

    func news(answering question: CallQuestion, _ arguments: [DBusValue]) throws(DBusError) -> [CallUpdate] {
        let objects = try objects(arguments)
        if question.method == "GetModems" {
            var news: [CallUpdate] = [.lines(objects.map(\.path))]
            for (path, properties) in objects { news += try Self.interfacesChanged(of: path, properties) }
            return news
        }
        var calls: [DBusObjectPath: CallFacts] = [:]
        for (path, properties) in objects { calls[path] = try Self.facts(properties) }
        return [.calls(line: question.path, calls)]
    }

    func news(_ signal: CallSignal) throws(DBusError) -> [CallUpdate] {
        let arguments = signal.arguments
        switch (signal.interface, signal.member) {
        case (Self.manager, "ModemAdded"):
            return try Self.interfacesChanged(of: try arguments.argument(0), try arguments.argument(1))
        case (Self.manager, "ModemRemoved"): return [.lineGone(try arguments.argument(0))]
        case (Self.modem, "PropertyChanged"):
            let name: String = try arguments.argument(0)
            guard name == "Interfaces" else { return [] }
            return try Self.interfacesChanged(of: signal.path, [name: try arguments.argument(1)])
        case (Self.calls, "CallAdded"):
            let facts = try Self.facts(try arguments.argument(1))
            return [.call(try arguments.argument(0), line: signal.path, facts)]
        case (Self.calls, "CallRemoved"): return [.ended(try arguments.argument(0))]
        case (Self.call, "PropertyChanged"):
            let facts = try Self.facts([try arguments.argument(0): try arguments.argument(1)])
            // Also for a call that was never listed: a bus policy may keep us from asking, but not from hearing.
            guard facts != CallFacts(), let modem = signal.path.parent else { return [] }
            return [.call(signal.path, line: modem, facts)]
        default: return []
        }
    }

    private static func interfacesChanged(
        of modem: DBusObjectPath, _ properties: [String: DBusValue]
    ) throws(DBusError) -> [CallUpdate] {
        if let interfaces: [String] = try property("Interfaces", of: properties), !interfaces.contains(calls) {
            return [.calls(line: modem, [:])]
        }
        return [.ask(CallQuestion(path: modem, interface: calls, method: "GetCalls"))]
    }

    static func facts(_ properties: [String: DBusValue]) throws(DBusError) -> CallFacts {
        CallFacts(
            state: try state(properties), number: try property("LineIdentification", of: properties),
            name: try property("Name", of: properties))
    }

    private static func state(_ properties: [String: DBusValue]) throws(DBusError) -> CallState? {
        guard let word: String = try property("State", of: properties) else { return nil }
        guard let state = states[word] else { throw .invalid("call state '\(word.prefix(32))'") }
        return state
    }

    /// "response_and_hold" is BlueZ's: an incoming call that was answered by putting it on hold.
    private static let states: [String: CallState] = [
        "dialing": .dialing, "alerting": .alerting, "incoming": .incoming, "waiting": .waiting, "active": .active,
        "held": .held, "response_and_hold": .held, "disconnected": .over,
    ]
}
