// The events and actions of the rules for listening.
import MonotonicTime
import RelayProtocol
import Vocabulary

extension DownlinkStateMachine {
    /// What may happen.
    public enum Event: Sendable, Equatable {
        /// A member has the floor; its media carry this source and key id. `isLate`: it had it before this end joined, which
        /// fetches what was said before, where the relay gives that.
        case floorTaken(RelayMember, ssrc: SSRC, keyID: UInt64, isLate: Bool = false)
        /// The burst of that source has ended. Nobody has the floor now, or, in full duplex, only the other talkers
        /// have it.
        case floorIdle(ssrc: SSRC, lastSequence: UInt16?)
        /// A packet that `admit` let pass was opened.
        case opened(RTPHeader, payload: [UInt8], receivedAt: Instant, isRepaired: Bool = false)
        /// All that the relay had of a request has come, and was opened.
        case answered(request: UInt32)
        /// `Action.fetch` of that burst was done, under this number.
        case fetchAsked(BurstRequestID, of: BurstName)
        /// All of the answer to that has come, and was opened. `isWhole`: the relay has no more of the burst.
        case fetched(BurstRequestID, isWhole: Bool)
        /// That was refused.
        case fetchRefused(ServerMessage.BurstRefused)
        /// A packet came of a burst that had gone silent: `admit` said `.resume`.
        case resumed(ssrc: SSRC, keyID: UInt64)
        /// `Action.conclude` is to be done for the burst of that source.
        case conclude(SSRC)
        /// The link is gone.
        case linkLost
        /// `nextDeadline` has come, or may have.
        case deadline
    }

    /// What is to be done.
    public enum Action: Sendable, Equatable {
        /// Tell the user.
        case tell(RelayLinkEvent)
        /// Tell the relay what was received.
        case report(ClientMessage.ReceptionReport)
        /// Ask the relay for these packets.
        case ask(ClientMessage.RepairRequest)
        /// Ask the relay for a burst, from this number on (`nil`: from its start), and deliver `.fetchAsked`.
        case fetch(BurstName, first: UInt16?)
        /// Take these packets now, in this order, as if they had just come.
        case retry([HeldPacket])
        /// Deliver `.conclude`, behind what is done before.
        case conclude(SSRC)
    }

    /// A packet that came before the floor message that explains it.
    public struct HeldPacket: Sendable, Equatable {
        /// The packet without the trailer.
        public var bytes: [UInt8]
        /// When it came.
        public var receivedAt: Instant
    }

    /// What to do with a packet.
    public enum Admission: Sendable, Equatable {
        /// Open it, then deliver `.opened`.
        case open
        /// Keep it with `hold`.
        case hold
        /// It is of a burst that had gone silent: deliver `.resumed`, then ask again.
        case resume
        /// Drop it; it is counted.
        case drop(Drop)
    }

    /// Why a packet was dropped.
    public enum Drop: Int, Sendable, CaseIterable, Hashable {
        /// Not from this end's relay, or not in the protocol's form.
        case malformed
        /// Wrong MAC, or a counter that was used before.
        case notAuthentic
        /// Its source or key id is not bound to the floor.
        case unbound
        /// Came twice, or too late to tell.
        case duplicate
        /// SFrame did not open it.
        case notOpened
    }
}
