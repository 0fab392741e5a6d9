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

    /// The round-trip time to the relay, by which late packets are told from lost ones.
    public var roundTripTime: Duration = .milliseconds(100) {
        didSet { burst?.planner.roundTripTime = roundTripTime }
    }
    /// Whether the relay gives the beginning of a burst that goes on.
    public var offersLateEntry = false
    /// How long after a burst's first packet its reception is reported first. Not the same for all listeners of a relay.
    public var firstReport = reportInterval
    private var burst: HeardBurst?
    /// The next one, while the one before is being completed.
    private var waiting: HeardBurst.Announcement?
    private var lastRequest: UInt32 = 0
    /// How far the bursts were heard that the link's end interrupted, by their key ids.
    private var interrupted: [(keyID: UInt64, last: UInt16)] = []
    private var early = EarlyPackets()
    private var statistics: [SSRC: TalkerStatistics] = [:]
    private var drops = [Int](repeating: 0, count: Drop.allCases.count)

    /// Nothing is heard yet.
    public init() {}

    /// Packets dropped for `reason`.
    public func dropped(_ reason: Drop) -> Int { drops[reason.rawValue] }

    /// When `.deadline` must be delivered, at the latest; `nil` while nobody talks.
    public var nextDeadline: Instant? {
        [early.nextDeadline, burst?.nextDeadline].compactMap(\.self).min()
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
        case .fetchAsked(let request):
            burst?.late?.asked(request, at: now)
            return []
        case .fetched(let request, let isWhole):
            burst?.late?.answered(request, isWhole: isWhole, at: now)
            return proceed(at: now)
        case .fetchRefused(let refusal):
            burst?.late?.refused(refusal, at: now)
            return proceed(at: now)
        case .conclude: return conclude(at: now)
        case .linkLost:
            interrupt()
            waiting = nil
            let actions = close(.linkLost)
            _ = early.takeAll()
            statistics = [:]
            return actions
        case .deadline: return deadline(at: now)
        }
    }

    // MARK: Packets

    /// Decides on a packet that came from the relay: with the right MAC and counter, or over QUIC (`isRepaired`). It changes
    /// nothing but a counter.
    public mutating func admit(ssrc: SSRC, keyID: UInt64, sequence: UInt16, isRepaired: Bool = false) -> Admission {
        guard let burst, burst.isOf(ssrc, keyID) else {
            // Another source or key id: the burst that the next FloorTaken will tell of, or nothing we know.
            guard !isRepaired, early.hasRoom else { return drop(.unbound) }
            return .hold
        }
        if let late = burst.late, late.isFetching, !isRepaired { return late.hasRoom ? .hold : drop(.unbound) }
        return burst.sequences.wasSeen(sequence) ? drop(.duplicate) : .open
    }

    /// Keeps a packet that `admit` said to hold, and that came at `receivedAt`.
    ///
    /// - Parameter place: Its source, key id and sequence number, if it may be of the burst whose beginning is fetched.
    public mutating func hold(
        _ packet: [UInt8], receivedAt: Instant, place: (ssrc: SSRC, keyID: UInt64, sequence: UInt16)? = nil
    ) {
        if let place, burst?.isFetching == true, burst?.isOf(place.ssrc, place.keyID) == true {
            burst?.late?.hold(HeldPacket(bytes: packet, receivedAt: receivedAt), place.sequence)
        } else if !early.hold(packet, receivedAt: receivedAt) {
            count(.unbound)
        }
    }

    /// Whether that request is for the beginning of the burst that is heard.
    public func awaits(_ request: BurstRequestID) -> Bool { burst?.late?.awaits(request) ?? false }

    /// Counts a packet dropped by who opens them.
    public mutating func count(_ reason: Drop) { drops[reason.rawValue] += 1 }

    private mutating func drop(_ reason: Drop) -> Admission {
        count(reason)
        return .drop(reason)
    }

    private mutating func opened(
        _ header: RTPHeader, payload: [UInt8], receivedAt: Instant, isRepaired: Bool, at now: Instant
    ) -> [Action] {
        guard let known = burst, known.ssrc == header.ssrc else { return [] }
        guard burst?.take(header, isRepaired: isRepaired, at: now) == true else {
            count(.duplicate)
            return []
        }
        var actions: [Action] = known.hasBegun ? [] : [.tell(.burstBegan(known.talker))]
        if !isRepaired { statistics[known.ssrc, default: TalkerStatistics()].note(header, at: receivedAt) }
        actions.append(
            .tell(
                .frame(
                    ReceivedFrame(
                        sequence: header.sequence, timestamp: header.timestamp, marker: header.marker,
                        payload: payload, receivedAt: receivedAt, isRepaired: isRepaired, isLate: known.isFetching))))
        return actions + proceed(at: now) + endIfDone(at: now) + ask(at: now)
    }

    // MARK: What is missing

    /// Asks for what is due.
    private mutating func ask(at now: Instant) -> [Action] {
        guard let ranges = burst?.planner.request(lastRequest &+ 1, at: now), let burst, !ranges.isEmpty else {
            return []
        }
        lastRequest &+= 1
        return [.ask(.init(id: lastRequest, ssrc: burst.ssrc, keyID: burst.announcement.keyID, ranges: ranges))]
    }

    /// Ends a burst that is over when all of it is there, or nothing more can come.
    private mutating func endIfDone(at now: Instant) -> [Action] {
        burst?.isDone == true ? end(.completed, at: now) : []
    }

    // MARK: The floor

    private mutating func taken(
        _ talker: RelayMember, ssrc: SSRC, keyID: UInt64, isLate: Bool, at now: Instant
    ) -> [Action] {
        if let burst, burst.isOf(ssrc, keyID), !burst.isOver { return [] }
        let announcement = HeardBurst.Announcement(
            talker: talker, ssrc: ssrc, keyID: keyID, wantsBeginning: !isLate, isLate: isLate && offersLateEntry)
        if burst?.isOver == true, waiting == nil {
            // What is missing of it is on its way: the new burst can wait for so long.
            burst?.hurry(until: now + Self.supersedingTime)
            waiting = announcement
            return []
        }
        waiting = nil
        return end(.superseded, at: now) + begin(announcement, at: now)
    }

    private mutating func begin(_ announcement: HeardBurst.Announcement, at now: Instant) -> [Action] {
        let late = announcement.isLate ? lateEntry(announcement, at: now) : nil
        burst = HeardBurst(
            announcement, late: late, roundTripTime: roundTripTime, firstReport: firstReport, at: now)
        let held = early.takeAll()
        return [.tell(.floorTaken(by: announcement.talker))] + (held.isEmpty ? [] : [.retry(held)]) + proceed(at: now)
    }

    private mutating func idle(_ ssrc: SSRC, lastSequence: UInt16?, at now: Instant) -> [Action] {
        let told: [Action] = [.tell(.floorIdle)]
        if let next = waiting, next.ssrc == ssrc {
            // Two bursts are over: the older one has had its time.
            let actions = end(.completed, at: now)
            return actions + idle(ssrc, lastSequence: lastSequence, at: now)
        }
        guard let burst, burst.ssrc == ssrc, !burst.isOver else { return told }
        guard let lastSequence else { return end(.completed, at: now) + told }
        if burst.isFetching {
            self.burst?.heldEnding = lastSequence
            return told
        }
        self.burst?.expect(through: lastSequence, until: now + Self.completionTime, at: now)
        let actions = endIfDone(at: now)
        return actions + told + ask(at: now)
    }

    private mutating func end(_ reason: ReceptionEnd, at now: Instant) -> [Action] {
        let actions = close(reason)
        guard let next = waiting else { return actions }
        waiting = nil
        return actions + begin(next, at: now)
    }

    private mutating func close(_ reason: ReceptionEnd) -> [Action] {
        guard let burst else { return [] }
        self.burst = nil
        let report = burst.report
        // What had to be asked for was lost on the way, whatever became of it.
        statistics[burst.ssrc, default: TalkerStatistics()].close(lost: report.lost + burst.repaired)
        forgetOldStatistics(keeping: burst.ssrc)
        guard burst.hasBegun else { return [] }
        let told: Action = .tell(.burstEnded(burst.talker, reason, report))
        return reason == .linkLost ? [told] : [.report(receptionReport(burst.ssrc, lostNow: 0)), told]
    }

    private mutating func deadline(at now: Instant) -> [Action] {
        drops[Drop.unbound.rawValue] += early.expire(at: now)
        guard let burst else { return [] }
        if let ending = burst.ending, ending.deadline <= now { return end(.completed, at: now) }
        if !burst.isFetching, burst.lastPacketAt + Self.silenceTimeout <= now { return end(.silent, at: now) }
        self.burst?.planner.giveUp(at: now)
        var actions: [Action] = []
        if self.burst?.takeReport(at: now) == true {
            actions.append(.report(receptionReport(burst.ssrc, lostNow: burst.sequences.lost + burst.repaired)))
        }
        return actions + proceed(at: now) + endIfDone(at: now) + ask(at: now)
    }

    // MARK: Coming late

    /// A burst that was heard before is heard on from where it was.
    private mutating func lateEntry(_ announcement: HeardBurst.Announcement, at now: Instant) -> LateEntry {
        let index = interrupted.firstIndex { $0.keyID == announcement.keyID }
        let last = index.map { interrupted.remove(at: $0).last }
        return LateEntry(
            BurstName(ssrc: announcement.ssrc, keyID: announcement.keyID), after: last, at: now)
    }

    /// The link is gone in the middle of a burst, which may go on when it is back.
    private mutating func interrupt() {
        guard let burst, burst.hasBegun, let last = burst.sequences.highest else { return }
        interrupted.append((burst.announcement.keyID, last))
        if interrupted.count > RelayProtocolLimits.talkersMaximum { interrupted.removeFirst() }
    }

    /// Asks for the next piece of a burst's beginning; behind the last one, takes what was held.
    private mutating func proceed(at now: Instant) -> [Action] {
        if let piece = burst?.late?.piece(at: now) { return [.fetch(piece.burst, first: piece.first)] }
        guard burst?.late?.isFetching == false, let held = burst?.late?.takeHeld() else { return [] }
        burst?.endFetching(at: now)
        return (held.isEmpty ? [] : [.retry(held)]) + (burst?.heldEnding == nil ? [] : [.conclude])
    }

    /// What was held has been taken, and the floor has been idle for a while.
    private mutating func conclude(at now: Instant) -> [Action] {
        guard let last = burst?.heldEnding else { return [] }
        burst?.heldEnding = nil
        burst?.expect(
            through: last, until: now + (waiting == nil ? Self.completionTime : Self.supersedingTime), at: now)
        return endIfDone(at: now) + ask(at: now)
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
