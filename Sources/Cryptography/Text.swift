// Bytes as text: base64url and hexadecimal.

/// The digits of a notation, and what each of them stands for.
private struct Digits: Sendable {
    let all: [UInt8]
    /// By the digit; nil: it is none.
    private(set) var values = [UInt8?](repeating: nil, count: 256)

    /// - Parameter others: Digits that are read in the place of those of `text`.
    init(_ text: String, or others: String = "") {
        all = Array(text.utf8)
        for digits in [all, Array(others.utf8)] {
            for (value, digit) in digits.enumerated() { values[Int(digit)] = UInt8(value) }
        }
    }
}

/// Base64 with the URL alphabet, without padding (RFC 4648, section 5).
public enum Base64URL {
    private static let digits = Digits("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_")

    /// The text of `bytes`.
    public static func encode(_ bytes: some Sequence<UInt8>) -> String {
        var text: [UInt8] = []
        var bits: UInt32 = 0
        var count = 0
        for byte in bytes {
            bits = bits << 8 | UInt32(byte)
            count += 8
            while count >= 6 {
                count -= 6
                text.append(digits.all[Int(bits >> count & 0x3F)])
            }
        }
        if count > 0 { text.append(digits.all[Int(bits << (6 - count) & 0x3F)]) }
        return String(decoding: text, as: UTF8.self)
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
            guard let value = digits.values[Int(character)] else { return nil }
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
}

/// Two lower-case hexadecimal digits a byte.
public enum Hexadecimal {
    private static let digits = Digits("0123456789abcdef", or: "0123456789ABCDEF")

    /// The text of `bytes`.
    public static func encode(_ bytes: some Sequence<UInt8>) -> String {
        var text: [UInt8] = []
        for byte in bytes {
            text.append(digits.all[Int(byte >> 4)])
            text.append(digits.all[Int(byte & 0xF)])
        }
        return String(decoding: text, as: UTF8.self)
    }

    /// The bytes of `text` (either case), nil when it is not pairs of hexadecimal digits.
    public static func decode(_ text: some StringProtocol) -> [UInt8]? {
        guard text.utf8.count % 2 == 0 else { return nil }
        var bytes: [UInt8] = []
        bytes.reserveCapacity(text.utf8.count / 2)
        var characters = text.utf8.makeIterator()
        while let first = characters.next(), let second = characters.next() {
            guard let high = digits.values[Int(first)], let low = digits.values[Int(second)] else { return nil }
            bytes.append(high << 4 | low)
        }
        return bytes
    }
}
