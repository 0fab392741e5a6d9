// The members of each channel, and the rights that their invitations gave them. Pure: the owner of the records on disk
// is asked, and answers.
import RelayProtocol

/// What a member may do on a channel, as its invitation said.
public struct RelayMembership: Sendable, Hashable {
    /// How high a request of the member for the floor may reach, from 0 (what everybody may) to `priorityMaximum`.
    public var priority: UInt8
    /// Whether it may not talk.
    public var isListenOnly: Bool
    /// Whether it was removed: it is not let in any more, whatever link it shows.
    public var isRevoked: Bool

    /// 255 on the wire is an emergency, which every member may declare.
    public static let priorityMaximum: UInt8 = 254

    /// A membership as an invitation gives it.
    public init(priority: UInt8 = 0, isListenOnly: Bool = false, isRevoked: Bool = false) {
        self.priority = min(priority, Self.priorityMaximum)
        self.isListenOnly = isListenOnly
        self.isRevoked = isRevoked
    }
}

/// A client that is not a member yet presents an invitation.
public struct RelayEnrolment: Sendable, Hashable {
    /// The channel that it wants to join.
    public var channel: ChannelID
    /// The secret of its invitation.
    public var token: InvitationToken
    /// Its identity: the pin of its key, which the handshake has proven.
    public var member: MemberID
    /// What it calls itself.
    public var name: DisplayName
    /// The shard that waits for the answer. No other one knows the connection, and perhaps none has the channel.
    var shard = 0
}

/// What becomes of a `RelayEnrolment`.
public enum RelayEnrolmentVerdict: Sendable, Hashable {
    /// It is a member from now on, and that is on disk.
    case admitted(RelayMembership)
    /// It is refused, with a sentence for the user of the link.
    case refused(JoinRefusal, String)
}

/// The members of a relay's channels.
public struct RelayRoster: Sendable {
    /// Whether a channel's own token admits everybody without a record. Otherwise a client that is not a member is
    /// enrolled first, by the handler of `RelayCore.Action.enrol`.
    public let isOpen: Bool
    private var memberships: [ChannelID: [MemberID: RelayMembership]]

    /// Whoever has a channel's token may join it; nothing is kept.
    public static let open = RelayRoster(isOpen: true, memberships: [:])

    /// These members, and those that enrol later.
    public init(memberships: [ChannelID: [MemberID: RelayMembership]]) {
        self.init(isOpen: false, memberships: memberships)
    }

    private init(isOpen: Bool, memberships: [ChannelID: [MemberID: RelayMembership]]) {
        self.isOpen = isOpen
        self.memberships = memberships
    }

    /// The members of those channels only: of a channel that is not served, nobody hears what becomes of its members.
    func part(of channels: [ChannelID]) -> RelayRoster {
        let own = Dictionary(
            channels.compactMap { id in memberships[id].map { (id, $0) } }, uniquingKeysWith: { first, _ in first })
        return RelayRoster(isOpen: isOpen, memberships: own)
    }

    /// The members of this roster's channels and of those of `other`.
    func merging(_ other: RelayRoster) -> RelayRoster {
        RelayRoster(isOpen: isOpen, memberships: memberships.merging(other.memberships) { $0.merging($1) { $1 } })
    }

    subscript(channel: ChannelID, member: MemberID) -> RelayMembership? { memberships[channel]?[member] }

    /// The recorded members of a channel, removed ones included.
    func members(of channel: ChannelID) -> [MemberID: RelayMembership] { memberships[channel] ?? [:] }

    /// A member was enrolled. One who was removed in the meantime stays out.
    mutating func admit(_ member: MemberID, to channel: ChannelID, as membership: RelayMembership) {
        guard self[channel, member]?.isRevoked != true else { return }
        memberships[channel, default: [:]][member] = membership
    }

    /// A member is out, also one that was not known.
    mutating func revoke(_ member: MemberID, from channel: ChannelID) {
        memberships[channel, default: [:]][member, default: RelayMembership()].isRevoked = true
    }

    /// The channel is there no more.
    mutating func forget(_ channel: ChannelID) { memberships[channel] = nil }

    /// A member that was removed may come again.
    mutating func readmit(_ member: MemberID, to channel: ChannelID, as membership: RelayMembership) {
        memberships[channel, default: [:]][member] = membership
    }
}
