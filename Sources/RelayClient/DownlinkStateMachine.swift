// What is heard: which packets from the relay are taken, where a burst begins and ends. Pure rules; keys are elsewhere.
import MonotonicTime
import RelayProtocol

/// The listener's side of the floor.
///
/// A packet has passed the relay's MAC and counter before it comes here. It is taken when its source and key id are those
/// that `FloorTaken` bound; it is opened by SFrame then, and the burst begins with the first frame that opens.
///
/// Media go by plain UDP and may overtake the `FloorTaken` on the control stream; so packets of an unbound source
/// are kept, a few and not for long, until it comes. What does not come is asked for again (`RepairPlanner`). A burst ends when
/// `FloorIdle` has come and everything up to the last sequence number that it names, or nothing more can come, or
/// `completionTime` after it; also with the link, `supersedingTime` after the next burst has begun, or after
/// `silenceTimeout` without a packet, which is longer than the relay itself waits for its talker.
public struct DownlinkStateMachine: Sendable {
    /// What may happen.
    public enum Event: Sendable, Equatable {
        /// A member has the floor; its media carry this source and key id. `isLate`: it had it before this end joined, which
        /// hears it from now on.
        case floorTaken(RelayMember, ssrc: SSRC, keyID: UInt64, isLate: Bool = false)
        /// Nobody has the floor; the last burst was of that source.
        case floorIdle(ssrc: SSRC, lastSequence: UInt16?)
        /// A packet that `admit` let pass was opened.
        case opened(RTPHeader, payload: [UInt8], receivedAt: Instant, isRepaired: Bool = false)
        /// All that the relay had of a request has come, and was opened.
        case answered(request: UInt32)
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
        /// Ask the relay for these packets.
        case ask(ClientMessage.RepairRequest)
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

    /// How long a burst that is over waits for packets on their way, or sent again.
    public static let completionTime: Duration = .seconds(3)
    /// How long it does so while the next one waits for its end.
    public static let supersedingTime: Duration = .seconds(1)
    /// How long a burst may be silent.
    public static let silenceTimeout: Duration = .seconds(6)
    /// How often reception is reported while a burst runs.
    public static let reportInterval: Duration = .seconds(2)
    /// How many early packets are kept: what is said while the burst before is completed, with a second of held audio.
    public static let heldPacketsMaximum = 256
    /// How long early packets are kept.
    public static let heldPacketTime: Duration = .seconds(2)

    private struct Burst: Sendable {
        let talker: RelayMember
        let ssrc: SSRC
        let keyID: UInt64
        /// Whether what was said before the first packet that comes is to be heard.
        let wantsBeginning: Bool
        var hasBegun = false
        var sequences = SequenceRecord()
        /// Those of them that had to be asked for.
        var repaired = 0
        var planner = RepairPlanner()
        var lastPacketAt: Instant
        var nextReportAt: Instant
        /// Set once the floor is idle: the last sequence number and how long it is waited for.
        var ending: (last: UInt16, deadline: Instant)?

        /// Notices what is missing around a packet that has come; `highest` was the highest number before it.
        mutating func notice(_ header: RTPHeader, highest: UInt16?, at now: Instant) {
            let sequence = header.sequence
            planner.arrived(sequence, at: now)
            if let highest {
                if sequence.sequenceDistance(from: highest) > 1 {
                    planner.miss(highest &+ 1, before: sequence, mayBeLate: false, at: now)
                }
            } else if !header.marker, wantsBeginning, !planner.lacksBeginning {
                planner.missBeginning(before: sequence, at: now)
            }
            if header.marker { planner.foundBeginning() }
        }

        /// The burst's last number is known.
        mutating func expect(through last: UInt16, at now: Instant) {
            if let highest = sequences.highest {
                if last.sequenceDistance(from: highest) > 0 {
                    planner.miss(highest &+ 1, before: last &+ 1, mayBeLate: true, at: now)
                }
            } else if wantsBeginning {
                planner.missBeginning(before: last &+ 1, at: now)
            }
            planner.finish(at: now)
        }
    }

    /// The round-trip time to the relay, by which late packets are told from lost ones.
    public var roundTripTime: Duration = .milliseconds(100) {
        didSet { burst?.planner.roundTripTime = roundTripTime }
    }
    private var burst: Burst?
    /// The next one, while the one before is being completed.
    private var waiting: (talker: RelayMember, ssrc: SSRC, keyID: UInt64)?
    private var lastRequest: UInt32 = 0
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
        if let repair = burst.planner.nextDeadline { due = min(due, repair) }
        return due
    }

    /// Takes an event and says what is to be done.
    public mutating func handle(_ event: Event, at now: Instant) -> [Action] {
        switch event {
        case .floorTaken(let talker, let ssrc, let keyID, let isLate):
            return taken(talker, ssrc: ssrc, keyID: keyID, isLate: isLate, at: now)
        case .floorIdle(let ssrc, let lastSequence): return idle(ssrc, lastSequence: lastSequence, at: now)
        case .opened(let header, let payload, let receivedAt, let isRepaired):
            return opened(header, payload: payload, receivedAt: receivedAt, isRepaired: isRepaired, at: now)
        case .answered(let request):
            burst?.planner.answered(request, at: now)
            return endIfDone(at: now) + ask(at: now)
        case .linkLost:
            waiting = nil
            let actions = close(.linkLost)
            held = []
            statistics = [:]
            return actions
        case .deadline: return deadline(at: now)
        }
    }

    // MARK: Packets

