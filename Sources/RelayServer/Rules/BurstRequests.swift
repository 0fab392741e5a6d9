// The answers to members who ask for kept bursts: packets that they missed, and bursts to hear again; and the bounds of the kept bursts
// of all channels together. Pure.
import MonotonicTime
import RelayProtocol

/// How much memory the kept bursts of each channel of a shard take, and how many bytes of them its members may still be given.
struct BurstBudget: Sendable {
    /// What they take, of all channels of this shard.
    private(set) var keptBytes = 0
    private let shard: RelayShardPlace
    private var ofChannel: [Int: Int] = [:]
    private let limit: Int
    private var given: TokenBucket

    init(_ limits: RelayLimits, of shard: RelayShardPlace, at now: Instant) {
        self.shard = shard
        limit = limits.keptBytes
        given = TokenBucket(depth: limits.burstBytesOfAll, perSecond: limits.burstBytesOfAllPerSecond, at: now)
    }

    /// Whether those of all shards take too much, and this one has more than its part of the memory.
    var isExceeded: Bool { keptBytes > limit / shard.count && shard.census.keptBytes > limit }

    /// The bursts of a channel take so much now.
    mutating func note(_ bytes: Int, of channel: Int) {
        let change = bytes - (ofChannel.updateValue(bytes, forKey: channel) ?? 0)
        guard change != 0 else { return }
        keptBytes += change
        shard.census.add(keptBytes: change)
    }

    /// Takes `count` bytes of what all members, and of what this one may be given: of neither, when one of them does not have it.
    mutating func take(_ count: Int, and own: inout TokenBucket, at now: Instant) -> Bool {
        guard own.holds(count, at: now), given.take(count, at: now) else { return false }
        return own.take(count, at: now)
    }

    /// Bytes that were taken could not be sent.
    mutating func giveBack(_ count: Int) { given.giveBack(count) }

    /// The channel to drop something of: the one with the burst that ended first or, when all are in progress, the one that takes most;
    /// nil: nothing is kept. `channels` are walked, which happens only when the memory is exceeded.
    static func fullest(_ channels: [RelayChannel]) -> Int? {
        let ended = channels.lazy.compactMap { channel in channel.store.oldestEnd.map { (channel.number, $0) } }
        if let oldest = ended.min(by: { $0.1 < $1.1 }) { return oldest.0 }
        let largest = channels.max { $0.store.byteCount < $1.store.byteCount }
        return largest.flatMap { $0.store.byteCount > 0 ? $0.number : nil }
    }
}

/// Whoever is a member may have what is kept, also from before it came: the key decides what it can open.
extension BurstStore {
    /// A listener asks for packets. An answer is whole or there is none: then the listener asks again.
    func answer(
        _ request: ClientMessage.RepairRequest, of member: inout ChannelMember, _ shared: inout RelayShared,
        at now: Instant
    ) -> [RelayAction] {
        // The same request comes in a datagram and on the stream: the quicker one counts.
        guard request.id > member.lastRepairID else { return [] }
        member.lastRepairID = request.id
        let isTaken = member.repairRequests.take(at: now)
        let found =
            !isTaken
            ? []
            : packets(
                ssrc: request.ssrc, keyID: request.keyID, ranges: request.ranges, byteLimit: shared.limits.repairBytes)
        let count = max(shared.limits.repairBytesMinimum, found.reduce(0) { $0 + $1.count })
        guard isTaken, member.repairBytes.take(count, at: now) else {
            shared.counters.repairsRefused += 1
            return []
        }
        shared.counters.repairsAnswered += 1
        shared.counters.packetsSentAgain += found.count
        return [.answerRepair(member.connection, RepairStream.encode(id: request.id, packets: found))]
    }

    /// Tells which bursts are kept.
    func list(
        _ request: BurstRequestID, for member: inout ChannelMember, _ shared: inout RelayShared, at now: Instant
    ) -> [RelayAction] {
        if let refusal = refuse(request, of: &member, &shared, at: now) { return refusal }
        guard limits.retention.isOn else { return shared.refuseBursts(request, .off, to: member.connection) }
        shared.counters.burstsAnswered += 1
        let bursts = offered(at: now).map { burst in
            ServerMessage.KeptBurst(
                burst: burst.burst, talker: burst.talker, name: burst.name, age: now - burst.beganAt,
                duration: burst.duration, packets: UInt32(clamping: burst.packetCount),
                isGoingOn: burst.endedAt == nil)
        }
        return [.send(.burstList(.init(id: request, bursts: bursts)), to: [member.connection])]
    }

    /// Gives the packets of a burst: as many as fit in one answer.
    mutating func give(
        _ request: ClientMessage.BurstRequest, to member: inout ChannelMember, _ shared: inout RelayShared,
        at now: Instant
    ) -> [RelayAction] {
        if let refusal = refuse(request.id, of: &member, &shared, at: now) { return refusal }
        let id = member.connection
        expire(at: now)
        guard
            let (packets, isWhole) = packets(
                of: request.burst, from: request.first, byteLimit: shared.limits.burstAnswerBytes,
                countLimit: RelayProtocolLimits.repairPacketsMaximum)
        else { return shared.refuseBursts(request.id, .notKept, to: id) }
        let count = RepairStream.burstByteCount(packets: packets, isWhole: isWhole)
        guard shared.bursts.take(count, and: &member.burstBytes, at: now) else {
            return shared.refuseForNow(request.id, to: id)
        }
        shared.counters.burstsAnswered += 1
        shared.counters.packetsReplayed += packets.count
        let answer = RepairStream.encode(burst: request.id, packets: packets, isWhole: isWhole)
        return [.answerBurst(id, request.id, answer)]
    }

    /// What is said to a request that is not the member's next, or comes too soon; nil: it may be answered.
    private func refuse(
        _ request: BurstRequestID, of member: inout ChannelMember, _ shared: inout RelayShared, at now: Instant
    ) -> [RelayAction]? {
        guard request > member.lastBurstRequest else {
            return shared.violates(member.connection, "a request for bursts that is not newer than the last")
        }
        member.lastBurstRequest = request
        return member.burstRequests.take(at: now) ? nil : shared.refuseForNow(request, to: member.connection)
    }
}
