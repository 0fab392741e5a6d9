// The requests of the commands to a relay, and its answers: JSON over a socket in its state directory.
import RelayProtocol

/// A command of the operator.
enum AdministrationRequest: Codable, Equatable {
    /// `key`: nil for a channel whose media key the relay gives.
    case invite(channel: String, terms: Terms?, key: MediaKeyOrigin?)
    case invitations(channel: String)
    case channels
    /// Whether members can join.
    case health
    /// Members in the order of their identifiers, after the one with this.
    case members(channel: String, after: String?)
    case revoke(channel: String, member: String, keepsInvitation: Bool)
    case withdraw(channel: String, invitation: Int64)
    /// Withdraws an invitation and removes all who came by it.
    case revokeInvited(channel: String, invitation: Int64)
    case readmit(channel: String, member: String, priority: UInt8?, isListenOnly: Bool?)

    /// The origin of the media key of an end-to-end channel. The relay does not get the key.
    enum MediaKeyOrigin: Codable, Equatable {
        /// The channel's first invitation.
        case first
        /// An earlier link: to this channel of the relay with this pin, or so it should be.
        case earlierLink(channel: String, pin: String)
        /// It is a new one, which the earlier members do not have.
        case new
    }

    /// The terms of a new invitation.
    struct Terms: Codable, Equatable {
        /// Seconds from now.
        var lifetime: Int64?
        var uses: Int?
        var priority: UInt8
        var isListenOnly: Bool
    }
}

/// The answer.
enum AdministrationResponse: Codable, Equatable {
    case invitation(Invitation)
    case invitations([InvitationLine])
    case channels([ChannelLine])
    /// `next`: there are more, after this one.
    case members([MemberLine], next: String?)
    case removed(MemberLine, Removal)
    /// So many members were removed with their invitation.
    case removedInvited(members: Int, Removal)
    case member(MemberLine)
    case done
    case failed(String)

    struct Invitation: Codable, Equatable {
        /// The link, without a media key.
        var link: String
        var isEndToEnd: Bool
        /// Members that the channel has already.
        var members: Int
        /// Names it when it is withdrawn; nil: the standing one.
        var number: Int64?
        var expiresAt: Int64?
    }

    struct InvitationLine: Codable, Equatable {
        var number: Int64
        var isStanding: Bool
        var isOpen: Bool
        var isWithdrawn: Bool
        var used: Int
        var uses: Int?
        var expiresAt: Int64?
        var priority: UInt8
        var isListenOnly: Bool
        var madeAt: Int64
    }

    struct ChannelLine: Codable, Equatable {
        var name: String
        var id: String
        var members: Int
        /// Members that are connected now; nil: the relay does not run, or does not serve the channel.
        var connected: Int?
        var openInvitations: Int
        var isEndToEnd: Bool
    }

    struct MemberLine: Codable, Equatable {
        var id: String
        /// What it called itself when it enrolled.
        var name: String
        /// What it calls itself now; nil: it is not connected.
        var nameNow: String?
        /// nil: the relay does not run.
        var isConnected: Bool?
        var invitation: Int64
        var priority: UInt8
        var isListenOnly: Bool
        var enrolledAt: Int64
        var revokedAt: Int64?

        /// What it is called now, and by which name it is in the records if that is another.
        var fullName: String {
            guard let nameNow, nameNow != name else { return name }
            return "\(nameNow), enrolled as \(name)"
        }
    }

    struct Removal: Codable, Equatable {
        var hasWithdrawnInvitation: Bool
        var hasNewStandingInvitation: Bool
        var wasRevoked: Bool
        var isEndToEnd: Bool
    }
}

/// Bounds of the talk between the commands and the relay.
enum AdministrationLimits {
    /// A request, in bytes.
    static let requestBytes = 16 * 1_024
    /// A response, in bytes.
    static let responseBytes = 1_024 * 1_024
    /// Members in one response; names, two of each, have at most 128 bytes.
    static let membersPerResponse = 500
    /// Invitations in one response: the latest.
    static let invitationsPerResponse = 200
    /// Connections at one time.
    static let connections = 8
    /// Commands that wait for their turn; further ones are refused.
    static let waitingCommands = 16
    /// How long one connection may take.
    static let time: Duration = .seconds(10)
}
