// Requests for kept bursts: the list, and the packets of one burst, for members that ask or join late.
import MonotonicTime
import RelayProtocol

extension RelayCore {
    /// Tells which bursts are kept.
    mutating func listBursts(
        _ request: BurstRequestID, for id: ConnectionID, channel number: Int, at now: Instant
    ) -> [Action] {
        if let refusal = refusalOf(request, from: id, channel: number, at: now) { return refusal }
        let store = channels[number].store
        guard store.limits.retention.isOn else { return refuseBursts(request, .off, to: id) }
        counters.burstsAnswered += 1
        let bursts = store.offered(at: now).map { burst in
            ServerMessage.KeptBurst(
                burst: burst.burst, talker: burst.talker, name: burst.name, age: now - burst.beganAt,
                duration: burst.duration, packets: UInt32(clamping: burst.packetCount),
                isGoingOn: burst.endedAt == nil)
        }
        return [.send(.burstList(.init(id: request, bursts: bursts)), to: [id])]
    }

    /// Gives the packets of a burst: as many as fit in one answer.
    ///
    /// Whoever is a member may have what is kept, also from before it came: the key decides what it can open.
    mutating func giveBurst(
        _ request: ClientMessage.BurstRequest, to id: ConnectionID, channel number: Int, at now: Instant
    ) -> [Action] {
        if let refusal = refusalOf(request.id, from: id, channel: number, at: now) { return refusal }
        changeStore(number) { $0.expire(at: now) }
        guard var member = channels[number].members[id],
            let (packets, isWhole) = channels[number].store.packets(
                of: request.burst, from: request.first, byteLimit: limits.burstAnswerBytes,
                countLimit: RelayProtocolLimits.repairPacketsMaximum)
        else { return refuseBursts(request.id, .notKept, to: id) }
        let count = RepairStream.burstByteCount(packets: packets, isWhole: isWhole)
        var bytes =
            member.burstBytes
            ?? TokenBucket(depth: limits.burstBytes, perSecond: limits.burstBytesPerSecond, at: now)
        // Of neither, when one of them does not have it.
        let isTaken = bytes.holds(count, at: now) && burstBytes.take(count, at: now)
        if isTaken { _ = bytes.take(count, at: now) }
        member.burstBytes = bytes
        channels[number].members[id] = member
        guard isTaken else { return refuseForNow(request.id, to: id) }
        counters.burstsAnswered += 1
        counters.packetsReplayed += packets.count
        return [
            .answerBurst(id, request.id, RepairStream.encode(burst: request.id, packets: packets, isWhole: isWhole))
        ]
    }

    /// An answer of `bytes` bytes could not be sent, because the connection has not read the previous ones. It is not
    /// charged to the member's limits.
    mutating func burstNotTaken(_ request: BurstRequestID, bytes count: Int, by id: ConnectionID) -> [Action] {
        guard case .member(let number) = connections[id]?.state else { return [] }
        channels[number].members[id]?.burstBytes?.giveBack(count)
        burstBytes.giveBack(count)
        return refuseForNow(request, to: id)
    }

    /// What is said to a request that is not the connection's next, or comes too soon; nil: it may be answered.
    private mutating func refusalOf(
        _ request: BurstRequestID, from id: ConnectionID, channel number: Int, at now: Instant
    ) -> [Action]? {
        guard var member = channels[number].members[id] else { return [] }
        guard request > member.lastBurstRequest else {
            return violation(id, "a request for bursts that is not newer than the last", at: now)
        }
        member.lastBurstRequest = request
        var requests =
            member.burstRequests
            ?? TokenBucket(depth: limits.burstRequestBurst, perSecond: limits.burstRequestsPerSecond, at: now)
        let isTaken = requests.take(at: now)
        member.burstRequests = requests
        channels[number].members[id] = member
        return isTaken ? nil : refuseForNow(request, to: id)
    }

    /// It may be asked for again in a moment.
    private mutating func refuseForNow(_ request: BurstRequestID, to id: ConnectionID) -> [Action] {
        refuseBursts(request, .tooMuch, retryAfter: limits.burstRetryTime, to: id)
    }

    mutating func refuseBursts(
        _ request: BurstRequestID, _ cause: BurstRefusal, retryAfter: Duration = .zero, to id: ConnectionID
    ) -> [Action] {
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

    /// What is kept of a channel's bursts is to be another number, or time.
    mutating func setRetention(_ retention: BurstRetention, of channel: ChannelID, at now: Instant) {
        guard let number = channelNumbers[channel] else { return }
        channels[number].configuration.retention = retention
        changeStore(number) { $0.set(retention, at: now) }
    }

    // MARK: Memory

    /// Changes what is kept of a channel, within what may be kept of all of them.
    mutating func changeStore(_ number: Int, _ change: (inout BurstStore) -> Void) {
        let before = channels[number].store.byteCount
        change(&channels[number].store)
        keptBytes += channels[number].store.byteCount - before
        while keptBytes > limits.keptBytes, makeRoom() {}
    }

    /// Drops the burst that ended first. If all are in progress, it drops a part of the beginning of the largest one.
    /// False: nothing is kept.
    private mutating func makeRoom() -> Bool {
        var oldest: (number: Int, at: Instant)?
        var largest: (number: Int, bytes: Int)?
        for number in channels.indices {
            let store = channels[number].store
            if let at = store.oldestEnd, at < oldest?.at ?? Instant(nanoseconds: .max) { oldest = (number, at) }
            if store.byteCount > largest?.bytes ?? 0 { largest = (number, store.byteCount) }
        }
        guard let number = oldest?.number ?? largest?.number else { return false }
        let before = channels[number].store.byteCount
        if !channels[number].store.dropOldestPast() {
            var dropped = 0
            while dropped < Self.packetsDroppedAtOnce, channels[number].store.dropOldest() { dropped += 1 }
        }
        keptBytes += channels[number].store.byteCount - before
        return channels[number].store.byteCount < before
    }

    /// So many packets are dropped for one walk over the channels.
    private static let packetsDroppedAtOnce = 64
}
