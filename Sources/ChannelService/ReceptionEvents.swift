// The events and actions of the rules for received bursts.

import PushToTalkCore
import Vocabulary

/// Something about received bursts. `ListeningStateMachine` passes it on to the `ReceptionStateMachine` of the voice that
/// it concerns, or of all voices.
enum ReceptionEvent: Equatable, Sendable {
    /// A participant's burst begins. It has a number if several may talk at once.
    case began(PTParticipant, TalkBurst? = nil)
    /// A packet of it came.
    case packet(ReceivedFrame, TalkBurst? = nil)
    /// It ends with this packet; nil: with the last one that came.
    case ended(lastSequence: UInt16?, TalkBurst? = nil)
    /// A message is to be heard again. Nothing happens unless `canReplay`.
    case replay(ReceivedBurst)
    /// It is not to be heard any more.
    case replayStopped
    /// A voice of the speaker has played a burst to its end.
    case played(voice: Int = 0)
    /// The channel manager does not take the participant now: this device is transmitting.
    case refused
    /// The own transmission has ended.
    case transmissionEnded
    /// What was said in it is recorded to its end.
    case ownSpeechComplete
    /// The channel manager has dropped the participant, or cannot take any (left, shut down).
    case cleared
    /// The channel has been left.
    case left
    /// The time of `nextDeadline` has come.
    case deadlineReached

    /// Whether it is a packet. Packets never change who is heard.
    var isPacket: Bool { if case .packet = self { true } else { false } }

    /// Whether it comes from the relay's link.
    var isOfLink: Bool {
        switch self {
        case .began, .packet, .ended: true
        case .replay, .replayStopped, .played, .refused, .transmissionEnded, .ownSpeechComplete, .cleared, .left,
            .deadlineReached:
            false
        }
    }
}

/// What is to be done about received bursts.
enum ReceptionAction: Equatable, Sendable {
    /// Tell the channel manager who is speaking; nil: nobody any more.
    case setParticipant(PTParticipant?)
    /// Play the packet.
    case play(ReceivedFrame, voice: Int)
    /// Tell the speaker where the burst on a voice ends.
    case endPlayback(lastSequence: UInt16, voice: Int)
    /// Drop what of a voice has not been heard.
    case dropPlayback(voice: Int)
}
