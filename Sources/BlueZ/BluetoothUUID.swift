// A UUID of a service or characteristic, in its 128-bit form.

/// A 128-bit UUID. Those of 16 and 32 bits are taken as on the Bluetooth base UUID.
public struct BluetoothUUID: Hashable, Sendable, Comparable, CustomStringConvertible, ExpressibleByStringLiteral {
    /// The canonical text, in lower case.
    public let rawValue: String

    static let baseSuffix = "-0000-1000-8000-00805f9b34fb"

    /// Parses 4, 8 or 36 characters (`180f`, `0000180f`, `0000180f-0000-1000-8000-00805f9b34fb`), in any case.
    public init?(_ text: some StringProtocol) {
        let lower = text.lowercased()
        func isHex(_ part: some StringProtocol, _ count: Int) -> Bool {
            part.utf8.count == count
                && part.utf8.allSatisfy { (0x30...0x39).contains($0) || (0x61...0x66).contains($0) }
        }
        switch lower.utf8.count {
        case 4 where isHex(lower, 4): rawValue = "0000" + lower + Self.baseSuffix
        case 8 where isHex(lower, 8): rawValue = lower + Self.baseSuffix
        case 36:
            let parts = lower.split(separator: "-", omittingEmptySubsequences: false)
            guard parts.count == 5, zip(parts, [8, 4, 4, 4, 12]).allSatisfy({ isHex($0, $1) }) else { return nil }
            rawValue = lower
        default: return nil
        }
    }

    /// A UUID written in the source; traps when it is wrong there.
    public init(stringLiteral value: String) {
        guard let uuid = BluetoothUUID(value) else { preconditionFailure("UUID literal '\(value)'") }
        self = uuid
    }

    /// The canonical text.
    public var description: String { rawValue }
    /// The order of the texts.
    public static func < (lhs: Self, rhs: Self) -> Bool { lhs.rawValue < rhs.rawValue }
}
