// The real ofonod and the real ModemManager on a bus of the test's own, over a modem that the test scripts.
import BusTestSupport
import DBus
import Testing

@testable import Calls

@Suite struct RealServicesTests {
    @Test
    func `the calls of a real oFono: ringing, answered, hung up, dialled, and over when ofonod is killed`() async throws
    {
        try await withBus { fixture in
            let listener = try await Listener(fixture)
            let modem = try await Modem()
            let configuration = fixture.bus.directory + "/phonesim.conf"
            try write("[phonesim]\nAddress=127.0.0.1\nPort=\(modem.address)\n", to: configuration)
            let ofonod = try ChildProcess(
                ["/var/tmp/pttd-tests/ofono/usr/sbin/ofonod", "--nodetach"],
                environment: [
                    "DBUS_SYSTEM_BUS_ADDRESS": fixture.bus.address, "OFONO_PHONESIM_CONFIG": configuration,
                ], package: "ofono")
            defer { unlinkFile(configuration) }
            let voice = OfonoCaller(listener.connection)
            try #require(try await eventually { try await listener.connection.owner(of: "org.ofono") != nil })
            try await voice.set("Powered")
            try await voice.set("Online")

            // The last thing it is asked; before, ofonod takes the ring for a part of an answer.
            try #require(
                try await eventually {
                    modem.process.errors.contains("AT+CGSN") && modem.process.errors.contains("AT+CFUN=1")
                })
            modem.order("ring +49301234")
            try #require(try await eventually { await voice.states == ["incoming"] })
            #expect(listener.reports.all.isEmpty, "it only rings")
            try await voice.call("/phonesim/voicecall01", "org.ofono.VoiceCall", "Answer")
            #expect(try await listener.reaches(["oFono: +49301234 active"]) == ["oFono: +49301234 active"])
            modem.order("hangup")
            #expect(try await listener.reaches([]) == [])

            try await voice.call(
                "/phonesim", "org.ofono.VoiceCallManager", "Dial", [.string("+4930999"), .string("default")])
            #expect(try await listener.reaches(["oFono: +4930999 dialing"]) == ["oFono: +4930999 dialing"])
            modem.order("answered")
            #expect(try await listener.reaches(["oFono: +4930999 active"]) == ["oFono: +4930999 active"])
            // Whoever begins to listen during a call is told of it.
            let late = try await Listener(fixture)
            #expect(try await late.reaches(["oFono: +4930999 active"]) == ["oFono: +4930999 active"])

            ofonod.signal(9)
            #expect(try await listener.reaches([]) == [])
            #expect(listener.reports.all.count <= 6)
        }
    }

    @Test
    func `the calls of a real ModemManager: dialled, answered, hung up, ringing, answered, and over when it is killed`()
        async throws
    {
        try await withBus { fixture in
            let name = "abstract:pttd-" + fixture.bus.directory.suffix(6)
            let modem = try await Modem(socket: name)
            let listener = try await Listener(fixture)
            let daemon = try ChildProcess(
                [
                    "/usr/sbin/ModemManager", "--test-session", "--test-enable", "--test-no-udev",
                    "--test-no-suspend-resume", "--no-auto-scan",
                ],
                environment: [
                    "DBUS_SYSTEM_BUS_ADDRESS": fixture.bus.address, "DBUS_SESSION_BUS_ADDRESS": fixture.bus.address,
                ], package: "modemmanager")
            let bus = listener.connection
            let service = CallService.modemManager.busName
            try #require(try await eventually { try await bus.owner(of: service) != nil })
            let root: DBusObjectPath = "/org/freedesktop/ModemManager1"
            let modemPath: DBusObjectPath = "/org/freedesktop/ModemManager1/Modem/0"
            let voice = "org.freedesktop.ModemManager1.Modem.Voice"
            @Sendable func ask(_ path: DBusObjectPath, _ interface: String, _ method: String, _ arguments: [DBusValue])
                async throws(DBusError) -> [DBusValue]
            {
                try await bus.call(
                    destination: service, path: path, interface: interface, method: method, arguments: arguments)
            }
            try #require(
                try await eventually {
                    (try? await ask(
                        root, "org.freedesktop.ModemManager1.Test", "SetProfile",
                        [.string("pttd"), .string("generic"), .strings([name])])) != nil
                })
            try #require(
                try await eventually {
                    (try? await ask(modemPath, "org.freedesktop.ModemManager1.Modem", "Enable", [.boolean(true)]))
                        != nil
                })

            // An emergency number may be dialled also before the modem has found its network.
            let number = DBusValue.properties(["number": .string("112")])
            let call: DBusObjectPath = try await ask(modemPath, voice, "CreateCall", [number]).argument(0)
            _ = try await ask(call, "org.freedesktop.ModemManager1.Call", "Start", [])
            #expect(
                try await listener.reaches(["ModemManager: 112 dialing"]) == ["ModemManager: 112 dialing"])
            modem.order("answered")
            #expect(try await listener.reaches(["ModemManager: 112 active"]) == ["ModemManager: 112 active"])
            let late = try await Listener(fixture)
            #expect(try await late.reaches(["ModemManager: 112 active"]) == ["ModemManager: 112 active"])
            modem.order("hangup")
            #expect(try await listener.reaches([]) == [])

            listener.reports.clear()
            modem.order("ring +49301234")
            let ringing: DBusObjectPath = "/org/freedesktop/ModemManager1/Call/1"
            try #require(
                try await eventually {
                    let state = try? await bus.getProperty(
                        "State", of: "org.freedesktop.ModemManager1.Call", destination: service, path: ringing)
                    return state?.integerValue == 3
                })
            #expect(listener.reports.all.isEmpty, "it only rings")
            _ = try await ask(ringing, "org.freedesktop.ModemManager1.Call", "Accept", [])
            #expect(
                try await listener.reaches(["ModemManager: +49301234 active"]) == ["ModemManager: +49301234 active"])
            daemon.signal(9)
            #expect(try await listener.reaches([]) == [])
        }
    }
}

/// The user's hand at oFono.
private struct OfonoCaller: Sendable {
    let bus: DBusConnection

    init(_ bus: DBusConnection) { self.bus = bus }

    func call(
        _ path: DBusObjectPath, _ interface: String, _ method: String, _ arguments: [DBusValue] = []
    ) async throws {
        _ = try await bus.call(
            destination: "org.ofono", path: path, interface: interface, method: method, arguments: arguments)
    }

    /// Sets a switch of the modem, as soon as there is one.
    func set(_ property: String) async throws {
        _ = try await eventually {
            do {
                try await call(
                    "/phonesim", "org.ofono.Modem", "SetProperty",
                    [.string(property), .variant(.boolean(true))])
                return true
            } catch { return false }
        }
    }

    /// The states of all calls; nil while the modem cannot telephone.
    var states: [String]? {
        get async {
            let calls = try? await bus.call(
                destination: "org.ofono", path: "/phonesim", interface: "org.ofono.VoiceCallManager", method: "GetCalls"
            )
            return calls?.first?.arrayValue?.compactMap { $0.structureValue?[1].propertiesValue?["State"]?.stringValue }
        }
    }
}
