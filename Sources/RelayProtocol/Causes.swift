// Why something was refused, taken away or closed: the numbers on the wire and their meaning.

/// Why a client was not let into a channel. A number this version does not know reads as `other`.
public enum JoinRefusal: Int, Sendable, Hashable, CaseIterable {
    /// The relay does not speak the client's protocol version.
    case unsupportedVersion = 1
    /// No such channel, or the token does not open it.
    case notInvited = 2
    /// The invitation was withdrawn, or the member was removed.
    case revoked = 3
    /// The channel has as many members as it may.
    case channelFull = 4
    /// The relay has as many connections as it may, or is going down.
    case relayBusy = 5
    /// Something else; the phrase tells.
    case other = 255

    /// Whether joining again later, with the same invitation, can succeed.
    public var isTemporary: Bool {
        switch self {
        case .channelFull, .relayBusy, .other: true
        case .unsupportedVersion, .notInvited, .revoked: false
        }
    }
}

/// How a channel's floor is shared. A number this version does not know reads as `unspecified`.
public enum FloorMode: Int, Sendable, Hashable, CaseIterable {
    /// One talks at a time; whether a priority takes the floor from anybody is not said.
    case unspecified = 0
    /// One talks at a time.
    case halfDuplex = 1
    /// Up to `RelayProtocolLimits.talkersMaximum` talk at a time.
    case fullDuplex = 2
    /// One member talks at a time: the one that asked last.
    case cutIn = 3
}

/// Why the floor was denied (TS 24.380, 8.2.6.2). A number this version does not know reads as `other`.
public enum FloorDenyCause: Int, Sendable, Hashable, CaseIterable {
    /// Somebody else is talking.
    case anotherClientHasPermission = 1
    /// The relay failed.
    case internalError = 2
    /// Nobody would hear it.
    case onlyOneParticipant = 3
    /// The floor was revoked a short while ago.
    case retryAfterNotExpired = 4
    /// This member may only listen.
    case receiveOnly = 5
    /// The relay is at its limit.
    case noResources = 6
    /// Too many requests are waiting.
    case queueFull = 7
    /// Something else; the phrase tells.
    case other = 255
}

/// Why the floor was taken away (TS 24.380, 8.2.10.2). A number this version does not know reads as `other`.
public enum FloorRevokeCause: Int, Sendable, Hashable, CaseIterable {
    /// Nobody hears it any more.
    case onlyOneParticipant = 1
    /// The talk-time limit is over.
    case mediaBurstTooLong = 2
    /// This member may not talk.
    case noPermission = 3
    /// A request of higher priority took the floor.
    case preempted = 4
    /// The relay is at its limit.
    case noResources = 6
    /// Something else; the phrase tells.
    case other = 255
}

/// Why a push token was not registered. A number this version does not know reads as `other`.
public enum PushRefusal: Int, Sendable, Hashable, CaseIterable {
    /// The client has as many tokens as it may.
    case tooMany = 1
    /// The topic is not one for push to talk.
    case malformed = 2
    /// The token is another member's.
    case taken = 3
    /// The token is dead: make another.
    case dead = 4
    /// The relay has as many tokens as it may.
    case relayFull = 5
    /// The relay takes no pushes at all.
    case noEndpoint = 6
    /// Something else; the phrase tells.
    case other = 255
}

/// Why a relay gives no burst, or no list of them. A number this version does not know reads as `other`.
public enum BurstRefusal: Int, Sendable, Hashable, CaseIterable {
    /// The client is not a member of the channel.
    case notAMember = 1
    /// The relay does not have that burst, or not any more.
    case notKept = 2
    /// The member, or all of them, ask for too much at a time.
    case tooMuch = 3
    /// On this channel nothing is kept.
    case off = 4
    /// Something else; the phrase tells.
    case other = 255
}

/// What became of a push at the client. A number this version does not know reads as `other`.
public enum PushOutcome: Int, Sendable, Hashable, CaseIterable {
    /// It was taken.
    case taken = 1
    /// The client does not know the token, which is dead from now on.
    case unknownToken = 2
    /// Something else.
    case other = 255
}

/// QUIC application error codes (RFC 9000, section 20.2) with which either end closes a connection.
public enum RelayCloseCode: UInt64, Sendable, Hashable, CaseIterable {
    /// The client left, or the relay ended the connection in good order.
    case none = 0
    /// A message could not be read, was too long, or came when it may not.
    case protocolViolation = 1
    /// The join was refused; `JoinRefused` gave the reason.
    case joinRefused = 2
    /// The same member joined the channel on another connection.
    case replaced = 3
    /// The relay is going down. Connect again later.
    case goingDown = 4
    /// The member was removed from the channel. Do not connect again with this invitation.
    case revoked = 5
    /// The other end fell too far behind, or something failed inside.
    case internalError = 6
    /// The channel was deleted by its creator. Do not connect again.
    case channelEnded = 7
}
