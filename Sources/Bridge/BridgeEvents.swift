// The events and actions of the rules that connect button, channel manager and relay.
import Accessories
import ChannelService
import PushToTalkCore
import RelayClient
import Vocabulary

extension BridgeStateMachine {
    /// Something that happened in one of the modules that it joins.
    public enum Event: Sendable {
        /// A holder of the talk key pressed.
        case pressed(TalkKey.Holder, TransmitUrgency = .normal)
        /// The accessories hold the key already, and an emergency control of theirs went down.
        case escalated
        /// A holder let go, or is gone.
        case released(TalkKey.Holder)
        /// The program behind the channel asks to transmit; unlike a press it does not join a transmission of others.
        case requestedBegin(program: String)
        /// It requests the end of the transmission, regardless of who began it.
        case requestedStop(PTChannelTransmitRequestSource)
        /// The channel manager refused the begin that a press asked for.
        case beginRefused(PTChannelError)
        /// `Action.refuseBegin` was, against expectation, granted: the holder is the one who talks.
        case beganAfterAll(TalkKey.Holder)
        /// The program behind the channel reports the status of its own service.
        case programStatus(PTServiceStatus)
        /// A callback of the channel manager's delegate.
        case callback(DelegateCallback)
        /// The channel manager noticed something.
        case notice(ChannelManagerStateMachine.Notice)
        /// An event of the link.
        case link(RelayLinkEvent)
        /// `Action.beginBurst` was done: this is the burst.
        case burstBegun(BurstID)
        /// The time of `nextDeadline` has come.
        case deadlineReached
        /// The channel has been left: what is still held counts for nothing on the next one.
        case closed
    }

    /// What is to be done.
    public enum Action: Equatable, Sendable {
        /// Ask the channel manager to begin transmitting for this holder, which gets the outcome as its answer. A
        /// refusal comes back as `beginRefused`. `floor`: what the link knows about other talkers.
        case beginTransmitting(PTChannelTransmitRequestSource, floor: FloorOutlook = .idle)
        /// Ask it to begin while somebody transmits, so that it refuses and calls the program's delegate.
        case refuseBegin(TalkKey.Holder)
        /// Answer a press that asked for nothing: nil when another holder talks already.
        case answer(TalkKey.Holder, PTChannelError?)
        /// Ask it to stop.
        case stopTransmitting(PTChannelTransmitRequestSource)
        /// Tell it how the service is.
        case setServiceStatus(PTServiceStatus)
        /// Tell it that the relay refused what it began.
        case transmissionRefused(PTChannelError)
        /// Tell it that the relay took the floor back.
        case transmissionRevoked(PTChannelError)
        /// Tell it that the relay lets it wait, at this place.
        case floorQueued(position: Int)
        /// Tell it that what waits has got the floor.
        case floorGranted
        /// Prepare what is encoded for so much loss.
        case setExpectedLoss(percent: Int)
        /// A burst of this participant begins. It has a number if several may talk at once.
        case beginReception(PTParticipant, TalkBurst? = nil)
        /// A frame of it.
        case play(ReceivedFrame, of: TalkBurst? = nil)
        /// Everything of it has come.
        case endReception(TalkBurst? = nil)
        /// Begin a burst on the link; answered by `burstBegun`.
        case beginBurst(priority: UInt8)
        /// End the burst: everything has been handed over.
        case endBurst
        /// Erase what is held of the burst.
        case abortBurst
        /// Tell the accessories that the transmission ended without them: a fresh press is needed.
        case endedBySystem
        /// The channel's creator has deleted it; why, in words.
        case channelEnded(String)
        /// The relay has not answered the first attempt yet; in words for the log.
        case relayUnanswered(String)
        /// Tell those who watch that a begin was refused, or a transmission ended by something else than a release.
        case report(PTChannelError)
    }
}
