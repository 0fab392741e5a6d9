// Bytes as text: base64url and hexadecimal.

/// Base64 with the URL alphabet, without padding (RFC 4648, section 5).
public enum Base64URL {
    /// The text of `bytes`.
    public static func encode(_ bytes: some Sequence<UInt8>) -> String {
        var text = ""
        var bits: UInt32 = 0
        var count = 0
        for byte in bytes {
            bits = bits << 8 | UInt32(byte)
            count += 8
            while count >= 6 {
                count -= 6
                text.unicodeScalars.append(character(UInt8(truncatingIfNeeded: bits >> count & 0x3F)))
            }
        }
        if count > 0 {
            text.unicodeScalars.append(character(UInt8(truncatingIfNeeded: bits << (6 - count) & 0x3F)))
        }
        return text
    }

    /// The bytes of `text`, nil when it is not base64url. Padding is accepted; bits left over must be 0, so that
    /// every byte string has one text.
    public static func decode(_ text: some StringProtocol) -> [UInt8]? {
        let all = Array(text.utf8)
        var characters = all[...]
        while characters.last == UInt8(ascii: "="), all.count - characters.count < 2 { characters.removeLast() }
        let isPadded = characters.count != all.count
        guard characters.count % 4 != 1, !isPadded || all.count % 4 == 0 else { return nil }
        var bytes: [UInt8] = []
        bytes.reserveCapacity(characters.count * 3 / 4)
        var bits: UInt32 = 0
        var count = 0
        for character in characters {
            guard let value = value(character) else { return nil }
            bits = bits << 6 | UInt32(value)
            count += 6
            if count >= 8 {
                count -= 8
                bytes.append(UInt8(truncatingIfNeeded: bits >> count))
            }
        }
        guard bits & ((1 << count) - 1) == 0 else { return nil }
        return bytes
    }

    private static func character(_ value: UInt8) -> Unicode.Scalar {
        switch value {
        case 0..<26: Unicode.Scalar(UInt8(ascii: "A") + value)
        case 26..<52: Unicode.Scalar(UInt8(ascii: "a") + value - 26)
        case 52..<62: Unicode.Scalar(UInt8(ascii: "0") + value - 52)
        case 62: "-"
        default: "_"
        }
    }

    private static func value(_ character: UInt8) -> UInt8? {
        switch character {
        case UInt8(ascii: "A")...UInt8(ascii: "Z"): character - UInt8(ascii: "A")
        case UInt8(ascii: "a")...UInt8(ascii: "z"): character - UInt8(ascii: "a") + 26
        case UInt8(ascii: "0")...UInt8(ascii: "9"): character - UInt8(ascii: "0") + 52
        case UInt8(ascii: "-"): 62
        case UInt8(ascii: "_"): 63
        default: nil
        }
    }
}

/// Two lower-case hexadecimal digits a byte.
public enum Hexadecimal {
    private static let digits = Array("0123456789abcdef".unicodeScalars)

    /// The text of `bytes`.
    public static func encode(_ bytes: some Sequence<UInt8>) -> String {
        var text = ""
        for byte in bytes {
            text.unicodeScalars.append(digits[Int(byte >> 4)])
            text.unicodeScalars.append(digits[Int(byte & 0xF)])
        }
        return text
    }

    /// The bytes of `text` (either case), nil when it is not pairs of hexadecimal digits.
    public static func decode(_ text: some StringProtocol) -> [UInt8]? {
        guard text.utf8.count % 2 == 0 else { return nil }
        var bytes: [UInt8] = []
        bytes.reserveCapacity(text.utf8.count / 2)
        var high: UInt8?
        for character in text.utf8 {
            let value: UInt8
            switch character {
            case UInt8(ascii: "0")...UInt8(ascii: "9"): value = character - UInt8(ascii: "0")
            case UInt8(ascii: "a")...UInt8(ascii: "f"): value = character - UInt8(ascii: "a") + 10
            case UInt8(ascii: "A")...UInt8(ascii: "F"): value = character - UInt8(ascii: "A") + 10
            default: return nil
            }
            if let first = high {
                bytes.append(first << 4 | value)
                high = nil
            } else {
                high = value
            }
        }
        return bytes
    }
}
