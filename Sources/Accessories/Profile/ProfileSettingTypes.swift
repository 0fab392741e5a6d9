// The kinds of values in profile files.
import BlueZ
import LinuxInput
import Settings

extension SettingType where Value == String {
    /// What a text stands for.
    ///
    /// - Parameters:
    ///   - message: What a text is for which `parse` is nil: `"TEXT" is …`.
    ///   - advice: How to do it right.
    func parsed<Other>(
        placeholder: Other, _ message: String, _ advice: String, _ parse: @escaping (String) -> Other?
    ) -> SettingType<Other> {
        map(placeholder: placeholder) { text throws(SettingRefusal) in
            guard let value = parse(text) else { throw SettingRefusal("\"\(text)\" \(message)", advice) }
            return value
        }
    }

    /// The id of a profile.
    package static var profileID: Self {
        .string(lengthMax: 64).parsed(placeholder: "", "is not an id", "use small letters, digits and '-'") { text in
            let isID = text.unicodeScalars.allSatisfy {
                ("a"..."z").contains($0) || ("0"..."9").contains($0) || $0 == "-"
            }
            return isID ? text : nil
        }
    }

    /// A word of a text protocol.
    static var token: Self {
        .string(lengthMax: 64).parsed(
            placeholder: "x", "is not printable ASCII", "use plain letters, digits and signs"
        ) { text in text.utf8.allSatisfy { (0x20...0x7E).contains($0) } ? text : nil }
    }

    /// A Bluetooth device address, in capitals.
    package static var bluetoothAddress: Self {
        .string(lengthMax: 32).parsed(
            placeholder: "00:00:00:00:00:00", "is not a Bluetooth address", "write \"00:11:22:33:44:55\""
        ) { BluetoothAddress($0)?.description }
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

extension SettingType where Value == [UInt8] {
    /// Bytes in [ ], as many as an attribute holds.
    static var bytes: Self { .array(of: .byte, count: 1...AccessoryProfile.attributeMax) }

    /// A byte, or several in [ ].
    static var byteOrBytes: Self { .oneOrMore(of: .byte, countMax: 16) }
}

extension SettingType where Value == NamePattern {
    /// A name with `*` for any characters.
    public static var namePattern: Self {
        SettingType<String>.string(lengthMax: 248).parsed(
            placeholder: NamePattern(""), "matches every device", "write a part of the name"
        ) { text in text.contains { $0 != "*" } ? NamePattern(text) : nil }
    }
}

extension SettingType where Value == BluetoothUUID {
    /// The UUID of a GATT service or characteristic, in full or as the 16 or 32 bits that the Bluetooth SIG gives out.
    static var gattUUID: Self {
        SettingType<String>.string(lengthMax: 36).parsed(
            placeholder: "0000", "is not a UUID", "write 8-4-4-4-12 hexadecimal digits, or 4 for ffe0"
        ) { BluetoothUUID($0) }
    }
}

extension SettingType where Value == InputDeviceID {
    /// Vendor and product.
    static var inputDeviceID: Self {
        SettingType<String>.string(lengthMax: 16).parsed(
            placeholder: InputDeviceID(vendor: 0, product: 0), "is no device",
            "write vendor and product as lsusb does: \"046d:0a44\""
        ) { InputDeviceID($0) }
    }
}

extension SettingType where Value == UInt16 {
    /// A key by its name, or by its code as four hexadecimal digits where it has no name.
    static var keyCode: Self {
        SettingType<String>.string(lengthMax: 64).map(placeholder: 0) { text throws(SettingRefusal) in
            if let code = InputKey.code(named: text) { return code }
            if text.hasPrefix("0x"), let code = UInt16(text.dropFirst(2), radix: 16), (1...0x2FF).contains(code) {
                return code
            }
            throw SettingRefusal(
                "\"\(text)\" is no key",
                "\(suggestion(for: text, among: InputKey.names))write names as evtest(1) shows them, \"KEY_F13\" or "
                    + "\"BTN_TRIGGER\"")
        }
    }
}

/// Begins an advice with the known word that a wrong one is nearest to, if there is any.
func suggestion(for word: String, among known: [String]) -> String {
    nearestName(to: word, among: known).map { "did you mean \"\($0)\"? " } ?? ""
}

/// A key code as profile files name it.
func keyText(_ code: UInt16) -> String { InputKey.name(of: code) ?? "0x\(hexadecimal(code, digits: 3))" }
