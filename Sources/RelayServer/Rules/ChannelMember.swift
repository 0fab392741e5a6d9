// One member of a channel: who it is, what it was told of the floor, how it hears, and how much it may still ask for. Pure.
import MonotonicTime
import RelayProtocol

/// One member, on the connection it joined with last.
struct ChannelMember: Sendable {
    /// What a member asked of the floor, and what it was told.
    struct Floor: Sendable {
        fileprivate(set) var lastRequestID = FloorRequestID(rawValue: 0)
        fileprivate(set) var lastKeyID: UInt64?
        /// How its last request was denied, or its burst ended.
        fileprivate(set) var lastAnswer: [ServerMessage] = []
        /// T8: when it is reminded again that it does not have the floor, if it continues to send; nil while it has the
        /// floor.
        var nextReminder: Instant?
        /// The waiting request that was logged.
        var notedRequest: FloorRequestID?
        /// The request that was granted last.
        var grantedRequest: FloorRequestID?

        /// A request that has not been asked before.
        mutating func note(_ request: ClientMessage.FloorRequest) {
            lastRequestID = request.requestID
            lastKeyID = request.keyID
            lastAnswer = []
        }

        /// What the relay said last of the last request, if it is this one: repeated when the member asks for it again.
        mutating func remember(_ answer: ServerMessage, to request: FloorRequestID) {
            guard lastRequestID == request else { return }
            if case .floorIdle = answer { lastAnswer.append(answer) } else { lastAnswer = [answer] }
        }
    }

    let connection: ConnectionID
    let id: MemberID
    let name: DisplayName
    let ssrc: SSRC
    /// The keys of the trailers on what it gets and sends outside QUIC.
    let downlinkKey: TrailerKey
    let uplinkKey: TrailerKey
    /// The message that announces it to the others, encoded once for all of them.
    let announcement: [UInt8]
    /// Whom it comes before when it asks for the floor: 255 before everyone, from its invitation.
    private(set) var priority: UInt8 = 0
    /// Whether it may not talk, from its invitation.
    private(set) var isListenOnly = false
    var floor = Floor()
    /// The last sign that it hears, or when the burst began.
    var reportedAt: Instant
    var isSilent = false
    var reception = ListenerReception()
    /// The loss of its own last burst; nil: it was reported.
    var lossOfLastBurst: TalkerLoss?
    /// The last reported percentage of loss, to which it adapts.
    var toldLoss = 0
    /// The last request for lost packets, and how many more may come.
    var lastRepairID: UInt32 = 0
    var repairRequests: TokenBucket
    var repairBytes: TokenBucket
    /// The last request for kept bursts or their list, and how many more may come.
    var lastBurstRequest = BurstRequestID(rawValue: 0)
    var burstRequests: TokenBucket
    var burstBytes: TokenBucket
    /// The packets that it may still send.
    private var media: TokenBucket

    init(
        connection: ConnectionID, id: MemberID, name: DisplayName, ssrc: SSRC, downlinkKey: TrailerKey,
        uplinkKey: TrailerKey, membership: RelayMembership?, limits: RelayLimits, at now: Instant
    ) {
        self.connection = connection
        self.id = id
        self.name = name
        self.ssrc = ssrc
        self.downlinkKey = downlinkKey
        self.uplinkKey = uplinkKey
        reportedAt = now
        announcement = ServerMessage.memberJoined(.init(id: id, displayName: name, ssrc: ssrc)).framed()
        repairRequests = TokenBucket(depth: limits.repairBurst, perSecond: limits.repairsPerSecond, at: now)
        repairBytes = TokenBucket(depth: limits.repairBytes, perSecond: limits.repairBytesPerSecond, at: now)
        burstRequests = TokenBucket(depth: limits.burstRequestBurst, perSecond: limits.burstRequestsPerSecond, at: now)
        burstBytes = TokenBucket(depth: limits.burstBytes, perSecond: limits.burstBytesPerSecond, at: now)
        media = TokenBucket(depth: limits.mediaBurst, perSecond: limits.mediaPerSecond, at: now)
        if let membership { adopt(membership) }
    }

    var asMessage: ServerMessage.Member { .init(id: id, displayName: name, ssrc: ssrc) }

    /// What it may do, from now on.
    mutating func adopt(_ membership: RelayMembership) {
        priority = membership.priority
        isListenOnly = membership.isListenOnly
    }

    /// The effective priority of a request. Any member may declare an emergency. Otherwise the member's own priority is
    /// the maximum.
    func effectivePriority(of asked: UInt8) -> UInt8 {
        asked == FloorRules.emergency ? asked : min(asked, priority, FloorRules.emergency - 1)
    }

    /// Why a packet of that source is dropped; nil: it is the member's own, and its packets come slowly enough. Allocates and copies
    /// nothing.
    mutating func refuse(_ source: SSRC, at now: Instant) -> MediaDrop? {
        guard source == ssrc else { return .foreignSource }
        // Each packet of a talker becomes one for every listener.
        return media.take(at: now) ? nil : .tooFast
    }
}
