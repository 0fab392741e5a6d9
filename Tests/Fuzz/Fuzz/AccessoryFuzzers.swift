// What buttons say: values of characteristics, words of streams, keys, and what the system tells of devices.
import MonotonicTime
import Vocabulary

@testable import Accessories
@testable import AccessorySetup
@testable import BlueZ
@testable import LinuxInput

private let profiles = ProfileLibrary.shippedFiles.compactMap { try? AccessoryProfile(bytes: $0.bytes, file: $0.name) }

/// Bytes that profiles know, for the fuzzer to begin with.
private let knownBytes: [[UInt8]] =
    [[0], [1], [0x80], [0, 1], [1, 0, 0]]
    + ["+PTT=P", "+PTT=R", "PTTP", "PTTR", "AT+CKPD=200\r", "BATT\u{32}"].map(utf8)

/// Feeds the values of one accessory of a shipped profile, with time between them.
private func press(_ bytes: [UInt8]) {
    var input = Input(bytes)
    let profile = profiles[input.index(below: profiles.count)]
    var machine = ControlsStateMachine(profile, gesture: input.chance() ? .toggle : nil)
    var now = Instant.zero
    var active: Set<Control> = []
    var down: Set<Control> = []
    func check(_ actions: [ControlsStateMachine.Action]) {
        for action in actions {
            switch action {
            case .begin(let control): expect(active.insert(control).inserted, "what takes part does not begin again")
            case .end(let control): expect(active.remove(control) != nil, "what ends took part")
            case .control(let control, let isDown):
                expect(isDown ? down.insert(control).inserted : down.remove(control) != nil, "edges take turns")
            case .battery(let percent): expect((0...100).contains(percent), "a battery has up to 100 percent")
            case .fire, .emergency, .ignored: break
            }
        }
    }
    while !input.isEmpty {
        let number = input.index(below: max(1, profile.inputs.count))
        switch input.byte() % 8 {
        case 0, 1, 2: check(machine.handle(.value(input: number, bytes: input.piece()), at: now))
        case 3: check(machine.handle(.staleValue(input: number, bytes: input.piece()), at: now))
        case 4: check(machine.handle(.key(code: input.number(), isDown: input.chance()), at: now))
        case 5:
            let events: [ControlsStateMachine.Event] = [.lost, .endedBySystem, .disarmed]
            check(machine.handle(events[input.index(below: events.count)], at: now))
        default:
            now = now + .milliseconds(Int(input.byte()) * 8)
            for _ in 0..<64 {
                guard let due = machine.nextDeadline, due <= now else { break }
                check(machine.handle(.deadline, at: now))
            }
            expect(machine.nextDeadline.map { $0 > now } ?? true, "the rules come to rest")
        }
    }
    check(machine.handle(.lost, at: now))
    expect(!machine.isActive && active.isEmpty, "nothing takes part any more")
    expect(!machine.isDown && down.isEmpty, "nothing is down any more")
}

/// Learns a button from rounds that the input spells.
private func learn(_ bytes: [UInt8]) {
    var input = Input(bytes)
    var now = Instant.zero
    var inference = RuleInference()
    func observations(_ input: inout Input) -> [LearningObservation] {
        (0..<input.index(below: 8)).map { _ in
            now = now + .milliseconds(Int(input.byte()) * 4)
            let source: LearningSource =
                switch input.byte() % 3 {
                case 0:
                    .characteristic(
                        service: "0000ffe0-0000-1000-8000-00805f9b34fb", "0000ffe1-0000-1000-8000-00805f9b34fb")
                case 1: .stream(.serialPort)
                default:
                    .characteristic(
                        service: "0000ffe0-0000-1000-8000-00805f9b34fb", "6e400003-b5a3-f393-e0a9-e50e24dcca9e")
                }
            let content: LearningObservation.Content =
                input.byte() & 15 == 15
                ? .key(code: input.number(), isDown: input.chance()) : .bytes(input.bytes(input.index(below: 24)))
            return LearningObservation(source: source, content: content, time: now)
        }
    }
    inference.quiet = observations(&input)
    for _ in 0..<(input.index(below: 6)) {
        let pressAsked = now
        let pressed = observations(&input)
        now = now + .milliseconds(500)
        let releaseAsked = now
        inference.rounds.append(
            LearningRound(
                pressAsked: pressAsked, releaseAsked: releaseAsked, observations: pressed + observations(&input)))
        now = now + .seconds(1)
    }
    guard case .learned(let learned) = inference.verdict() else { return }
    expect(learned.rule.controls == [.ptt], "what is learned is one button")
    // It reads what it was learned from, and never keeps the button down over a loss.
    var decoder = InputDecoder(learned.rule)
    for round in inference.rounds {
        for observation in round.observations where observation.source == learned.source {
            if let bytes = observation.bytes { _ = decoder.decode(bytes) { _ in false } }
        }
    }
}

