// What the API's answers have in them, as JSON.
import FoundationEssentials
import RelayStore

/// A channel.
struct APIChannel: Encodable {
    var id: String
    var name: String
    var mode: String
    var queue: Bool
    /// 0: only an emergency takes the floor.
    var preemptionStep: Int
    var keepBursts: Int
    var keepSeconds: Int64
    var endToEnd: Bool
    var served: Bool
    var declared: Bool
    var members: Int
    var openInvitations: Int
    var connected: Int?
    var talkers: [APITalker]?

    init(_ line: AdministrationResponse.ChannelLine) {
        id = line.id
        name = line.name
        mode = line.mode.rawValue
        queue = line.hasQueue
        preemptionStep = Int(line.preemptionStep ?? 0)
        keepBursts = line.keptBursts
        keepSeconds = line.keptMilliseconds / 1_000
        endToEnd = line.isEndToEnd
        served = line.isServed
        declared = line.isDeclared
        members = line.members
        openInvitations = line.openInvitations
        connected = line.connected
        talkers = line.talkers?.map { APITalker(channelId: nil, channelName: nil, memberId: $0.member, name: $0.name) }
    }
}

/// Who talks; on which channel, where that is not said already.
struct APITalker: Encodable {
    var channelId: String?
    var channelName: String?
    var memberId: String
    var name: String
}

/// How the relay is.
struct APIStatus: Encodable {
    var version: String
    var serving: Bool
    var draining: Bool
    var uptimeSeconds: Int64
    var connections: Int
    var channels: Int
    var connectedMembers: Int
    var talkers: [APITalker]
    var partial: Bool?

    init(_ status: AdministrationResponse.Status, version: String) {
        self.version = version
        serving = status.isServing
        draining = status.isDraining
        uptimeSeconds = status.uptimeSeconds
        connections = status.connections
        channels = status.channels
        connectedMembers = status.members
        talkers = status.talkers.map {
            APITalker(channelId: $0.channel, channelName: $0.channelName, memberId: $0.member, name: $0.name)
        }
        partial = status.isPartial
    }
}

/// An invitation, without its secret.
struct APIInvitation: Encodable {
    var number: Int64
    var standing: Bool
    var open: Bool
    var withdrawn: Bool
    var used: Int
    var uses: Int?
    var priority: Int
    var listenOnly: Bool
    var madeAt: String
    var expiresAt: String?

    init(_ line: AdministrationResponse.InvitationLine) {
        number = line.number
        standing = line.isStanding
        open = line.isOpen
        withdrawn = line.isWithdrawn
        used = line.used
        uses = line.uses
        priority = Int(line.priority)
        listenOnly = line.isListenOnly
        madeAt = apiTime(line.madeAt)
        expiresAt = line.expiresAt.map(apiTime)
    }
}

/// An invitation that was made: the one answer that has its secret, besides that of the standing link.
struct APILink: Encodable {
    var link: String
    var number: Int64?
    var expiresAt: String?
}

/// A member.
struct APIMember: Encodable {
    var id: String
    var name: String
    var nameNow: String?
    var connected: Bool
    var invitation: Int64
    var priority: Int
    var listenOnly: Bool
    var enrolledAt: String
    var removedAt: String?

    init(_ line: AdministrationResponse.MemberLine) {
        id = line.id
        name = line.name
        nameNow = line.nameNow
        connected = line.isConnected ?? false
        invitation = line.invitation
        priority = Int(line.priority)
        listenOnly = line.isListenOnly
        enrolledAt = apiTime(line.enrolledAt)
        removedAt = line.revokedAt.map(apiTime)
    }
}

/// What a removal came to.
struct APIRemoval: Encodable {
    /// Members that were removed by it.
    var removedMembers: Int
    var invitationWithdrawn: Bool
    var newStandingInvitation: Bool
}

/// A part of a list; `next`: there is more, after this.
struct APIPage<Item: Encodable>: Encodable {
    var items: [Item]
    var next: String?
}
