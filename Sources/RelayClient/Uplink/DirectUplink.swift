// A talker's packets outside QUIC: seals them, and tells from the relay's reports which have come. Pure rules.
import Cryptography
import MonotonicTime
import RelayProtocol

/// The packets of one connection that go to the relay outside QUIC (docs/relay-protocol.md, sections 8.1 and 8.4).
///
/// It does for the newest of them what QUIC does for datagrams: each is acknowledged or lost in the end, by the rules of RFC 9002,
/// section 6.1. Where the relay is there and these packets alone do not reach it, media go in datagrams again.
struct DirectUplink: Sendable {
    /// What became of a packet.
    enum Fate: Sendable, Equatable {
        /// The relay has it.
        case acknowledged(UInt64)
        /// It did not come, though later ones did.
        case lost(UInt64)
    }

    /// Packets have this number and the following ones; those of QUIC's datagrams are smaller.
    static let firstNumber: UInt64 = 1 << 32
    /// Packets whose fate is waited for; older ones have none any more.
    static let sentMaximum = 512
    /// A packet is lost when one came that was sent so many later (RFC 9002, section 6.1.1)…
    static let packetThreshold: UInt32 = 3
    /// …or any later one came and it was sent longer ago than a round trip and this part of one (section 6.1.2).
    static let timeThresholdDivisor = 8
    /// The least of that time: the granularity of timers.
    static let timeThresholdMinimum: Duration = .milliseconds(1)
    /// Beyond a round trip, how long a report may take before the relay is asked for a sign of life.
    static let patience: Duration = .milliseconds(100)
    /// So long after the last packet the relay is asked for signs of life.
    static let askingTime: Duration = .seconds(2)
    /// Beyond a round trip, how long the report on a packet may take that none follows (docs/relay-protocol.md, section 8.4).
    static let reportTime: Duration = .milliseconds(400)
    /// How long reports may stay away from a relay that answers otherwise, from its first answer on.
    static let blockedAfter: Duration = .milliseconds(600)
    /// So long a relay whose channel hangs may still acknowledge datagrams: it seems to be a network that drops the other packets.
    static let hangTime: Duration = .milliseconds(700)

    private struct Sent: Sendable {
        let counter: UInt32
        let at: Instant
        var number: UInt64 { DirectUplink.firstNumber + UInt64(counter) }
    }

    /// The round-trip time to the relay.
    var roundTripTime: Duration
    private var sealer: TrailerSealer
    /// Those whose fate is not known, the oldest first.
    private var sent: [Sent] = []
    private var newestAcknowledged: UInt32?
    private var reportedAt = Instant.zero
    private var lookedAt = Instant.zero
    /// When it was first found that the relay answers, but does not report.
    private var answeredAt: Instant?
    /// Whether the relay is to be asked for signs of life.
    private(set) var awaitsAnswer = false
    /// When this way was given up, because what is sent does not arrive.
    private var blockedAt: Instant?
    /// Whether it was.
    var isBlocked: Bool { blockedAt != nil }
    /// Whether it seems that it will be: the relay answers, but does not report.
    var isSuspect: Bool { isBlocked || answeredAt != nil }

    /// Packets with trailers under `key`, the first of which has the counter 0.
    init(key: TrailerKey, roundTripTime: Duration) throws(CryptographyError) {
        sealer = try TrailerSealer(key: key)
        self.roundTripTime = roundTripTime
    }

    /// How many packets have no fate yet.
    var sentCount: Int { sent.count }

    /// When `look` has something to do; nil while nothing is waited for.
    var nextDeadline: Instant? {
        guard let first = sent.first, let last = sent.last else { return nil }
        let isOvertaken = newestAcknowledged.map { first.counter < $0 } ?? false
        if isOvertaken { return first.at + lossTime }
        if !awaitsAnswer { return asksFrom(first) }
        // Whether it has answered is looked at now and then.
        let next = max(lookedAt + Self.patience, answeredAt.map { $0 + Self.blockedAfter } ?? .zero)
        return min(next, last.at + Self.askingTime)
    }