    /// Decides on a packet that came from the relay: with the right MAC and counter, or over QUIC (`isRepaired`). It changes
    /// nothing but a counter.
    public mutating func admit(ssrc: SSRC, keyID: UInt64, sequence: UInt16, isRepaired: Bool = false) -> Admission {
        guard let burst, burst.ssrc == ssrc, burst.keyID == keyID else {
            // Another source or key id: the burst that the next FloorTaken will tell of, or nothing we know.
            guard !isRepaired, held.count < Self.heldPacketsMaximum else { return drop(.unbound) }
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
        _ header: RTPHeader, payload: [UInt8], receivedAt: Instant, isRepaired: Bool, at now: Instant
    ) -> [Action] {
        guard var burst, burst.ssrc == header.ssrc else { return [] }
        let highest = burst.sequences.highest
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
        burst.notice(header, highest: highest, at: now)
        if isRepaired { burst.repaired += 1 }
        self.burst = burst
        if !isRepaired { statistics[burst.ssrc, default: TalkerStatistics()].note(header, at: receivedAt) }
        actions.append(
            .tell(
                .frame(
                    ReceivedFrame(
                        sequence: header.sequence, timestamp: header.timestamp, marker: header.marker,
                        payload: payload, receivedAt: receivedAt, isRepaired: isRepaired))))
        return actions + endIfDone(at: now) + ask(at: now)
    }

    // MARK: What is missing

    /// Asks for what is due.
    private mutating func ask(at now: Instant) -> [Action] {
        guard let ranges = burst?.planner.request(lastRequest &+ 1, at: now), let burst, !ranges.isEmpty else {
            return []
        }
        lastRequest &+= 1
        return [.ask(.init(id: lastRequest, ssrc: burst.ssrc, keyID: burst.keyID, ranges: ranges))]
    }

    /// Ends a burst that is over when all of it is there, or nothing more can come.
    private mutating func endIfDone(at now: Instant) -> [Action] {
        guard let burst, burst.ending != nil, burst.planner.isDone else { return [] }
        return end(.completed, at: now)
    }

    // MARK: The floor

    private mutating func taken(
        _ talker: RelayMember, ssrc: SSRC, keyID: UInt64, isLate: Bool, at now: Instant
    ) -> [Action] {
        if let burst, burst.ssrc == ssrc, burst.keyID == keyID, burst.ending == nil { return [] }
        var actions: [Action] = []
        if var burst, let ending = burst.ending, waiting == nil {
            // What is missing of it is on its way: the new burst can wait for so long.
            burst.ending = (ending.last, min(ending.deadline, now + Self.supersedingTime))
            self.burst = burst
            waiting = (talker, ssrc, keyID)
            return []
        }
        waiting = nil
        actions += end(.superseded, at: now)
        return actions + begin(talker, ssrc: ssrc, keyID: keyID, isLate: isLate, at: now)
    }

    private mutating func begin(
        _ talker: RelayMember, ssrc: SSRC, keyID: UInt64, isLate: Bool, at now: Instant
    ) -> [Action] {
        var burst = Burst(
            talker: talker, ssrc: ssrc, keyID: keyID, wantsBeginning: !isLate, lastPacketAt: now,
            nextReportAt: now + Self.reportInterval)
        burst.planner.roundTripTime = roundTripTime
        self.burst = burst
        var actions: [Action] = [.tell(.floorTaken(by: talker))]
        if !held.isEmpty {
            actions.append(.retry(held))
            held = []
        }
        return actions
    }

    private mutating func idle(_ ssrc: SSRC, lastSequence: UInt16?, at now: Instant) -> [Action] {
        let told: [Action] = [.tell(.floorIdle)]
        if let next = waiting, next.ssrc == ssrc {
            // Two bursts are over: the older one has had its time.
            let actions = end(.completed, at: now)
            return actions + idle(ssrc, lastSequence: lastSequence, at: now)
        }
        guard var burst, burst.ssrc == ssrc, burst.ending == nil else { return told }
        guard let lastSequence else { return end(.completed, at: now) + told }
        burst.expect(through: lastSequence, at: now)
        burst.ending = (lastSequence, now + Self.completionTime)
        self.burst = burst
        let actions = endIfDone(at: now)
        return actions + told + ask(at: now)
    }

    private mutating func end(_ reason: ReceptionEnd, at now: Instant) -> [Action] {
        let actions = close(reason)
        guard let next = waiting else { return actions }
        waiting = nil
        return actions + begin(next.talker, ssrc: next.ssrc, keyID: next.keyID, isLate: false, at: now)
    }

    private mutating func close(_ reason: ReceptionEnd) -> [Action] {
        guard let burst else { return [] }
        self.burst = nil
        var report = ReceptionReport()
        report.received = burst.sequences.received
        report.lost = burst.sequences.lost
        if let last = burst.ending?.last, let highest = burst.sequences.highest {
            report.lost += max(0, last.sequenceDistance(from: highest))
        }
        // What had to be asked for was lost on the way, whatever became of it.
        statistics[burst.ssrc, default: TalkerStatistics()].close(lost: report.lost + burst.repaired)
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
        if let ending = burst.ending, ending.deadline <= now { return end(.completed, at: now) }
        if burst.lastPacketAt + Self.silenceTimeout <= now { return end(.silent, at: now) }
        burst.planner.giveUp(at: now)
        var actions: [Action] = []
        if burst.hasBegun, burst.nextReportAt <= now {
            burst.nextReportAt = now + Self.reportInterval
            actions.append(.report(receptionReport(burst.ssrc, lostNow: burst.sequences.lost + burst.repaired)))
        }
        self.burst = burst
        return actions + endIfDone(at: now) + ask(at: now)
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
