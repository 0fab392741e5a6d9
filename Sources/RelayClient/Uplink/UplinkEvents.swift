// The events and actions of the rules for outgoing bursts.
import RelayProtocol
import Vocabulary

extension UplinkStateMachine {
    /// What may happen.
    public enum Event: Sendable, Equatable {
        /// The link can carry bursts.
        case linkReady
        /// The link is connecting: a burst that begins waits for it.
        case linkComing
        /// The link moves to another connection: a burst that begins meanwhile waits for `linkReady`.
        case linkMoving
        /// The link is lost and may return: a burst that has the floor ends unless bursts are resumed, and one that waits for the link
        /// continues to wait.
        case linkLost
        /// There is no link, for good or because the relay refused it: every burst ends, and none begins.
        case linkClosed
        /// A burst begins.
        case begin(BurstID, priority: UInt8)
        /// The next frame of the burst begun last.
        case frame(OutgoingFrame)
        /// The burst begun last has got its last frame.
        case end
        /// What is not sent of the burst begun last is to be erased.
        case abort
        /// The floor is this end's.
        case granted(FloorRequestID, duration: Duration)
        /// The floor is another's, and the request waits for it at this place.
        case queued(FloorRequestID, position: Int)
        /// The floor is not this end's.
        case denied(FloorRequestID, FloorDenial)
        /// The floor is not this end's any more.
        case revoked(FloorRequestID, FloorRevocation)
        /// A burst of anybody is over.
        case floorIdle
        /// `nextDeadline` has come, or may have.
        case deadline
        /// The relay has renewed the media key.
        case keyRenewed
    }

    /// What is to be done.
    public enum Action: Sendable, Equatable {
        /// Ask for the floor, with a key id that was never used before.
        case requestFloor(FloorRequestID, priority: UInt8)
        /// Seal the frame under that request's key id and send it.
        case sendMedia(FloorRequestID, MediaFrame)
        /// Give the floor, or the wish for it, back.
        case releaseFloor(FloorRequestID, lastSequence: UInt16?)
        /// Tell the user.
        case tell(RelayLinkEvent)
    }

    /// A frame with its place in the RTP stream.
    public struct MediaFrame: Sendable, Equatable {
        /// RTP sequence number.
        public var sequence: UInt16
        /// RTP time stamp, 48 kHz.
        public var timestamp: UInt32
        /// Whether it is the first of its burst.
        public var marker: Bool
        /// One Opus packet.
        public var payload: [UInt8]
    }
}
