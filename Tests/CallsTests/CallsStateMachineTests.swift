// The rules of calls without a bus: what the services say, and which calls the user is in.
import DBus
import MonotonicTime
import TestSupport
import Testing

@testable import Calls

@Suite struct CallsStateMachineTests {
    @Test(arguments: [
        ("dialing", true), ("alerting", true), ("active", true), ("held", true), ("incoming", false),
        ("waiting", false), ("disconnected", false),
    ])
    func `a user is in a call from dialling to hanging up, on hold too, and not while it only rings`(
        state: String, isInProgress: Bool
    ) {
        var world = World()
        world.openOfono()
        world.hear(.ofonoAdded("/m/c1", state: state))
        #expect(world.reported.last?.isEmpty == false ? isInProgress : !isInProgress)
        #expect(world.machine.active.isEmpty == !isInProgress)
    }

    @Test
    func `an incoming call counts from when it is answered until it is over`() {
        var world = World()
        world.openOfono()
        world.hear(.ofonoAdded("/m/c1", state: "incoming", number: "+49301234", name: "Anna"))
        #expect(world.reported.isEmpty)
        world.hear(.ofonoState("/m/c1", "active"))
        #expect(world.texts == ["oFono: Anna (+49301234)"])
        world.hear(.ofonoState("/m/c1", "disconnected"))
        #expect(world.texts.isEmpty)
        world.hear(.ofonoRemoved("/m/c1"))
        #expect(world.reported.count == 2)
    }

    @Test
    func `calls that went on before are found by asking`() {
        var world = World()
        world.openOfono(calls: ["/m/c1": ["State": .string("active"), "LineIdentification": .string("110")]])
        #expect(world.texts == ["oFono: 110"])
    }

    @Test
    func `a service that leaves takes its calls with it, and only its own`() {
        var world = World()
        world.openOfono()
        world.hear(.ofonoAdded("/m/c1", state: "active", number: "1"))
        world.openBlueZ(calls: ["/b/telephony0/call1": ["State": .string("active"), "Name": .string("Ben")]])
        #expect(world.texts == ["Bluetooth: Ben", "oFono: 1"])
        world.handle(.vanished(.ofono))
        #expect(world.texts == ["Bluetooth: Ben"])
        world.hear(.ofonoAdded("/m/c2", state: "active"))
        #expect(world.texts == ["Bluetooth: Ben"])
    }

    @Test
    func `a modem that goes ends its calls`() {
        var world = World()
        world.openOfono()
        world.hear(.ofonoAdded("/m/c1", state: "active"))
        world.hear(CallSignal("/", "org.ofono.Manager", "ModemRemoved", [.objectPath("/m")]))
        #expect(world.texts.isEmpty)
    }

    @Test
    func `a modem that loses its voice interface ends its calls; when it has it again, it is asked`() {
        var world = World()
        world.openOfono()
        world.hear(.ofonoAdded("/m/c1", state: "active"))
        world.hear(.ofonoInterfaces(["org.ofono.SimManager"]))
        #expect(world.texts.isEmpty)
        #expect(world.questions.isEmpty)
        world.hear(.ofonoInterfaces(["org.ofono.VoiceCallManager"]))
        #expect(world.questions.map(\.question.method) == ["GetCalls"])
    }

    @Test
    func `a signal that crossed an answer is not undone by it`() throws {
        var world = World()
        world.openOfono(answerCalls: false)
        let asked = try world.takeQuestion()
        // The answer was sent as number 10, before the call ended (11) and another came (12).
        world.hear(.ofonoRemoved("/m/c1"), serial: 11)
        world.hear(.ofonoAdded("/m/c2", state: "dialing", number: "2"), serial: 12)
        world.handle(
            .answered(
                .ofono, number: asked.number, serial: 10,
                arguments: [.ofonoObjects(["/m/c1": ["State": .string("active")]])]))
        #expect(world.texts == ["oFono: 2"])
    }

    @Test
    func `a signal from before an answer is not heard twice`() throws {
        var world = World()
        world.openOfono(answerCalls: false)
        let asked = try world.takeQuestion()
        world.hear(.ofonoAdded("/m/c1", state: "active"), serial: 9)
        world.handle(.answered(.ofono, number: asked.number, serial: 10, arguments: [.ofonoObjects([:])]))
        #expect(world.texts.isEmpty)
    }

    @Test
    func `answers to questions of the service's former life change nothing`() throws {
        var world = World()
        world.openOfono(answerCalls: false)
        let asked = try world.takeQuestion()
        world.handle(.vanished(.ofono))
        world.handle(.appeared(.ofono))
        world.handle(
            .answered(
                .ofono, number: asked.number, serial: 10,
                arguments: [.ofonoObjects(["/m/c1": ["State": .string("active")]])]))
        #expect(world.texts.isEmpty)
    }

    @Test
    func `a question without an answer is asked again, later and later, five times in all`() throws {
        var world = World()
        world.handle(.appeared(.modemManager))
        var pauses: [Duration] = []
        for _ in 0..<10 {
            guard let asked = world.questions.popLast() else { break }
            world.handle(.failed(.modemManager, number: asked.number, reason: "no answer", isFinal: false))
            guard let deadline = world.machine.nextDeadline else { break }
            pauses.append(deadline - world.now)
            world.now = deadline
            world.carryOut(world.machine.handleTimeout(at: deadline))
        }
        #expect(pauses == [1, 2, 4, 8].map { .seconds($0) })
        #expect(world.machine.nextDeadline == nil)
        #expect(world.complaints.last == "GetManagedObjects: giving up")
    }

