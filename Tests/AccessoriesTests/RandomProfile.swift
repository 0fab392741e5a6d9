// Random profiles that are right, for tests of what must hold for any profile.
import BlueZ
import LinuxInput
import TestSupport
import Vocabulary

@testable import Accessories

extension AccessoryProfile {
    /// A right profile made by `random`: any transport, rules, words, and texts that need care in quotes.
    static func random(_ random: inout SeededGenerator) -> AccessoryProfile {
        let transport = Transport.allCases.randomElement(using: &random)!
        let isLocal = transport == .input || transport == .serial
        var profile = AccessoryProfile(
            id: "p\(Int.random(in: 0...9_999, using: &random))", title: text(&random, count: 1...20),
            confidence: Confidence.allCases.randomElement(using: &random)!,
            sources: (0..<Int.random(in: 2...4, using: &random)).map { _ in text(&random, count: 1...30) },
            bonding: isLocal ? .never : Bonding.allCases.randomElement(using: &random)!, battery: .none, names: [],
            serviceIdentifies: false, inputs: [], gestures: [:], timing: GestureTiming())
        profile.isExperimental = random.chance(50)
        profile.transport = transport
        profile.match(&random, isLocal: isLocal)
        if random.chance(50) {
            profile.timing.debounce = .milliseconds(Int.random(in: 0...2_000, using: &random))
            profile.timing.minimumHold = .milliseconds(Int.random(in: 0...2_000, using: &random))
            profile.timing.hybridHold = .milliseconds(Int.random(in: 100...5_000, using: &random))
            profile.emergencyHold = .milliseconds(Int.random(in: 0...10_000, using: &random))
        }
        profile.addInputs(&random)
        if !profile.isExplicitOnly, random.chance(20) { profile.refusal = text(&random, count: 1...40) }
        profile.addOutputs(&random)
        return profile
    }

    private mutating func match(_ random: inout SeededGenerator, isLocal: Bool) {
        if random.chance(20) {
            isExplicitOnly = true
            return
        }
        names = (0..<Int.random(in: 1...3, using: &random)).map { _ in
            NamePattern(Self.text(&random, count: 1...12) + "x*")
        }
        if isLocal {
            inputDevices = (0..<Int.random(in: 0...3, using: &random)).map { _ in
                InputDeviceID(
                    vendor: .random(in: 0...UInt16.max, using: &random),
                    product: .random(in: 0...UInt16.max, using: &random))
            }
            for number in 0..<Int.random(in: 0...2, using: &random) {
                udevProperties["ID_\(number)"] = Self.text(&random, count: 1...12)
            }
        } else {
            advertisedServices = (0..<Int.random(in: 0...2, using: &random)).map { _ in Self.uuid(&random) }
            serviceIdentifies = transport == .gatt && random.chance(50)
        }
    }

    private mutating func addInputs(_ random: inout SeededGenerator) {
        var controls = Control.allCases.shuffled(using: &random)
        for number in 0..<(transport == .gatt ? Int.random(in: 1...4, using: &random) : 1) {
            let mine = (0..<Int.random(in: 1...5, using: &random)).map { _ in controls.removeLast() }
            var input = Input(
                name: random.chance(50) ? "\(number + 1)" : "input \(number)", rule: Self.rule(transport, mine, &random)
            )
            if transport == .gatt {
                input.service = Self.uuid(&random)
                input.characteristic = Self.uuid(&random)
                input.isReadable = random.chance(50)
                input.isOptional = number > 0 && random.chance(50)
            }
            let clicks = input.rule.clicks
            for control in input.rule.controls {
                if clicks.contains(control) || random.chance(20) { toggleOnly.insert(control) }
                let allowed: [Gesture] = toggleOnly.contains(control) ? [.toggle, .none] : Gesture.allCases
                gestures[control] = allowed.randomElement(using: &random)!
            }
            if case .text(let rule) = input.rule, rule.batteryPrefix != nil { battery = .text }
            inputs.append(input)
        }
        if battery == .none, transport == .gatt, random.chance(50) { battery = .service }
    }

