// Text and secrets of limited size, as messages carry them. Every value is valid.
import Cryptography

/// A name that people read: of a member or of a channel.
public struct DisplayName: Hashable, Sendable, CustomStringConvertible {
    /// The most UTF-8 bytes of a name.
    public static let byteCountMaximum = 128
    /// The name: 1 to 128 bytes of UTF-8 without control characters.
    public let text: String

    /// The name, nil when it is empty, longer than 128 bytes or has control characters.
    public init?(_ text: String) {
        guard !text.isEmpty, text.utf8.count <= Self.byteCountMaximum, !text.hasControlCharacters else { return nil }
        self.text = text
    }

    /// The name with control characters left out and cut at 128 bytes; `fallback` when nothing remains.
    public init(cleaning text: String, fallback: StaticString) {
        let cleaned = text.cleaned(limit: Self.byteCountMaximum)
        self.text = cleaned.isEmpty ? fallback.description.cleaned(limit: Self.byteCountMaximum) : cleaned
    }

    /// The name.
    public var description: String { text }
}

/// The secret in an invitation that opens a channel.
public struct InvitationToken: Hashable, Sendable, CustomStringConvertible {
    /// How many bytes a token may have.
    public static let byteCounts = 16...64
    /// How many bytes a new token has.
    public static let byteCountDefault = 16
    /// The secret bytes.
    public let bytes: [UInt8]

    /// The token of those bytes, nil unless they are 16 to 64.
    public init?(_ bytes: some Collection<UInt8>) {
        guard Self.byteCounts.contains(bytes.count) else { return nil }
        self.bytes = [UInt8](bytes)
    }

    /// A fresh random token of 16 bytes.
    public init() {
        bytes = SecureRandom.bytes(Self.byteCountDefault)
    }

    /// Compares in a time that does not depend on where the tokens differ.
    public static func == (lhs: Self, rhs: Self) -> Bool { constantTimeEqual(lhs.bytes, rhs.bytes) }

    /// Does not show the secret.
    public var description: String { "InvitationToken(\(bytes.count) bytes)" }
}

/// The key of the trailers of one connection's packets outside QUIC, those down or those up: 16 bytes, made by the relay.
public struct TrailerKey: Hashable, Sendable, CustomStringConvertible {
    /// The number of bytes.
    public static let byteCount = 16
    /// The secret bytes.
    public let bytes: [UInt8]

    /// The key of those bytes, nil unless they are 16.
    public init?(_ bytes: some Collection<UInt8>) {
        guard bytes.count == Self.byteCount else { return nil }
        self.bytes = [UInt8](bytes)
    }

    /// A fresh random key.
    public init() {
        bytes = SecureRandom.bytes(Self.byteCount)
    }

    /// Does not show the secret.
    public var description: String { "TrailerKey" }
}

/// The key that media are sealed with during one epoch (RFC 9605: base_key).
public struct MediaKey: Hashable, Sendable, CustomStringConvertible {
    /// How many bytes a base key may have.
    public static let byteCounts = 16...64
    /// How many bytes a new base key has.
    public static let byteCountDefault = 32
    /// The upper 16 bits of every key id made from this key.
    public let epoch: UInt16
    /// The secret bytes.
    public let baseKey: [UInt8]

    /// The key of those bytes in that epoch, nil unless they are 16 to 64.
    public init?(epoch: UInt16, baseKey: some Collection<UInt8>) {
        guard Self.byteCounts.contains(baseKey.count) else { return nil }
        self.epoch = epoch
        self.baseKey = [UInt8](baseKey)
    }

    /// A fresh random key of 32 bytes for that epoch.
    public init(epoch: UInt16) {
        self.epoch = epoch
        baseKey = SecureRandom.bytes(Self.byteCountDefault)
    }

    /// The epoch, without the secret.
    public var description: String { "MediaKey(epoch \(epoch))" }
}

extension String {
    /// Whether any scalar is a control character (C0, DEL, C1) or a line or paragraph separator.
    var hasControlCharacters: Bool { unicodeScalars.contains(where: \.isControl) }

    /// The text without control characters, cut at a scalar so that it has at most `limit` UTF-8 bytes.
    func cleaned(limit: Int) -> String {
        var result = ""
        var size = 0
        for scalar in unicodeScalars where !scalar.isControl {
            size += UTF8.width(scalar)
            guard size <= limit else { break }
            result.unicodeScalars.append(scalar)
        }
        return result
    }
}

extension Unicode.Scalar {
    fileprivate var isControl: Bool {
        value < 0x20 || (0x7F...0x9F).contains(value) || value == 0x2028 || value == 0x2029
    }
}
