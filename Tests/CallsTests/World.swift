// Services spoken for by the test, in front of the pure rules.
import DBus
import MonotonicTime
import Testing

@testable import Calls

/// The rules, and what they asked, reported and complained of.
struct World {
    var machine = CallsStateMachine()
    var now = Instant.zero
    var questions: [(service: CallService, question: CallQuestion, number: UInt64)] = []
    var reported: [[ActiveCall]] = []
    var complaints: [String] = []
    private var serial: UInt32 = 100

    /// The calls reported last, as users read them.
    var texts: [String] { (reported.last ?? []).map(\.description) }

    /// The question asked last, which the test answers.
    mutating func takeQuestion() throws -> (service: CallService, question: CallQuestion, number: UInt64) {
        let last = questions.popLast()
        return try #require(last)
    }

    mutating func handle(_ event: CallsStateMachine.Event) { carryOut(machine.handle(event, at: now)) }

    mutating func hear(_ signal: CallSignal, from service: CallService = .ofono, serial: UInt32? = nil) {
        self.serial += 1
        var signal = signal
        signal.serial = serial ?? self.serial
        handle(.signal(service, signal))
    }

    mutating func carryOut(_ actions: [CallsStateMachine.Action]) {
        for action in actions {
            switch action {
            case .ask(let service, let question, let number): questions.append((service, question, number))
            case .report(let calls): reported.append(calls)
            case .complain(_, let what): complaints.append(what)
            }
        }
    }

    /// oFono with one modem, `/m`, that can telephone.
    mutating func openOfono(calls: [DBusObjectPath: [String: DBusValue]] = [:], answerCalls: Bool = true) {
        handle(.appeared(.ofono))
        guard let modems = questions.popLast() else { return }
        let modem: [String: DBusValue] = ["Interfaces": .strings(["org.ofono.VoiceCallManager"])]
        handle(.answered(.ofono, number: modems.number, serial: 1, arguments: [.ofonoObjects(["/m": modem])]))
        guard answerCalls, let asked = questions.popLast() else { return }
        handle(.answered(.ofono, number: asked.number, serial: 2, arguments: [.ofonoObjects(calls)]))
    }

    /// BlueZ with these calls.
    mutating func openBlueZ(calls: [DBusObjectPath: [String: DBusValue]]) {
        handle(.appeared(.bluez))
        guard let asked = questions.popLast() else { return }
        let objects: ManagedObjects = calls.mapValues { ["org.bluez.Call1": $0] }
        handle(.answered(.bluez, number: asked.number, serial: 1, arguments: [objects.dbusValue]))
    }
}

extension CallSignal {
    init(_ path: DBusObjectPath, _ interface: String, _ member: String, _ arguments: [DBusValue]) {
        self.init(serial: 0, path: path, interface: interface, member: member, arguments: arguments)
    }

    static func ofonoAdded(
        _ call: DBusObjectPath, state: String, number: String = "", name: String = ""
    ) -> CallSignal {
        CallSignal(
            "/m", "org.ofono.VoiceCallManager", "CallAdded",
            [
                .objectPath(call),
                .properties([
                    "State": .string(state), "LineIdentification": .string(number), "Name": .string(name),
                ]),
            ])
    }

    static func ofonoState(_ call: DBusObjectPath, _ state: String) -> CallSignal {
        CallSignal(call, "org.ofono.VoiceCall", "PropertyChanged", [.string("State"), .variant(.string(state))])
    }

    static func ofonoRemoved(_ call: DBusObjectPath) -> CallSignal {
        CallSignal("/m", "org.ofono.VoiceCallManager", "CallRemoved", [.objectPath(call)])
    }

    static func ofonoInterfaces(_ interfaces: [String]) -> CallSignal {
        CallSignal(
            "/m", "org.ofono.Modem", "PropertyChanged", [.string("Interfaces"), .variant(.strings(interfaces))])
    }
}

extension DBusValue {
    /// `a(oa{sv})`.
    static func ofonoObjects(_ objects: [DBusObjectPath: [String: DBusValue]]) -> DBusValue {
        let elements = objects.sorted { $0.key < $1.key }.map {
            DBusValue.structure([.objectPath($0.key), .properties($0.value)])
        }
        return .array(.structure([.objectPath, .dictionary(key: .string, value: .variant)]), elements)
    }
}
