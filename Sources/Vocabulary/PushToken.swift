// The secret that lets a server push to one membership of one channel.

/// An ephemeral push token: random bytes of no fixed length, fresh for each join and void after the leave.
public struct PushToken: Hashable, Sendable {
    /// How many bytes a token may have. Programs must not rely on a length.
    public static let byteCounts = 32...100

    /// The bytes: a secret of the program, its server and the relay. Anyone who has them can wake this device.
    public let bytes: [UInt8]

    /// The token of these bytes; nil when there are too few or too many.
    public init?(_ bytes: some Collection<UInt8>) {
        guard Self.byteCounts.contains(bytes.count) else { return nil }
        self.bytes = Array(bytes)
    }

    /// The token with these hexadecimal digits, as in the path of `/3/device/<token>`; nil when it is none.
    public init?(hexadecimal: some StringProtocol) {
        let digits = hexadecimal.utf8
        guard digits.count.isMultiple(of: 2), Self.byteCounts.contains(digits.count / 2) else { return nil }
        var bytes: [UInt8] = []
        bytes.reserveCapacity(digits.count / 2)
        var high: UInt8?
        for digit in digits {
            guard let value = Character(Unicode.Scalar(digit)).hexDigitValue.map(UInt8.init) else { return nil }
            if let first = high {
                bytes.append(first << 4 | value)
                high = nil
            } else {
                high = value
            }
        }
        self.bytes = bytes
    }

    /// A new token, of random length and random bytes.
    public static func random(using generator: inout some RandomNumberGenerator) -> PushToken {
        let count = Int.random(in: byteCounts, using: &generator)
        return PushToken(unchecked: (0..<count).map { _ in UInt8.random(in: 0...255, using: &generator) })
    }

    private init(unchecked bytes: [UInt8]) { self.bytes = bytes }

    /// The bytes as lower-case hexadecimal digits.
    public var hexadecimal: String {
        bytes.map { String($0 >> 4, radix: 16) + String($0 & 15, radix: 16) }.joined()
    }
}

extension PushToken: CustomStringConvertible {
    /// The beginning, which is enough to tell tokens apart in a log.
    public var description: String { "\(hexadecimal.prefix(8))…" }
}
