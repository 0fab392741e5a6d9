// Taps speech for the replay memory and for recordings.

import Audio
import PushToTalkCore
import Vocabulary

/// Speech as it passes, encoded and in the clear: others' as it comes, whether it is heard or not, and own. Where several may talk at
/// once, others' bursts have numbers.
public enum SpeechEvent: Equatable, Sendable {
    /// Somebody else's burst begins on the channel of this name.
    case began(PTParticipant, channel: String, TalkBurst? = nil)
    /// A packet of it; one that was asked for again comes late.
    case packet(ReceivedFrame, TalkBurst? = nil)
    /// Nothing more of it comes.
    case ended(TalkBurst? = nil)
    /// Nothing more comes of anybody: the channel has been left.
    case left
    /// A frame of own speech on the channel of this name.
    case ownFrame(OutgoingFrame, channel: String)
    /// The own transmission's sound is complete; `erased`: none of it was said to anybody.
    case ownEnded(erased: Bool)
}

extension ChannelService {
    /// Sets who gets speech as it passes, on the loop; nil: nobody.
    public func setSpeechHandler(_ handler: (@Sendable (SpeechEvent) -> Void)?) { speechHandler = handler }

    /// What comes from the relay is kept, whether it is heard or not.
    func keep(_ event: ReceptionEvent) {
        switch event {
        case .began(let participant, let burst):
            replays.began(participant, burst)
            speechHandler?(.began(participant, channel: channelName, burst))
        case .packet(let packet, let burst):
            replays.append(packet, burst)
            speechHandler?(.packet(packet, burst))
        case .ended(_, let burst):
            replays.ended(burst)
            speechHandler?(.ended(burst))
        default: break
        }
    }

    func keep(_ frame: OutgoingFrame) { speechHandler?(.ownFrame(frame, channel: channelName)) }

    func keepOwn(erased: Bool) { speechHandler?(.ownEnded(erased: erased)) }

    /// The channel has been left.
    func forgetSpeech() {
        replays.erase()
        speechHandler?(.left)
    }

    private var channelName: String { machine.channel?.descriptor.name ?? "" }
}
