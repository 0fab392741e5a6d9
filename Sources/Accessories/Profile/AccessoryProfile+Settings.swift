// Reading a profile file.
import BlueZ
import Settings

extension AccessoryProfile {
    /// Reads a profile file.
    ///
    /// - Parameter file: The name to use in messages.
    /// - Throws: `SettingsError` with everything that is wrong in it.
    public init(bytes: [UInt8], file: String) throws(SettingsError) {
        self = try SettingsFile.read(bytes: bytes, file: file) { Self(settings: $0) }
    }

    private init(settings root: SettingsTable) {
        id = root.required("id", .profileID)
        title = root.required("title", .string(lengthMax: 128))
        confidence = root.required("confidence", .oneOf)
        sources = root.required("sources", .array(of: .string(), count: 1...16))
        bonding = root.required("bonding", .oneOf)
        battery = root.value("battery", .oneOf, default: .none)
        let match = root.table("match")
        names = match?.value("names", .array(of: .namePattern), default: []) ?? []
        serviceIdentifies = match?.value("service_identifies", .boolean, default: false) ?? false
        if match == nil {
            root.problem(nil, "[match] is missing", "say how the device is recognised: names, service_identifies")
        } else if names.isEmpty, !serviceIdentifies {
            match?.problem(nil, "nothing would ever match", "add names = [\"…*\"], or service_identifies = true")
        }
        let timingTable = root.table("timing")
        let window = SettingType<Duration>.duration(in: .zero ... .seconds(2))
        timing = GestureTiming(
            debounce: timingTable?.value("debounce", window, default: .zero) ?? .zero,
            minimumHold: timingTable?.value("minimum_hold", window, default: .zero) ?? .zero)
        gestures = [:]
        inputs = []
        let tables = root.tables("input", countMax: 8)
        if tables.isEmpty { root.problem(nil, "no [[input]]", "add one with service, characteristic, decode") }
        for (number, table) in tables.enumerated() {
            let input = Input(settings: table, number: number, gestures: &gestures)
            if inputs.contains(where: { $0.name == input.name }) {
                table.problem("name", "two inputs are called \"\(input.name)\"", "give each its own name")
            }
            if inputs.contains(where: { $0.characteristic == input.characteristic && $0.service == input.service }) {
                table.problem("characteristic", "is used by another input", "describe all its controls in one input")
            }
            inputs.append(input)
        }
        if !inputs.isEmpty, inputs.allSatisfy(\.isOptional) {
            root.problem("input", "every input is optional", "one has to be there: remove its 'optional'")
        }
        let all = inputs.flatMap(\.rule.controls)
        for control in Set(all) where all.count(where: { $0 == control }) > 1 {
            root.problem("input", "two controls are called \"\(control.rawValue)\"", "give each its own name")
        }
        let readsBatteryText = inputs.contains {
            if case .text(let rule) = $0.rule { rule.batteryPrefix != nil } else { false }
        }
        if (battery == .text) != readsBatteryText {
            root.problem(
                "battery", "\"text\" and an input's battery_prefix go together",
                "use both, or neither")
        }
    }
}

extension AccessoryProfile.Input {
    private enum Decode: String, CaseIterable { case value, bits, nonzero, text }

    fileprivate init(settings table: SettingsTable, number: Int, gestures: inout [Control: Gesture]) {
        name = table.value("name", .string(lengthMax: 32), default: "\(number + 1)")
        service = table.required("service", .gattUUID)
        characteristic = table.required("characteristic", .gattUUID)
        isReadable = table.value("readable", .boolean, default: false)
        isOptional = table.value("optional", .boolean, default: false)
        let decode = table.required("decode", .oneOf as SettingType<Decode>)
        let controls = table.tables("control", countMax: 16)
        if controls.isEmpty { table.problem(nil, "no [[input.control]]", "add one with at least a name") }
        let named = controls.map { control in
            let name: Control = control.required("name", .oneOf)
            gestures[name] = control.value("gesture", .oneOf, default: .hold)
            return (name, control)
        }
        switch decode {
        case .value:
            let (byte, size) = Self.place(table)
            rule = .value(
                .init(
                    byte: byte, size: size,
                    controls: named.map { name, control in
                        let pressed = control.required("pressed", .byte)
                        let released = control.value("released", .byte, default: 0)
                        if pressed == released {
                            control.problem("pressed", "is the same as released", "use two values")
                        }
                        return .init(control: name, pressed: pressed, released: released)
                    }))
        case .bits:
            let (byte, size) = Self.place(table)
            let ignored = table.value("ignored_bits", .byte, default: 0)
            var used = ignored
            rule = .bits(
                .init(
                    byte: byte, size: size, ignored: ignored,
                    controls: named.map { name, control in
                        let bit = control.required("bit", .byte)
                        if bit.nonzeroBitCount != 1 {
                            control.problem("bit", "is not a single bit", "write one of 0x01, 0x02, 0x04 … 0x80")
                        } else if used & bit != 0 {
                            control.problem("bit", "is already used", "give each control its own bit")
                        }
                        used |= bit
                        return .init(control: name, bit: bit)
                    }))
        case .nonzero:
            let (byte, size) = Self.place(table)
            if named.count > 1 { table.problem("control", "\"nonzero\" knows one control", "remove the others") }
            rule = .nonzero(.init(byte: byte, size: size, control: named.first?.0 ?? .ptt))
        case .text:
            let battery = table.optional("battery_prefix", .token)
            let words = named.map { name, control in
                DecodeRule.TextControl(
                    control: name, pressed: control.required("pressed", .token),
                    released: control.required("released", .token))
            }
            rule = .text(.init(controls: words, batteryPrefix: battery))
            Self.checkTokens(words.flatMap { [$0.pressed, $0.released] } + (battery.map { [$0] } ?? []), table)
        }
    }

