// Why a push was rejected, in APNs' terms.

/// A push that was not taken: the status and the reason that APNs has for it.
public enum PushRejection: Error, Sendable, Hashable {
    /// Not `/3/device/<token>`.
    case badPath
    /// Not `POST`.
    case methodNotAllowed
    /// The client has no certificate.
    case missingProviderToken
    /// The client's certificate is not one of the configuration's.
    case badCertificate
    /// An `apns-` header is there twice.
    case duplicateHeaders
    /// `apns-id` is not a UUID.
    case badMessageID
    /// `apns-push-type` is missing, or is not `pushtotalk`.
    case invalidPushType
    /// `apns-expiration` is not a number of seconds since 1970.
    case badExpirationDate
    /// `apns-priority` is not 10, 5 or 1.
    case badPriority
    /// `apns-collapse-id` is longer than 64 bytes.
    case badCollapseID
    /// `apns-topic` is missing, and the certificate is good for several.
    case missingTopic
    /// `apns-topic` is not an application's identifier with `.voip-ptt`.
    case badTopic
    /// The certificate is not good for that topic.
    case topicDisallowed
    /// The path has no token.
    case missingDeviceToken
    /// The token is not 64 to 200 hexadecimal digits, or the relay does not know it.
    case badDeviceToken
    /// The token is registered for another topic.
    case deviceTokenNotForTopic
    /// The body is empty.
    case payloadEmpty
    /// The body has more than 4096 bytes.
    case payloadTooLarge
    /// The body is not a JSON object. The one reason that is not APNs' own.
    case badPayload
    /// The token is dead since this time, in milliseconds since 1970.
    case unregistered(since: Int64)
    /// Too many pushes for the token.
    case tooManyRequests
    /// The relay cannot tell yet, or has no room. Try again.
    case serviceUnavailable
    /// The relay is going down.
    case shutdown

    /// The HTTP status code.
    public var status: Int {
        switch self {
        case .missingProviderToken, .badCertificate: 403
        case .badPath: 404
        case .methodNotAllowed: 405
        case .unregistered: 410
        case .payloadTooLarge: 413
        case .tooManyRequests: 429
        case .serviceUnavailable, .shutdown: 503
        case .duplicateHeaders, .badMessageID, .invalidPushType, .badExpirationDate, .badPriority, .badCollapseID,
            .missingTopic, .badTopic, .topicDisallowed, .missingDeviceToken, .badDeviceToken,
            .deviceTokenNotForTopic, .payloadEmpty, .badPayload:
            400
        }
    }

    /// The `reason` in the body.
    public var reason: String {
        switch self {
        case .badPath: "BadPath"
        case .methodNotAllowed: "MethodNotAllowed"
        case .missingProviderToken: "MissingProviderToken"
        case .badCertificate: "BadCertificate"
        case .duplicateHeaders: "DuplicateHeaders"
        case .badMessageID: "BadMessageId"
        case .invalidPushType: "InvalidPushType"
        case .badExpirationDate: "BadExpirationDate"
        case .badPriority: "BadPriority"
        case .badCollapseID: "BadCollapseId"
        case .missingTopic: "MissingTopic"
        case .badTopic: "BadTopic"
        case .topicDisallowed: "TopicDisallowed"
        case .missingDeviceToken: "MissingDeviceToken"
        case .badDeviceToken: "BadDeviceToken"
        case .deviceTokenNotForTopic: "DeviceTokenNotForTopic"
        case .payloadEmpty: "PayloadEmpty"
        case .payloadTooLarge: "PayloadTooLarge"
        case .badPayload: "BadPayload"
        case .unregistered: "Unregistered"
        case .tooManyRequests: "TooManyRequests"
        case .serviceUnavailable: "ServiceUnavailable"
        case .shutdown: "Shutdown"
        }
    }

    /// The JSON body.
    public var body: String {
        guard case .unregistered(let since) = self else { return #"{"reason":"\#(reason)"}"# }
        return #"{"reason":"\#(reason)","timestamp":\#(since)}"#
    }
}
