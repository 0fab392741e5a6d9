// The answers of a back end when it denies or revokes the floor.

/// Why the floor was refused.
public enum FloorDenial: Sendable, Equatable, CustomStringConvertible {
    /// Another member talks.
    case taken
    /// This member may only listen on the channel.
    case listenOnly
    /// As many wait for the floor as may.
    case queueFull
    /// The last burst was too long: requests are denied for this time.
    case tooSoon(retryAfter: Duration)
    /// The relay refused for a reason of its own, in its words.
    case refused(String)

    /// As logs have it.
    public var description: String {
        switch self {
        case .taken: "another member talks"
        case .listenOnly: "listen only"
        case .queueFull: "the queue is full"
        case .tooSoon(let retryAfter): "too soon, for \(retryAfter)"
        case .refused(let words): words.isEmpty ? "by the relay" : words
        }
    }
}

/// Why the floor was taken back.
public enum FloorRevocation: Sendable, Equatable, CustomStringConvertible {
    /// The burst reached the talk-time limit.
    case talkTimeLimit
    /// The relay got no media.
    case noMedia
    /// Somebody who matters more has taken the floor, in the relay's words.
    case preempted(String)
    /// This member may not talk any more.
    case notPermitted
    /// Another reason, in the relay's words.
    case other(String)

    /// Why, for the user.
    public var description: String {
        switch self {
        case .talkTimeLimit: "the relay's talk-time limit was reached"
        case .noMedia: "the relay received no sound"
        case .preempted(let words): words.isEmpty ? "a member with a higher priority speaks" : words
        case .notPermitted: "this device may only listen on the channel"
        case .other(let words): words.isEmpty ? "the relay gives no reason" : words
        }
    }
}