    private static func place(_ table: SettingsTable) -> (byte: Int, size: Int) {
        // 512 bytes are the longest attribute (Bluetooth Core 5.4, Vol 3, Part F, 3.2.9).
        let size = table.value("size", .integer(in: 1...512), default: 1)
        let byte = table.value("byte", .integer(in: 0...511), default: 0)
        if byte >= size { table.problem("byte", "is behind the end of the value", "count from 0, below size") }
        return (min(byte, size - 1), size)
    }

    /// Words come without separators: one that begins another could not be told from it in time.
    private static func checkTokens(_ tokens: [String], _ table: SettingsTable) {
        let folded = tokens.map { $0.lowercased() }
        for (index, token) in folded.enumerated() {
            for (otherIndex, other) in folded.enumerated() where otherIndex != index && other.hasPrefix(token) {
                table.problem(
                    "control", "\"\(tokens[index])\" begins \"\(tokens[otherIndex])\"", "no word may begin another")
                return
            }
        }
    }
}

extension SettingType where Value == String {
    /// The id of a profile.
    static var profileID: Self {
        .string(lengthMax: 64).map(placeholder: "") { text throws(SettingRefusal) in
            let allowed = text.utf8.allSatisfy { byte in
                (UInt8(ascii: "a")...UInt8(ascii: "z")).contains(byte)
                    || (UInt8(ascii: "0")...UInt8(ascii: "9")).contains(byte) || byte == UInt8(ascii: "-")
            }
            guard allowed else {
                throw SettingRefusal("\"\(text)\" is not an id", "use small letters, digits and '-'")
            }
            return text
        }
    }

    /// A word of a text protocol.
    static var token: Self {
        .string(lengthMax: 64).map(placeholder: "x") { text throws(SettingRefusal) in
            guard text.utf8.allSatisfy({ (0x20...0x7E).contains($0) }) else {
                throw SettingRefusal("\"\(text)\" is not printable ASCII", "use plain letters, digits and signs")
            }
            return text
        }
    }
}

extension SettingType where Value == UInt8 {
    /// A byte, best written as 0x00 … 0xFF.
    static var byte: Self {
        SettingType<Int>.integer(in: 0...255).map(placeholder: 0) { value throws(SettingRefusal) in
            UInt8(truncatingIfNeeded: value)
        }
    }
}

extension SettingType where Value == NamePattern {
    /// A name with `*` for any characters.
    public static var namePattern: Self {
        SettingType<String>.string(lengthMax: 248).map(placeholder: NamePattern("")) { text throws(SettingRefusal) in
            guard text.contains(where: { $0 != "*" }) else {
                throw SettingRefusal("\"\(text)\" matches every device", "write a part of the name")
            }
            return NamePattern(text)
        }
    }
}

extension SettingType where Value == BluetoothUUID {
    /// The UUID of a GATT service or characteristic, in full or as the 16 or 32 bits that the Bluetooth SIG gives out.
    static var gattUUID: Self {
        SettingType<String>.string(lengthMax: 36).map(placeholder: "0000") {
            text throws(SettingRefusal) in
            guard let uuid = BluetoothUUID(text) else {
                throw SettingRefusal("\"\(text)\" is not a UUID", "write 8-4-4-4-12 hexadecimal digits, or 4 for ffe0")
            }
            return uuid
        }
    }
}
