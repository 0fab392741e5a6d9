// A channel of this device and who stands behind it; the values that the director's rules are about.
import FoundationEssentials
import PushToTalkCore
import RelayProtocol
import Vocabulary

/// A program with a channel manager, as it is on the bus now.
public struct BusProgram: Hashable, Sendable {
    /// Its unique name.
    public var busName: String
    /// The well-known name that D-Bus can start it by; empty: it cannot be started.
    public var name: String

    /// A program on the bus.
    public init(busName: String, name: String) {
        self.busName = busName
        self.name = name
    }
}

/// The program that a channel belongs to, whether it runs or not.
public struct ChannelOwner: Hashable, Sendable {
    /// The well-known name that it can be started by; empty: none.
    public var name: String
    /// Its unique name while it is registered; nil: it is gone.
    public var busName: String?
    /// The unique name that a nameless program had when the daemon ended, for as long as it may be the same one.
    public var formerBusName: String?

    /// An owner.
    public init(name: String, busName: String?, formerBusName: String? = nil) {
        self.name = name
        self.busName = busName
        self.formerBusName = formerBusName
    }
}

/// The channel that is, or was, the active one of the device.
public struct ChannelMembership: Hashable, Sendable {
    /// The channel.
    public var uuid: UUID
    /// How it is shown from the start.
    public var descriptor: PTChannelDescriptor
    /// The program that joined; nil: a user, or the configuration.
    public var owner: ChannelOwner?
    /// Whether it is the configured channel, joined because of that.
    public var isConfigured: Bool
    /// Whether the program captures and plays, and not this daemon.
    public var hasApplicationMedia: Bool
    /// The invitation it was joined with; nil: none was given. The configured one may serve it all the same.
    public var link: InvitationLink?
    /// What was set about it when it is restored.
    public var mode = PTTransmissionMode.halfDuplex
    /// Whether buttons of accessories talk when it is restored.
    public var accessoryButtonEventsEnabled = true
    /// How long one transmission may last; nil: the daemon's limit.
    public var talkTimeLimit: Duration?
    /// The push token it had, when it is restored.
    public var token: PushToken?

    /// A membership with Apple's defaults.
    public init(
        uuid: UUID, descriptor: PTChannelDescriptor, owner: ChannelOwner?, isConfigured: Bool = false,
        hasApplicationMedia: Bool = false, link: InvitationLink? = nil
    ) {
        self.uuid = uuid
        self.descriptor = descriptor
        self.owner = owner
        self.isConfigured = isConfigured
        self.hasApplicationMedia = hasApplicationMedia
        self.link = link
    }

    /// Nobody can answer for it: a user's or the configured channel, or one whose program is gone and cannot be started.
    public var isUnowned: Bool { owner.map { $0.busName == nil && $0.name.isEmpty } ?? true }
}

/// A join that somebody on the bus asks for.
public struct ChannelJoin: Hashable, Sendable {
    /// Who asks, by unique name.
    public var caller: String
    /// Whether the caller's login session is the one in front, or it belongs to none.
    public var isForeground: Bool
    /// The channel; nil: that of `link`.
    public var uuid: UUID?
    /// How it is shown; an empty name: the invitation's.
    public var descriptor: PTChannelDescriptor
    /// The invitation, if one was given.
    public var link: InvitationLink?
    /// Whose the sound is to be; nil: this daemon's where it knows an invitation, else the program's.
    public var wantsApplicationMedia: Bool?
    /// A channel that is left for it, if it is the active one; nil: none is, but a configured one.
    public var replacing: UUID?

    /// A join.
    public init(
        caller: String, isForeground: Bool = true, uuid: UUID?, descriptor: PTChannelDescriptor,
        link: InvitationLink? = nil, wantsApplicationMedia: Bool? = nil, replacing: UUID? = nil
    ) {
        self.caller = caller
        self.isForeground = isForeground
        self.uuid = uuid
        self.descriptor = descriptor
        self.link = link
        self.wantsApplicationMedia = wantsApplicationMedia
        self.replacing = replacing
    }
}
