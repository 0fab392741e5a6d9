// The calls of a connected phone as BlueZ tells them: org.bluez.Telephony1 and org.bluez.Call1 (BlueZ's doc/).
import DBus

/// A line is a phone's `Telephony1` object; the calls lie below it. An older BlueZ, or one without `--experimental`, has neither.
struct BlueZDialect: CallDialect {
    private static let service = CallService.bluez.busName
    private static let telephony = "org.bluez.Telephony1"
    private static let call = "org.bluez.Call1"

    var rules: [DBusMatchRule] {
        [
            // The same rule as the module BlueZ has: one connection tells the bus of it once.
            DBusMatchRule(sender: Self.service, interface: StandardInterface.objectManager),
            DBusMatchRule(
                sender: Self.service, interface: StandardInterface.properties, member: "PropertiesChanged",
                argument0: Self.call),
        ]
    }

    var opening: CallQuestion {
        CallQuestion(path: "/", interface: StandardInterface.objectManager, method: "GetManagedObjects")
    }

    func news(answering question: CallQuestion, _ arguments: [DBusValue]) throws(DBusError) -> [CallUpdate] {
        let objects: ManagedObjects = try arguments.argument(0)
        let lines = objects.filter { $0.value[Self.telephony] != nil }.keys.sorted()
        var calls: [DBusObjectPath: [DBusObjectPath: CallFacts]] = [:]
        for (path, interfaces) in objects {
            guard let properties = interfaces[Self.call], let line = path.parent else { continue }
            calls[line, default: [:]][path] = try OfonoDialect.facts(properties)
        }
        return [.lines(Set(lines).union(calls.keys).sorted())]
            + calls.sorted { $0.key < $1.key }.map { .calls(line: $0.key, $0.value) }
    }

    func news(_ signal: CallSignal) throws(DBusError) -> [CallUpdate] {
        let arguments = signal.arguments
        switch (signal.interface, signal.member) {
        case (StandardInterface.objectManager, "InterfacesAdded"):
            let path: DBusObjectPath = try arguments.argument(0)
            // Devices come and go by the dozen while BlueZ scans: what is not a call is not decoded.
            guard path.lastComponent.hasPrefix("call"), let line = path.parent else { return [] }
            let interfaces: [String: [String: DBusValue]] = try arguments.argument(1)
            guard let properties = interfaces[Self.call] else { return [] }
            return [.call(path, line: line, try OfonoDialect.facts(properties))]
        case (StandardInterface.objectManager, "InterfacesRemoved"):
            let path: DBusObjectPath = try arguments.argument(0)
            let interfaces: [String] = try arguments.argument(1)
            if interfaces.contains(Self.call) { return [.ended(path)] }
            return interfaces.contains(Self.telephony) ? [.lineGone(path)] : []
        case (StandardInterface.properties, "PropertiesChanged"):
            guard try arguments.argument(0, as: String.self) == Self.call, let line = signal.path.parent else {
                return []
            }
            let facts = try OfonoDialect.facts(try arguments.argument(1))
            return facts == CallFacts() ? [] : [.call(signal.path, line: line, facts)]
        default: return []
        }
    }
}
