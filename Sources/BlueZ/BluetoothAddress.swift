// A Bluetooth device address.

/// Six bytes, most significant first.
public struct BluetoothAddress: Hashable, Sendable, Comparable, CustomStringConvertible {
    /// The address as a number of 48 bits.
    public let rawValue: UInt64

    /// Parses `AA:BB:CC:DD:EE:FF`; upper and lower case. Nil for anything else.
    public init?(_ text: some StringProtocol) { self.init(text, separator: ":") }

    init?(_ text: some StringProtocol, separator: Character) {
        let parts = text.split(separator: separator, omittingEmptySubsequences: false)
        guard parts.count == 6 else { return nil }
        var value: UInt64 = 0
        for part in parts {
            guard part.utf8.count == 2, part.utf8.allSatisfy({ $0 != UInt8(ascii: "+") && $0 != UInt8(ascii: "-") }),
                let byte = UInt8(part, radix: 16)
            else { return nil }
            value = value << 8 | UInt64(byte)
        }
        rawValue = value
    }

    /// Six bytes, most significant first. Nil for another number of them.
    init?(bytes: [UInt8]) {
        guard bytes.count == 6 else { return nil }
        rawValue = bytes.reduce(0) { $0 << 8 | UInt64($1) }
    }

    /// The six bytes, most significant first.
    public var bytes: [UInt8] { (0..<6).map { UInt8(truncatingIfNeeded: rawValue >> UInt64(40 - 8 * $0)) } }

    /// `AA:BB:CC:DD:EE:FF`.
    public var description: String { text(separator: ":") }

    func text(separator: String) -> String {
        bytes.map { ($0 < 16 ? "0" : "") + String($0, radix: 16, uppercase: true) }.joined(separator: separator)
    }

    /// Numeric order.
    public static func < (lhs: Self, rhs: Self) -> Bool { lhs.rawValue < rhs.rawValue }
}

/// What kind of address a device has (`Device1.AddressType`).
public enum BluetoothAddressType: String, Hashable, Sendable {
    /// Registered with the IEEE; also every classic device's.
    case `public`
    /// Random: static, or private and then changing.
    case random
}
