// Strangers, and a bluetoothd that says what it must not.
import BusTestSupport
import DBus
import FakeBlueZ
import TestSupport
import Testing

@testable import BlueZ

@Suite struct HostileTests {
    @Test func `pairing needs an agent, and only bluetoothd may ask it`() async throws {
        try await World.run { world in
            _ = try await world.connectButton()
            let refused = await #expect(throws: BlueZError.self) { try await world.client.pair(world.device) }
            #expect(refused?.kind == .authenticationFailed)
            try await world.client.registerAgent()
            try await world.client.pair(world.device)
            #expect(try await eventually { await world.client.device(world.device)?.isPaired == true })
            try await world.client.pair(world.device)

            let stranger = try await world.fixture.connect()
            let us = try #require(await world.connection.uniqueName)
            do {
                try await stranger.call(
                    destination: us, path: "/pttd/bluez/agent", interface: "org.bluez.Agent1",
                    method: "RequestPinCode", arguments: [.objectPath(world.device.path)])
                Issue.record("a stranger got the PIN")
            } catch { #expect((error as? DBusError)?.remoteName == "org.freedesktop.DBus.Error.AccessDenied") }
            await stranger.close()
        }
    }

    @Test func `the agent refuses bluetoothd what nobody has begun`() async throws {
        try await withBus { fixture in
            let bluez = try await fixture.connect()
            try await bluez.requestName("org.bluez")
            try await bluez.export(
                [
                    DBusExport(
                        DBusInterface(
                            "org.bluez.AgentManager1",
                            methods: [.init("RegisterAgent", in: [.init("a", .objectPath), .init("c", .string)])]),
                        methods: ["RegisterAgent": { _ in [] }])
                ], at: "/org/bluez")
            await bluez.exportObjectManager(at: "/")
            let connection = try await fixture.connect()
            let events = Recorder<BlueZEvent>()
            let client = BlueZClient(on: connection, logger: fixture.logger) { events.record($0) }
            try await client.start()
            #expect(try await events.wait(for: 1) == [.available])
            try await client.registerAgent()
            let device = DBusValue.objectPath("/org/bluez/hci0/dev_C4_11_11_11_11_11")
            let us = try #require(await connection.uniqueName)
            func ask(_ method: String, _ arguments: [DBusValue]) async -> String {
                do {
                    let answer = try await bluez.call(
                        destination: us, path: "/pttd/bluez/agent", interface: "org.bluez.Agent1", method: method,
                        arguments: arguments)
                    return answer.first?.stringValue ?? "ok"
                } catch { return error.remoteName ?? "\(error)" }
            }
            let rejected = "org.bluez.Error.Rejected"
            #expect(await ask("RequestPinCode", [device]) == rejected)
            #expect(await ask("RequestPasskey", [device]) == rejected)
            #expect(await ask("RequestConfirmation", [device, .uint32(42)]) == rejected)
            #expect(await ask("DisplayPasskey", [device, .uint32(1), .uint16(0)]) == "ok")
            #expect(await ask("RequestAuthorization", [.objectPath("/nonsense")]) == rejected)
            #expect(await ask("AuthorizeService", [device, .string("nonsense")]) == rejected)
            #expect(await ask("Cancel", []) == "ok")
            #expect(await ask("Release", []) == "ok")
            await client.stop()
            for one in [bluez, connection] { await one.close() }
        }
    }

    @Test func `malformed answers and signals are errors and change nothing`() async throws {
        try await withBus { fixture in
            let bluez = try await fixture.connect()
            // First an object list of a wrong type, then a good one.
            let manager = "org.freedesktop.DBus.ObjectManager"
            try await bluez.export(
                [
                    DBusExport(
                        DBusInterface(manager, methods: [.init("GetManagedObjects", out: [.init("objects", .string)])]),
                        methods: ["GetManagedObjects": { _ in [.string("none of your business")] }])
                ], at: "/")
            try await bluez.requestName("org.bluez")
            let characteristic = "/org/bluez/hci0/dev_C4_11_11_11_11_11/service0010/char0011"
            let path = try DBusObjectPath(characteristic)
            try await bluez.export(
                [
                    DBusExport(
                        DBusInterface(
                            "org.bluez.GattCharacteristic1",
                            methods: [
                                .init(
                                    "ReadValue", in: [.init("options", .dictionary(key: .string, value: .variant))],
                                    out: [.init("value", .string)])
                            ], properties: [.init("UUID", .string)]),
                        properties: ["UUID": .string("no UUID")], methods: ["ReadValue": { _ in [.string("x")] }])
                ], at: path)
            let connection = try await fixture.connect()
            let events = Recorder<BlueZEvent>()
            let client = BlueZClient(on: connection, logger: fixture.logger) { events.record($0) }
            try await client.start()
            try await Task.sleep(for: .milliseconds(100))
            #expect(await !client.isAvailable)
            await bluez.unexport(at: "/")
            await bluez.exportObjectManager(at: "/")
            #expect(try await events.wait(for: 1) == [.available])

            let identifier = try #require(CharacteristicIdentifier(path: characteristic))
            let error = await #expect(throws: BlueZError.self) { try await client.readValue(identifier) }
            #expect(error?.kind == .malformedAnswer)

            let properties = "org.freedesktop.DBus.Properties"
            let device: DBusObjectPath = "/org/bluez/hci0/dev_C4_11_11_11_11_11"
            let nothing = DBusValue.dictionary(key: .string, value: .variant, [:])
            let rubbish: [(String, String, DBusObjectPath, [DBusValue])] = [
                ("InterfacesAdded", manager, "/", []), ("InterfacesAdded", manager, "/", [.string("/org/bluez/hci0")]),
                ("InterfacesAdded", manager, "/", [.objectPath(device), nothing]),
                ("InterfacesRemoved", manager, "/", [.objectPath(device), .string("org.bluez.Device1")]),
                ("InterfacesRemoved", manager, "/", [.objectPath(device), .strings(["org.bluez.Device1"])]),
                ("PropertiesChanged", properties, device, [.string("org.bluez.Device1")]),
                ("PropertiesChanged", properties, device, [.int32(1), nothing, .strings([])]),
                ("PropertiesChanged", properties, device, [.string("org.bluez.Device1"), nothing, .strings([])]),
                (
                    "PropertiesChanged", properties, path,
                    [.string("org.bluez.GattCharacteristic1"), .properties(["Value": .string("x")]), .strings([])]
                ),
                ("Disconnected", "org.bluez.Device1", device, [.int32(1)]),
                ("Disconnected", "org.bluez.Device1", device, [.string("nonsense"), .string("")]),
                ("Unheard", manager, "/", []),
            ]
            for (member, interface, object, arguments) in rubbish {
                try await bluez.emitSignal(member, of: interface, at: object, arguments)
            }
            let seed = SeededGenerator.seed()
            var random = SeededGenerator(seed: seed)
            for _ in 0..<300 {
                let (member, interface, _, _) = rubbish.randomElement(using: &random)!
                let arguments = (0..<Int.random(in: 0...3, using: &random)).map { _ in
                    rubbish.flatMap(\.3).randomElement(using: &random)!
                }
                try await bluez.emitSignal(member, of: interface, at: device, arguments)
            }
            let adapter: [DBusValue] = [
                .objectPath("/org/bluez/hci0"),
                ["org.bluez.Adapter1": ["Powered": DBusValue.boolean(true)]].dbusValue,
            ]
            try await bluez.emitSignal("InterfacesAdded", of: manager, at: "/", adapter)
            let all = try await events.wait(for: 3)
            let expected = AdapterIdentifier(path: "/org/bluez/hci0")!
            #expect(all.count == 3, "seed \(seed): \(all)")
            #expect(all.last == .adapterPowered(expected, true), "seed \(seed)")
            await client.stop()
            for one in [bluez, connection] { await one.close() }
        }
    }
}
