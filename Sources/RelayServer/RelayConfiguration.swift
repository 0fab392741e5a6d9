// The configuration of a relay: its channels and its limits. Every limit of the relay has a name here.
import RelayProtocol

/// One channel of a relay.
public struct RelayChannelConfiguration: Sendable, Hashable {
    /// Names the channel on the wire and in invitations.
    public var id: ChannelID
    /// What people read.
    public var name: DisplayName
    /// The secret that opens it.
    public var token: InvitationToken
    /// Who may talk at the same time, and with which precedence.
    public var rules: FloorRules
    /// Whether the media key is in the members' links only, so that the relay can neither give nor renew it.
    public var isEndToEnd: Bool
    /// What is kept of its bursts once they are over, for members who ask for it.
    public var retention = BurstRetention.off
    /// To whom the relay gives its invitation.
    public var admission = ChannelAdmission.invited
    /// The message to members that offer to host the channel after this relay; its order is empty. Nil: there are no
    /// successors.
    public var succession: ServerMessage.Succession?
    /// The member that this relay's own machine is: it goes with the relay, so it does not follow it.
    public var hostMember: MemberID?

    /// A channel opened by `token`.
    public init(
        id: ChannelID, name: DisplayName, token: InvitationToken, rules: FloorRules = FloorRules(),
        isEndToEnd: Bool = false
    ) {
        self.isEndToEnd = isEndToEnd
        self.id = id
        self.name = name
        self.token = token
        self.rules = rules
    }
}

