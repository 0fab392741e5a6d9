// A client's messages as plain Swift values. relay.proto and docs/relay-protocol.md define their meaning.
import Vocabulary

/// What a client says on the control stream.
public enum ClientMessage: Sendable, Hashable {
    /// The first message: let me into this channel.
    case join(Join)
    /// I am going.
    case leave
    /// The talk button went down.
    case floorRequest(FloorRequest)
    /// The talk button went up, and the last packet was sent.
    case floorRelease(FloorRelease)
    /// What was received of a talker.
    case receptionReport(ReceptionReport)
    /// Send me the pushes for this token.
    case pushRegister(PushRegister)
    /// The token is dead.
    case pushUnregister(PushToken)
    /// What became of a push.
    case pushReceipt(PushReceipt)
    /// A packet of the own burst whose datagram was lost: the RTP packet.
    case mediaRepair([UInt8])
    /// Packets of a talker did not come: send them again.
    case repairRequest(RepairRequest)
    /// Which bursts are kept?
    case burstListRequest(BurstRequestID)
    /// Request a kept burst, or the beginning of one in progress.
    case burstRequest(BurstRequest)
    /// Before a join: give me the invitation to an open channel.
    case invitationRequest(InvitationRequest)
    /// I would host the channel if its host went.
    case successionOffer
    /// The proof of the code that was asked for.
    case invitationProof(InvitationProof)

    /// Asks to enter a channel.
    public struct Join: Sendable, Hashable {
        /// The channel.
        public var channel: ChannelID
        /// The invitation's secret.
        public var token: InvitationToken
        /// What others read.
        public var displayName: DisplayName
        /// The protocol version the client speaks.
        public var protocolVersion: UInt32
        /// Whether the client wants only pushes and does not become a member of the channel.
        public var isPushOnly: Bool

        /// A request to enter `channel`.
        public init(
            channel: ChannelID, token: InvitationToken, displayName: DisplayName,
            protocolVersion: UInt32 = RelayProtocolLimits.version, isPushOnly: Bool = false
        ) {
            self.channel = channel
            self.token = token
            self.displayName = displayName
            self.protocolVersion = protocolVersion
            self.isPushOnly = isPushOnly
        }
    }

    /// Asks for the floor (TS 24.380: Floor Request).
    public struct FloorRequest: Sendable, Hashable {
        /// Names the request; greater than every earlier one of the connection.
        public var requestID: FloorRequestID
        /// 0 (lowest) to 254, which the relay limits to `Welcome.floorPriority`; 255 is an emergency.
        public var priority: UInt8
        /// The SFrame key id of the coming burst.
        public var keyID: UInt64
        /// Whether it may wait while somebody else talks.
        public var mayQueue: Bool

        /// A request for a burst sealed under `keyID`.
        public init(requestID: FloorRequestID, priority: UInt8 = 0, keyID: UInt64, mayQueue: Bool = false) {
            self.requestID = requestID
            self.priority = priority
            self.keyID = keyID
            self.mayQueue = mayQueue
        }
    }

    /// Gives the floor back (TS 24.380: Floor Release).
    public struct FloorRelease: Sendable, Hashable {
        /// The request that is over.
        public var requestID: FloorRequestID
        /// The burst's last RTP sequence number; nil when no packet was sent.
        public var lastSequence: UInt16?

        /// The end of `requestID`.
        public init(requestID: FloorRequestID, lastSequence: UInt16?) {
            self.requestID = requestID
            self.lastSequence = lastSequence
        }
    }

    /// What was received of one talker since the join (RFC 3550, section 6.4.1).
    public struct ReceptionReport: Sendable, Hashable {
        /// The talker.
        public var ssrc: SSRC
        /// Packets accepted.
        public var received: UInt32
        /// Packets expected and not received.
        public var lost: UInt32
        /// The highest sequence number received, extended by the number of wraps.
        public var highestSequence: UInt32
        /// Interarrival jitter in units of 1/48000 s.
        public var jitter: UInt32

        /// A report on `ssrc`.
        public init(ssrc: SSRC, received: UInt32, lost: UInt32, highestSequence: UInt32, jitter: UInt32) {
            self.ssrc = ssrc
            self.received = received
            self.lost = lost
            self.highestSequence = highestSequence
            self.jitter = jitter
        }
    }
}