    /// From when on there should be a report on a packet that no other one has overtaken.
    private func asksFrom(_ packet: Sent) -> Instant { max(packet.at, reportedAt) + roundTripTime + Self.patience }

    private var lossTime: Duration {
        max(roundTripTime + roundTripTime / Self.timeThresholdDivisor, Self.timeThresholdMinimum)
    }

    /// The packet with its trailer, and the number under which its fate is told; nil: it cannot go this way.
    mutating func seal(_ packet: [UInt8], at now: Instant) -> (datagram: [UInt8], number: UInt64)? {
        guard !isBlocked else { return nil }
        let next = Sent(counter: UInt32(truncatingIfNeeded: sealer.nextCounter), at: now)
        guard let datagram = try? sealer.seal(packet) else { return nil }
        if sent.count >= Self.sentMaximum { sent.removeFirst() }
        sent.append(next)
        return (datagram, next.number)
    }

    /// The relay reports.
    mutating func take(_ report: UplinkReport, at now: Instant) -> [Fate] {
        var fates: [Fate] = []
        sent.removeAll { packet in
            guard report.has(packet.counter) == true else { return false }
            fates.append(.acknowledged(packet.number))
            return true
        }
        // An old report that comes late says nothing new of what is missing.
        newestAcknowledged = max(newestAcknowledged ?? 0, report.highest)
        (reportedAt, answeredAt, awaitsAnswer) = (now, nil, false)
        return fates + lost(at: now)
    }

    private mutating func lost(at now: Instant) -> [Fate] {
        guard let newest = newestAcknowledged else { return [] }
        let lossTime = lossTime
        var fates: [Fate] = []
        sent.removeAll { packet in
            guard packet.counter < newest,
                newest - packet.counter >= Self.packetThreshold || now >= packet.at + lossTime
            else { return false }
            fates.append(.lost(packet.number))
            return true
        }
        return fates
    }

    /// Looks what the time says.
    ///
    /// - Parameter heard: When anything of the relay came by QUIC last.
    mutating func look(heard: Instant?, at now: Instant) -> [Fate] {
        lookedAt = now
        let fates = lost(at: now)
        guard let first = sent.first, let last = sent.last else {
            awaitsAnswer = false
            return fates
        }
        guard now - last.at < Self.askingTime else { return fates + giveUp() }
        let asksFrom = asksFrom(first)
        awaitsAnswer = now >= asksFrom
        guard awaitsAnswer, let heard, heard > asksFrom else { return fates }
        guard let answeredAt else {
            self.answeredAt = now
            return fates
        }
        // What was sent since then was not reported either, in all the time that a relay takes for a lone packet.
        let reportTime = roundTripTime + Self.reportTime
        guard now - answeredAt >= Self.blockedAfter, heard > answeredAt,
            sent.contains(where: { $0.at > answeredAt && now >= $0.at + reportTime })
        else { return fates }
        blockedAt = now
        return fates + giveUp()
    }

    /// Whether the acknowledgement of that packet does not show, or not yet, that the relay hears this end: in datagrams there are also
    /// requests of a listener.
    func doubts(_ number: UInt64, at now: Instant) -> Bool {
        guard number < Self.firstNumber else { return false }
        return blockedAt.map { now - $0 < Self.hangTime } ?? true
    }

    /// The relay has told that this end's burst is over: it has all of it, or all that it waits for.
    mutating func conclude() { (sent, awaitsAnswer, answeredAt) = ([], false, nil) }

    /// Nothing is waited for any more. What came nevertheless comes twice, and counts once.
    private mutating func giveUp() -> [Fate] {
        defer { (sent, awaitsAnswer, answeredAt) = ([], false, nil) }
        return sent.map { .lost($0.number) }
    }
}
