// The input and the events of the system user interface.
import PushToTalkCore

/// What there is to show of push-to-talk at one moment.
public struct SystemUIState: Hashable, Sendable {
    /// The channel that is joined.
    public struct Channel: Hashable, Sendable {
        /// Tells it from others.
        public var identifier: String
        /// Its name and picture.
        public var descriptor: PTChannelDescriptor
        /// Whether it can be used.
        public var serviceStatus: PTServiceStatus
        /// Why it cannot, in words for the user; empty when it can.
        public var serviceDetail: String
        /// Who may talk when. In `.listenOnly` there is nothing to press.
        public var transmissionMode: PTTransmissionMode

        /// A channel.
        public init(
            identifier: String = "", descriptor: PTChannelDescriptor, serviceStatus: PTServiceStatus,
            serviceDetail: String = "",
            transmissionMode: PTTransmissionMode = .halfDuplex
        ) {
            self.identifier = identifier
            self.descriptor = descriptor
            self.serviceStatus = serviceStatus
            self.serviceDetail = serviceDetail
            self.transmissionMode = transmissionMode
        }
    }

    /// The channel; nil: none is joined, and nothing else counts.
    public var channel: Channel?
    /// Who is speaking; nil: nobody else is.
    public var speaker: PTParticipant?
    /// Whether the user is transmitting, whatever began it.
    public var isTransmitting: Bool

    /// A state; by default, no channel.
    public init(channel: Channel? = nil, speaker: PTParticipant? = nil, isTransmitting: Bool = false) {
        self.channel = channel
        self.speaker = speaker
        self.isTransmitting = isTransmitting
    }
}

/// What the user does in the system user interface.
///
/// A menu and a click cannot be held: what they press stays pressed until `talkReleased`, or until the transmission ends or is refused.
/// It is resolved here which of the two a click means, by what the user saw when clicking.
public enum SystemUIEvent: Hashable, Sendable {
    /// The user wants to talk from now on.
    case talkPressed
    /// The user wants the transmission to end, whatever began it.
    case talkReleased
    /// The user wants to leave the channel.
    case leave
    /// The user looks at the channels nearby, or does so no more.
    case browseNearby(Bool)
    /// The user wants to join the channel nearby of that `id`.
    case joinNearby(String)
    /// The user wants a channel on this machine.
    case createNearby
    /// The user lets the newcomer of that `id` into a channel of this machine, or does not.
    case decideNewcomer(String, isAdmitted: Bool)
}
