// Which of a member's packets outside QUIC have come, and when the member is to hear of it. Pure.
import MonotonicTime
import RelayProtocol

/// What a relay has received of one connection's packets outside QUIC.
///
/// A report goes with one of several packets, because each is a packet to send and a wake-up for the talker. A gap is told at once, so
/// that what is missing is sent again early; but not more often than `shortest`, whatever comes.
struct UplinkReceipts: Sendable {
    /// The oldest packet that was not told of waits so long, while others come.
    static let interval: Duration = .milliseconds(40)
    /// When none comes any more, it is looked for after so long, and told of then if it has waited for `interval`.
    static let tail: Duration = .milliseconds(300)
    /// Between two reports that packets call for.
    static let shortest: Duration = .milliseconds(5)

    private let ssrc: SSRC
    private var newest: UplinkReport?
    /// When the oldest packet came that was not told of.
    private(set) var owedSince: Instant?
    private var isUrgent = false
    private var reportedAt: Instant?

    /// Nothing has come yet from the member with that source.
    init(of ssrc: SSRC) { self.ssrc = ssrc }

    /// A packet came whose trailer was right. Whether the member is to hear of it now.
    mutating func received(_ counter: UInt32, at now: Instant) -> Bool {
        let expected = newest.map { $0.highest &+ 1 } ?? 0
        if counter != expected { isUrgent = true }
        note(counter)
        let since = owedSince ?? now
        owedSince = since
        if let reportedAt, now - reportedAt < Self.shortest { return false }
        return isUrgent || now - since >= Self.interval
    }

    private mutating func note(_ counter: UInt32) {
        guard var report = newest else {
            newest = UplinkReport(ssrc: ssrc, highest: counter)
            return
        }
        if counter > report.highest {
            let step = counter - report.highest
            // The one that was the highest is one of the earlier ones now.
            report.earlier = step < UplinkReport.span ? report.earlier << UInt64(step) : 0
            if step <= UplinkReport.span { report.earlier |= 1 << UInt64(step - 1) }
            report.highest = counter
        } else if counter < report.highest, report.highest - counter <= UplinkReport.span {
            report.earlier |= 1 << UInt64(report.highest - counter - 1)
        }
        newest = report
    }

    /// What to tell; nil: nothing has come since the last report.
    mutating func takeReport(at now: Instant) -> UplinkReport? {
        guard owedSince != nil else { return nil }
        (owedSince, isUrgent, reportedAt) = (nil, false, now)
        return newest
    }
}
