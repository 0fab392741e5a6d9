// Services that say what they must not: nothing breaks, nothing grows, no call gets stuck.
import BusTestSupport
import DBus
import MonotonicTime
import TestSupport
import Testing

@testable import Calls

@Suite struct HostileTests {
    @Test(arguments: HostileMessages.all)
    func `messages of a wrong shape change nothing`(signal: CallSignal) {
        var world = World()
        world.openOfono()
        world.hear(.ofonoAdded("/m/c1", state: "active", number: "1"))
        world.hear(signal)
        #expect(world.texts == ["oFono: 1"])
        #expect(world.reported.count == 1)
    }

    @Test(arguments: [[], [DBusValue.string("x")], [.uint32(7), .uint32(8)]])
    func `an answer of a wrong shape is no answer`(arguments: [DBusValue]) throws {
        for service in CallService.allCases {
            var world = World()
            world.handle(.appeared(service))
            let asked = try world.takeQuestion()
            world.handle(.answered(service, number: asked.number, serial: 1, arguments: arguments))
            #expect(world.machine.active.isEmpty && world.complaints.count == 1 && world.questions.isEmpty)
        }
    }

    @Test
    func `a service that tells of calls without end is bounded`() throws {
        var world = World()
        world.openOfono()
        for index in 0..<1_000 {
            world.hear(.ofonoAdded(try DBusObjectPath("/m/c\(index)"), state: "active"))
        }
        #expect(world.machine.active.count == CallsStateMachine.callsMaximum)
        for index in 0..<1_000 {
            world.hear(
                CallSignal(
                    try DBusObjectPath("/m\(index)"), "org.ofono.Modem", "PropertyChanged",
                    [.string("Interfaces"), .variant(.strings(["org.ofono.VoiceCallManager"]))]))
        }
        #expect(world.questions.count == CallsStateMachine.questionsMaximum)
    }

    @Test
    func `more signals than can be remembered during a question have it asked again`() throws {
        var world = World()
        world.openOfono(answerCalls: false)
        let asked = try world.takeQuestion()
        for _ in 0...CallsStateMachine.laterMaximum { world.hear(.ofonoAdded("/m/c1", state: "active")) }
        world.hear(.ofonoRemoved("/m/c1"))
        world.handle(
            .answered(
                .ofono, number: asked.number, serial: 1,
                arguments: [.ofonoObjects(["/m/c1": ["State": .string("active")]])]))
        #expect(world.texts.isEmpty, "the answer is too old to be believed")
        let deadline = try #require(world.machine.nextDeadline)
        world.carryOut(world.machine.handleTimeout(at: deadline))
        #expect(try world.takeQuestion().question == asked.question)
    }

    @Test
    func `random messages of all services: never more than the bounds, and what is reported is in progress`() {
        var generator = SeededGenerator()
        var world = World()
        let paths: [DBusObjectPath] = [
            "/", "/m", "/m/c1", "/m/c2", "/org/freedesktop/ModemManager1", "/b/telephony0/call1",
        ]
        var alive: Set<CallService> = []
        for step in 0..<30_000 {
            let service = CallService.allCases.randomElement(using: &generator)!
            switch Int.random(in: 0..<100, using: &generator) {
            case 0:
                world.handle(.vanished(service))
                alive.remove(service)
            case 1..<4:
                world.handle(.appeared(service))
                alive.insert(service)
            case 4..<30 where !world.questions.isEmpty:
                let asked = world.questions.remove(at: Int.random(in: 0..<world.questions.count, using: &generator))
                if generator.chance(20) {
                    world.handle(
                        .failed(asked.service, number: asked.number, reason: "x", isFinal: generator.chance(50)))
                } else {
                    let arguments = (0..<Int.random(in: 0...2, using: &generator)).map { _ in
                        HostileMessages.value(paths, &generator)
                    }
                    world.handle(
                        .answered(
                            asked.service, number: asked.number, serial: UInt32.random(in: 0...300, using: &generator),
                            arguments: arguments))
                }
            case 30..<34:
                world.now = world.now + .milliseconds(500)
                world.carryOut(world.machine.handleTimeout(at: world.now))
            default: world.hear(HostileMessages.signal(paths, &generator), from: service)
            }
            world.questions = world.questions.suffix(200)
            world.complaints = []
            let active = world.machine.active
            // The macro costs more than the rules do.
            guard active.allSatisfy({ $0.state.isInProgress && alive.contains($0.service) }),
                active.count <= 3 * CallsStateMachine.callsMaximum, world.reported.last ?? [] == active
            else {
                Issue.record("step \(step): \(active), reported \(world.reported.last ?? [])")
                return
            }
            world.reported = world.reported.suffix(1)
        }
        for service in CallService.allCases { world.handle(.vanished(service)) }
        #expect(world.machine.active.isEmpty && world.machine.nextDeadline == nil)
    }

    @Test
    func `on a real bus a stranger's signals in a service's name are not heard`() async throws {
        try await withBus { fixture in
            let listener = try await Listener(fixture)
            let service = try await fixture.connect()
            let stranger = try await fixture.connect()
            try await service.requestName("org.ofono")
            let call = CallSignal.ofonoAdded("/m/c1", state: "active", number: "1")
            try await stranger.emitSignal(call.member, of: call.interface, at: call.path, call.arguments)
            let real = CallSignal.ofonoAdded("/m/c2", state: "active", number: "2")
            try await service.emitSignal(real.member, of: real.interface, at: real.path, real.arguments)
            #expect(try await listener.reaches(["oFono: 2 active"]) == ["oFono: 2 active"])
            try await service.releaseName("org.ofono")
            #expect(try await listener.reaches([]) == [])
        }
    }

