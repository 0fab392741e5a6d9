// What listeners miss of a talker, from their reports, and what the talker is told of it. Pure.
import MonotonicTime
import RelayProtocol

/// What one listener missed lately, by its reception reports.
struct ListenerReception: Sendable, Equatable {
    /// Talkers whose last report is remembered.
    static let talkersMaximum = 32
    /// Of the newest report's share in the smoothed loss.
    static let weight = 0.5

    private struct Count: Sendable, Equatable {
        var received: UInt32
        var lost: UInt32
    }

    private var last: [SSRC: Count] = [:]
    /// Of whom, and how much, 0…1; `nil` before the first report.
    private(set) var loss: (talker: SSRC, share: Double)?

    /// Takes note of a report.
    mutating func note(_ report: ClientMessage.ReceptionReport) {
        let before = last[report.ssrc] ?? Count(received: 0, lost: 0)
        if last.count >= Self.talkersMaximum, last[report.ssrc] == nil { last.removeAll() }
        last[report.ssrc] = Count(received: report.received, lost: report.lost)
        // They count up, but for packets that were late: those are no loss any more.
        let received = Double(Int32(truncatingIfNeeded: report.received &- before.received))
        let lost = max(0, Double(Int32(truncatingIfNeeded: report.lost &- before.lost)))
        guard received >= 0, received + lost > 0 else { return }
        let share = lost / (received + lost)
        if let loss, loss.talker == report.ssrc {
            self.loss = (report.ssrc, loss.share + (share - loss.share) * Self.weight)
        } else {
            loss = (report.ssrc, share)
        }
    }

    static func == (lhs: Self, rhs: Self) -> Bool {
        lhs.last == rhs.last && lhs.loss?.talker == rhs.loss?.talker && lhs.loss?.share == rhs.loss?.share
    }
}

/// What a talker loses on the way to the relay, and what it was told last.
struct TalkerLoss: Sendable, Equatable {
    private var packets = 0
    private var repaired = 0
    private var share: Double?
    private var toldAt: Instant?
    private var told = 0

    /// Takes note of a packet that came for the first time.
    mutating func note(isRepaired: Bool) {
        packets += 1
        if isRepaired { repaired += 1 }
    }

    /// What to tell the talker now, when the worst listener misses `worst` of what the relay forwards; `nil`: nothing.
    mutating func update(worst: Double, interval: Duration, at now: Instant) -> Int? {
        guard toldAt.map({ now - $0 >= interval }) ?? true else { return nil }
        if packets > 0 {
            let recent = Double(repaired) / Double(packets)
            share = share.map { $0 + (recent - $0) * ListenerReception.weight } ?? recent
            (packets, repaired) = (0, 0)
        }
        // It arrives when it is lost on neither way.
        let percent = Int((100 * (1 - (1 - (share ?? 0)) * (1 - worst))).rounded())
        guard percent != told else { return nil }
        toldAt = now
        told = percent
        return percent
    }
}
