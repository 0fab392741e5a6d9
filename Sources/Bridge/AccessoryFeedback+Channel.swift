// What the lights of accessories show of the channel.
import Accessories
import ChannelService

extension AccessoryFeedback {
    /// What the channel does. An open microphone is what must not be overlooked, and the tail is part of it.
    public init(_ snapshot: ChannelServiceSnapshot) {
        self =
            if snapshot.transmission != nil || snapshot.isCapturing {
                .transmitting
            } else if snapshot.activeRemoteParticipant != nil {
                .receiving
            } else {
                .idle
            }
    }
}