/// How much a relay takes on. What goes beyond is refused and counted.
public struct RelayLimits: Sendable, Hashable {
    /// Connections at one time, joined or not.
    public var connections = 2_048
    /// Further connections, which are accepted only to report that the relay is full.
    var connectionsRefused: Int { max(8, connections / 8) }
    /// Connections at one time from one IPv4 address or one /64 of IPv6; people behind one NAT share an address.
    public var connectionsPerAddress = 512
    /// New connections per second above which each client must prove its address by a QUIC Retry, at the cost of one
    /// round trip.
    public var handshakesPerSecond = 256
    /// Members of one channel.
    public var membersPerChannel = 500
    /// Channels of the relay. Each takes some memory, and no time while nobody uses it.
    public var channels = 16_384
    /// How long a connection may take to join.
    public var joinTime: Duration = .seconds(10)
    /// Clients without a membership that may wait for one at a time, on the channels of a worker.
    public var enrolments = 256
    /// How long a refused client is given to read why, before the relay closes.
    public var refusalTime: Duration = .seconds(1)
    /// Invitations to open channels that are given at once, to all who ask about the channels of a worker…
    public var invitationBurst = 64
    /// …and each second in the long run.
    public var invitationsPerSecond = 16
    /// The retry time for a client that is refused because of the rate limit.
    public var invitationRetryTime: Duration = .seconds(1)
    /// Wrong codes that may be tried at a channel with a code at once, by all together…
    public var wrongCodes = 8
    /// …and how long it takes until one more may be tried.
    public var wrongCodeInterval: Duration = .seconds(20)
    /// Maximum number of pending join requests per channel, and the burst of its rate limit…
    public var pendingJoinsMaximum = 16
    /// …and how long it takes until one more may ask.
    public var pendingJoinInterval: Duration = .seconds(5)
    /// How long a join request waits for the creator's answer.
    public var pendingJoinTime: Duration = .seconds(60)
    /// Members that were admitted and need not ask again; the oldest are forgotten.
    public var admittedMembersKept = 512
    /// Control messages a connection may send at once (the depth of the token bucket).
    public var messageBurst = 64
    /// Control messages a connection may send per second in the long run.
    public var messagesPerSecond = 32
    /// Bytes of one media datagram, RTP header included. It fits, with the trailer, the smallest path of QUIC.
    public var datagramBytes = 1_160
    /// Media packets that a member may send at once: three seconds that it held, and what of them was lost and comes again…
    public var mediaBurst = 1_024
    /// …and each second in the long run: speech in the shortest frames, twice.
    public var mediaPerSecond = 250
    /// Bytes of control messages that may wait for one connection to take them.
    public var controlBacklogBytes = 256 * 1_024
    /// The same for channels whose member list is longer.
    var controlBacklog: Int { max(controlBacklogBytes, membersPerChannel * Self.announcementBytes) }
    /// The bytes of one member in the message that announces it: identifier, name, source and all lengths.
    private static let announcementBytes = 192
    /// The longest of them.
    static let announcementBytesMaximum = 164
    /// Of what may wait for one connection, the part of all that does not tell of members.
    static let otherControlBytes = 16 * 1_024
    /// Maximum bytes of join and leave notices per batch. They fit the backlog of a client that has not yet read its
    /// `Welcome`.
    var rosterUpdateBytes: Int {
        let welcome = membersPerChannel * Self.announcementBytesMaximum
        return max(4_096, controlBacklog - welcome - Self.otherControlBytes)
    }
    /// Bytes of such news each second in the long run.
    public var rosterNewsPerSecond = 64 * 1_024
    /// Join and leave notices, one for each recipient, that the channels of a worker may send at once…
    public var rosterNotices = 4_000
    /// …and each second in the long run. Beyond it they are collected: `RosterUpdates.crowdedWindow`.
    public var rosterNoticesPerSecond = 2_000
    /// Requests for lost packets that a member may send at once, and each second in the long run.
    public var repairBurst = 16
    /// See `repairBurst`.
    public var repairsPerSecond = 20
    /// Bytes of lost packets that a member is sent again at once…
    public var repairBytes = 256 * 1_024
    /// …and each second in the long run.
    public var repairBytesPerSecond = 64 * 1_024
    /// What a request for lost packets counts as at least, though nothing was found.
    public var repairBytesMinimum = 512
    /// Answers that may be on their way to one member.
    public var repairAnswers = 8
    /// Bytes of them that it has not taken yet; of answers to requests for bursts too.
    public var answerBytes = 256 * 1_024
    /// What is kept of each channel's last bursts…
    public var burstStore = BurstStore.Limits()
    /// …and of those of all channels together, in bytes of memory.
    public var keptBytes = 128 * 1_024 * 1_024
    /// Requests for kept bursts, and for the list of them, that a member may make at once, and each second in the long run.
    public var burstRequestBurst = 16
    /// See `burstRequestBurst`.
    public var burstRequestsPerSecond = 4
    /// Bytes of kept bursts that a member is given at once…
    public var burstBytes = 512 * 1_024
    /// …and each second in the long run.
    public var burstBytesPerSecond = 64 * 1_024
    /// The same of all members on the channels of a worker: who talks comes before what was said.
    public var burstBytesOfAll = 16 * 1_024 * 1_024
    /// See `burstBytesOfAll`.
    public var burstBytesOfAllPerSecond = 4 * 1_024 * 1_024
    /// Bytes of packets in one answer to a request for a burst.
    public var burstAnswerBytes = 64 * 1_024
    /// The retry time for a client that requested too much.
    public var burstRetryTime: Duration = .seconds(1)
    /// The minimum time between two reports of listeners' losses to a talker.
    public var listenerLossInterval: Duration = .seconds(2)
    /// A listener's media stop after this long without a reception report.
    public var reportTimeout: Duration = .seconds(10)
    /// The relay grants the epoch before the current one for this long; listeners keep it longer.
    public var previousEpochTime: Duration = .seconds(10)
    /// Maximum number of bursts under one media key. Their key ids have 48 random bits, and no two of them may be
    /// equal.
    public var burstsPerMediaKey = 65_000
    /// More of them are not granted under a key that is not in force any more; those who wait already are.
    var burstsPerEarlierMediaKey: Int { burstsPerMediaKey + 400 }
    /// Packets of media to one connection; then it is closed, since the counter of their trailers must not start again.
    public var downlinkPackets = MediaTrailer.counters
    /// Live push tokens of one member.
    public var pushTokensPerMember = 8
    /// Live push tokens of the relay; beyond them, the one that was not connected for longest dies.
    public var pushTokens = 32_768
    /// Dead push tokens that are remembered, so that a push to one is answered with the time of its death.
    public var deadPushTokens = 16_384
    /// Pushes that may wait for one connection to confirm them.
    public var pushesUnconfirmed = 32
    /// Pushes kept for clients that are not connected, one for each token.
    public var pushesKept = 4_096
    /// How long a push is kept at most.
    public var pushLifetimeMaximum: Duration = .seconds(30 * 86_400)
    /// Pushes to one token at once (the depth of its bucket).
    public var pushBurst = 16
    /// Pushes to one token per second in the long run.
    public var pushesPerSecond = 4
    /// After a start, clients may take this long to come back: the longest wait between their attempts.
    public var pushGraceTime: Duration = .seconds(30)
    /// The design's limits.
    public init() {}
}
