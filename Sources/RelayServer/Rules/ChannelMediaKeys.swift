// The media keys of one channel: the current one, the number of bursts under it, and the members that may still get an
// earlier one. Pure.
import MonotonicTime
import RelayProtocol

/// The current media key of a channel, and earlier keys while bursts under them are in progress.
///
/// The relay decrypts nothing with them; it gives them to members. On an end-to-end channel it never gives one out.
struct ChannelMediaKeys: Sendable {
    /// An earlier key, and the members that could have it at that time.
    private struct Earlier: Sendable {
        let key: MediaKey
        var bursts: Int
        /// Until then a talker who has not heard of the renewal is granted the floor under it.
        let grantedUntil: Instant
        let connected: [MemberID: ConnectionID]
        let roster: [MemberID: RelayMembership]

        func wasThere(_ member: MemberID) -> Bool {
            connected[member] != nil || roster[member].map { !$0.isRevoked } ?? false
        }
    }

    /// The key in force.
    private(set) var present: MediaKey
    /// Bursts that were granted under it.
    private var bursts = 0
    /// Those before it that may still be in use, the oldest first; the last one is that before `present`.
    private var earlier: [Earlier] = []

    /// Whether the members have a key of their own, so that these are not used.
    var isEndToEnd: Bool

    init(_ key: MediaKey, isEndToEnd: Bool) {
        present = key
        self.isEndToEnd = isEndToEnd
    }

    /// The key to give to members; nil: they have their own.
    var offered: MediaKey? { isEndToEnd ? nil : present }

    /// Whether as many bursts were granted under the key in force as may be.
    func areUsedUp(_ limits: RelayLimits) -> Bool { !isEndToEnd && bursts >= limits.burstsPerMediaKey }

    /// How many earlier keys are remembered.
    var earlierCount: Int { earlier.count }

    /// Whether a burst may begin under a key of `epoch`: the current one or, for a moment, the previous one.
    func allows(_ epoch: UInt16, _ limits: RelayLimits, at now: Instant) -> Bool {
        if isEndToEnd { return epoch == InvitationLink.mediaKeyEpoch }
        if epoch == present.epoch { return true }
        guard let last = earlier.last, last.key.epoch == epoch else { return false }
        return now < last.grantedUntil && last.bursts < limits.burstsPerEarlierMediaKey
    }

    /// A burst was granted under a key of `epoch`.
    mutating func noteBurst(_ epoch: UInt16) {
        if epoch == present.epoch {
            bursts += 1
        } else if let index = earlier.lastIndex(where: { $0.key.epoch == epoch }) {
            earlier[index].bursts += 1
        }
    }

    /// Replaces the current key.
    ///
    /// - Parameters:
    ///   - inUse: The epochs of the bursts in progress and of the waiting requests.
    ///   - connected: The connected members.
    ///   - roster: The members of the channel, if known.
    mutating func renew(
        _ key: MediaKey, keepingPrevious time: Duration, inUse: Set<UInt16>, connected: [MemberID: ConnectionID],
        roster: [MemberID: RelayMembership], at now: Instant
    ) {
        earlier.removeAll { !inUse.contains($0.key.epoch) }
        earlier.append(
            Earlier(
                key: present, bursts: bursts, grantedUntil: now + time, connected: connected, roster: roster))
        (present, bursts) = (key, 0)
    }

    /// Forgets the keys that nothing is sealed with any more; the one before the present one may be used again for a moment.
    mutating func forgetUnused(inUse: Set<UInt16>, at now: Instant) {
        earlier.removeAll { !inUse.contains($0.key.epoch) && $0.grantedUntil <= now }
    }

    /// The keys of `epochs` before the current one that `member` could have when they were in force, the oldest first, and the current
    /// one behind them, because the member's own bursts use it. Without earlier ones there are none.
    func earlierKeys(of epochs: Set<UInt16>, for member: MemberID) -> MessageSeries {
        let former = earlier.filter { !isEndToEnd && epochs.contains($0.key.epoch) && $0.wasThere(member) }.map(\.key)
        return MessageSeries((former.isEmpty ? [] : former + [present]).map { ServerMessage.mediaKey($0).framed() })
    }
}
