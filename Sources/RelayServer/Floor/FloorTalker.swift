// A holder of the floor: its burst, and how it ends; and the talk time that members have used, over all their connections. Part of
// `FloorControlStateMachine`.
import MonotonicTime
import RelayProtocol

extension FloorControlStateMachine {
    /// A burst on the floor. While `ending` is nil its talker holds the floor (TS 24.380: U: permitted); afterwards only what is on
    /// its way is waited for (U: pending Floor Revoke, or a release that overtook its media).
    struct Talker: Sendable, Equatable {
        /// How it is over, and what is still to come.
        struct Ending: Sendable, Equatable {
            /// `nil` until the holder has named it (after a revocation).
            var lastSequence: UInt16?
            /// T3.
            var latest: Instant
            /// It ends then if nothing more of it comes; `latest` at most.
            private(set) var deadline: Instant
            let reason: EndReason
            /// It was given more time, since the relay was held up.
            private(set) var isExcused = false

            init(lastSequence: UInt16? = nil, latest: Instant, reason: EndReason) {
                self.lastSequence = lastSequence
                self.latest = latest
                self.reason = reason
                deadline = latest
            }

            /// A packet arrived: the missing ones may take this time again.
            mutating func wait(_ time: Duration, at now: Instant) { deadline = min(latest, now + time) }

            /// It takes no longer than that.
            mutating func hasten(to time: Instant) {
                latest = min(latest, time)
                deadline = min(deadline, time)
            }

            /// Nothing is waited for any more.
            mutating func complete(at now: Instant) { deadline = now }

            mutating func excuse(until time: Instant) {
                isExcused = true
                (latest, deadline) = (time, time)
            }
        }

        let request: Request
        let grantedAt: Instant
        /// T2, less what was said of the burst on a connection that was lost.
        let talkTime: Duration
        var firstMediaAt: Instant?
        var lastMediaAt: Instant?
        var sequences = SequenceRecord()
        /// Of the packet with the marker, once it has come: those before the lowest that came may still be on their way.
        var firstSequence: UInt16?
        var ending: Ending?

        init(_ request: Request, talkTime: Duration, at now: Instant) {
            self.request = request
            self.talkTime = talkTime
            grantedAt = now
        }

        /// When T2 is over; nil: nothing was said yet.
        var talkTimeEnd: Instant? { firstMediaAt.map { $0 + talkTime } }

        /// When something is to be done about it, at the latest.
        func deadline(_ timers: Timers) -> Instant {
            if let ending { return ending.deadline }
            let silence = silenceEnd(timers)
            return talkTimeEnd.map { min(silence, $0) } ?? silence
        }

        /// When T1 is over, if no packet comes before.
        func silenceEnd(_ timers: Timers) -> Instant { (lastMediaAt ?? grantedAt) + timers.mediaTimeout }

        /// The end is due, but the relay was held up: once, a moment is left for what came meanwhile and was not read. False: listeners do
        /// not wait for it any more.
        mutating func excuse(_ timers: Timers, at now: Instant) -> Bool {
            guard let ending, !ending.isExcused, silenceEnd(timers) > now else { return false }
            self.ending?.excuse(until: now + timers.preemptionGrace)
            return true
        }

        /// Whether everything from the first packet to `last` has come.
        func isComplete(through last: UInt16) -> Bool {
            guard let firstSequence, let lowest = sequences.first else { return false }
            return !SequenceRecord.isAfter(lowest, firstSequence) && sequences.isComplete(through: last)
        }

        /// Whether nothing more is to come before `last`.
        func isOver(last: UInt16) -> Bool {
            if isComplete(through: last) || seededFault("a-release-does-not-wait-for-the-last-packets") { return true }
            // A release that names a sequence already passed is honoured, not waited for.
            guard let highest = sequences.highest else { return false }
            return SequenceRecord.isAfter(highest, last)
        }

        /// Decides on a packet of the talker. Allocates nothing.
        mutating func media(
            keyID: UInt64, sequence: UInt16, marker: Bool, _ timers: Timers, at now: Instant
        ) -> MediaDecision {
            guard request.keyID == keyID else { return .drop(.wrongKeyID) }
            if let last = ending?.lastSequence, SequenceRecord.isAfter(sequence, last) { return .drop(.afterRelease) }
            guard sequences.insert(sequence) == .new || seededFault("the-relay-hands-on-duplicates") else {
                return .drop(.duplicate)
            }
            if marker { firstSequence = sequence }
            let isFirst = firstMediaAt == nil
            if isFirst { firstMediaAt = now }
            lastMediaAt = now
            guard let last = ending?.lastSequence else { return .forward(isFirst: isFirst, endsBurst: false) }
            let ends = isComplete(through: last)
            if ends { ending?.complete(at: now) } else { ending?.wait(timers.repairGrace, at: now) }
            return .forward(isFirst: isFirst, endsBurst: ends)
        }

        /// What it came to.
        func summary(_ reason: EndReason) -> Summary {
            Summary(request: request, firstMediaAt: firstMediaAt, sequences: sequences, reason: reason)
        }
    }
}

/// Values of members that are forgotten at their time: who exceeded the talk-time limit, and whose burst a lost connection cut off. The
/// members are known by identifier, so that reconnecting changes nothing.
struct TalkTimeRecord<Value: Sendable>: Sendable {
    /// So many members are remembered; beyond, the one that would be forgotten first is.
    static var bound: Int { 1_024 }

    private var entries: [MemberID: (value: Value, until: Instant)] = [:]

    var count: Int { entries.count }

    mutating func set(_ value: Value, for member: MemberID, until due: Instant, at now: Instant) {
        entries = entries.filter { $0.value.until > now }
        if entries.count >= Self.bound, entries[member] == nil,
            let first = entries.min(by: { $0.value.until < $1.value.until })
        {
            entries[first.key] = nil
        }
        entries[member] = (value, due)
    }

    /// The value, which is forgotten by this; nil: there is none.
    mutating func take(_ member: MemberID, at now: Instant) -> Value? {
        defer { entries[member] = nil }
        return until(member, at: now).flatMap { _ in entries[member]?.value }
    }

    /// Until when there is a value; nil: there is none.
    func until(_ member: MemberID, at now: Instant) -> Instant? {
        entries[member].flatMap { $0.until > now ? $0.until : nil }
    }
}
