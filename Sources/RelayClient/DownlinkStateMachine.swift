// What is heard: which packets from the relay are taken, where a burst begins and ends. Pure rules; keys are elsewhere.
import MonotonicTime
import RelayProtocol

/// The listener's side of the floor.
///
/// A packet has passed the relay's MAC and counter before it comes here. It is taken when its source and key id are those
/// that `FloorTaken` bound; it is opened by SFrame then, and the burst begins with the first frame that opens.
///
/// Media go by plain UDP and may overtake the `FloorTaken` on the control stream; so packets of an unbound source
/// are kept, a few and not for long, until it comes. A burst ends when `FloorIdle` has come and everything up to
/// the last sequence number that it names, or `stragglerTime` after it; also with the link, with the next burst, or
/// after `silenceTimeout` without a packet, which is longer than the relay itself waits for its talker.
public struct DownlinkStateMachine: Sendable {
    /// What may happen.
    public enum Event: Sendable, Equatable {
        /// A member has the floor; its media carry this source and key id.
        case floorTaken(RelayMember, ssrc: SSRC, keyID: UInt64)
        /// Nobody has the floor; the last burst was of that source.
        case floorIdle(ssrc: SSRC, lastSequence: UInt16?)
        /// A packet that `admit` let pass was opened.
        case opened(RTPHeader, payload: [UInt8], receivedAt: Instant)
        /// The link is gone.
        case linkLost
        /// `nextDeadline` has come, or may have.
        case deadline
    }

    /// What is to be done.
    public enum Action: Sendable, Equatable {
        /// Tell the user.
        case tell(RelayLinkEvent)
        /// Tell the relay what was received.
        case report(ClientMessage.ReceptionReport)
        /// Take these packets now, in this order, as if they had just come.
        case retry([HeldPacket])
    }

    /// A packet that came before the floor message that explains it.
    public struct HeldPacket: Sendable, Equatable {
        /// The packet without the trailer.
        public var bytes: [UInt8]
        /// When it came.
        public var receivedAt: Instant
    }

    /// What to do with a packet.
    public enum Admission: Sendable, Equatable {
        /// Open it, then deliver `.opened`.
        case open
        /// Keep it with `hold`.
        case hold
        /// Drop it; it is counted.
        case drop(Drop)
    }

    /// Why a packet was dropped.
    public enum Drop: Int, Sendable, CaseIterable, Hashable {
        /// Not from this end's relay, or not in the protocol's form.
        case malformed
        /// Wrong MAC, or a counter that was used before.
        case notAuthentic
        /// Its source or key id is not bound to the floor.
        case unbound
        /// Came twice, or too late to tell.
        case duplicate
        /// SFrame did not open it.
        case notOpened
    }

    /// How long a burst that is over waits for packets on their way.
    public static let stragglerTime: Duration = .milliseconds(200)
    /// How long a burst may be silent.
    public static let silenceTimeout: Duration = .seconds(6)
    /// How often reception is reported while a burst runs.
    public static let reportInterval: Duration = .seconds(2)
    /// How many early packets are kept: a second of them, sent as fast as held audio is.
    public static let heldPacketsMaximum = 64
    /// How long early packets are kept.
    public static let heldPacketTime: Duration = .seconds(1)

    private struct Burst: Sendable {
        let talker: RelayMember
        let ssrc: SSRC
        let keyID: UInt64
        var hasBegun = false
        var sequences = SequenceRecord()
        var lastPacketAt: Instant
        var nextReportAt: Instant
        /// Set once the floor is idle: the last sequence number and how long it is waited for.
        var ending: (last: UInt16, deadline: Instant)?
    }

    private var burst: Burst?
    private var held: [HeldPacket] = []
    private var statistics: [SSRC: TalkerStatistics] = [:]
    private var drops = [Int](repeating: 0, count: Drop.allCases.count)

    /// Nothing is heard yet.
    public init() {}

    /// Packets dropped for `reason`.
    public func dropped(_ reason: Drop) -> Int { drops[reason.rawValue] }

