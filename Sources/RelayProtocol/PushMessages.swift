// Topics and names of pushes, the messages about them, and their way to and from protobuf.
import Cryptography
import FoundationEssentials
import SwiftProtobuf
import Vocabulary

extension ClientMessage {
    /// Asks for the pushes to a token.
    public struct PushRegister: Sendable, Hashable {
        /// The client's own random bytes.
        public var token: PushToken
        /// What the pushes are for.
        public var topic: PushTopic

        /// A registration of `token`.
        public init(token: PushToken, topic: PushTopic) {
            self.token = token
            self.topic = topic
        }
    }

    /// Answers a push.
    public struct PushReceipt: Sendable, Hashable {
        /// The push.
        public var id: PushID
        /// What became of it.
        public var outcome: PushOutcome

        /// The answer to the push `id`.
        public init(id: PushID, outcome: PushOutcome) {
            self.id = id
            self.outcome = outcome
        }
    }
}

extension ServerMessage {
    /// The answer to a push-only join that succeeded.
    public struct PushWelcome: Sendable, Hashable {
        /// The channel's name.
        public var channelName: DisplayName
        /// The client's own identifier.
        public var memberID: MemberID

        /// An answer.
        public init(channelName: DisplayName, memberID: MemberID) {
            self.channelName = channelName
            self.memberID = memberID
        }
    }

    /// The answer to a registration that failed.
    public struct PushRefused: Sendable, Hashable {
        /// The token.
        public var token: PushToken
        /// Why.
        public var cause: PushRefusal
        /// For people.
        public var phrase: String

        /// A refusal for `cause`.
        public init(token: PushToken, cause: PushRefusal, phrase: String = "") {
            self.token = token
            self.cause = cause
            self.phrase = phrase
        }
    }

    /// A push for a registered token.
    public struct Push: Sendable, Hashable {
        /// What priorities there are; 10 is for at once.
        public static let priorities: ClosedRange<UInt8> = 1...10
        /// Names it in the receipt.
        public var id: PushID
        /// The token it was sent to.
        public var token: PushToken
        /// A JSON object in UTF-8, 1 to 4096 bytes.
        public var payload: [UInt8]
        /// 1 to 10.
        public var priority: UInt8
        /// For how long it is worth anything, from its arrival; zero: only right now.
        public var lifetime: Duration

        /// A push. A payload or priority out of its range is a programming error.
        public init(id: PushID, token: PushToken, payload: [UInt8], priority: UInt8, lifetime: Duration) {
            precondition(Self.isValid(payload) && Self.priorities.contains(priority))
            self.id = id
            self.token = token
            self.payload = payload
            self.priority = priority
            self.lifetime = lifetime
        }

        static func isValid(_ payload: some Collection<UInt8>) -> Bool {
            (1...RelayProtocolLimits.pushPayloadByteCountMaximum).contains(payload.count)
        }
    }
}

// MARK: - Protobuf

/// A push token from the wire.
func pushToken(_ bytes: some Collection<UInt8>) throws(RelayMessageError) -> PushToken {
    try valid(PushToken(bytes), "token", "has \(bytes.count) bytes, not \(PushToken.byteCounts)")
}

extension ClientMessage.PushRegister {
    init(_ wire: Pttd_Relay_V1_PushRegister) throws(RelayMessageError) {
        self.init(
            token: try pushToken(wire.token),
            topic: try valid(
                PushTopic(wire.topic), "topic",
                "is not 1 to \(PushTopic.byteCountMaximum) printing ASCII characters"))
    }

    var wire: Pttd_Relay_V1_PushRegister {
        var wire = Pttd_Relay_V1_PushRegister()
        wire.token = Data(token.bytes)
        wire.topic = topic.text
        return wire
    }
}

extension ServerMessage.PushWelcome {
    init(_ wire: Pttd_Relay_V1_PushWelcome) throws(RelayMessageError) {
        self.init(
            channelName: try displayName(wire.channelName, "channel_name"),
            memberID: try RelayProtocol.memberID(wire.memberID))
    }

    var wire: Pttd_Relay_V1_PushWelcome {
        var wire = Pttd_Relay_V1_PushWelcome()
        wire.channelName = channelName.text
        wire.memberID = Data(memberID.bytes)
        return wire
    }
}

extension ServerMessage.Push {
    init(_ wire: Pttd_Relay_V1_Push) throws(RelayMessageError) {
        let limit = RelayProtocolLimits.pushPayloadByteCountMaximum
        guard Self.isValid(wire.payload) else {
            throw .invalidField("payload", reason: "has \(wire.payload.count) bytes, not 1 to \(limit)")
        }
        let priority = try valid(
            UInt8(exactly: wire.priority).flatMap { Self.priorities.contains($0) ? $0 : nil }, "priority",
            "is not \(Self.priorities)")
        self.init(
            id: PushID(rawValue: wire.pushID), token: try pushToken(wire.token), payload: [UInt8](wire.payload),
            priority: priority, lifetime: .milliseconds(wire.lifetimeMs))
    }

    var wire: Pttd_Relay_V1_Push {
        var wire = Pttd_Relay_V1_Push()
        wire.pushID = id.rawValue
        wire.token = Data(token.bytes)
        wire.payload = Data(payload)
        wire.priority = UInt32(priority)
        wire.lifetimeMs = lifetime.wireMilliseconds
        return wire
    }
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
