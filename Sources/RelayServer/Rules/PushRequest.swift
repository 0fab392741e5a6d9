// A push from outside, and the verdict of the relay's rules.
import MonotonicTime
import RelayProtocol
import Vocabulary

/// A push, checked as far as that needs no knowledge of tokens.
public struct PushRequest: Sendable, Equatable {
    /// Whom it is for.
    public let token: PushToken
    /// What it is for.
    public let topic: PushTopic
    /// A JSON object, 1 to 4096 bytes.
    public let payload: [UInt8]
    /// 1 to 10.
    public let priority: UInt8
    /// For how long it is worth delivering; zero: only right now.
    public let lifetime: Duration

    /// A push; nil when payload or priority are out of their range.
    public init?(token: PushToken, topic: PushTopic, payload: [UInt8], priority: UInt8, lifetime: Duration) {
        guard (1...RelayProtocolLimits.pushPayloadByteCountMaximum).contains(payload.count),
            ServerMessage.Push.priorities.contains(priority)
        else { return nil }
        self.token = token
        self.topic = topic
        self.payload = payload
        self.priority = priority
        self.lifetime = max(.zero, lifetime)
    }
}

/// What became of an accepted push.
public enum PushFate: Sendable, Equatable {
    /// It is on its way to the token's connection.
    case sent
    /// The token is not connected; the push waits for it.
    case kept
    /// The token is not connected and the push has no lifetime: it is gone.
    case dropped
}

/// What the relay says to a push.
public enum PushVerdict: Sendable, Equatable, CustomStringConvertible {
    /// It was taken.
    case accepted(PushFate)
    /// No such token was ever registered, as far as the relay remembers.
    case unknownToken
    /// The token died then.
    case unregistered(at: Instant)
    /// The token is registered for another topic.
    case otherTopic
    /// Too many pushes for the token, or the member has not confirmed the ones before.
    case tooMany
    /// The relay just started, so its clients may not be back; or it keeps as many pushes as it may.
    case unavailable
    /// The relay is going down.
    case shutDown

    /// As logs have it.
    public var description: String {
        switch self {
        case .accepted(let fate): "accepted (\(fate))"
        case .unknownToken: "unknown token"
        case .unregistered: "unregistered"
        case .otherTopic: "another topic"
        case .tooMany: "too many"
        case .unavailable: "unavailable"
        case .shutDown: "the relay is going down"
        }
    }
}
