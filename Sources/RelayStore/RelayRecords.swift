// What a relay keeps of its channels, invitations and members.
import Cryptography
import RelayProtocol

/// The stored record of a channel.
public struct ChannelRecord: Sendable, Hashable {
    /// Names it on the wire.
    public var id: ChannelID
    /// What people read; no two channels have the same.
    public var name: DisplayName
    /// Whether its media key is in the links only.
    public var isEndToEnd: Bool
    /// Whether it was added by a command, so that it is served whatever the configuration names.
    public var isAdded: Bool
    /// Whether it is served, or was when the relay ran last.
    public var isServed: Bool
    /// Whether the configuration names it, or did when the relay ran last. Its settings are there then.
    public var isDeclared = false
    /// Its settings, unless it is declared.
    public var settings = ChannelSettings()
}

/// What an operator chooses for a channel.
public struct ChannelSettings: Sendable, Hashable {
    /// Who may talk at the same time, in the words of the configuration.
    public enum Mode: String, Sendable, Hashable, CaseIterable, Codable {
        /// One at a time.
        case halfDuplex = "half-duplex"
        /// Several at a time.
        case fullDuplex = "full-duplex"
        /// One at a time: who asked last.
        case cutIn = "cut-in"
        /// One at a time of those with a priority.
        case listenOnly = "listen-only"
    }

    /// Who may talk at the same time.
    public var mode = Mode.halfDuplex
    /// Whether presses wait while somebody talks.
    public var hasQueue = false
    /// How much higher a priority has to be to take the floor; nil: none does.
    public var preemptionStep: UInt8?
    /// How many bursts are kept; nil: as many as where nothing is said.
    public var keptBursts: Int?
    /// For how long they are, in milliseconds; nil: as where nothing is said.
    public var keptMilliseconds: Int64?

    /// The usual ones.
    public init() {}
}

/// A channel, and how many members and open invitations it has.
public struct ChannelSummary: Sendable, Hashable {
    /// The channel.
    public var channel: ChannelRecord
    /// Its members, without those removed.
    public var members: Int
    /// The invitations by which devices can enrol.
    public var openInvitations: Int
}

/// What an invitation gives, and for how long.
public struct InvitationTerms: Sendable, Hashable {
    /// Until when it opens the channel to new devices, in seconds since 1970; nil: until it is withdrawn.
    public var expiresAt: Int64?
    /// How many devices may enrol with it; nil: any number.
    public var uses: Int?
    /// How high its members' requests for the floor may reach, 0 to 254.
    public var priority: UInt8
    /// Whether its members may not talk.
    public var isListenOnly: Bool

    /// The most devices one invitation can be for.
    public static let usesMaximum = 1_000_000

    /// Terms; without any, for everybody who has the link and for ever.
    public init(expiresAt: Int64? = nil, uses: Int? = nil, priority: UInt8 = 0, isListenOnly: Bool = false) {
        self.expiresAt = expiresAt
        self.uses = uses
        self.priority = priority
        self.isListenOnly = isListenOnly
    }

    /// Why a new device is not let in any more, `used` devices being in; nil: it is.
    func objection(used: Int, now: Int64) -> EnrolmentRefusal? {
        if let expiresAt, now >= expiresAt { return .expired }
        if let uses, used >= uses { return .usedUp }
        return nil
    }
}

/// The stored record of an invitation. It holds the hash of the secret, and the secret itself only for the channel's
/// standing invitation.
public struct InvitationRecord: Sendable, Hashable {
    /// Names it to the operator.
    public var number: Int64
    /// Its terms.
    public var terms: InvitationTerms
    /// Devices that have enrolled with it.
    public var used: Int
    /// When it was made, in seconds since 1970.
    public var madeAt: Int64
    /// When it was withdrawn; nil: it was not.
    public var withdrawnAt: Int64?
    /// The secret of the standing invitation, which every start prints again.
    public var standingToken: InvitationToken?

    /// Whether a new device can enrol with it at `now`, in seconds since 1970.
    public func isOpen(at now: Int64) -> Bool { withdrawnAt == nil && terms.objection(used: used, now: now) == nil }
}

/// The stored record of a member.
public struct MemberRecord: Sendable, Hashable {
    /// The pin of its key.
    public var id: MemberID
    /// What it called itself when it enrolled.
    public var name: DisplayName
    /// The invitation it came by.
    public var invitation: Int64
    /// See `InvitationTerms.priority`.
    public var priority: UInt8
    /// See `InvitationTerms.isListenOnly`.
    public var isListenOnly: Bool
    /// When, in seconds since 1970.
    public var enrolledAt: Int64
    /// When it was removed; nil: it was not.
    public var revokedAt: Int64?
}

/// Why a device is not made a member.
public enum EnrolmentRefusal: String, Sendable, Hashable {
    /// No such channel, or the secret is of no invitation to it.
    case unknown
    /// The invitation was withdrawn.
    case withdrawn
    /// The invitation's time is over.
    case expired
    /// As many devices as it was for have enrolled with it.
    case usedUp
    /// The device was removed from the channel.
    case revoked
    /// The channel has as many members as can be kept.
    case full
}

/// What became of a device that showed an invitation.
public enum EnrolmentOutcome: Sendable, Hashable {
    /// It is a member, and that is on disk.
    case member(MemberRecord)
    /// It is not.
    case refused(EnrolmentRefusal)
}

/// The outcome of removing all members that enrolled with an invitation.
public struct InvitationRevocation: Sendable, Hashable {
    /// The members that were removed now, in the order of their identifiers.
    public var members: [MemberID]
    /// Whether the invitation was open, and is withdrawn now.
    public var hasWithdrawnInvitation: Bool
    /// Whether the channel has another standing invitation now.
    public var hasNewStandingInvitation: Bool
}

/// What a removal came to.
public struct Revocation: Sendable, Hashable {
    /// The member that was removed.
    public var member: MemberRecord
    /// Whether the invitation it came by was open, and is withdrawn now.
    public var hasWithdrawnInvitation: Bool
    /// Whether the channel has another standing invitation now.
    public var hasNewStandingInvitation: Bool
    /// Whether it had been removed before.
    public var wasRevoked: Bool
}
