// A push as it comes from the relay, and what becomes of it.

import FoundationEssentials
import MonotonicTime
import Vocabulary

/// One push to a channel of this device.
public struct Push: Hashable, Sendable {
    /// Until when a push that cannot be delivered at once is kept.
    public enum Expiry: Hashable, Sendable {
        /// It is for now (`apns-expiration: 0`): it waits for a program that is being started, and no longer.
        case immediate
        /// It may be delivered until this time.
        case at(Instant)
    }

    /// How the sender names it; quoted in `Notice.pushSettled`, and otherwise not looked at.
    public var identifier: String
    /// Whom it is for; nil: the active channel (a push that came another way than by the relay, as with
    /// `NEAppPushProvider.reportPushToTalkMessage(userInfo:)`).
    public var token: PushToken?
    /// What it says.
    public var payload: PushPayload
    /// `apns-priority: 10`; 5 and less are low.
    public var isHighPriority: Bool
    /// How long it is good for.
    public var expiry: Expiry

    /// A push; by default of high priority and for now.
    public init(
        identifier: String, token: PushToken?, payload: PushPayload, isHighPriority: Bool = true,
        expiry: Expiry = .immediate
    ) {
        self.identifier = identifier
        self.token = token
        self.payload = payload
        self.isHighPriority = isHighPriority
        self.expiry = expiry
    }
}

/// The JSON object that a push carries, as text. It is validated and passed on unchanged.
public struct PushPayload: Hashable, Sendable {
    /// What kind of push it is.
    public enum Kind: Hashable, Sendable {
        /// Somebody speaks, or the channel is over: the program answers with a `PTPushResult`.
        case speaker
        /// Data of the service has changed; nobody speaks (`"aps": {"ptt-push-type": "service-update"}`).
        case serviceUpdate
    }

    /// Why bytes are not a valid payload.
    public enum Invalid: Error, Hashable, Sendable {
        /// It has more than `PushPayload.byteCountMax` bytes.
        case tooLarge(byteCount: Int)
        /// It is not UTF-8, has a NUL, or is not one JSON object.
        case notAnObject
    }

    /// The largest payload, in bytes; APNs' limit.
    public static let byteCountMax = 4096

    /// The JSON object, as it came.
    public let text: String
    /// What kind of push it makes.
    public let kind: Kind

    /// Checks the bytes of a payload.
    public init(validating bytes: some Collection<UInt8>) throws(Invalid) {
        guard bytes.count <= Self.byteCountMax else { throw .tooLarge(byteCount: bytes.count) }
        // JSON has no NUL (RFC 8259, 7), and D-Bus, which hands the text on, can have none; the decoder does not look at values.
        guard !bytes.contains(0), let text = String(validating: bytes, as: UTF8.self) else { throw .notAnObject }
        let decoder = JSONDecoder()
        let data = Data(bytes)
        guard (try? decoder.decode(AnyObject.self, from: data)) != nil else { throw .notAnObject }
        self.text = text
        // Whatever else `aps` may be, it is not about the kind of push.
        let type = (try? decoder.decode(Typed.self, from: data))?.aps.pushType
        kind = type == "service-update" ? .serviceUpdate : .speaker
    }

    /// Checks the text of a payload.
    public init(validating text: String) throws(Invalid) { try self.init(validating: text.utf8) }

    /// An object with any members: decoding it checks the syntax.
    private struct AnyObject: Decodable {
        private struct Name: CodingKey {
            var stringValue: String
            var intValue: Int? { nil }
            init?(stringValue: String) { self.stringValue = stringValue }
            init?(intValue: Int) { return nil }
        }
        init(from decoder: any Decoder) throws { _ = try decoder.container(keyedBy: Name.self) }
    }

    private struct Typed: Decodable {
        struct Values: Decodable {
            let pushType: String
            enum CodingKeys: String, CodingKey { case pushType = "ptt-push-type" }
        }
        let aps: Values
    }
}

extension PushPayload.Invalid: CustomStringConvertible {
    /// What is wrong and what would be right.
    public var description: String {
        switch self {
        case .tooLarge(let byteCount):
            "the payload has \(byteCount) bytes; at most \(PushPayload.byteCountMax) are accepted"
        case .notAnObject: "the payload is not a JSON object in UTF-8, such as {\"speaker\":\"Ann\"}"
        }
    }
}

/// Names one question to the program about a push, so that its answer finds it.
public struct PushDeliveryIdentifier: Hashable, Sendable {
    /// The number, never used twice by a process.
    public let rawValue: UInt64
    /// The delivery with this number.
    public init(rawValue: UInt64) { self.rawValue = rawValue }
}

/// A push on its way to the program.
public struct PushDelivery: Hashable, Sendable {
    /// What the answer has to quote.
    public let identifier: PushDeliveryIdentifier
    /// The push.
    public let push: Push
}

/// What became of a push.
public enum PushOutcome: Hashable, Sendable {
    /// The program took it, and what it answered was done.
    case delivered
    /// The program answered, and what it wants cannot be done.
    case refused(PTChannelError)
    /// It was dropped.
    case dropped(PushDropReason)
}

/// Why a push was dropped.
public enum PushDropReason: Hashable, Sendable {
    /// Its token is not, or no longer, that of the active channel.
    case deadToken
    /// There is no channel, or no program behind it, to deliver it to.
    case noProgram
    /// The channel was left while it waited or was being answered.
    case channelLeft
    /// It was not delivered in time.
    case expired
    /// Too many were waiting.
    case tooMany
    /// The program did not start.
    case programNotStarted(reason: String)
    /// The program did not answer, or not in time.
    case notAnswered(reason: String)
    /// The daemon ends.
    case shutdown
}

extension PushDropReason: CustomStringConvertible {
    /// In words for a log.
    public var description: String {
        switch self {
        case .deadToken: "its token is not that of the active channel"
        case .noProgram: "no program has joined the channel"
        case .channelLeft: "the channel was left"
        case .expired: "it was not delivered in time"
        case .tooMany: "too many were waiting"
        case .programNotStarted(let reason): "the program did not start: \(reason)"
        case .notAnswered(let reason): "the program did not answer: \(reason)"
        case .shutdown: "pttd is stopping"
        }
    }
}
