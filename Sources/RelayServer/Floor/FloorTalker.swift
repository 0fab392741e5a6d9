// One who has the floor: its burst, and how it ends. Part of `FloorControlStateMachine`.
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
            var deadline: Instant
            var reason: EndReason
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
            let silence = (lastMediaAt ?? grantedAt) + timers.mediaTimeout
            return talkTimeEnd.map { min(silence, $0) } ?? silence
        }

        /// Whether everything from the first packet to `last` has come.
        func isComplete(through last: UInt16) -> Bool {
            guard let firstSequence, let lowest = sequences.first else { return false }
            return !SequenceRecord.isAfter(lowest, firstSequence) && sequences.isComplete(through: last)
        }

        /// Whether nothing more is to come before `last`.
        func isOver(last: UInt16) -> Bool {
            if isComplete(through: last) { return true }
            // A release that names a sequence already passed is honoured, not waited for.
            guard let highest = sequences.highest else { return false }
            return SequenceRecord.isAfter(highest, last)
        }

        /// With the last packet there, only reordered ones can still be on their way.
        mutating func hasten(_ timers: Timers, at now: Instant) {
            guard let ending, let last = ending.lastSequence, sequences.highest == last else { return }
            self.ending?.deadline = min(ending.deadline, now + timers.reorderGrace)
        }

        /// Decides on a packet of the talker. Allocates nothing.
        mutating func media(
            keyID: UInt64, sequence: UInt16, marker: Bool, _ timers: Timers, at now: Instant
        ) -> MediaDecision {
            guard request.keyID == keyID else { return .wrongKeyID }
            if let last = ending?.lastSequence, SequenceRecord.isAfter(sequence, last) { return .afterRelease }
            guard sequences.insert(sequence) == .new else { return .duplicate }
            if marker { firstSequence = sequence }
            let isFirst = firstMediaAt == nil
            if isFirst { firstMediaAt = now }
            lastMediaAt = now
            guard ending != nil else { return .forward(isFirst: isFirst, endsBurst: false) }
            let ends = ending?.lastSequence.map { isComplete(through: $0) } ?? false
            if ends { ending?.deadline = now } else { hasten(timers, at: now) }
            return .forward(isFirst: isFirst, endsBurst: ends)
        }

        /// What it came to.
        func summary(_ reason: EndReason) -> Summary {
            Summary(
                request: request, grantedAt: grantedAt, firstMediaAt: firstMediaAt, sequences: sequences,
                reason: reason)
        }
    }
}
