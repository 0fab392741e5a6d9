// The events and actions of the rules for received bursts.

import Audio
import PushToTalkCore

extension ReceptionStateMachine {
    enum Event: Equatable, Sendable {
        /// A participant's burst begins.
        case began(PTParticipant, TalkBurst? = nil)
        /// A packet of the burst that began last came.
        case packet(ReceivedPacket)
        /// The burst that began last ends with this packet; nil: with the last one that came.
        case ended(lastSequence: UInt16?)
        /// A message is to be heard again. Nothing happens unless `canReplay`.
        case replay(ReceivedBurst)
        /// It is not to be heard any more.
        case replayStopped
        /// The speaker has played a burst to its end.
        case played
        /// The channel manager does not take the participant now: this device is transmitting.
        case refused
        /// The own transmission has ended.
        case transmissionEnded
        /// The channel manager has dropped the participant, or cannot take any (left, shut down).
        case cleared
        /// The time of `nextDeadline` has come.
        case deadlineReached
    }

    enum Action: Equatable, Sendable {
        /// Tell the channel manager who is speaking; nil: nobody any more.
        case setParticipant(PTParticipant?)
        /// Play the packet.
        case play(ReceivedPacket)
        /// Tell the speaker where the burst ends.
        case endPlayback(lastSequence: UInt16)
        /// Drop what has not been heard.
        case dropPlayback
    }
}

extension ListeningStateMachine {
    enum Event: Equatable, Sendable {
        /// A participant's burst begins. It has a number if several may talk at once.
        case began(PTParticipant, TalkBurst?)
        /// A packet of it came.
        case packet(ReceivedPacket, TalkBurst?)
        /// It ends with this packet; nil: with the last one that came.
        case ended(lastSequence: UInt16?, TalkBurst?)
        /// A message is to be heard again. Nothing happens unless `canReplay`.
        case replay(ReceivedBurst)
        /// It is not to be heard any more.
        case replayStopped
        /// A voice of the speaker has played a burst to its end.
        case played(voice: Int)
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

    enum Action: Equatable, Sendable {
        /// Tell the channel manager who is speaking; nil: nobody any more.
        case setParticipant(PTParticipant?)
        /// Play the packet.
        case play(ReceivedPacket, voice: Int)
        /// Tell the speaker where the burst on a voice ends.
        case endPlayback(lastSequence: UInt16, voice: Int)
        /// Drop what of a voice has not been heard.
        case dropPlayback(voice: Int)
    }
}
