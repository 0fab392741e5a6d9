// The kinds of values in profile files.
import BlueZ
import LinuxInput
import Settings

extension SettingType where Value == String {
    /// The id of a profile.
    package static var profileID: Self {
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

extension SettingType where Value == [UInt8] {
    /// Bytes in [ ], as many as an attribute holds.
    static var bytes: Self { .array(of: .byte, count: 1...AccessoryProfile.attributeMax) }

    /// A byte, or several in [ ].
    static var byteOrBytes: Self { .oneOrMore(of: .byte, countMax: 16) }
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

extension SettingType where Value == InputDeviceID {
    /// Vendor and product.
    static var inputDeviceID: Self {
        SettingType<String>.string(lengthMax: 16).map(placeholder: InputDeviceID(vendor: 0, product: 0)) {
            text throws(SettingRefusal) in
            guard let id = InputDeviceID(text) else {
                throw SettingRefusal(
                    "\"\(text)\" is no device", "write vendor and product as lsusb does: \"046d:0a44\"")
            }
            return id
        }
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