    /// When `.deadline` must be delivered, at the latest; `nil` while nobody talks.
    public var nextDeadline: Instant? {
        let heldUntil = held.first.map { $0.receivedAt + Self.heldPacketTime }
        guard let burst else { return heldUntil }
        var due = min(burst.lastPacketAt + Self.silenceTimeout, heldUntil ?? Instant(nanoseconds: .max))
        if let ending = burst.ending { due = min(due, ending.deadline) }
        if burst.hasBegun { due = min(due, burst.nextReportAt) }
        return due
    }

    /// Takes an event and says what is to be done.
    public mutating func handle(_ event: Event, at now: Instant) -> [Action] {
        switch event {
        case .floorTaken(let talker, let ssrc, let keyID): return taken(talker, ssrc: ssrc, keyID: keyID, at: now)
        case .floorIdle(let ssrc, let lastSequence): return idle(ssrc, lastSequence: lastSequence, at: now)
        case .opened(let header, let payload, let receivedAt):
            return opened(header, payload: payload, receivedAt: receivedAt, at: now)
        case .linkLost:
            let actions = end(.linkLost)
            held = []
            statistics = [:]
            return actions
        case .deadline: return deadline(at: now)
        }
    }

    // MARK: Packets

    /// Decides on a packet with the right MAC and counter. It changes nothing but a counter.
    public mutating func admit(ssrc: SSRC, keyID: UInt64, sequence: UInt16) -> Admission {
        guard let burst, burst.ssrc == ssrc, burst.keyID == keyID else {
            // Another source or key id: the burst that the next FloorTaken will tell of, or nothing we know.
            guard held.count < Self.heldPacketsMaximum else { return drop(.unbound) }
            return .hold
        }
        return burst.sequences.wasSeen(sequence) ? drop(.duplicate) : .open
    }

    /// Keeps a packet that `admit` said to hold.
    public mutating func hold(_ packet: [UInt8], at now: Instant) {
        guard held.count < Self.heldPacketsMaximum else { return count(.unbound) }
        held.append(HeldPacket(bytes: packet, receivedAt: now))
    }

    /// Counts a packet dropped by who opens them.
    public mutating func count(_ reason: Drop) { drops[reason.rawValue] += 1 }

    private mutating func drop(_ reason: Drop) -> Admission {
        count(reason)
        return .drop(reason)
    }

    private mutating func opened(
        _ header: RTPHeader, payload: [UInt8], receivedAt: Instant, at now: Instant
    ) -> [Action] {
        guard var burst, burst.ssrc == header.ssrc else { return [] }
        guard burst.sequences.insert(header.sequence) == .new else {
            count(.duplicate)
            return []
        }
        var actions: [Action] = []
        if !burst.hasBegun {
            burst.hasBegun = true
            burst.nextReportAt = now + Self.reportInterval
            actions.append(.tell(.burstBegan(burst.talker)))
        }
        burst.lastPacketAt = now
        self.burst = burst
        statistics[burst.ssrc, default: TalkerStatistics()].note(header, at: receivedAt)
        actions.append(
            .tell(
                .frame(
                    ReceivedFrame(
                        sequence: header.sequence, timestamp: header.timestamp, marker: header.marker,
                        payload: payload, receivedAt: receivedAt))))
        if let last = burst.ending?.last, burst.sequences.isComplete(through: last) { actions += end(.completed) }
        return actions
    }

    // MARK: The floor

    private mutating func taken(_ talker: RelayMember, ssrc: SSRC, keyID: UInt64, at now: Instant) -> [Action] {
        if let burst, burst.ssrc == ssrc, burst.keyID == keyID, burst.ending == nil { return [] }
        var actions = end(.superseded)
        burst = Burst(
            talker: talker, ssrc: ssrc, keyID: keyID, lastPacketAt: now, nextReportAt: now + Self.reportInterval)
        actions.append(.tell(.floorTaken(by: talker)))
        if !held.isEmpty {
            actions.append(.retry(held))
            held = []
        }
        return actions
    }