    @Test
    func `the bus going away ends all calls, and its return brings them back`() async throws {
        try await withBus { fixture in
            let listener = try await Listener(fixture)
            let service = try await fixture.connect()
            let interface = DBusInterface(
                "org.bluez.Call1", properties: [.init("State", .string), .init("LineIdentification", .string)])
            await service.exportObjectManager(at: "/")
            try await service.export(
                [
                    DBusExport(
                        interface, properties: ["State": .string("active"), "LineIdentification": .string("112")])
                ], at: "/org/bluez/hci0/dev_00_11_22_33_44_55/telephony0/call1")
            try await service.requestName("org.bluez")
            #expect(try await listener.reaches(["Bluetooth: 112 active"]) == ["Bluetooth: 112 active"])
            fixture.bus.stop()
            #expect(try await listener.reaches([]) == [])
            try fixture.bus.start()
            #expect(try await listener.reaches(["Bluetooth: 112 active"]) == ["Bluetooth: 112 active"])
            await listener.monitor.stop()
            #expect(try await listener.reaches([]) == [])
        }
    }
}

enum HostileMessages {
    static let all: [CallSignal] = [
        CallSignal("/m", "org.ofono.VoiceCallManager", "CallAdded", []),
        CallSignal("/m", "org.ofono.VoiceCallManager", "CallAdded", [.string("/m/c2"), .properties([:])]),
        CallSignal("/m", "org.ofono.VoiceCallManager", "CallAdded", [.objectPath("/m/c2"), .string("active")]),
        CallSignal(
            "/m", "org.ofono.VoiceCallManager", "CallAdded", [.objectPath("/m/c2"), .properties(["State": .uint32(1)])]),
        .ofonoAdded("/m/c2", state: "talking"),
        .ofonoState("/m/c1", "talking"),
        CallSignal("/m/c1", "org.ofono.VoiceCall", "PropertyChanged", [.string("State"), .variant(.boolean(true))]),
        CallSignal("/m/c1", "org.ofono.VoiceCall", "PropertyChanged", [.string("State")]),
        CallSignal(
            "/m/c1", "org.ofono.VoiceCall", "PropertyChanged", [.string("RemoteHeld"), .variant(.boolean(true))]),
        CallSignal("/m", "org.ofono.VoiceCallManager", "CallRemoved", [.string("/m/c1")]),
        CallSignal("/m", "org.ofono.VoiceCallManager", "CallRemoved", [.objectPath("/m/c9")]),
        CallSignal("/", "org.ofono.Manager", "ModemRemoved", []),
        CallSignal("/m", "org.ofono.Modem", "PropertyChanged", [.string("Interfaces"), .variant(.string("none"))]),
    ]

    static func signal(_ paths: [DBusObjectPath], _ generator: inout SeededGenerator) -> CallSignal {
        let members = [
            ("org.ofono.VoiceCallManager", "CallAdded"), ("org.ofono.VoiceCallManager", "CallRemoved"),
            ("org.ofono.VoiceCall", "PropertyChanged"), ("org.ofono.Manager", "ModemAdded"),
            ("org.ofono.Manager", "ModemRemoved"), ("org.ofono.Modem", "PropertyChanged"),
            ("org.freedesktop.DBus.ObjectManager", "InterfacesAdded"),
            ("org.freedesktop.DBus.ObjectManager", "InterfacesRemoved"),
            ("org.freedesktop.DBus.Properties", "PropertiesChanged"),
            ("org.freedesktop.ModemManager1.Modem.Voice", "CallAdded"),
            ("org.freedesktop.ModemManager1.Modem.Voice", "CallDeleted"),
            ("org.freedesktop.ModemManager1.Call", "StateChanged"),
        ]
        let (interface, member) = members.randomElement(using: &generator)!
        let arguments = (0..<Int.random(in: 0...3, using: &generator)).map { _ in value(paths, &generator) }
        return CallSignal(paths.randomElement(using: &generator)!, interface, member, arguments)
    }

    static func value(_ paths: [DBusObjectPath], _ generator: inout SeededGenerator) -> DBusValue {
        let states = ["active", "dialing", "held", "incoming", "disconnected", "nonsense"]
        let properties: [String: DBusValue] = [
            "State": generator.chance(70)
                ? .string(states.randomElement(using: &generator)!) : .int32(.random(in: -1...9, using: &generator)),
            "LineIdentification": .string("\(Int.random(in: 0...3, using: &generator))"),
            "Interfaces": .strings(generator.chance(50) ? ["org.ofono.VoiceCallManager"] : []),
            "Calls": Array(paths.shuffled(using: &generator).prefix(2)).dbusValue,
        ]
        let interfaces = ["org.bluez.Call1", "org.bluez.Telephony1", "org.freedesktop.ModemManager1.Modem.Voice"]
        let path = paths.randomElement(using: &generator)!
        switch Int.random(in: 0..<9, using: &generator) {
        case 0, 1: return .objectPath(path)
        case 2, 3: return .properties(properties)
        case 4: return .string(["State", "Interfaces", "org.bluez.Call1", ""].randomElement(using: &generator)!)
        case 5: return .int32(.random(in: -1...9, using: &generator))
        case 6: return .ofonoObjects([path: properties])
        case 7:
            let interface = interfaces.randomElement(using: &generator)!
            return generator.chance(50)
                ? [interface: properties].dbusValue : ([path: [interface: properties]] as ManagedObjects).dbusValue
        default: return .strings(interfaces)
        }
    }
}
