// Paths, addresses, UUIDs and errors, without a bus.
import DBus
import MonotonicTime
import Testing

@testable import BlueZ

@Suite struct IdentifierTests {
    @Test func `object paths become typed identifiers`() throws {
        let text = "/org/bluez/hci1/dev_C4_11_22_33_44_5F/service000a/char000b"
        let characteristic = try #require(CharacteristicIdentifier(path: text))
        #expect(characteristic.path.rawValue == text)
        #expect(characteristic.service.path == "/org/bluez/hci1/dev_C4_11_22_33_44_5F/service000a")
        #expect(characteristic.device.address.description == "C4:11:22:33:44:5F")
        #expect(characteristic.device.adapter.name == "hci1")
        #expect(characteristic.device.adapter.index == 1)
        let adapter = try #require(AdapterIdentifier(path: "/org/bluez/hci1"))
        #expect(adapter.device(try #require(BluetoothAddress("c4:11:22:33:44:5f"))) == characteristic.device)
    }

    @Test(arguments: [
        "/", "/org", "/org/bluez", "/org/bluez/hci", "/org/bluez/hcix", "/org/bluez/hci99999999",
        "/org/bluez/hci0/dev_1", "/org/bluez/hci0/dev_C4_11_22_33_44", "/org/bluez/hci0/dev_C4_11_22_33_44_GG",
        "/org/bluez/hci0/dev_C4_11_22_33_44_5", "/org/bluez/hci0/player0", "/org/other/hci0",
        "/org/bluez/hci0/dev_C4_11_22_33_44_55/service", "/org/bluez/hci0/dev_C4_11_22_33_44_55/fd0",
        "/org/bluez/hci0/dev_C4_11_22_33_44_55/service000a/char000b/desc000c",
    ])
    func `other object paths are nothing to us`(text: String) throws {
        #expect(BlueZObject(try DBusObjectPath(text)) == .other)
    }

    @Test func `UUIDs of any length become 128 bits in lower case`() {
        // A variable: a literal would take the initialiser that traps.
        for (text, canonical) in [
            ("180F", "0000180f-0000-1000-8000-00805f9b34fb"), ("0000180f", "0000180f-0000-1000-8000-00805f9b34fb"),
            ("127FACE1-CB21-11E5-93D0-0002A5D5C51B", "127face1-cb21-11e5-93d0-0002a5d5c51b"),
        ] { #expect(BluetoothUUID(text)?.rawValue == canonical) }
        for bad in [
            "", "18", "180g", "+80f", "127FACE1-CB21-11E5-93D0-0002A5D5C51", "127FACE1CB21-11E5-93D0--0002A5D5C51B",
        ] {
            #expect(BluetoothUUID(bad) == nil, "\(bad)")
        }
    }

    @Test(arguments: [
        "", "C4:11:22:33:44", "C4:11:22:33:44:55:66", "C4-11-22-33-44-55", "C4:11:22:33:44:+5", "é4:11:22:33:44:55",
    ])
    func `what is no address is none`(text: String) { #expect(BluetoothAddress(text) == nil) }

    @Test(arguments: [
        ("org.bluez.Error.Failed", "le-connection-abort-by-local", BlueZError.Kind.connectionAborted),
        ("org.bluez.Error.Failed", "Software caused connection abort", .connectionAborted),
        ("org.bluez.Error.Failed", "Operation already in progress", .inProgress),
        ("org.bluez.Error.InProgress", "Operation already in progress", .inProgress),
        ("org.bluez.Error.Failed", "Already notifying", .alreadyDone),
        ("org.bluez.Error.Failed", "No discovery started", .alreadyDone),
        ("org.bluez.Error.NotReady", "Resource Not Ready", .notReady),
        ("org.bluez.Error.Failed", "Not connected", .notConnected),
        ("org.bluez.Error.AlreadyConnected", "", .alreadyDone),
        ("org.bluez.Error.AuthenticationCanceled", "", .authenticationFailed),
        ("org.bluez.Error.DoesNotExist", "", .noSuchObject),
        ("org.freedesktop.DBus.Error.UnknownObject", "", .noSuchObject),
        ("org.freedesktop.DBus.Error.ServiceUnknown", "", .unavailable),
        ("org.freedesktop.DBus.Error.AccessDenied", "", .accessDenied),
        ("org.bluez.Error.Failed", "something new", .failed), ("org.example.Error", "", .failed),
    ])
    func `BlueZ's errors have kinds to act on`(name: String, message: String, kind: BlueZError.Kind) {
        #expect(BlueZError(.remote(name: name, message: message), during: "x").kind == kind)
    }

    @Test func `reconnection is registered on each adapter, again after failures, and anew when the UUIDs change`()
        throws
    {
        let first = try #require(AdapterIdentifier(path: "/org/bluez/hci0"))
        let second = try #require(AdapterIdentifier(path: "/org/bluez/hci1"))
        var state = AdapterRegistrations<Set<BluetoothUUID>>()
        #expect(state.next(adapters: [first], at: .zero) == nil)
        state.want(["ffe0"])
        #expect(state.next(adapters: [first, second], at: .zero) == .register(first))
        state.didRegister(first, ["ffe0"])
        #expect(state.next(adapters: [first, second], at: .zero) == .register(second))
        state.didFail(second, at: .zero)
        #expect(state.next(adapters: [first, second], at: .zero) == nil)
        #expect(state.nextDeadline == .zero + .seconds(1))
        #expect(state.next(adapters: [first, second], at: .zero + .seconds(1)) == .register(second))
        for _ in 0..<100 { state.didFail(second, at: .zero) }
        #expect(state.nextDeadline == .zero + .seconds(60))
        state.want(["ffe0", "180f"])
        #expect(state.next(adapters: [first], at: .zero) == .unregister(first))
        state.didUnregister(first)
        #expect(state.next(adapters: [first], at: .zero) == .register(first))
        state.didRegister(first, ["ffe0", "180f"])
        state.want(nil)
        #expect(state.next(adapters: [first], at: .zero) == .unregister(first))
        state.forgetAll()
        #expect(state.next(adapters: [first, second], at: .zero) == nil)
    }
}
