// The control messages as plain Swift values. Their meaning is defined in relay.proto and docs/relay-protocol.md.
import Vocabulary

/// The versions and sizes that both ends agree on.
public enum RelayProtocolLimits {
    /// What each end offers at least as QUIC's `max_datagram_frame_size` (RFC 9221), bytes.
    public static let datagramFrameByteCountMinimum = 1_200
    /// The version in `Join`.
    public static let version: UInt32 = 1
    /// The TLS application protocol of version 1.
    public static let applicationProtocol = "pttd/1"
    /// The most bytes of one control message, without its length.
    public static let messageByteCountMaximum = 16_384
    /// The most members in one `Welcome`; the others follow as `memberJoined`.
    public static let welcomeMembersMaximum = 64
    /// The most members that talk at one time.
    public static let talkersMaximum = 4
    /// The most UTF-8 bytes of a phrase; a longer one is cut when it is sent.
    public static let phraseByteCountMaximum = 256
    /// The most bytes of a push's payload, APNs' limit.
    public static let pushPayloadByteCountMaximum = 4_096
}

/// What a relay says on the control stream.
public enum ServerMessage: Sendable, Hashable {
    /// You are a member.
    case welcome(Welcome)
    /// You are not let in; the connection ends.
    case joinRefused(JoinRefused)
    /// A member came, or is known by other values now.
    case memberJoined(Member)
    /// A member went.
    case memberLeft(MemberID)
    /// You may talk.
    case floorGranted(FloorGranted)
    /// You may not talk.
    case floorDeny(FloorDeny)
    /// Somebody else talks.
    case floorTaken(FloorTaken)
    /// A talker's burst is over.
    case floorIdle(FloorIdle)
    /// Stop talking.
    case floorRevoke(FloorRevoke)
    /// Media are sealed with this key from now on.
    case mediaKey(MediaKey)
    /// Pushes can be registered; the client is not a member.
    case pushWelcome(PushWelcome)
    /// Pushes for the token come.
    case pushRegistered(PushToken)
    /// No pushes for the token come.
    case pushRefused(PushRefused)
    /// A push for one of your tokens.
    case push(Push)
    /// You wait for the floor.
    case floorQueuePosition(FloorQueuePosition)
    /// How much of your burst the listener with the worst reception is missing, in percent.
    case listenerLoss(percent: Int)
    /// These bursts are kept.
    case burstList(BurstList)
    /// There is no list, or no burst.
    case burstRefused(BurstRefused)
    /// The relay is going down: join there, where a relay of the same key is, when the connection has ended.
    case successor(RelayPlace)
    /// The rules of the floor have changed.
    case floorRules(FloorRules)
    /// The invitation that was asked for.
    case invitation(Invitation)
    /// The requester gets no invitation.
    case invitationRefused(InvitationRefused)
    /// What a member who offered to host the channel needs for it.
    case succession(Succession)
    /// A proof of the channel's code is asked for.
    case invitationChallenge(InvitationChallenge)
    /// The invitation is given or refused later.
    case invitationPending(InvitationPending)

    /// The answer to a join that succeeded.
    public struct Welcome: Sendable, Hashable {
        /// The source that this member sends with.
        public var ssrc: SSRC
        /// The key of the trailer on what the relay sends to this connection.
        public var downlinkKey: TrailerKey
        /// The key of the trailer on what this member sends outside QUIC; nil: the relay takes nothing there.
        public var uplinkKey: TrailerKey?
        /// The key media are sealed with; nil when the invitation carries it (end to end).
        public var mediaKey: MediaKey?
        /// The channel's name.
        public var channelName: DisplayName
        /// The other members, at most `RelayProtocolLimits.welcomeMembersMaximum`; the others follow as `memberJoined`.
        public var members: [Member]
        /// Who talks; nil while the floor is idle.
        public var floor: FloorTaken?
        /// This member's own identifier.
        public var memberID: MemberID
        /// The longest burst that will be granted; nil when the relay does not say.
        public var talkTimeLimit: Duration?
        /// Whether requests for the floor can wait until it is free.
        public var hasFloorQueue = false
        /// How the floor is shared.
        public var floorMode = FloorMode.unspecified
        /// Whether this member may not talk.
        public var isListenOnly = false
        /// The highest priority that this member's requests count with, 0…254.
        public var floorPriority: UInt8 = 0
        /// How much higher than the talker's the priority of a request has to be to take the floor from it; 0: only an emergency does.
        public var preemptionStep: UInt8 = 0
        /// The talkers in addition to `floor`, at most `RelayProtocolLimits.talkersMaximum` less 1.
        public var moreFloors: [FloorTaken] = []
        /// Whether the relay answers requests for bursts, at least for the beginning of one in progress.
        public var offersLateEntry = false
        /// How many bursts it keeps when they are over, and for how long after their end.
        public var retention = BurstRetention.off
        /// Where the relay takes links over TLS; nil: nowhere.
        public var web: WebPlace?

