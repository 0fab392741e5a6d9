// One channel of a relay: its members, its floor and its media key. Part of `RelayCore`.
import MonotonicTime
import RelayProtocol

/// What `RelayCore` knows of one channel.
struct RelayChannel: Sendable {
    /// One member, on the connection it joined with last.
    struct Member: Sendable, Equatable {
        let connection: ConnectionID
        let id: MemberID
        let name: DisplayName
        let ssrc: SSRC
        let downlinkKey: DownlinkKey
        /// The message that announces it to the others, encoded once for all of them.
        let announcement: [UInt8]
        /// Whom it comes before when it asks for the floor: 255 before everyone, from its invitation.
        var priority: UInt8 = 0
        /// Whether it may not talk, from its invitation.
        var isListenOnly = false
        var lastRequestID = FloorRequestID(rawValue: 0)
        var lastKeyID: UInt64?
        /// How its last request was denied, or its burst ended.
        var lastAnswer: [ServerMessage] = []
        /// T8: when it is reminded again that it does not have the floor, if it continues to send; nil while it has the
        /// floor.
        var nextReminder: Instant?
        /// The waiting request that was logged.
        var notedRequest: FloorRequestID?
        /// The request that was granted last.
        var grantedRequest: FloorRequestID?
        /// The last sign that it hears, or when the burst began.
        var reportedAt: Instant
        var isSilent = false
        /// The last request for lost packets, and how many more may come; made with the first.
        var lastRepairID: UInt32 = 0
        var repairRequests: TokenBucket?
        var repairBytes: TokenBucket?
        /// The last request for kept bursts or their list, and how many more may come; made with the first.
        var lastBurstRequest = BurstRequestID(rawValue: 0)
        var burstRequests: TokenBucket?
        var burstBytes: TokenBucket?
        var reception = ListenerReception()
        /// The loss of its own last burst; nil: it was reported.
        var lossOfLastBurst: TalkerLoss?
        /// The last reported percentage of loss, to which it adapts.
        var toldLoss = 0
        /// The packets that it may still send; made with the first.
        private var media: TokenBucket?

        init(
            connection: ConnectionID, id: MemberID, name: DisplayName, ssrc: SSRC, downlinkKey: DownlinkKey,
            reportedAt: Instant
        ) {
            self.connection = connection
            self.id = id
            self.name = name
            self.ssrc = ssrc
            self.downlinkKey = downlinkKey
            self.reportedAt = reportedAt
            announcement = ServerMessage.memberJoined(.init(id: id, displayName: name, ssrc: ssrc)).framed()
        }

        /// Whether a packet of that source is looked at: it has to be its own, and its packets have to come slowly enough; nil: it is.
        /// Allocates and copies nothing.
        mutating func refuse(_ source: SSRC, depth: Int, perSecond: Int, at now: Instant) -> MediaDrop? {
            guard source == ssrc else { return .foreignSource }
            if media == nil { media = TokenBucket(depth: depth, perSecond: perSecond, at: now) }
            return media?.take(at: now) == true ? nil : .tooFast
        }

        var asMessage: ServerMessage.Member { .init(id: id, displayName: name, ssrc: ssrc) }
    }

    /// How often listeners are looked through for silent ones.
    static let reportCheckInterval: Duration = .seconds(1)
    /// `stopSilentListeners` gives this many actions for each.
    static let actionsPerSilentListener = 2

    var configuration: RelayChannelConfiguration
    /// What its bursts are sealed with, unless that is its members' own.
    var keys: ChannelMediaKeys
    var floor: FloorControlStateMachine
    var members: [ConnectionID: Member] = [:]
    var connectionOfMember: [MemberID: ConnectionID] = [:]
    /// The connections of clients that are not members and get pushes only.
    var pushConnectionOfMember: [MemberID: ConnectionID] = [:]
    /// What was said last.
    var store: BurstStore
    /// The members who offered to host the channel after this relay, in the order in which they did.
    var successors: [ConnectionID] = []
    /// Joins and leaves that were not announced yet.
    var news: RosterUpdates
    private(set) var nextReportCheck = Instant.zero
    /// The members that were granted the floor, kept separately from `floor` as a check.
    var speakers: [Speaker] = []
    /// For the operator.
    var counters = RelayChannelCounters()
    /// When the members may go, the last burst being over: set while they are to go.
    var closesAt: Instant?

    init(
        configuration: RelayChannelConfiguration, mediaKey: MediaKey, timers: FloorControlStateMachine.Timers,
        limits: RelayLimits
    ) {
        store = BurstStore(limits: Self.limits(limits.burstStore, configuration))
        news = RosterUpdates(limits: limits)
        self.configuration = configuration
        keys = ChannelMediaKeys(mediaKey)
        floor = FloorControlStateMachine(timers: timers, rules: configuration.rules)
    }

