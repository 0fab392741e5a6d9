// The media keys of one channel: which one is in force, how many bursts were made under it, and who may still have an earlier one. Pure.
import MonotonicTime
import RelayProtocol

/// The key that a channel's bursts are sealed with, and those before it for as long as bursts under them go on.
///
/// The relay opens nothing with them: it hands them to members. On an end-to-end channel none of them is ever handed out.
struct ChannelMediaKeys: Sendable {
    /// A key that was in force, and who could have it then.
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
    private(set) var bursts = 0
    /// Those before it that may still be in use, the oldest first; the last one is that before `present`.
    private var earlier: [Earlier] = []

    init(_ key: MediaKey) { present = key }

    /// How many keys beside the present one are remembered.
    var earlierCount: Int { earlier.count }

    /// Whether a burst may begin under a key of `epoch`: the present one or, for a moment, the one before, of which no more than
    /// `maximum` may.
    func allows(_ epoch: UInt16, maximum: Int, at now: Instant) -> Bool {
        if epoch == present.epoch { return true }
        guard let last = earlier.last, last.key.epoch == epoch else { return false }
        return now < last.grantedUntil && last.bursts < maximum
    }

    /// A burst was granted under a key of `epoch`.
    mutating func noteBurst(_ epoch: UInt16) {
        if epoch == present.epoch {
            bursts += 1
        } else if let index = earlier.lastIndex(where: { $0.key.epoch == epoch }) {
            earlier[index].bursts += 1
        }
    }

    /// Another key is in force from now on.
    ///
    /// - Parameters:
    ///   - inUse: The epochs of the bursts that go on and of the requests that wait.
    ///   - connected: Who is on the channel.
    ///   - roster: Who is a member of it, where that is known.
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

    /// Of the keys before the present one, those of `epochs` that `member` could have when they were in force; the oldest first.
    func earlierKeys(of epochs: Set<UInt16>, for member: MemberID) -> [MediaKey] {
        earlier.filter { epochs.contains($0.key.epoch) && $0.wasThere(member) }.map(\.key)
    }
}
