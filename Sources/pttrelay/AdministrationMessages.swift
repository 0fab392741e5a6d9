// The requests of the commands to a relay, and its answers: JSON over a socket in its state directory. The API makes the same ones.
import Cryptography
import FoundationEssentials
import RelayProtocol
import RelayStore

/// A command of the operator.
enum AdministrationRequest: Codable, Equatable {
    /// `key`: nil for a channel whose media key the relay gives. `retry`: names the request, which may come twice.
    case invite(channel: ChannelReference, terms: Terms?, key: MediaKeyOrigin?, retry: String? = nil)
    /// The latest first, before the one of that number.
    case invitations(channel: ChannelReference, before: Int64? = nil, limit: Int? = nil)
    case invitation(channel: ChannelReference, number: Int64)
    /// Channels in the order of their names, after the one of that name.
    case channels(after: String? = nil, limit: Int? = nil)
    case channel(ChannelReference)
    /// `retry`: names the request, which may come twice.
    case addChannel(name: String, ChannelChange, isEndToEnd: Bool, retry: String? = nil)
    /// `tag`: what the channel has to be like now; nil: whatever it is.
    case changeChannel(ChannelReference, ChannelChange, tag: String? = nil)
    case removeChannel(ChannelReference, tag: String? = nil)
    /// Whether members can join.
    case health
    /// Who talks, and how much there is of everything.
    case status
    /// Members in the order of their identifiers, after the one with this.
    case members(channel: ChannelReference, after: String?, limit: Int? = nil)
    case member(channel: ChannelReference, member: String)
    case changeMember(channel: ChannelReference, member: String, MemberChange, tag: String? = nil)
    case revoke(channel: ChannelReference, member: String, keepsInvitation: Bool, tag: String? = nil)
    case withdraw(channel: ChannelReference, invitation: Int64)
    /// Withdraws an invitation and removes all who came by it.
    case revokeInvited(channel: ChannelReference, invitation: Int64)
    case readmit(channel: ChannelReference, member: String, MemberChange)

    /// Whether it may change the records, which one relay of a cluster does.
    var changesRecords: Bool {
        switch self {
        case .invite, .addChannel, .changeChannel, .removeChannel, .changeMember, .revoke, .withdraw, .revokeInvited,
            .readmit:
            true
        case .invitations, .invitation, .channels, .channel, .health, .status, .members, .member: false
        }
    }

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
    /// `next`: there are more, before this one.
    case invitations([InvitationLine], next: Int64? = nil)
    case invitationLine(InvitationLine)
    /// `next`: there are more, after this one.
    case channels([ChannelLine], next: String? = nil)
    case channel(ChannelLine)
    /// The channel is served; `isNew`: it was not in the records.
    case added(ChannelLine, isNew: Bool)
    case status(Status)
    /// `next`: there are more, after this one.
    case members([MemberLine], next: String?)
    case removed(MemberLine, Removal)
    /// So many members were removed with their invitation.
    case removedInvited(members: Int, Removal)
    case member(MemberLine)
    case done
    /// It is healthy, and serves nobody yet: what it waits for, in words.
    case waits(String)
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
        /// Whether the request came for the first time.
        var isNew = true
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
    /// Channels in one response; a name has at most 128 bytes.
    static let channelsPerResponse = 500
    /// Talkers in one response.
    static let talkersPerResponse = 500
    /// Connections at one time.
    static let connections = 8
    /// Commands that wait for their turn; further ones are refused.
    static let waitingCommands = 16
    /// How long one connection may take, and how long a command waits for a relay that is starting.
    static let time: Duration = .seconds(10)
}

/// Which channel is meant.
enum ChannelReference: Codable, Equatable, ExpressibleByStringLiteral {
    case named(String)
    /// Its identifier, as text.
    case id(String)

    init(stringLiteral name: String) { self = .named(name) }
}

/// What is to be different on a channel; nil: as it was, or of a new channel as usual.
struct ChannelChange: Codable, Equatable {
    var name: String?
    var mode: ChannelSettings.Mode?
    var hasQueue: Bool?
    /// 0: no priority takes the floor.
    var preemptionStep: UInt8?
    var keptBursts: Int?
    var keptMilliseconds: Int64?

    /// The settings with what is different.
    func applied(to settings: ChannelSettings) -> ChannelSettings {
        var result = settings
        if let mode { result.mode = mode }
        if let hasQueue { result.hasQueue = hasQueue }
        if let preemptionStep { result.preemptionStep = preemptionStep == 0 ? nil : preemptionStep }
        if let keptBursts { result.keptBursts = keptBursts }
        if let keptMilliseconds { result.keptMilliseconds = keptMilliseconds }
        return result
    }
}

/// What is to be different of a member; nil: as it was.
struct MemberChange: Codable, Equatable {
    /// The name in lists.
    var name: String?
    var priority: UInt8?
    var isListenOnly: Bool?
}

extension AdministrationResponse {
    struct ChannelLine: Codable, Equatable {
        var name: String
        var id: String
        var members: Int
        /// Members that are connected now; nil: the relay does not run, or does not serve the channel.
        var connected: Int?
        /// In a cluster: where the one is that serves the channel; nil: none does, or there is no cluster.
        var servedAt: String? = nil
        var openInvitations: Int
        var isEndToEnd: Bool
        var isServed: Bool
        /// Whether the configuration has its settings.
        var isDeclared: Bool
        var mode: ChannelSettings.Mode
        var hasQueue: Bool
        var preemptionStep: UInt8?
        var keptBursts: Int
        var keptMilliseconds: Int64
        /// Those who talk; nil in lists.
        var talkers: [Talker]?

        /// Says whether what an operator chooses is the same: two lines with one tag differ in numbers only.
        var tag: String {
            AdministrationResponse.tag([
                name, id, "\(isEndToEnd)", "\(isServed)", "\(isDeclared)", mode.rawValue, "\(hasQueue)",
                "\(preemptionStep ?? 0)", "\(keptBursts)", "\(keptMilliseconds)",
            ])
        }
    }

    /// How the relay is.
    struct Status: Codable, Equatable {
        /// Whether members can join.
        var isServing: Bool
        var isDraining: Bool
        var uptimeSeconds: Int64
        var connections: Int
        var channels: Int
        /// Members that are connected, of all channels.
        var members: Int
        /// Those who talk; the first ones if there are very many.
        var talkers: [Talker]
        /// Whether other relays of its cluster have not said how many are on them; nil: there are none.
        var isPartial: Bool?

        /// Another relay of the cluster is so.
        mutating func add(_ other: Status) {
            connections += other.connections
            channels += other.channels
            members += other.members
            talkers = Array((talkers + other.talkers).prefix(AdministrationLimits.talkersPerResponse))
        }
    }

    struct Talker: Codable, Equatable {
        var channel: String
        var channelName: String
        var member: String
        var name: String
    }

    /// A short text that is another one when any of the words is.
    static func tag(_ words: [String]) -> String {
        let bytes = words.flatMap { Array("\($0.utf8.count):\($0)".utf8) }
        return Hexadecimal.encode(Array(sha256(bytes).prefix(8)))
    }
}

extension AdministrationResponse.MemberLine {
    /// See `ChannelLine.tag`.
    var tag: String {
        AdministrationResponse.tag([
            id, name, "\(invitation)", "\(priority)", "\(isListenOnly)", "\(revokedAt ?? 0)",
        ])
    }
}
