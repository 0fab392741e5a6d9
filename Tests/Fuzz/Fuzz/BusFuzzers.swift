// What comes over D-Bus: the messages as bytes, and what BlueZ, telephony services and programs put into them.
import CDBus
import FoundationEssentials
import MonotonicTime
import PushToTalkCore
import Vocabulary

@testable import BlueZ
@testable import Calls
@testable import DBus
@testable import PTTBus

/// A value that the input spells, of any type that can be compared again.
private func value(_ input: inout Input, depth: Int = 0) -> DBusValue {
    switch input.byte() % (depth > 4 ? 10 : 14) {
    case 0: return .byte(input.byte())
    case 1: return .boolean(input.chance())
    case 2: return .int16(input.number())
    case 3: return .uint32(input.number())
    case 4: return .int64(input.number())
    case 5: return .string(input.text())
    case 6: return .objectPath((try? DBusObjectPath("/" + input.text())) ?? "/")
    case 7: return .bytes(input.piece())
    case 8: return .strings((0..<input.index(below: 4)).map { _ in input.text() })
    case 9: return .double(Double(input.number(Int32.self)))
    case 10: return .variant(value(&input, depth: depth + 1))
    case 11: return .structure((0..<(1 + input.index(below: 3))).map { _ in value(&input, depth: depth + 1) })
    case 12: return .properties(properties(&input, depth: depth + 1))
    default: return .array(.variant, (0..<input.index(below: 3)).map { _ in .variant(value(&input, depth: depth + 1)) })
    }
}

private let propertyNames = [
    "Address", "Name", "Alias", "Paired", "Connected", "RSSI", "UUIDs", "ServicesResolved", "UUID", "Service", "Flags",
    "Value", "Notifying", "Percentage", "Powered", "Discovering", "Trusted", "AddressType", "State",
    "LineIdentification",
    "Interfaces", "Calls", "Direction", "Number", "Id", "Action", "Image", "Gesture", "Bindings", "Problems",
]

private func properties(_ input: inout Input, depth: Int = 0) -> [String: DBusValue] {
    var result: [String: DBusValue] = [:]
    for _ in 0..<input.index(below: 6) {
        let number = Int(input.byte())
        result[propertyNames.indices.contains(number) ? propertyNames[number] : input.text()] = value(
            &input, depth: depth)
    }
    return result
}

private func path(_ input: inout Input) -> DBusObjectPath {
    let device = "/org/bluez/hci0/dev_AA_BB_CC_DD_EE_F\(input.byte() % 4)"
    switch input.byte() % 6 {
    case 0: return "/org/bluez/hci0"
    case 1: return (try? DBusObjectPath(device)) ?? "/"
    case 2: return (try? DBusObjectPath(device + "/service000\(input.byte() % 4)")) ?? "/"
    case 3: return (try? DBusObjectPath(device + "/service000\(input.byte() % 4)/char000\(input.byte() % 8)")) ?? "/"
    case 4: return (try? DBusObjectPath("/modem\(input.byte() % 4)/call\(input.byte() % 8)")) ?? "/"
    default: return (try? DBusObjectPath("/" + input.text())) ?? "/"
    }
}

private func bytes(of arguments: [DBusValue], member: String = "PropertiesChanged") -> [UInt8]? {
    let message = OutgoingMessage(
        kind: .signal(path: "/org/pttd", interface: "org.example.Test", member: member, destination: nil),
        arguments: arguments)
    guard let encoded = try? message.encode() else { return nil }
    defer { dbus_message_unref(encoded) }
    dbus_message_set_serial(encoded, 1)
    var start: UnsafeMutablePointer<CChar>?
    var count: Int32 = 0
    guard dbus_message_marshal(encoded, &start, &count) != 0, let start else { return nil }
    defer { dbus_free(start) }
    return UnsafeBufferPointer(start: start, count: Int(count)).map { UInt8(truncatingIfNeeded: $0) }
}

private func message(_ bytes: [UInt8]) -> DBusMessage? {
    let received = bytes.withUnsafeBytes { buffer in
        buffer.assumingMemoryBound(to: CChar.self).baseAddress.flatMap {
            dbus_message_demarshal($0, Int32(buffer.count), nil)
        }
    }
    guard let received else { return nil }
    defer { dbus_message_unref(received) }
    var message = DBusMessage(head: received, at: .zero)
    guard let arguments = try? DBusMessage.readArguments(of: received) else { return nil }
    message?.arguments = arguments
    return message
}