let accessoryFuzzers: [Fuzzer] = [
    Fuzzer(
        name: "button-values", maximum: 1_024,
        seeds: {
            let values = knownBytes.flatMap { joined([0, 0], piece($0), [0, 7, 50]) }
            let keys: [UInt8] = [0, 4, 1, 31, 1, 0, 4, 1, 31, 0]
            return (0..<profiles.count).map { joined([UInt8($0), 0], values, keys) }
        }, body: press),
    Fuzzer(
        name: "button-learning", maximum: 1_024,
        seeds: {
            let press: [UInt8] = [2, 1, 0, 0, 1, 1, 1, 0, 0, 1, 1]
            let release: [UInt8] = [1, 1, 0, 0, 1, 0]
            return [joined([0, 4], press, release, press, release, press, release, press, release)]
        }, body: learn),
    Fuzzer(
        name: "hci-event", maximum: 260,
        seeds: { [[4, 5, 4, 0, 0x40, 0, 0x13], [4, 0x3E, 1, 0, 0, 0, 0]] }
    ) { bytes in
        if let handle = LELinkWatch.endedHandle(in: bytes) {
            expect(handle <= 0xFFF && bytes.count >= 7, "a handle has 12 bits")
            var links = LELinks()
            if let device = BluetoothAddress(bytes: Array(bytes.prefix(6))) {
                _ = links.update([LELink(handle: handle, device: device)])
                expect(links.ended(handle) == [device], "a link that has ended is lost")
            }
        }
    },
    Fuzzer(
        name: "bluetooth-names", maximum: 256,
        seeds: {
            [
                "AA:BB:CC:DD:EE:FF", "ffe0", "0000ffe0-0000-1000-8000-00805f9b34fb", "1d6b:0002", "PTT-Z*", "KEY_F13",
                "/org/bluez/hci0/dev_AA_BB_CC_DD_EE_FF/service000a/char000b",
            ].map(utf8)
        }
    ) { bytes in
        guard let text = bytes.asText else { return }
        if let address = BluetoothAddress(text) {
            expect(BluetoothAddress(address.description) == address, "an address is what was read")
        }
        if let uuid = BluetoothUUID(text) { expect(BluetoothUUID(uuid.description) == uuid, "a UUID is what was read") }
        if let id = InputDeviceID(text) { expect(InputDeviceID(id.description) == id, "an id is what was read") }
        if let device = DeviceIdentifier(path: text) {
            expect(
                device.adapter.device(device.address)?.address == device.address,
                "a path is built as it is read: \(text)")
        }
        _ = CharacteristicIdentifier(path: text)
        if let code = InputKey.code(named: text) { expect(InputKey.name(of: code) != nil, "a key has a name") }
        let half = text.index(text.startIndex, offsetBy: text.count / 2)
        _ = NamePattern(String(text[..<half])).matches(String(text[half...]))
        expect(NamePattern("*").matches(text), "a star is everything")
    },
    Fuzzer(
        name: "udev-properties", maximum: 1_024,
        seeds: {
            let pairs = [
                "PTTD_PROFILE", "key-hold", "PTTD_GRAB", "1", "PTTD_BAUD", "9600", "PTTD_LINE", "!cts", "ID_MODEL", "x",
            ]
            return [joined(piece(utf8("/dev/input/event3")), [0], pairs.flatMap { piece(utf8($0)) })]
        }
    ) { bytes in
        var input = Input(bytes)
        let node = input.text()
        let subsystem = input.chance() ? "tty" : "input"
        var properties: [String: String] = [:]
        while !input.isEmpty { properties[input.text()] = input.text() }
        let rule = InputDeviceRule(properties: properties)
        for name in [rule.profileID, rule.accessoryName].compactMap(\.self) {
            expect((1...InputDeviceRule.valueLengthMax).contains(name.utf8.count), "names are short")
        }
        guard let device = TaggedDevice(node: node, subsystem: subsystem, properties: properties) else { return }
        expect(device.properties.count <= TaggedDevice.propertiesMax, "little is kept of a device")
        expect(device.rule == rule, "a device has its rule")
    },
    Fuzzer(
        name: "input-events", maximum: 512, seeds: { [[0, 31, 1, 0, 31, 2, 0, 31, 0, 3, 0, 1]] }
    ) { bytes in
        var input = Input(bytes)
        var machine = KeyStateMachine()
        var held: Set<UInt16> = []
        func check(_ edges: [KeyEdge]) {
            for edge in edges {
                expect(
                    edge.isDown ? held.insert(edge.code).inserted : held.remove(edge.code) != nil, "edges take turns")
            }
        }
        while !input.isEmpty {
            let code: UInt16 = input.number()
            let value = Int32(Int8(bitPattern: input.byte()))
            check(machine.handle(.key(code: code, value: value), at: .zero))
        }
        check(machine.handle(.removed, at: .zero))
        expect(held.isEmpty, "nothing is held of what is gone")
    },
]
