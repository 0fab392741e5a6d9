// One outgoing burst: the frames that it holds, those that may not have arrived, and how often bursts ask for the floor. Pure.
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

/// The frames of a burst that the relay has not acknowledged, in the order of sending. After the loss of a connection
/// the next one begins with them.
struct UnacknowledgedFrames: Sendable {
    private var frames: [(frame: OutgoingFrame, sequence: UInt16, timestamp: UInt32, datagram: UInt64?)] = []

    /// The first of them, with its RTP time stamp; nil: all were heard.
    var first: (frame: OutgoingFrame, timestamp: UInt32)? { frames.first.map { ($0.frame, $0.timestamp) } }

    /// A frame is about to be sent with that RTP sequence number and time stamp. Beyond the limit of what is held, the oldest is forgotten.
    mutating func add(_ frame: OutgoingFrame, sequence: UInt16, timestamp: UInt32) {
        if frames.count >= UplinkStateMachine.heldFramesMaximum { frames.removeFirst() }
        frames.append((frame, sequence, timestamp, nil))
    }

    /// The transport took the packet of that sequence number under this number.
    mutating func sent(_ datagram: UInt64, sequence: UInt16) {
        guard let index = frames.lastIndex(where: { $0.sequence == sequence }) else { return }
        frames[index].datagram = datagram
    }

    /// The relay has that datagram: what was sent before it was heard as well, or is repaired.
    mutating func acknowledged(_ datagram: UInt64) {
        guard let index = frames.lastIndex(where: { ($0.datagram ?? .max) <= datagram }) else { return }
        frames.removeFirst(index + 1)
    }

    /// All of them, which are then forgotten.
    mutating func take() -> [OutgoingFrame] {
        defer { frames = [] }
        return frames.map(\.frame)
    }
}

/// Prevents a flood of short bursts from becoming a flood of messages, for which the relay would close the connection.
///
/// No person presses that often: a request waits only after many recent ones. A burst that ends before its request is
/// sent costs no message, so the relay always gets the newest state. The number of unanswered requests is limited, too,
/// because a relay that becomes reachable reads them all at once.
struct FloorRequestPacer: Sendable {
    /// Requests that may go at once. Each is followed by a release: so these are less than half of the 64 messages that a relay takes at once.
    static let requestsAtOnce = 12
    /// Requests in the long run, each second; of 32 messages that a relay takes.
    static let requestsPerSecond = 6
    /// Of those that may go at once, what only an emergency uses.
    static let emergencyReserve = 4
    /// Requests that the relay may leave unanswered.
    static let unansweredMaximum = 8
    /// A refused request may go so much later: there is one more then.
    static let pause: Duration = .milliseconds(Int64(1_000 / requestsPerSecond + 1))

    private var bucket = TokenBucket(depth: requestsAtOnce, perSecond: requestsPerSecond, at: .zero)
    private var unanswered = 0
    /// When to try again; nil: nothing waits, or for the relay.
    private(set) var retryAt: Instant?

    /// Whether a request may go now; it is counted then.
    mutating func allows(emergency: Bool, at now: Instant) -> Bool {
        retryAt = nil
        guard unanswered < Self.unansweredMaximum else { return false }
        guard bucket.holds(emergency ? 1 : 1 + Self.emergencyReserve, at: now) else {
            retryAt = now + Self.pause
            return false
        }
        note(at: now)
        return true
    }

    /// A request goes that cannot wait.
    mutating func note(at now: Instant) {
        _ = bucket.take(at: now)
        unanswered += 1
    }

    /// The relay has sent a floor message, so it reads requests.
    mutating func answered() { unanswered = 0 }

    /// Nothing waits any more.
    mutating func relax() { retryAt = nil }
}
