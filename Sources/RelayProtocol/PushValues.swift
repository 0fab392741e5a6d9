// Tokens and topics of pushes, as the protocol and the HTTP endpoint use them. Every value is valid.
import Cryptography

/// The address of one channel of one application on one machine, made there and dead after the channel is left.
public struct PushToken: Hashable, Sendable, CustomStringConvertible {
    /// How many bytes a token may have.
    public static let byteCounts = 32...100
    /// The bytes, which nobody can guess: a secret of the program, its server and the relay.
    public let bytes: [UInt8]

    /// The token of those bytes, nil unless they are 32 to 100.
    public init?(_ bytes: some Collection<UInt8>) {
        guard Self.byteCounts.contains(bytes.count) else { return nil }
        self.bytes = [UInt8](bytes)
    }

    /// The token of 64 to 200 hexadecimal digits of either case, as it stands in a URL; nil for anything else.
    public init?(hexadecimal text: some StringProtocol) {
        guard text.utf8.count <= 2 * Self.byteCounts.upperBound, let bytes = Hexadecimal.decode(text) else {
            return nil
        }
        self.init(bytes)
    }

    /// The token in hexadecimal digits, as it stands in a URL.
    public var hexadecimal: String { Hexadecimal.encode(bytes) }

    /// The beginning, which is enough to tell tokens apart in a log.
    public var description: String { Hexadecimal.encode(Array(bytes.prefix(4))) + "…" }
}

/// What pushes are for: an application, and the kind of push.
public struct PushTopic: Hashable, Sendable, CustomStringConvertible {
    /// The most bytes of a topic.
    public static let byteCountMaximum = 255
    /// How the topics of push to talk end, after the application's identifier.
    public static let suffix = ".voip-ptt"
    /// The topic: 1 to 255 printing ASCII characters.
    public let text: String

    /// The topic, nil unless it is 1 to 255 printing ASCII characters without spaces.
    public init?(_ text: some StringProtocol) {
        guard (1...Self.byteCountMaximum).contains(text.utf8.count),
            text.utf8.allSatisfy({ (0x21...0x7E).contains($0) })
        else { return nil }
        self.text = String(text)
    }

    /// The topic of the application `identifier`, nil when that cannot be part of a topic.
    public init?(application identifier: some StringProtocol) {
        guard !identifier.isEmpty else { return nil }
        self.init(identifier + Self.suffix)
    }

    /// The identifier of the application, nil when the topic is not one of push to talk.
    public var application: String? {
        guard text.hasSuffix(Self.suffix), text.utf8.count > Self.suffix.utf8.count else { return nil }
        return String(text.dropLast(Self.suffix.count))
    }

    /// The topic.
    public var description: String { text }
}

/// One push on its way to one client, named by the relay at random.
public struct PushID: RawRepresentable, Hashable, Sendable, CustomStringConvertible {
    /// The number on the wire.
    public var rawValue: UInt64
    /// The push of that number.
    public init(rawValue: UInt64) { self.rawValue = rawValue }
    /// Sixteen hexadecimal digits.
    public var description: String { Hexadecimal.encode(rawValue.bigEndianBytes) }
}
