// The bounds of the kept bursts of all channels together: their memory, and what is given of them. Pure.
import MonotonicTime

/// How much memory the kept bursts of each channel take, and how many bytes of them members may still be given.
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
