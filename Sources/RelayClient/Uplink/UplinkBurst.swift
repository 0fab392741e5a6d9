// One outgoing burst: the frames that it holds, and how long it waits. Pure.
import MonotonicTime
import RelayProtocol
import Vocabulary

extension UplinkStateMachine {
    /// How far a burst is.
    enum Phase: Sendable, Equatable {
        /// Not requested yet: another burst is before it, or there is no link.
        case pending
        case asked
        /// The relay has put it into its queue.
        case waiting
        case granted
    }

    /// A burst from its press until it is sent, erased or dropped.
    struct Burst: Sendable {
        let id: BurstID
        let priority: UInt8
        var requestID = FloorRequestID(rawValue: 0)
        var phase = Phase.pending
        /// Since when it is the first in the row, or has no link.
        var waitingSince = Instant.zero
        var askedAt = Instant.zero
        /// It had to wait for the link: more of it is held.
        var hasMissedLink = false
        var held: [OutgoingFrame] = []
        var heldSamples: UInt32 = 0
        var hasEnded = false
        /// It had to wait: what was captured before its grant is not to be heard.
        var hasWaited = false
        /// What was captured earlier is not part of it.
        var capturedFrom = Instant.zero
        var lastSequence: UInt16?
        var windowStart = Instant.zero
        var sentInWindow: UInt32 = 0
        var report = TransmissionReport()

        init(id: BurstID, priority: UInt8) {
            self.id = id
            self.priority = priority
        }

        mutating func missLink(at now: Instant) {
            hasMissedLink = true
            if waitingSince == .zero { waitingSince = now }
        }

        var isHeldTooMuch: Bool {
            let factor = hasMissedLink || phase == .granted ? heldFactorMaximum : 1
            return heldSamples > heldSamplesMaximum * UInt32(factor) || held.count > heldFramesMaximum * factor
        }

        /// It had the floor, and continues over the next connection.
        private(set) var isResumed = false

        /// How long it waits for the link, or for those before it.
        var linkTimeout: Duration { isResumed ? resumptionTimeout : answerTimeout }

        /// The connection is lost while it has the floor. It requests the floor again over the next connection, and
        /// continues with the unacknowledged frames.
        mutating func resume(with unheard: [OutgoingFrame], at now: Instant) {
            isResumed = true
            (phase, waitingSince, hasMissedLink, hasWaited) = (.pending, now, true, false)
            (lastSequence, windowStart, sentInWindow) = (nil, .zero, 0)
            report.sent -= unheard.count
            held.insert(contentsOf: unheard, at: 0)
            heldSamples += unheard.reduce(0) { $0 + $1.samples }
            dropOldest()
        }

        /// The oldest are those that a listener misses least.
        mutating func dropOldest() {
            while isHeldTooMuch, !held.isEmpty {
                heldSamples -= held.removeFirst().samples
                report.erased += 1
            }
        }

        var answerIsDue: Instant {
            let due = waitingSince + linkTimeout
            return hasMissedLink ? max(due, askedAt + answerTimeoutAfterLink) : due
        }
    }
}
