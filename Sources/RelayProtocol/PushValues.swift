// Topics and names of pushes, as the protocol and the HTTP endpoint use them. Every value is valid.
import Cryptography

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
