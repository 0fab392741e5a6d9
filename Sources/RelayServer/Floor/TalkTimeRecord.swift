// The talk time that members have used, over all their connections: T9, and T2 across a lost link. Pure.
import MonotonicTime
import RelayProtocol

/// Members that exceeded the talk-time limit, and members whose burst a lost connection cut off. They are known by
/// identifier, so that reconnecting changes nothing.
struct TalkTimeRecord: Sendable {
    /// So many members are remembered of each kind; beyond, the one that would be forgotten first is.
    static let bound = 1_024

    /// Values that are forgotten at their time.
    private struct Table<Value: Sendable>: Sendable {
        private var entries: [MemberID: (value: Value, until: Instant)] = [:]

        var count: Int { entries.count }

        mutating func set(_ value: Value, for member: MemberID, until due: Instant, at now: Instant) {
            entries = entries.filter { $0.value.until > now }
            if entries.count >= TalkTimeRecord.bound, entries[member] == nil,
                let first = entries.min(by: { $0.value.until < $1.value.until })
            {
                entries[first.key] = nil
            }
            entries[member] = (value, due)
        }

        mutating func take(_ member: MemberID, at now: Instant) -> Value? {
            guard let entry = entries.removeValue(forKey: member), entry.until > now else { return nil }
            return entry.value
        }

        func until(_ member: MemberID, at now: Instant) -> Instant? {
            guard let entry = entries[member], entry.until > now else { return nil }
            return entry.until
        }
    }

    private var barred = Table<Void>()
    private var interrupted = Table<Duration>()

    /// How many are remembered of either kind.
    var count: Int { max(barred.count, interrupted.count) }

    /// T9: the member talked to the limit, and may not ask until then.
    mutating func bar(_ member: MemberID, until due: Instant, at now: Instant) {
        barred.set((), for: member, until: due, at: now)
    }

    /// Until when the member may not ask; nil: it may.
    func barredUntil(_ member: MemberID, at now: Instant) -> Instant? { barred.until(member, at: now) }

    /// The member's connection ended within a burst that had lasted `used`; what it says until `due` is the same burst.
    mutating func interrupt(_ member: MemberID, used: Duration, until due: Instant, at now: Instant) {
        interrupted.set(used, for: member, until: due, at: now)
    }

    /// The talk time that the member has already used of the burst that it begins or continues now.
    mutating func resume(_ member: MemberID, at now: Instant) -> Duration { interrupted.take(member, at: now) ?? .zero }
}
