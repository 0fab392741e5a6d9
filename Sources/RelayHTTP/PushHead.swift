// The head of a request for a push, checked in a fixed order, and its body. Pure.
import Cryptography
import FoundationEssentials
import RelayProtocol
import Vocabulary

/// Who may push what: a client's certificate, by its key, and the topics it is good for.
public struct PushClient: Sendable, Hashable {
    /// The SHA-256 of the public key in the client's certificate.
    public let pin: PublicKeyPin
    /// The topics, at least one.
    public let topics: [PushTopic]

    /// A client; nil without topics.
    public init?(pin: PublicKeyPin, topics: [PushTopic]) {
        guard !topics.isEmpty else { return nil }
        self.pin = pin
        self.topics = topics
    }
}

/// The sender of a request, authenticated by TLS.
public enum PushSender: Sendable, Hashable {
    /// Nobody in particular: without a certificate.
    case anonymous
    /// A certificate that the configuration does not name.
    case stranger
    /// A certificate that it does.
    case client(PushClient)
}

/// What the head of a request for a push says.
public struct PushHead: Sendable, Equatable {
    /// The push type that is taken.
    public static let pushType = "pushtotalk"
    /// The longest `apns-collapse-id`, in bytes.
    public static let collapseIDByteCountMaximum = 64

    /// Whom it is for.
    public let token: PushToken
    /// What it is for.
    public let topic: PushTopic
    /// 10, 5 or 1.
    public let priority: UInt8
    /// For how long it is worth delivering; zero: only right now.
    public let lifetime: Duration

    /// Reads a request's head.
    ///
    /// The first problem is reported, in this order: path, method, certificate, repeated headers, `apns-id`, push type,
    /// expiration, priority, collapse identifier, topic, token.
    ///
    /// - Parameters:
    ///   - method: As it came.
    ///   - path: As it came, with whatever follows a `?`.
    ///   - fields: The values of each `apns-` header, names in lower case.
    ///   - now: Seconds since 1970, for the expiration.
    public init(
        method: String, path: String, fields: [String: [String]], from sender: PushSender, now: Int64
    ) throws(PushRejection) {
        let prefix = "/3/device"
        guard path == prefix || path.hasPrefix(prefix + "/") else { throw .badPath }
        guard method == "POST" else { throw .methodNotAllowed }
        let client: PushClient
        switch sender {
        case .anonymous: throw .missingProviderToken
        case .stranger: throw .badCertificate
        case .client(let known): client = known
        }
        guard fields.values.allSatisfy({ $0.count == 1 }) else { throw .duplicateHeaders }
        let single = fields.compactMapValues(\.first)
        if let id = single["apns-id"], !Self.isMessageID(id) { throw .badMessageID }
        guard single["apns-push-type"] == Self.pushType else { throw .invalidPushType }
        lifetime = try Self.lifetime(single["apns-expiration"], now: now)
        priority = try Self.priority(single["apns-priority"])
        if let id = single["apns-collapse-id"], id.utf8.count > Self.collapseIDByteCountMaximum {
            throw .badCollapseID
        }
        topic = try Self.topic(single["apns-topic"], client)
        let text = path.dropFirst(prefix.count + 1)
        guard !text.isEmpty else { throw .missingDeviceToken }
        guard let token = PushToken(hexadecimal: text) else { throw .badDeviceToken }
        self.token = token
    }

    /// Whether a text is a UUID in its usual form, in either case.
    public static func isMessageID(_ text: String) -> Bool {
        let parts = text.split(separator: "-", omittingEmptySubsequences: false)
        guard parts.map(\.utf8.count) == [8, 4, 4, 4, 12] else { return false }
        return parts.allSatisfy { Hexadecimal.decode($0) != nil }
    }

    /// Seconds since 1970; 0, a time that is past, and none at all mean only right now.
    private static func lifetime(_ text: String?, now: Int64) throws(PushRejection) -> Duration {
        guard let text else { return .zero }
        guard let expiration = number(text) else { throw .badExpirationDate }
        return .seconds(max(0, expiration - now))
    }

    private static func priority(_ text: String?) throws(PushRejection) -> UInt8 {
        guard let text else { return 10 }
        guard let value = number(text), [1, 5, 10].contains(value) else { throw .badPriority }
        return UInt8(value)
    }

    private static func topic(_ text: String?, _ client: PushClient) throws(PushRejection) -> PushTopic {
        guard let text else {
            guard client.topics.count == 1 else { throw .missingTopic }
            return client.topics[0]
        }
        guard let topic = PushTopic(text), topic.application != nil else { throw .badTopic }
        guard client.topics.contains(topic) else { throw .topicDisallowed }
        return topic
    }

    /// A number of digits only; at most 15, so that nothing overflows.
    private static func number(_ text: String) -> Int64? {
        guard (1...15).contains(text.utf8.count), text.utf8.allSatisfy({ (0x30...0x39).contains($0) }) else {
            return nil
        }
        return Int64(text)
    }
}

/// What a push carries.
public enum PushPayload {
    /// The most bytes.
    public static let byteCountMaximum = RelayProtocolLimits.pushPayloadByteCountMaximum

    /// A value of any kind, which is not kept.
    private struct Anything: Decodable {
        init(from decoder: any Decoder) throws {}
    }

    /// Throws unless the bytes are a JSON object (RFC 8259) of 1 to 4096 bytes.
    public static func check(_ bytes: [UInt8]) throws(PushRejection) {
        guard !bytes.isEmpty else { throw .payloadEmpty }
        guard bytes.count <= byteCountMaximum else { throw .payloadTooLarge }
        // The decoder would also read UTF-16 and UTF-32, which are full of zeros; JSON on the wire is UTF-8 (RFC 8259, 8.1).
        // What is in the values it does not look at, but devices do.
        guard !bytes.contains(0), String(validating: bytes, as: UTF8.self) != nil else { throw .badPayload }
        guard (try? JSONDecoder().decode([String: Anything].self, from: Data(bytes))) != nil else {
            throw .badPayload
        }
    }
}
