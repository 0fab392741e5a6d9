// The state of channels nearby for the system user interface.

/// The channels nearby, and who waits to be let into those of this machine. All names are text of strangers.
public struct SystemUINearby: Hashable, Sendable {
    /// How somebody gets into a channel.
    public enum Admission: Hashable, Sendable {
        case open
        /// With a code, which a menu cannot take.
        case code
        /// Somebody on the channel is asked.
        case ask
        /// In a way that this version does not know.
        case unknown
    }

    /// A channel nearby.
    public struct Channel: Hashable, Sendable {
        /// How `SystemUIEvent.joinNearby` names it; no other channel has it.
        public var id: String
        /// The channel as `SystemUIState.Channel.identifier` names it.
        public var channel: String
        /// What it is called.
        public var name: String
        /// The creator's name.
        public var creator: String
        /// How many are on it.
        public var members: Int
        /// How somebody gets in.
        public var admission: Admission
        /// Whether this machine hosts it.
        public var isOwn: Bool

        /// A channel nearby.
        public init(
            id: String, channel: String, name: String, creator: String, members: Int, admission: Admission, isOwn: Bool
        ) {
            (self.id, self.channel, self.name, self.creator) = (id, channel, name, creator)
            (self.members, self.admission, self.isOwn) = (members, admission, isOwn)
        }
    }

    /// Somebody who waits to be let into a channel of this machine.
    public struct Newcomer: Hashable, Sendable {
        /// How `SystemUIEvent.decideNewcomer` names the newcomer.
        public var id: String
        /// What the newcomer is called.
        public var name: String
        /// What the channel is called.
        public var channelName: String

        /// Somebody who waits.
        public init(id: String, name: String, channelName: String) {
            (self.id, self.name, self.channelName) = (id, name, channelName)
        }
    }

    /// The channels that are known, in the order of the list.
    public var channels: [Channel]
    /// The people who wait, in the order of their requests.
    public var newcomers: [Newcomer]
    /// The `id` of the channel whose host has been asked to let this machine in, and has not answered; nil: none.
    public var joining: String?
    /// Why channels are not found, in words for the user; empty: nothing keeps them.
    public var problem: String

    /// What is nearby; by default, nothing.
    public init(
        channels: [Channel] = [], newcomers: [Newcomer] = [], joining: String? = nil, problem: String = ""
    ) {
        (self.channels, self.newcomers, self.joining, self.problem) = (channels, newcomers, joining, problem)
    }
}