/// BlueZ's objects come and go as the input says.
private func bluez(_ bytes: [UInt8]) {
    let interfaces = [
        BlueZName.adapter, BlueZName.device, BlueZName.battery, BlueZName.gattService, BlueZName.characteristic,
    ]
    var input = Input(bytes)
    var tree = BlueZTree()
    while !input.isEmpty {
        let path = path(&input)
        let interface = interfaces[input.index(below: interfaces.count)]
        switch input.byte() % 5 {
        case 0, 1: _ = tree.interfacesAdded(path, [interface: properties(&input)])
        case 2: _ = tree.interfacesRemoved(path, [interface])
        case 3: _ = tree.propertiesChanged(path, interface, properties(&input), invalidated: [input.text()], at: .zero)
        default: tree.disconnecting(path, reason: input.text())
        }
        expect(tree.devices.count <= BlueZTree.devicesMaximum, "devices are bounded")
    }
    _ = tree.takeComplaints()
    _ = tree.clear()
    expect(tree.devices.isEmpty && tree.adapters.isEmpty, "everything goes with BlueZ")
}

private func calls(_ bytes: [UInt8]) {
    let names = [
        ("org.ofono.Manager", "ModemAdded"), ("org.ofono.Modem", "PropertyChanged"),
        ("org.ofono.VoiceCallManager", "CallAdded"), ("org.ofono.VoiceCall", "PropertyChanged"),
        ("org.ofono.VoiceCallManager", "CallRemoved"), (StandardInterface.objectManager, "InterfacesAdded"),
        (StandardInterface.properties, "PropertiesChanged"), (StandardInterface.objectManager, "InterfacesRemoved"),
        ("org.freedesktop.ModemManager1.Modem.Voice", "CallAdded"),
        ("org.freedesktop.ModemManager1.Call", "StateChanged"),
    ]
    var input = Input(bytes)
    var machine = CallsStateMachine()
    var now = Instant.zero
    var serial: UInt32 = 0
    while !input.isEmpty {
        let service = CallService.allCases[input.index(below: CallService.allCases.count)]
        serial &+= UInt32(input.byte() & 3)
        switch input.byte() % 8 {
        case 0: _ = machine.handle(.appeared(service), at: now)
        case 1: _ = machine.handle(.vanished(service), at: now)
        case 2, 3:
            let (interface, member) = names[input.index(below: names.count)]
            let signal = CallSignal(
                serial: serial, path: path(&input), interface: interface, member: member,
                arguments: (0..<input.index(below: 4)).map { _ in value(&input) })
            _ = machine.handle(.signal(service, signal), at: now)
        case 4, 5:
            let objects = (0..<input.index(below: 4)).map { _ -> DBusValue in
                .structure([.objectPath(path(&input)), .properties(properties(&input))])
            }
            let list = DBusValue.array(.structure([.objectPath, .dictionary(key: .string, value: .variant)]), objects)
            let arguments = input.chance() ? [list] : [value(&input)]
            _ = machine.handle(
                .answered(service, number: UInt64(input.byte()), serial: serial, arguments: arguments), at: now)
        case 6:
            _ = machine.handle(
                .failed(service, number: UInt64(input.byte()), reason: input.text(), isFinal: input.chance()), at: now)
        default:
            now = now + .milliseconds(Int(input.byte()) * 100)
            if machine.nextDeadline.map({ $0 <= now }) == true { _ = machine.handleTimeout(at: now) }
        }
        expect(
            machine.active.count <= CallService.allCases.count * CallsStateMachine.callsMaximum, "calls are bounded")
    }
}

private func delegate(_ bytes: [UInt8]) {
    let members = [
        "DidJoinChannel", "FailedToJoinChannel", "ReceivedEphemeralPushToken", "DidActivateAudioSession",
        "AudioSessionChanged", "IncomingPush", "IncomingServiceUpdatePush", "ChannelDescriptor",
    ]
    var input = Input(bytes)
    let member = members[input.index(below: members.count)]
    var arguments = (0..<input.index(below: 5)).map { _ in value(&input) }
    if input.chance() { arguments.insert(.string("00010203-0405-0607-0809-0a0b0c0d0e0f"), at: 0) }
    if let call = try? DelegateCall(member: member, arguments: arguments) {
        _ = try? DelegateAnswer((0..<input.index(below: 3)).map { _ in value(&input) }, to: call)
    }
    var snapshot = DaemonSnapshot()
    let interfaces = [
        PTTBus.managerInterface, PTTBus.channelInterface, PTTBus.accessoryInterface, PTTBus.accessoryManagerInterface,
        PTTBus.learningInterface,
    ]
    for _ in 0..<4 {
        snapshot.set(interfaces[input.index(below: interfaces.count)], properties(&input), at: "/org/pttd/x")
    }
    _ = snapshot.activeChannel
}

