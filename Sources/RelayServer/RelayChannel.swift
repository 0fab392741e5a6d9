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
        var lastRequestID = FloorRequestID(rawValue: 0)
        var lastKeyID: UInt64?
        /// The last sign that it hears, or when the burst began.
        var reportedAt: Instant
        var isSilent = false
        /// The last request for lost packets, and how many more may come; made with the first.
        var lastRepairID: UInt32 = 0
        var repairRequests: MessageBucket?
        var repairBytes: MessageBucket?
        var reception = ListenerReception()

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
        }

        var asMessage: ServerMessage.Member { .init(id: id, displayName: name, ssrc: ssrc) }
    }

    /// How often listeners are looked through for silent ones.
    static let reportCheckInterval: Duration = .seconds(1)
    /// `stopSilentListeners` gives this many actions for each.
    static let actionsPerSilentListener = 2

    let configuration: RelayChannelConfiguration
    private(set) var mediaKey: MediaKey
    private var previousEpoch: (epoch: UInt16, until: Instant)?
    var floor: FloorControlStateMachine
    var members: [ConnectionID: Member] = [:]
    var connectionOfMember: [MemberID: ConnectionID] = [:]
    /// Of the clients that are no members and get pushes only.
    var pushConnectionOfMember: [MemberID: ConnectionID] = [:]
    var burstBytes = 0
    /// What was said last.
    var store: BurstStore
    /// Packets of the current burst that came, and those of them that had been lost at first.
    var talkerLoss = TalkerLoss()
    private(set) var nextReportCheck = Instant.zero
    /// Who was granted the floor, kept apart from `floor` to check it.
    private(set) var speaker: SSRC?

    init(
        configuration: RelayChannelConfiguration, mediaKey: MediaKey, timers: FloorControlStateMachine.Timers,
        store: BurstStore.Limits = .init()
    ) {
        self.store = BurstStore(limits: store)
        self.configuration = configuration
        self.mediaKey = mediaKey
        floor = FloorControlStateMachine(timers: timers, hasQueue: configuration.hasFloorQueue)
    }

    var name: DisplayName { configuration.name }

    /// Every member's connection, oldest first.
    var everyone: [ConnectionID] { members.keys.sorted() }

    /// Looked up in a walk over the members: floor messages are rare.
    func member(of ssrc: SSRC) -> Member? { members.values.first { $0.ssrc == ssrc } }

    var floorTaken: ServerMessage.FloorTaken? {
        guard let holder = floor.holder, let member = member(of: holder.ssrc) else { return nil }
        return .init(talker: member.id, ssrc: holder.ssrc, keyID: holder.keyID)
    }

    /// Checks invariant I4: nobody is granted the floor while another holds it.
    mutating func noteSpeaker(_ ssrc: SSRC) {
        precondition(speaker == nil || speaker == ssrc, "two members hold the floor")
        if speaker == nil {
            burstBytes = 0
            talkerLoss = TalkerLoss()
        }
        speaker = ssrc
    }

    mutating func noteIdle(of ssrc: SSRC) {
        precondition(speaker == ssrc, "a floor that was not granted ends")
        speaker = nil
    }

    mutating func clear() {
        members = [:]
        connectionOfMember = [:]
        pushConnectionOfMember = [:]
        floor = FloorControlStateMachine(timers: floor.timers, hasQueue: floor.hasQueue)
        speaker = nil
        store.removeAll()
    }

    func summary(of burst: FloorControlStateMachine.Summary, at now: Instant) -> RelayBurstSummary {
        let listeners = members.values.count { $0.ssrc != burst.request.ssrc && !$0.isSilent }
        return RelayBurstSummary(
            ssrc: burst.request.ssrc, reason: burst.reason, packets: burst.sequences.received, bytes: burstBytes,
            lost: burst.sequences.lost, listeners: listeners, duration: burst.firstMediaAt.map { now - $0 } ?? .zero)
    }

    // MARK: Epochs

    func allows(epoch: UInt16, at now: Instant) -> Bool {
        if epoch == mediaKey.epoch { return true }
        guard let previousEpoch else { return false }
        return previousEpoch.epoch == epoch && now < previousEpoch.until
    }

    mutating func renew(_ key: MediaKey, keepingPrevious time: Duration, at now: Instant) {
        previousEpoch = (mediaKey.epoch, now + time)
        mediaKey = key
    }

    // MARK: Reception reports

    /// A burst begins: everyone gets it, and has the whole time-out to report.
    mutating func beginListening(number: Int, at now: Instant) -> [RelayCore.Action] {
        var actions: [RelayCore.Action] = []
        nextReportCheck = now + Self.reportCheckInterval
        for id in everyone {
            members[id]?.reportedAt = now
            if let speaker { members[id]?.reception.begin(speaker) }
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
            guard let member = members[id], !member.isSilent, member.ssrc != speaker,
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
