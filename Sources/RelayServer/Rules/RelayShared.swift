// What all channels of a relay share: its connections, its counters, its random numbers, and the bounds of kept bursts. Pure.
import MonotonicTime
import RelayProtocol

/// The state of a relay that belongs to none of its channels. A channel gets it together with what it is to do.
struct RelayShared: Sendable {
    let limits: RelayLimits
    /// Which part of the relay's channels this belongs to.
    let shard: RelayShardPlace
    var connections: RelayConnections
    var counters = RelayCounters()
    var secrets: RelaySecrets
    var bursts: BurstBudget
    /// Join and leave notices that may be sent at once: `RosterUpdates`.
    var notices: TokenBucket
    /// Where links over TLS are taken.
    let web: WebPlace?
    /// Who broke the protocol just now, and how.
    var violation: (id: ConnectionID, what: String)?

    init(
        _ limits: RelayLimits, _ random: any RandomNumberGenerator & Sendable, web: WebPlace?,
        of shard: RelayShardPlace, at now: Instant
    ) {
        self.shard = shard
        self.limits = limits
        self.web = web
        connections = RelayConnections(limits, shard.census)
        secrets = RelaySecrets(random, of: shard)
        bursts = BurstBudget(limits, of: shard, at: now)
        // One change in the largest channel is never too much.
        let atOnce = max(limits.rosterNotices, limits.membersPerChannel)
        notices = TokenBucket(depth: atOnce, perSecond: limits.rosterNoticesPerSecond, at: now)
    }

    // MARK: Refusals

    /// A client breaks the protocol: it is to be closed when its channel is done with what it was doing.
    mutating func violates(_ id: ConnectionID, _ what: String) -> [RelayAction] {
        violation = (id, what)
        return []
    }

    /// A client is not let in. It has a moment to read why.
    mutating func refuse(_ id: ConnectionID, _ cause: JoinRefusal, _ phrase: String, at now: Instant) -> [RelayAction] {
        counters.joinsRefused += 1
        connections.advance(id, to: .refused, until: now + limits.refusalTime)
        return [
            .send(.joinRefused(.init(cause: cause, phrase: phrase)), to: [id]),
            .note(.joinRefused(id, cause, phrase)),
        ]
    }

    /// A client is told which relay serves its channel, and has a moment to read it.
    mutating func sendOn(_ id: ConnectionID, to place: RelayPlace, at now: Instant) -> [RelayAction] {
        counters.joinsSentOn += 1
        connections.advance(id, to: .refused, until: now + limits.refusalTime)
        return [.send(.successor(place), to: [id])]
    }

    mutating func invite(_ id: ConnectionID, to channel: RelayChannelConfiguration, codeTag: [UInt8]? = nil)
        -> [RelayAction]
    {
        guard case .nearby(_, _, let mediaKey) = channel.admission else { return [] }
        counters.invitationsGiven += 1
        let invitation = ServerMessage.Invitation(
            token: channel.token, channelName: channel.name, mediaKey: mediaKey, codeTag: codeTag)
        return [.send(.invitation(invitation), to: [id])]
    }

    mutating func refuseInvitation(
        _ cause: InvitationRefusal, _ phrase: String, to id: ConnectionID, retryAfter: Duration = .zero
    ) -> [RelayAction] {
        counters.invitationsRefused += 1
        return [.send(.invitationRefused(.init(cause: cause, phrase: phrase, retryAfter: retryAfter)), to: [id])]
    }

    mutating func refuseBursts(
        _ request: BurstRequestID, _ cause: BurstRefusal, retryAfter: Duration = .zero, to id: ConnectionID
    ) -> [RelayAction] {
        counters.burstsRefused += 1
        let phrase =
            switch cause {
            case .notAMember: "only members of the channel may get its bursts"
            case .notKept: "the relay no longer has that burst"
            case .tooMuch: "too much was requested at once"
            case .off: "this channel keeps no bursts"
            case .other: ""
            }
        let refusal = ServerMessage.BurstRefused(id: request, cause: cause, phrase: phrase, retryAfter: retryAfter)
        return [.send(.burstRefused(refusal), to: [id])]
    }

    /// A request for bursts comes too soon: the member may ask again in a moment.
    mutating func refuseForNow(_ request: BurstRequestID, to id: ConnectionID) -> [RelayAction] {
        refuseBursts(request, .tooMuch, retryAfter: limits.burstRetryTime, to: id)
    }
}

/// The random numbers of a relay, and the sources in use, which are unique among all its channels: each shard draws others.
struct RelaySecrets: Sendable {
    var generator: any RandomNumberGenerator & Sendable
    private var sources: Set<SSRC> = []

    private let shard: (number: UInt32, count: UInt32)

    init(_ generator: any RandomNumberGenerator & Sendable, of shard: RelayShardPlace) {
        self.generator = generator
        self.shard = (UInt32(shard.number), UInt32(shard.count))
    }

    /// A source that nobody has.
    mutating func source() -> SSRC {
        while true {
            let drawn = UInt32.random(in: 1...UInt32.max, using: &generator)
            let (number, isTooLarge) = (drawn / shard.count * shard.count).addingReportingOverflow(shard.number)
            guard !isTooLarge, number > 0 else { continue }
            if sources.insert(SSRC(rawValue: number)).inserted { return SSRC(rawValue: number) }
        }
    }

    /// The owner of a source is gone.
    mutating func release(_ source: SSRC) { sources.remove(source) }

    /// A fresh media key, by default of a random epoch.
    mutating func mediaKey(epoch: UInt16? = nil) -> MediaKey {
        let epoch = epoch ?? UInt16.random(in: 0...UInt16.max, using: &generator)
        guard let key = MediaKey(epoch: epoch, baseKey: bytes(MediaKey.byteCountDefault)) else {
            preconditionFailure("a media key of the default size is one")
        }
        return key
    }

    mutating func trailerKey() -> TrailerKey {
        guard let key = TrailerKey(bytes(TrailerKey.byteCount)) else {
            preconditionFailure("a trailer key of the fixed size is one")
        }
        return key
    }

    mutating func pushID() -> PushID { PushID(rawValue: UInt64.random(in: 0...UInt64.max, using: &generator)) }

    private mutating func bytes(_ count: Int) -> [UInt8] {
        (0..<count).map { _ in UInt8.random(in: 0...UInt8.max, using: &generator) }
    }
}