    @Test
    func `a refusal is not asked about again`() throws {
        var world = World()
        world.handle(.appeared(.ofono))
        let asked = try world.takeQuestion()
        world.handle(.failed(.ofono, number: asked.number, reason: "denied", isFinal: true))
        #expect(world.machine.nextDeadline == nil)
        // What is signalled is heard all the same: the bus policy of oFono keeps others from asking only.
        world.hear(.ofonoState("/m/c1", "active"))
        #expect(world.texts == ["oFono: a call"])
    }

    @Test
    func `a PipeWire that stands in for oFono tells no interfaces, and is asked for its calls`() throws {
        var world = World()
        world.handle(.appeared(.ofono))
        let asked = try world.takeQuestion()
        world.handle(.answered(.ofono, number: asked.number, serial: 1, arguments: [.ofonoObjects(["/ag0": [:]])]))
        #expect(world.questions.map(\.question.path) == ["/ag0"])
    }

    @Test
    func `ModemManager's calls are asked one by one, and followed by their number of state`() throws {
        let root: DBusObjectPath = "/org/freedesktop/ModemManager1"
        let voice = "org.freedesktop.ModemManager1.Modem.Voice"
        let call = "org.freedesktop.ModemManager1.Call"
        var world = World()
        world.handle(.appeared(.modemManager))
        let opening = try world.takeQuestion()
        #expect(opening.question.path == root)
        let old: DBusObjectPath = "/org/freedesktop/ModemManager1/Call/1"
        let modem: DBusObjectPath = "/org/freedesktop/ModemManager1/Modem/0"
        let objects: ManagedObjects = [modem: [voice: ["Calls": [old].dbusValue]], "/other": ["x.y": [:]]]
        world.handle(.answered(.modemManager, number: opening.number, serial: 1, arguments: [objects.dbusValue]))
        let about = try world.takeQuestion()
        #expect(about.question.path == old && about.question.method == "GetAll")
        world.handle(
            .answered(
                .modemManager, number: about.number, serial: 2,
                arguments: [.properties(["State": .int32(4), "Number": .string("+491"), "Direction": .int32(1)])]))
        #expect(world.texts == ["ModemManager: +491"])
        world.hear(CallSignal(modem, voice, "CallDeleted", [.objectPath(old)]), from: .modemManager)
        #expect(world.texts.isEmpty)

        let new: DBusObjectPath = "/org/freedesktop/ModemManager1/Call/2"
        world.hear(CallSignal(modem, voice, "CallAdded", [.objectPath(new)]), from: .modemManager)
        world.hear(CallSignal(new, call, "StateChanged", [.int32(0), .int32(3), .uint32(2)]), from: .modemManager)
        #expect(world.texts.isEmpty)
        world.hear(
            CallSignal(
                new, "org.freedesktop.DBus.Properties", "PropertiesChanged",
                [.string(call), .properties(["State": .int32(4), "Number": .string("+492")]), .strings([])]),
            from: .modemManager)
        #expect(world.texts == ["ModemManager: +492"])
        world.hear(
            CallSignal(
                root, "org.freedesktop.DBus.ObjectManager", "InterfacesRemoved",
                [.objectPath(modem), .strings([voice])]),
            from: .modemManager)
        #expect(world.texts.isEmpty)
    }

    @Test
    func `BlueZ's calls are followed, also when the phone puts an incoming one on hold`() {
        let call: DBusObjectPath = "/org/bluez/hci0/dev_00_11_22_33_44_55/telephony0/call1"
        var world = World()
        world.openBlueZ(calls: [:])
        let incoming: [String: [String: DBusValue]] = [
            "org.bluez.Call1": ["State": .string("incoming"), "LineIdentification": .string("withheld")]
        ]
        world.hear(
            CallSignal(
                "/", "org.freedesktop.DBus.ObjectManager", "InterfacesAdded",
                [
                    .objectPath(call),
                    incoming.dbusValue,
                ]), from: .bluez)
        #expect(world.texts.isEmpty)
        func change(_ state: String) -> CallSignal {
            CallSignal(
                call, "org.freedesktop.DBus.Properties", "PropertiesChanged",
                [.string("org.bluez.Call1"), .properties(["State": .string(state)]), .strings([])])
        }
        world.hear(change("response_and_hold"), from: .bluez)
        #expect(world.texts == ["Bluetooth: a withheld number"])
        world.hear(
            CallSignal(
                "/", "org.freedesktop.DBus.ObjectManager", "InterfacesRemoved",
                [.objectPath(call), .strings(["org.bluez.Call1"])]), from: .bluez)
        #expect(world.texts.isEmpty)
    }

    @Test
    func `texts of the network cannot steer a terminal, and are not endless`() {
        #expect(CallFacts(number: "\u{1B}[31m12\n3\u{202E}").who == "[31m123")
        #expect(CallFacts(name: String(repeating: "x", count: 5_000)).who.count == CallFacts.textMaximum)
        #expect(CallFacts(number: "  ", name: "\u{0}").who == "a call")
        #expect(CallFacts(number: "Ben", name: "Ben").who == "Ben")
    }
}