    /// Each of those who may talk at once has as many bursts.
    private static func limits(
        _ limits: BurstStore.Limits, _ configuration: RelayChannelConfiguration
    ) -> BurstStore.Limits {
        var limits = limits
        limits.bursts *= configuration.rules.talkersMaximum
        limits.retention = configuration.retention
        return limits
    }

    /// The floor's rules are these from now on.
    mutating func adopt(_ rules: FloorRules, store limits: BurstStore.Limits) {
        configuration.rules = rules
        store.limits = Self.limits(limits, configuration)
    }

    var name: DisplayName { configuration.name }

    /// The media key in force.
    var mediaKey: MediaKey { keys.present }

    /// The media key, unless it is its members' own.
    var offeredMediaKey: MediaKey? { configuration.isEndToEnd ? nil : mediaKey }

    /// Every member's connection, oldest first.
    var everyone: [ConnectionID] { members.keys.sorted() }

    /// Looked up in a walk over the members: floor messages are rare.
    func member(of ssrc: SSRC) -> Member? { members.values.first { $0.ssrc == ssrc } }

    mutating func clear() {
        members = [:]
        connectionOfMember = [:]
        pushConnectionOfMember = [:]
        floor = FloorControlStateMachine(timers: floor.timers, rules: floor.rules)
        speakers = []
        store.removeAll()
        news.forget()
        closesAt = nil
    }

    func summary(of burst: FloorControlStateMachine.Summary, at now: Instant) -> RelayBurstSummary {
        let listeners = members.values.count { $0.ssrc != burst.request.ssrc && !$0.isSilent }
        return RelayBurstSummary(
            ssrc: burst.request.ssrc, reason: burst.reason, packets: burst.sequences.received,
            bytes: speaker(burst.request.ssrc)?.bytes ?? 0, lost: burst.sequences.lost, listeners: listeners,
            duration: burst.firstMediaAt.map { now - $0 } ?? .zero)
    }

    // MARK: Epochs

    func allows(epoch: UInt16, limits: RelayLimits, at now: Instant) -> Bool {
        if configuration.isEndToEnd { return epoch == InvitationLink.mediaKeyEpoch }
        return keys.allows(epoch, maximum: limits.burstsPerEarlierMediaKey, at: now)
    }

    /// The epochs of the bursts in progress and of the waiting requests.
    var epochsInUse: Set<UInt16> { Set((floor.holders + floor.waiting).map { UInt16($0.keyID >> 48) }) }

    /// The earlier keys for a new member, in addition to the current one. It hears bursts in progress under an earlier
    /// key to their end if it was allowed to have that key. The current key follows again, because the member's own
    /// bursts use it.
    func earlierKeys(for member: MemberID) -> MessageSeries? {
        guard !configuration.isEndToEnd else { return nil }
        let epochs = Set(floorsTaken(for: member).map { UInt16($0.keyID >> 48) })
        let earlier = keys.earlierKeys(of: epochs, for: member)
        guard !earlier.isEmpty else { return nil }
        var series = MessageSeries()
        for key in earlier + [mediaKey] { series.append(ServerMessage.mediaKey(key).framed()) }
        return series
    }

    // MARK: Reception reports

    /// A burst begins: everyone gets it, and has the whole time-out to report.
    mutating func beginListening(to talker: SSRC, number: Int, at now: Instant) -> [RelayCore.Action] {
        var actions: [RelayCore.Action] = []
        nextReportCheck = now + Self.reportCheckInterval
        for id in everyone {
            members[id]?.reportedAt = now
            members[id]?.reception.begin(talker)
            actions += wake(id, number: number)
        }
        return actions
    }

    mutating func reported(_ id: ConnectionID, number: Int, at now: Instant) -> [RelayCore.Action] {
        members[id]?.reportedAt = now
        return wake(id, number: number)
    }

    private mutating func wake(_ id: ConnectionID, number: Int) -> [RelayCore.Action] {
        guard let member = members[id], member.isSilent else { return [] }
        members[id]?.isSilent = false
        return [.startMedia(id, channel: number, key: member.downlinkKey, ssrc: member.ssrc)]
    }

    mutating func stopSilentListeners(number: Int, timeout: Duration, at now: Instant) -> [RelayCore.Action] {
        nextReportCheck = now + Self.reportCheckInterval
        var actions: [RelayCore.Action] = []
        for id in everyone {
            guard let member = members[id], !member.isSilent, !isSpeaking(member.ssrc),
                now - member.reportedAt > timeout
            else { continue }
            members[id]?.isSilent = true
            actions += [
                .stopMedia(id, channel: number), .note(.listenerSilent(channel: name, member: member.id)),
            ]
        }
        return actions
    }
}