    private mutating func idle(_ ssrc: SSRC, lastSequence: UInt16?, at now: Instant) -> [Action] {
        let actions: [Action] = [.tell(.floorIdle)]
        guard var burst, burst.ssrc == ssrc, burst.ending == nil else { return actions }
        guard let lastSequence, !burst.sequences.isComplete(through: lastSequence) else {
            return end(.completed) + actions
        }
        burst.ending = (lastSequence, now + Self.stragglerTime)
        self.burst = burst
        return actions
    }

    private mutating func end(_ reason: ReceptionEnd) -> [Action] {
        guard let burst else { return [] }
        self.burst = nil
        var report = ReceptionReport()
        report.received = burst.sequences.received
        report.lost = burst.sequences.lost
        if let last = burst.ending?.last, let highest = burst.sequences.highest {
            report.lost += max(0, last.sequenceDistance(from: highest))
        }
        statistics[burst.ssrc, default: TalkerStatistics()].close(lost: report.lost)
        forgetOldStatistics(keeping: burst.ssrc)
        guard burst.hasBegun else { return [] }
        let told: Action = .tell(.burstEnded(burst.talker, reason, report))
        return reason == .linkLost ? [told] : [.report(receptionReport(burst.ssrc, lostNow: 0)), told]
    }

    private mutating func deadline(at now: Instant) -> [Action] {
        let expired = held.count { now >= $0.receivedAt + Self.heldPacketTime }
        if expired > 0 {
            held.removeFirst(expired)
            drops[Drop.unbound.rawValue] += expired
        }
        guard var burst else { return [] }
        if let ending = burst.ending, ending.deadline <= now { return end(.completed) }
        if burst.lastPacketAt + Self.silenceTimeout <= now { return end(.silent) }
        guard burst.hasBegun, burst.nextReportAt <= now else { return [] }
        burst.nextReportAt = now + Self.reportInterval
        self.burst = burst
        return [.report(receptionReport(burst.ssrc, lostNow: burst.sequences.lost))]
    }

    // MARK: Reports

    private func receptionReport(_ ssrc: SSRC, lostNow: Int) -> ClientMessage.ReceptionReport {
        (statistics[ssrc] ?? TalkerStatistics()).report(ssrc, lostNow: lostNow)
    }

    private mutating func forgetOldStatistics(keeping ssrc: SSRC) {
        guard statistics.count > TalkerStatistics.talkersMaximum else { return }
        if let other = statistics.keys.first(where: { $0 != ssrc }) { statistics[other] = nil }
    }
}

/// What was received of one talker since this end joined, for the reports (RFC 3550, section 6.4.1).
struct TalkerStatistics: Sendable {
    /// For how many talkers it is kept.
    static let talkersMaximum = 32

    private var received: UInt32 = 0
    private var lost: UInt32 = 0
    private var sequences = SequenceExtender()
    private var jitter = 0.0
    private var lastTransit: Double?

    mutating func note(_ header: RTPHeader, at now: Instant) {
        received &+= 1
        _ = sequences.extend(header.sequence)
        // Interarrival jitter of RFC 3550, section 6.4.1, in units of the 48 kHz clock.
        let transit = Double(now.nanoseconds) * 48e-6 - Double(header.timestamp)
        if let lastTransit, !header.marker {
            let difference = abs(transit - lastTransit)
            // A wrapped time stamp or a pause is no jitter.
            if difference < 48_000 { jitter += (difference - jitter) / 16 }
        }
        lastTransit = transit
    }

    mutating func close(lost: Int) {
        self.lost &+= UInt32(clamping: lost)
        lastTransit = nil
    }

    func report(_ ssrc: SSRC, lostNow: Int) -> ClientMessage.ReceptionReport {
        ClientMessage.ReceptionReport(
            ssrc: ssrc, received: received, lost: lost &+ UInt32(clamping: lostNow),
            highestSequence: UInt32(truncatingIfNeeded: sequences.highest ?? 0), jitter: UInt32(jitter))
    }
}