/// How many arrays are within each other in a valid signature.
private func nestedArrays(_ signature: some Sequence<UInt8>) -> Int {
    var around: [Int] = []
    var (depth, deepest) = (0, 0)
    for code in signature {
        switch code {
        case UInt8(ascii: "a"):
            depth += 1
            deepest = max(deepest, depth)
        case UInt8(ascii: "("), UInt8(ascii: "{"): around.append(depth)
        case UInt8(ascii: ")"), UInt8(ascii: "}"):
            _ = around.popLast()
            depth = around.last ?? 0
        default: depth = around.last ?? 0
        }
    }
    return deepest
}

let busFuzzers: [Fuzzer] = [
    Fuzzer(
        name: "dbus-message", maximum: 4_096,
        seeds: {
            var input = Input((0..<200).map { UInt8(truncatingIfNeeded: $0 &* 37) })
            let odd = bytes(of: (0..<6).map { _ in value(&input) })
            let usual = bytes(of: [
                .string("org.bluez.Device1"), .properties(["Connected": .boolean(true), "RSSI": .int16(-60)]),
                .strings(["Name"]),
            ])
            return [odd, usual].compactMap(\.self)
        }
    ) { bytes in
        guard let message = message(bytes) else { return }
        for argument in message.arguments {
            _ = argument.get([DBusObjectPath: [String: [String: DBusValue]]].self)
            _ = argument.propertiesValue
            _ = argument.get([String].self)
        }
        // What was read can be said again, but for descriptors.
        _ = try? ValueCheck(message.arguments)
    },
    Fuzzer(
        name: "dbus-value", maximum: 1_024,
        seeds: {
            [(0..<100).map { UInt8(truncatingIfNeeded: $0 &* 29) }, [12, 2, 0, 5, 3, 97, 98, 99, 1, 10, 10, 0, 1]]
        }
    ) { input in
        var input = Input(input)
        let arguments = (0..<(1 + input.index(below: 3))).map { _ in value(&input) }
        // What may not be said (a text with a NUL in it) is refused before.
        guard let bytes = bytes(of: arguments) else { return }
        expect(message(bytes)?.arguments == arguments, "what is said is heard: \(arguments)")
    },
    Fuzzer(
        name: "dbus-signature", maximum: 300,
        seeds: { ["a{sv}", "a{oa{sa{sv}}}", "(ii)a(ss)v", "aaaaaay"].map(utf8) }
    ) { bytes in
        guard let text = bytes.asText else { return }
        let ours = try? DBusSignature(text)
        if let ours { expect(DBusSignature(types: ours.types).rawValue == text, "a signature is its types") }
        // libdbus is the judge, but that it counts only arrays directly within each other: the specification allows 32 in all.
        let theirs = !bytes.contains(0) && dbus_signature_validate(text, nil) != 0 && nestedArrays(bytes) <= 32
        expect((ours != nil) == theirs, "both think the same of \(text)")
    },
    Fuzzer(
        name: "introspection", maximum: 4_096,
        seeds: {
            [
                """
                <!DOCTYPE node PUBLIC "-//freedesktop//DTD D-BUS Object Introspection 1.0//EN" "x">
                <node name="/a"><!-- c --><interface name="org.example.A"><method name="M"><arg name="x" type="a{sv}"
                direction="in"/></method><property name="P" type="s" access="read"/><signal name="S"><arg type="u"/></signal>
                <annotation name="n" value="&lt;v&#x41;"/></interface><node name="b"/></node>
                """
            ].map(utf8)
        }
    ) { bytes in
        if let text = bytes.asText { _ = try? DBusIntrospection(xml: text) }
    },
    Fuzzer(
        name: "bluez-objects", maximum: 2_048,
        seeds: {
            [[0, 0, 0, 0, 2, 14, 1, 1, 0, 1, 1, 1, 0, 3, 0, 5, 2, 65, 65, 4, 1, 1, 2, 2, 0, 5, 4, 110, 117, 108, 108]]
        },
        body: bluez),
    Fuzzer(
        name: "telephony", maximum: 2_048,
        seeds: { [[0, 0, 0, 1, 1, 4, 1, 4, 0, 0, 1, 18, 5, 6, 97, 99, 116, 105, 118, 101]] },
        body: calls),
    Fuzzer(name: "programs-and-daemon", maximum: 2_048, seeds: { [[5, 2, 5, 2, 123, 125, 1, 1]] }, body: delegate),
]
