// Why the floor is refused or taken back, and what a relay's words for it mean.
import RelayProtocol

/// Why the floor was refused.
public enum FloorDenial: Sendable, Equatable {
    /// Another member talks.
    case taken
    /// This member may only listen on the channel.
    case listenOnly
    /// As many wait for the floor as may.
    case queueFull
    /// The last burst was too long: asking again is in vain for so long.
    case tooSoon(retryAfter: Duration)
    /// The relay refused for a reason of its own, in its words.
    case refused(String)
}

/// Why the floor was taken back.
public enum FloorRevocation: Sendable, Equatable {
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
}

extension FloorDenial {
    /// What a relay's refusal means here.
    init(_ denial: ServerMessage.FloorDeny) {
        self =
            switch denial.cause {
            case .anotherClientHasPermission: .taken
            case .receiveOnly: .listenOnly
            case .queueFull: .queueFull
            case .retryAfterNotExpired: .tooSoon(retryAfter: denial.retryAfter)
            case .internalError, .onlyOneParticipant, .noResources, .other:
                .refused(denial.phrase.isEmpty ? "\(denial.cause)" : denial.phrase)
            }
    }
}

extension FloorRevocation {
    /// What a relay's revocation means here.
    init(_ revocation: ServerMessage.FloorRevoke) {
        self =
            switch revocation.cause {
            case .mediaBurstTooLong: .talkTimeLimit
            case .preempted: .preempted(revocation.phrase)
            case .noPermission: .notPermitted
            case .onlyOneParticipant, .noResources, .other:
                .other(revocation.phrase.isEmpty ? "\(revocation.cause)" : revocation.phrase)
            }
    }
}
