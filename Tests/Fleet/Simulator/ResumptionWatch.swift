// A burst that goes on over the next host of its channel: what must be true of it, seen from its talker.
import MonotonicTime

@testable import RelayClient

/// Follows the bursts of one link to a channel nearby, and keeps an account of its own.
struct ResumptionWatch {
    /// A burst that waits for the next host has ended, or got the floor, so soon: the time that it has for that, and the least time for
    /// the answer of the next host.
    static let limit =
        UplinkStateMachine.resumptionTimeout + UplinkStateMachine.answerTimeoutAfterLink + .milliseconds(10)

    /// Who has held so much may give a burst up: no more than 3 s are kept.
    private static let heldAtLeast = 140_000

    /// The burst that waits, and since when it has done so.
    private(set) var waiting: (burst: BurstID, since: Instant)?
    private var current: BurstID?
    /// The burst that waits, or has waited, for its turn at another relay: what was said of it before is given up.
    private var queued: BurstID?
    /// Packets of the present burst, over all connections; and how many of the last ones are not acknowledged.
    private var sent = 0
    private var newest: UInt64 = 0
    private var acknowledged: UInt64 = 0
    /// What was to be said again.
    private var repeated = 0

    /// The burst has the floor.
    mutating func granted(_ burst: BurstID) {
        waiting = nil
        guard queued != burst else { return }
        if current != burst { (current, sent, repeated) = (burst, 0, 0) }
        (newest, acknowledged) = (0, 0)
    }

    /// The burst waits for its turn, as its user is told.
    mutating func queued(_ burst: BurstID) { (waiting, current, queued) = (nil, nil, burst) }

    mutating func sent(_ number: UInt64) {
        guard current != nil else { return }
        if newest == 0 { acknowledged = number - 1 }
        newest = number
        sent += 1
    }

    mutating func acknowledged(_ number: UInt64) { acknowledged = max(acknowledged, min(number, newest)) }

    /// The connection is lost while the burst has the floor.
    mutating func lost(_ burst: BurstID, at now: Instant) {
        guard waiting == nil else { return }
        waiting = (burst, now)
        repeated += Int(newest - min(acknowledged, newest))
        (newest, acknowledged) = (0, 0)
    }

    /// - Parameter hadFloor: The burst had got the floor.
    /// - Returns: What is wrong with the end of the burst, unless the channel has been left or is no more; nil: nothing.
    mutating func ended(
        _ burst: BurstID, _ end: TransmissionEnd, _ report: TransmissionReport, hadFloor: Bool, at now: Instant
    ) -> String? {
        let waited = waiting?.burst == burst ? now - (waiting?.since ?? now) : .zero
        defer {
            if waiting?.burst == burst { waiting = nil }
            if current == burst { current = nil }
        }
        if hadFloor, end == .linkUnavailable, waited < UplinkStateMachine.resumptionTimeout,
            report.erased * Speech.frameSamples < Self.heldAtLeast
        {
            return "is given up \(waited) after its host was lost"
        }
        if current == burst, waiting == nil, end == .completed, sent + report.erased < report.sent + repeated {
            return "has sent \(sent) packets, of \(report.sent) frames and \(repeated) to be said again"
        }
        return nil
    }

    /// - Returns: What is wrong now; nil: nothing.
    func check(at now: Instant) -> String? {
        guard let waiting, now > waiting.since + Self.limit else { return nil }
        return "\(waiting.burst) waits for the next host for \(now - waiting.since)"
    }
}
