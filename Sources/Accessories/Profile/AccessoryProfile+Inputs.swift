// Reading the [[input]] tables of a profile file, each with its [[input.control]] tables.
import BlueZ
import Settings
import Vocabulary

/// Reads the inputs of one profile, and collects what belongs to their controls.
package struct InputReading {
    /// The most controls of an input.
    static let controlsMax = Control.allCases.count
    /// The most words or keys of a control.
    package static let alternativesMax = 32

    private enum Decode: String, CaseIterable { case value, bits, nonzero, text, keys }

    let transport: AccessoryProfile.Transport
    var gestures: [Control: Gesture] = [:]
    var toggleOnly: Set<Control> = []

    init(transport: AccessoryProfile.Transport) { self.transport = transport }

    mutating func input(_ table: SettingsTable, number: Int) -> AccessoryProfile.Input {
        let name = table.value("name", .string(lengthMax: 32), default: "\(number + 1)")
        var input = AccessoryProfile.Input(name: name, rule: .keys(.init(controls: [])))
        if transport == .gatt {
            input.service = table.required("service", .gattUUID)
            input.characteristic = table.required("characteristic", .gattUUID)
            input.isReadable = table.value("readable", .boolean, default: false)
            input.isOptional = table.value("optional", .boolean, default: false)
        } else {
            table.refuse(
                ["service", "characteristic", "readable", "optional"], "is for transport \"gatt\"",
                "remove it: a profile with transport \"\(transport.rawValue)\" has no characteristics")
        }
        if transport == .input {
            table.refuse(["repeats"], "is for bytes", "remove it: the kernel tells the edges of keys")
        } else {
            input.repeats = table.optional("repeats", .boolean)
        }
        let decode = table.required("decode", .oneOf as SettingType<Decode>)
        check(decode, table)
        let controls = named(table)
        switch decode {
        case .value: input.rule = .value(values(table, controls))
        case .bits: input.rule = .bits(bits(table, controls))
        case .nonzero:
            let (byte, size) = place(table)
            if controls.count > 1 { table.problem("control", "\"nonzero\" knows one control", "remove the others") }
            input.rule = .nonzero(
                .init(byte: byte, size: size, control: controls.first?.name ?? .ptt, frame: frame(table, size)))
        case .text: input.rule = .text(text(table, controls))
        case .keys: input.rule = .keys(keys(table, controls))
        }
        let clicks = input.rule.clicks
        for control in controls { readGesture(control, isClick: clicks.contains(control.name)) }
        return input
    }

    /// Which rule fits what comes in.
    private func check(_ decode: Decode, _ table: SettingsTable) {
        guard table.contains("decode") else { return }
        switch transport {
        case .gatt where decode == .keys:
            table.problem("decode", "\"keys\" is for transport \"input\"", "characteristics have bytes: use another")
        case .input where decode != .keys:
            table.problem("decode", "an input device has keys", "write decode = \"keys\"")
        case .spp, .handsFree, .serial:
            guard decode != .text else { return }
            table.problem("decode", "a stream has words, and nothing that says where a value ends", "use \"text\"")
        case .gatt, .input: break
        }
    }

    // MARK: Controls

    private struct NamedControl {
        var name: Control
        var table: SettingsTable
    }

    private mutating func named(_ table: SettingsTable) -> [NamedControl] {
        let controls = table.tables("control", countMax: Self.controlsMax)
        if controls.isEmpty, !table.contains("control") {
            table.problem(nil, "no [[input.control]]", "add one with at least a name")
        }
        return controls.map { control in
            let name: Control = control.required("name", .oneOf)
            if gestures.updateValue(Gesture.none, forKey: name) != nil {
                control.problem("name", "two controls are called \"\(name.rawValue)\"", "give each its own name")
            }
            return NamedControl(name: name, table: control)
        }
    }

    private mutating func readGesture(_ control: NamedControl, isClick: Bool) {
        let table = control.table
        let isToggleOnly = table.value("toggle_only", .boolean, default: isClick)
        if isClick, !isToggleOnly {
            table.problem("toggle_only", "cannot be false: no release is told", "add released, or remove it")
        }
        if isToggleOnly { toggleOnly.insert(control.name) }
        let usual = Self.usualGesture(control.name, isToggleOnly: isToggleOnly)
        let gesture: Gesture = table.value("gesture", .oneOf, default: usual)
        gestures[control.name] = gesture
        guard isToggleOnly, gesture == .hold || gesture == .hybrid else { return }
        table.problem(
            "gesture", "\"\(gesture.rawValue)\" needs a release, and this control tells none",
            "write \"toggle\" or \"none\", or remove it")
    }

    /// The gesture of a control whose table does not say.
    static func usualGesture(_ control: Control, isToggleOnly: Bool) -> Gesture {
        if control.defaultAction != .transmit { return .none }
        return isToggleOnly ? .toggle : .hold
    }

    // MARK: Bytes

    private func place(_ table: SettingsTable) -> (byte: Int, size: Int) {
        let size = table.value("size", .integer(in: 1...AccessoryProfile.attributeMax), default: 1)
        let byte = table.value("byte", .integer(in: 0...AccessoryProfile.attributeMax - 1), default: 0)
        if byte >= size { table.problem("byte", "is behind the end of the value", "count from 0, below size") }
        return (min(byte, size - 1), size)
    }

    /// Which messages count.
    private func frame(_ table: SettingsTable, _ size: Int) -> DecodeRule.Frame? {
        let byte = table.value("frame_byte", .integer(in: 0...AccessoryProfile.attributeMax - 1), default: 0)
        let others = table.value("other_frames", .oneOrMore(of: .byte, countMax: Self.alternativesMax), default: [])
        guard let own = table.optional("frame", .byte) else {
            for key in ["frame_byte", "other_frames"] where table.contains(key) && !table.contains("frame") {
                table.problem(key, "says nothing without frame", "add frame, the byte of the messages that count")
            }
            return nil
        }
        if byte >= size { table.problem("frame_byte", "is behind the end of the value", "count from 0, below size") }
        if others.contains(own) { table.problem("other_frames", "has the same byte as frame", "remove it there") }
        return .init(byte: min(byte, size - 1), own: own, others: others)
    }

    private func values(_ table: SettingsTable, _ controls: [NamedControl]) -> DecodeRule.Values {
        let (byte, size) = place(table)
        var used: [[UInt8]] = []
        let values = controls.map { control in
            let pressed = control.table.required("pressed", .byteOrBytes)
            let released = control.table.optional("released", .byteOrBytes)
            for (key, code) in [("pressed", pressed), ("released", released ?? [])] where byte + code.count > size {
                control.table.problem(key, "is behind the end of the value", "set size, the length of the whole value")
            }
            // A value that was refused is told already.
            guard !pressed.isEmpty else {
                return DecodeRule.ValueControl(control: control.name, pressed: pressed, released: released)
            }
            if let released, pressed.starts(with: released) || released.starts(with: pressed) {
                control.table.problem("pressed", "is the same as released", "use two values")
            }
            if used.contains(where: { $0.starts(with: pressed) || pressed.starts(with: $0) }) {
                control.table.problem("pressed", "is already used", "give each control its own value")
            }
            used.append(pressed)
            return DecodeRule.ValueControl(control: control.name, pressed: pressed, released: released)
        }
        for (control, value) in zip(controls, values) {
            let others = values.filter { $0.control != value.control }
            guard let released = value.released,
                others.contains(where: {
                    !$0.pressed.isEmpty && ($0.pressed.starts(with: released) || released.starts(with: $0.pressed))
                })
            else { continue }
            control.table.problem(
                "released", "is another control's pressed", "remove it there: any known value releases the others")
        }
        let ignored = table.value("ignored_values", .oneOrMore(of: .byte, countMax: Self.alternativesMax), default: [])
        if values.contains(where: {
            [$0.pressed.first, $0.released?.first].contains { $0.map(ignored.contains) ?? false }
        }) {
            table.problem("ignored_values", "has a byte of a control", "remove it there")
        }
        return .init(byte: byte, size: size, controls: values, ignored: ignored, frame: frame(table, size))
    }

    private func bits(_ table: SettingsTable, _ controls: [NamedControl]) -> DecodeRule.Bits {
        let (byte, size) = place(table)
        let ignored = table.value("ignored_bits", .byte, default: 0)
        var used = ignored
        return .init(
            byte: byte, size: size, ignored: ignored,
            controls: controls.map { control in
                let bit = control.table.required("bit", .byte)
                if bit.nonzeroBitCount != 1 {
                    control.table.problem("bit", "is not a single bit", "write one of 0x01, 0x02, 0x04 … 0x80")
                } else if used & bit != 0 {
                    control.table.problem("bit", "is already used", "give each control its own bit")
                }
                used |= bit
                return .init(control: control.name, bit: bit)
            }, isActiveLow: table.value("active_low", .boolean, default: false), frame: frame(table, size))
    }

    // MARK: Words and keys

    private func text(_ table: SettingsTable, _ controls: [NamedControl]) -> DecodeRule.Text {
        let prefix = table.optional("battery_prefix", .token)
        var words: [(text: String, key: String, isShared: Bool, table: SettingsTable)] = []
        if let prefix { words.append((prefix, "battery_prefix", false, table)) }
        let rules = controls.map { control in
            let alternatives = SettingType<[String]>.oneOrMore(of: .token, countMax: Self.alternativesMax)
            let pressed = control.table.required("pressed", alternatives)
            let released = control.table.value("released", alternatives, default: [])
            words += pressed.map { ($0, "pressed", false, control.table) }
            words += released.map { ($0, "released", true, control.table) }
            return DecodeRule.TextControl(control: control.name, pressed: pressed, released: released)
        }
        // Words come without separators: one that begins another could not be told from it in time.
        for (index, word) in words.enumerated() {
            for other in words[..<index] {
                let (one, two) = (word.text.lowercased(), other.text.lowercased())
                if one == two, word.isShared, other.isShared, word.table !== other.table { continue }
                guard one.hasPrefix(two) || two.hasPrefix(one) else { continue }
                if one == two {
                    word.table.problem(
                        word.key, "\"\(word.text)\" is already used", "only released words may be shared")
                } else {
                    let (short, long) = one.utf8.count < two.utf8.count ? (word, other) : (other, word)
                    word.table.problem(
                        word.key, "\"\(short.text)\" begins \"\(long.text)\"", "no word may begin another")
                }
                break
            }
        }
        let ignored = table.optional("ignored_words", .array(of: .token, count: 0...Self.alternativesMax))
        for word in ignored ?? [] {
            let own = words.first { $0.text.lowercased().hasPrefix(word.lowercased()) }
            guard let own else { continue }
            table.problem("ignored_words", "\"\(word)\" begins \"\(own.text)\"", "remove it there")
        }
        return .init(controls: rules, batteryPrefix: prefix, ignored: ignored)
    }

    private func keys(_ table: SettingsTable, _ controls: [NamedControl]) -> DecodeRule.Keys {
        var used: Set<UInt16> = []
        return .init(
            controls: controls.map { control in
                let codes = control.table.required(
                    "keys", .array(of: .keyCode, count: 1...Self.alternativesMax))
                for code in codes where !used.insert(code).inserted {
                    control.table.problem(
                        "keys", "\(keyText(code)) is already used", "a key belongs to one control, once")
                }
                return .init(control: control.name, codes: codes)
            })
    }
}
