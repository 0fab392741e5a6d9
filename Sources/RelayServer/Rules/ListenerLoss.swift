// The packets of a talker that listeners miss, from their reports, and what is reported to the talker. Pure.
import MonotonicTime
import RelayProtocol

/// What one listener missed lately, by its reception reports.
struct ListenerReception: Sendable, Equatable {
    /// Talkers whose last report is remembered.
    static let talkersMaximum = 32
    /// Maximum number of new packets in one report. A report with more is not counted for the operator.
    static let packetsPerReportMaximum = 4_096.0
    /// Of the newest report's share in the smoothed loss.
    static let weight = 0.5

    private struct Count: Sendable, Equatable {
        var received: UInt32
        var lost: UInt32
        /// The smoothed share, 0…1; `nil` before the first report with any packet.
        var share: Double?
    }

    private var last: [SSRC: Count] = [:]

    /// A burst begins: what was missed of the ones before does not count for it.
    mutating func begin(_ talker: SSRC) { last[talker]?.share = nil }

    /// How much of what that source said is missing, 0…1; `nil` before the first report.
    func loss(of talker: SSRC) -> Double? { last[talker]?.share }

    /// Handles a report.
    ///
    /// - Returns: The packets that it reports for the first time: the received and the missing ones.
    @discardableResult
    mutating func note(_ report: ClientMessage.ReceptionReport) -> (received: Int, lost: Int) {
        let before = last[report.ssrc] ?? Count(received: 0, lost: 0)
        if last.count >= Self.talkersMaximum, last[report.ssrc] == nil { last.removeAll() }
        // They count up, but for packets that were late: those are no loss any more.
        let received = Double(Int32(truncatingIfNeeded: report.received &- before.received))
        let lost = max(0, Double(Int32(truncatingIfNeeded: report.lost &- before.lost)))
        var share = before.share
        if received >= 0, received + lost > 0 {
            let recent = lost / (received + lost)
            share = share.map { $0 + (recent - $0) * Self.weight } ?? recent
        }
        last[report.ssrc] = Count(received: report.received, lost: report.lost, share: share)
        guard 0...Self.packetsPerReportMaximum ~= received + lost, received >= 0 else { return (0, 0) }
        return (Int(received), Int(lost))
    }
}

/// The loss on a talker's way to the relay, and the last reported value.
struct TalkerLoss: Sendable, Equatable {
    private var packets = 0
    private var repaired = 0
    private var share: Double?
    private var updatedAt: Instant?
    /// `nil`: nothing of this burst; the talker may still go by the one before.
    private var told: Int?

    /// Takes note of a packet that came for the first time.
    mutating func note(isRepaired: Bool) {
        packets += 1
        if isRepaired { repaired += 1 }
    }

    /// Whether there may be something to tell: `interval` has passed since the last look.
    func isDue(_ interval: Duration, at now: Instant) -> Bool { updatedAt.map { now - $0 >= interval } ?? true }

    /// What to tell the talker now, when the worst listener misses `worst` of what the relay forwards; `nil`: nothing.
    mutating func update(worst: Double, interval: Duration, at now: Instant) -> Int? {
        guard isDue(interval, at: now) else { return nil }
        updatedAt = now
        let percent = percent(worst: worst)
        guard percent != told else { return nil }
        told = percent
        return percent
    }

    /// What does not arrive, 0…100, when the worst listener misses `worst` of what the relay forwards.
    mutating func percent(worst: Double) -> Int {
        if packets > 0 {
            let recent = Double(repaired) / Double(packets)
            share = share.map { $0 + (recent - $0) * ListenerReception.weight } ?? recent
            (packets, repaired) = (0, 0)
        }
        // It arrives when it is lost on neither way.
        return Int((100 * (1 - (1 - (share ?? 0)) * (1 - worst))).rounded())
    }
}