        /// An answer with all its values. More `members` than the maximum are a programming error.
        public init(
            ssrc: SSRC, downlinkKey: TrailerKey, mediaKey: MediaKey?, channelName: DisplayName, members: [Member],
            floor: FloorTaken?, memberID: MemberID, talkTimeLimit: Duration?
        ) {
            precondition(members.count <= RelayProtocolLimits.welcomeMembersMaximum)
            self.ssrc = ssrc
            self.downlinkKey = downlinkKey
            self.mediaKey = mediaKey
            self.channelName = channelName
            self.members = members
            self.floor = floor
            self.memberID = memberID
            self.talkTimeLimit = talkTimeLimit
        }
    }

    /// The answer to a join that failed.
    public typealias JoinRefused = Refused<JoinRefusal>

    /// The answer to a request that gives nothing.
    public struct Refused<Cause: Sendable & Hashable>: Sendable, Hashable {
        /// Why.
        public var cause: Cause
        /// For people.
        public var phrase: String
        /// Asking sooner is in vain; zero: not said.
        public var retryAfter: Duration

        /// A refusal for `cause`.
        public init(cause: Cause, phrase: String = "", retryAfter: Duration = .zero) {
            self.cause = cause
            self.phrase = phrase
            self.retryAfter = retryAfter
        }
    }

    /// One member of the channel.
    public struct Member: Sendable, Hashable {
        /// Who it is.
        public var id: MemberID
        /// What people read.
        public var displayName: DisplayName
        /// The source of its media.
        public var ssrc: SSRC

        /// A member.
        public init(id: MemberID, displayName: DisplayName, ssrc: SSRC) {
            self.id = id
            self.displayName = displayName
            self.ssrc = ssrc
        }
    }

    /// The floor is the client's (TS 24.380: Floor Granted).
    public struct FloorGranted: Sendable, Hashable {
        /// The request that is answered.
        public var requestID: FloorRequestID
        /// How long the burst may last, from its first packet.
        public var duration: Duration
        /// What the request counts with.
        public var priority: UInt8

        /// A grant.
        public init(requestID: FloorRequestID, duration: Duration, priority: UInt8 = 0) {
            self.requestID = requestID
            self.duration = duration
            self.priority = priority
        }
    }

    /// The floor is not the client's (TS 24.380: Floor Deny).
    public struct FloorDeny: Sendable, Hashable {
        /// The request that is answered.
        public var requestID: FloorRequestID
        /// Why.
        public var cause: FloorDenyCause
        /// For people.
        public var phrase: String
        /// How long asking again is in vain; zero: not said.
        public var retryAfter: Duration

        /// A denial.
        public init(
            requestID: FloorRequestID, cause: FloorDenyCause, phrase: String = "", retryAfter: Duration = .zero
        ) {
            self.requestID = requestID
            self.cause = cause
            self.phrase = phrase
            self.retryAfter = retryAfter
        }
    }

    /// Somebody else talks (TS 24.380: Floor Taken).
    public struct FloorTaken: Sendable, Hashable {
        /// Who.
        public var talker: MemberID
        /// The source of the talker's packets.
        public var ssrc: SSRC
        /// The SFrame key id of the talker's packets.
        public var keyID: UInt64
        /// What the burst counts with; 255 is an emergency.
        public var priority: UInt8

        /// The floor in the hands of `talker`.
        public init(talker: MemberID, ssrc: SSRC, keyID: UInt64, priority: UInt8 = 0) {
            self.talker = talker
            self.ssrc = ssrc
            self.keyID = keyID
            self.priority = priority
        }
    }

    /// The burst of a talker is over (TS 24.380: Floor Idle).
    public struct FloorIdle: Sendable, Hashable {
        /// Whose.
        public var ssrc: SSRC
        /// The last sequence number the relay forwarded; nil when it forwarded none.
        public var lastSequence: UInt16?

        /// The end of a burst of `ssrc`.
        public init(ssrc: SSRC, lastSequence: UInt16?) {
            self.ssrc = ssrc
            self.lastSequence = lastSequence
        }
    }

    /// The floor is taken away (TS 24.380: Floor Revoke).
    public struct FloorRevoke: Sendable, Hashable {
        /// The request whose burst ends.
        public var requestID: FloorRequestID
        /// Why.
        public var cause: FloorRevokeCause
        /// For people.
        public var phrase: String

        /// A revocation.
        public init(requestID: FloorRequestID, cause: FloorRevokeCause, phrase: String = "") {
            self.requestID = requestID
            self.cause = cause
            self.phrase = phrase
        }
    }
}