    private static func rule(
        _ transport: Transport, _ controls: [Control], _ random: inout SeededGenerator
    ) -> DecodeRule {
        let size = Int.random(in: 2...20, using: &random)
        let byte = Int.random(in: 0...size - 2, using: &random)
        let frame =
            random.chance(30)
            ? DecodeRule.Frame(
                byte: Int.random(in: 0..<size, using: &random), own: 7, others: random.chance(50) ? [8, 9] : []) : nil
        switch (transport, Int.random(in: 0...3, using: &random)) {
        case (.input, _):
            var codes = (1...0x2FF).map { UInt16($0) }.shuffled(using: &random)
            return .keys(
                .init(
                    controls: controls.map { control in
                        let count = Int.random(in: 1...4, using: &random)
                        defer { codes.removeLast(count) }
                        return .init(control: control, codes: codes.suffix(count))
                    }))
        case (.gatt, 0):
            let isLong = random.chance(50)
            let values = controls.enumerated().map { index, control in
                DecodeRule.ValueControl(
                    control: control, pressed: [UInt8(index + 1)] + (isLong ? [UInt8(index)] : []),
                    released: random.chance(70) ? [UInt8(0x80 + index)] : nil)
            }
            return .value(
                .init(
                    byte: byte, size: size, controls: values, ignored: random.chance(30) ? [0x70, 0x71] : [],
                    frame: frame))
        case (.gatt, 1):
            return .bits(
                .init(
                    byte: byte, size: size, ignored: random.chance(50) ? 0x80 : 0,
                    controls: controls.enumerated().map { .init(control: $1, bit: 1 << UInt8($0)) },
                    isActiveLow: random.chance(30), frame: frame))
        case (.gatt, 2): return .nonzero(.init(byte: byte, size: size, control: controls[0], frame: frame))
        default:
            let words = controls.enumerated().map { index, control in
                DecodeRule.TextControl(
                    control: control,
                    pressed: (0..<Int.random(in: 1...3, using: &random)).map { "+P\(index)\"\\\($0)=" },
                    released: random.chance(60) ? ["+R\(index)"] + (random.chance(50) ? ["+KEY=0"] : []) : [])
            }
            return .text(.init(controls: words, batteryPrefix: random.chance(30) ? "BATT" : nil))
        }
    }

    private mutating func addOutputs(_ random: inout SeededGenerator) {
        if transport == .spp, random.chance(50) {
            streamStart = random.bytes(Int.random(in: 1...20, using: &random))
        }
        guard transport == .gatt else { return }
        for _ in 0..<Int.random(in: 0...2, using: &random) {
            startCommands.append(
                CharacteristicWrite(
                    service: Self.uuid(&random), characteristic: Self.uuid(&random),
                    value: random.bytes(Int.random(in: 1...512, using: &random))))
        }
        if random.chance(50) {
            var values: [AccessoryFeedback: [UInt8]] = [.idle: [0]]
            for state in AccessoryFeedback.allCases where random.chance(50) {
                values[state] = random.bytes(Int.random(in: 1...4, using: &random))
            }
            light = Light(service: Self.uuid(&random), characteristic: Self.uuid(&random), values: values)
        }
        if random.chance(50) {
            idleLink = IdleLink(
                interval: .microseconds(1_250 * Int.random(in: 6...100, using: &random)),
                latency: Int.random(in: 0...30, using: &random),
                supervisionTimeout: .milliseconds(10 * Int.random(in: 800...3_200, using: &random)))
        }
    }

    private static func uuid(_ random: inout SeededGenerator) -> BluetoothUUID {
        if random.chance(30) {
            return BluetoothUUID(hexadecimal(UInt16.random(in: 0x1000...0xFFFF, using: &random), digits: 4))!
        }
        let digits = random.bytes(16).map { hexadecimal($0, digits: 2) }
        let text = [0..<4, 4..<6, 6..<8, 8..<10, 10..<16].map { digits[$0].joined() }.joined(separator: "-")
        return BluetoothUUID(text)!
    }

    private static func text(_ random: inout SeededGenerator, count: ClosedRange<Int>) -> String {
        let letters: [Character] = [
            "a", "B", "7", " ", "\"", "\\", "'", "#", "=", "]", "ü", "電", "\n", "\t", "\u{1}", "\u{7F}",
        ]
        return String((0..<Int.random(in: count, using: &random)).map { _ in letters.randomElement(using: &random)! })
    }
}
