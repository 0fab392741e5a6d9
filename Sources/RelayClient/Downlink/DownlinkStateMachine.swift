// The rules of listening: which packets from the relay are accepted, and where bursts begin and end. Pure rules; keys
// are elsewhere.
import MonotonicTime
import RelayProtocol
import Vocabulary

/// The listener's side of the floor.
///
/// The relay's MAC and counter are checked before a packet comes here. It is accepted when its source and key id are
/// those that `FloorTaken` has bound. SFrame then decrypts it, and the burst begins with the first frame that decrypts.
///
/// Media go by plain UDP and may overtake the `FloorTaken` on the control stream; so packets of an unbound source are
/// kept until it arrives, in small number and for a short time. Missing packets are requested again (`RepairPlanner`).
/// A burst ends when `FloorIdle` has come and everything up to the last sequence number that it names, or nothing more
/// can come, or `completionTime` after it; also with the link, `supersedingTime` after the next burst has begun, or
/// after `silenceTimeout` without a packet, which is longer than the relay itself waits for its talker. A burst that
/// ended this way is set aside, and continues when its packets arrive again.
///
/// In full duplex each talker has its own burst, up to `talkersMaximum` at once, and "the next burst" means the next
/// one of the same talker. In all other modes the maximum is one, and the next burst may be any member's.
public struct DownlinkStateMachine: Sendable {
    /// How long a burst that is over waits for packets on their way, or sent again.
    public static let completionTime: Duration = .seconds(3)
    /// How long it does so while the next one waits for its end.
    public static let supersedingTime: Duration = .seconds(1)
    /// How long a burst may be silent.
    public static let silenceTimeout: Duration = .seconds(6)
    /// Maximum number of early packets: the media sent while the previous burst is completed, with a second of held
    /// audio.
    public static let heldPacketsMaximum = 256
    /// How long early packets are kept.
    public static let heldPacketTime: Duration = .seconds(2)

    /// The round-trip time to the relay, which distinguishes late packets from lost ones.
    public var roundTripTime: Duration = .milliseconds(100) {
        didSet {
            for index in bursts.indices { bursts[index].planner.roundTripTime = roundTripTime }
        }
    }
    /// Whether the relay sends the beginning of a burst in progress.
    public var offersLateEntry = false
    /// How long after a burst's first packet its reception is reported first. Not the same for all listeners of a relay.
    public var firstReport: Duration = .seconds(2)
    /// How many bursts are heard at once, by the channel's rules.
    public var talkersMaximum = 1
    /// In the order they began; at most one of each talker and source.
    var bursts: [HeardBurst] = []
    private var lastRequest: UInt32 = 0
    /// Of all requests, whichever burst they are for.
    private var budget = RequestBudget()
    /// How far the bursts were heard that the link's end, or silence, interrupted. Nothing up to there is heard again.
    var interrupted: [(burst: BurstName, last: UInt16, at: Instant)] = []
    /// Bursts that went silent while their talkers may still have the floor.
    var silent: [SilentBurst] = []
    private var early = EarlyPackets()
    /// Where a channel's members host it by turns: what each talker has been heard to say. Nil: nobody says anything again.
    var heard: HeardSpeech?
    private var statistics: [SSRC: TalkerStatistics] = [:]
    private var drops = [Int](repeating: 0, count: Drop.allCases.count)

    /// Packets dropped for `reason`.
    public func dropped(_ reason: Drop) -> Int { drops[reason.rawValue] }

    /// Whether nothing is heard, and nothing of what was heard may go on.
    var isIdle: Bool { bursts.isEmpty && silent.isEmpty }

    /// The sources of those who have the floor.
    var talkers: [SSRC] { bursts.filter { !$0.isOver }.map(\.ssrc) }

    /// Whether somebody has the floor.
    var hasTalkers: Bool { bursts.contains { !$0.isOver } }

    /// When `.deadline` must be delivered, at the latest; `nil` while nobody talks.
    public var nextDeadline: Instant? {
        var next = early.nextDeadline
        for burst in bursts { next = min(next ?? burst.nextDeadline, burst.nextDeadline) }
        for burst in silent { next = min(next ?? burst.nextReport, burst.nextReport) }
        return next
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
            for index in bursts.indices { bursts[index].planner.answered(request, at: now) }
            return endIfDone(at: now) + ask(at: now)
        case .fetchAsked(let request, let burst):
            asked(request, for: burst, at: now)
            return []
        case .fetched(let request, let isWhole):
            for index in bursts.indices { bursts[index].late?.answered(request, isWhole: isWhole, at: now) }
            return proceed(at: now)
        case .fetchRefused(let refusal):
            for index in bursts.indices { bursts[index].late?.refused(refusal, at: now) }
            return proceed(at: now)
        case .resumed(let ssrc, let keyID): return resume(ssrc, keyID, at: now)
        case .conclude(let ssrc): return conclude(ssrc, at: now)
        case .linkLost:
            interrupt(at: now)
            silent = []
            var actions: [Action] = []
            while !bursts.isEmpty { actions += close(0, .linkLost) }
            _ = early.takeAll()
            statistics = [:]
            budget = RequestBudget()
            return actions
        case .deadline: return deadline(at: now)
        }
    }

    // MARK: Packets

    /// Decides on a packet that came from the relay: with the right MAC and counter, or over QUIC (`isRepaired`). It changes
    /// nothing but a counter.
    public mutating func admit(ssrc: SSRC, keyID: UInt64, sequence: UInt16, isRepaired: Bool = false) -> Admission {
        guard let index = bursts.firstIndex(where: { $0.isOf(ssrc, keyID) }) else {
            if !isRepaired, silent.contains(where: { $0.isOf(ssrc, keyID) }) { return .resume }
            // Another source or key id: the burst that the next FloorTaken will tell of, or nothing we know.
            guard !isRepaired, early.hasRoom else { return drop(.unbound) }
            return .hold
        }
        if bursts[index].sequences.wasSeen(sequence) { return drop(.duplicate) }
        if let late = bursts[index].late, late.isFetching, !isRepaired {
            return late.hasRoom ? .hold : drop(.unbound)
        }
        return .open
    }

    /// Keeps a packet that `admit` said to hold, and that came at `receivedAt`.
    ///
    /// - Parameter place: Its source, key id and sequence number, if it may be of the burst whose beginning is fetched.
    public mutating func hold(
        _ packet: [UInt8], receivedAt: Instant, place: (ssrc: SSRC, keyID: UInt64, sequence: UInt16)? = nil
    ) {
        let index = place.flatMap { place in bursts.firstIndex { $0.isFetching && $0.isOf(place.ssrc, place.keyID) } }
        if let place, let index {
            bursts[index].late?.hold(HeldPacket(bytes: packet, receivedAt: receivedAt), place.sequence)
        } else if !early.hold(packet, receivedAt: receivedAt) {
            count(.unbound)
        }
    }

    /// Whether that request is for the beginning of a burst that is heard.
    public func awaits(_ request: BurstRequestID) -> Bool {
        bursts.contains { $0.late?.awaits(request) ?? false }
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
        guard let index = bursts.firstIndex(where: { $0.ssrc == header.ssrc }) else { return [] }
        let (talker, hasBegun) = (bursts[index].talker, bursts[index].hasBegun)
        let isFetching = bursts[index].isFetching
        guard bursts[index].take(header, isRepaired: isRepaired, at: now) else {
            count(.duplicate)
            return []
        }
        var actions: [Action] = hasBegun ? [] : [.tell(.burstBegan(talker))]
        if !isRepaired { statistics[header.ssrc, default: TalkerStatistics()].note(header, at: receivedAt) }
        if heard?.hasHeard(header.timestamp, of: talker, in: bursts[index].announcement.name, at: now) != true {
            actions.append(
                .tell(
                    .frame(
                        ReceivedFrame(
                            sequence: header.sequence, timestamp: header.timestamp, marker: header.marker,
                            payload: payload, receivedAt: receivedAt, isRepaired: isRepaired, isLate: isFetching,
                            talker: talker))))
        }
        return actions + proceed(at: now) + endIfDone(at: now) + ask(at: now)
    }

    // MARK: What is missing

    /// Asks for what is due: of one burst with each request, of the oldest first.
    mutating func ask(at now: Instant) -> [Action] {
        var actions: [Action] = []
        for index in bursts.indices {
            bursts[index].planner.budget = budget
            let ranges = bursts[index].planner.request(lastRequest &+ 1, at: now)
            guard !ranges.isEmpty else { continue }
            budget = bursts[index].planner.budget
            lastRequest &+= 1
            let (ssrc, keyID) = (bursts[index].ssrc, bursts[index].announcement.keyID)
            actions.append(.ask(.init(id: lastRequest, ssrc: ssrc, keyID: keyID, ranges: ranges)))
        }
        if !actions.isEmpty {
            for index in bursts.indices { bursts[index].planner.budget = budget }
        }
        return actions
    }

    /// Ends bursts that are over when all of them is there, or nothing more can come.
    mutating func endIfDone(at now: Instant) -> [Action] {
        var actions: [Action] = []
        while let index = bursts.firstIndex(where: \.isDone) { actions += end(index, .completed, at: now) }
        return actions
    }

    // MARK: The floor

    mutating func taken(
        _ talker: RelayMember, ssrc: SSRC, keyID: UInt64, isLate: Bool, at now: Instant
    ) -> [Action] {
        forgetSilent(before: talker, ssrc)
        if bursts.contains(where: { $0.isOf(ssrc, keyID) && !$0.isOver }) { return [] }
        let announcement = HeardBurst.Announcement(
            talker: talker, ssrc: ssrc, keyID: keyID, wantsBeginning: !isLate, isLate: isLate && offersLateEntry)
        guard let index = predecessor(of: announcement) else { return begin(announcement, at: now) }
        if bursts[index].isOver, bursts[index].next == nil {
            // What is missing of it is on its way: the new burst can wait for so long.
            bursts[index].hurry(until: now + Self.supersedingTime)
            bursts[index].next = announcement
            return []
        }
        bursts[index].next = nil
        return end(index, .superseded, at: now) + begin(announcement, at: now)
    }

    /// The burst in whose place that one comes: the talker's own last one; where no more can be heard, one that is over.
    private func predecessor(of next: HeardBurst.Announcement) -> Int? {
        // Back after a loss of its link, a talker has another source.
        let own = bursts.firstIndex { $0.ssrc == next.ssrc || $0.talker.id == next.talker.id }
        if let own { return own }
        guard bursts.count >= talkersMaximum else { return nil }
        return bursts.firstIndex { $0.isOver && $0.next == nil } ?? bursts.firstIndex(where: \.isOver)
            ?? bursts.indices.first
    }

    private mutating func begin(_ announcement: HeardBurst.Announcement, at now: Instant) -> [Action] {
        // It stays known: nothing may come of this attempt either.
        let heard = heardBefore(announcement.name, at: now)
        let late = announcement.isLate ? LateEntry(announcement.name, after: heard, at: now) : nil
        var burst = HeardBurst(
            announcement, after: heard, late: late, roundTripTime: roundTripTime, firstReport: firstReport, at: now)
        burst.planner.budget = budget
        bursts.append(burst)
        // Those of others are held again.
        let held = early.takeAll()
        return [.tell(.floorTaken(by: announcement.talker))] + (held.isEmpty ? [] : [.retry(held)]) + proceed(at: now)
    }

    mutating func idle(_ ssrc: SSRC, lastSequence: UInt16?, at now: Instant) -> [Action] {
        if let index = bursts.firstIndex(where: { $0.next?.ssrc == ssrc }) {
            // Two bursts are over: the older one has had its time.
            let actions = end(index, .completed, at: now)
            return actions + idle(ssrc, lastSequence: lastSequence, at: now)
        }
        guard let index = bursts.firstIndex(where: { $0.ssrc == ssrc && !$0.isOver }) else {
            return silentIdle(ssrc, lastSequence: lastSequence, at: now) ?? released(by: nil)
        }
        let talker = bursts[index].talker
        if bursts[index].isFetching {
            bursts[index].heldEnding = lastSequence.map { .through($0) } ?? .unknown
            return released(by: talker)
        }
        guard let lastSequence else {
            let actions = end(index, .completed, at: now)
            return actions + released(by: talker)
        }
        bursts[index].expect(through: lastSequence, until: now + Self.completionTime, at: now)
        let actions = endIfDone(at: now)
        return actions + released(by: talker) + ask(at: now)
    }

    /// The report that a burst has ended at the relay.
    private func released(by talker: RelayMember?) -> [Action] {
        guard bursts.contains(where: { !$0.isOver || $0.next != nil }) else { return [.tell(.floorIdle)] }
        return talker.map { [.tell(.floorReleased(by: $0))] } ?? []
    }

    mutating func end(_ index: Int, _ reason: ReceptionEnd, at now: Instant) -> [Action] {
        let next = bursts[index].next
        let actions = close(index, reason)
        return next.map { actions + begin($0, at: now) } ?? actions
    }

    private mutating func close(_ index: Int, _ reason: ReceptionEnd) -> [Action] {
        let burst = bursts.remove(at: index)
        let report = burst.report
        // What had to be asked for was lost on the way, whatever became of it.
        statistics[burst.ssrc, default: TalkerStatistics()].close(lost: report.lost + burst.repaired)
        forgetOldStatistics(keeping: burst.ssrc)
        guard burst.hasBegun else {
            // One whose floor is idle has been told of; and where one talks at a time, whoever is next says that it is over.
            let isNews = talkersMaximum > 1 && !burst.isOver && (reason == .silent || reason == .superseded)
            return isNews ? [.tell(.floorReleased(by: burst.talker))] : []
        }
        let told: Action = .tell(.burstEnded(burst.talker, reason, report))
        return reason == .linkLost ? [told] : [.report(receptionReport(burst.ssrc, lostNow: 0)), told]
    }

    private mutating func deadline(at now: Instant) -> [Action] {
        drops[Drop.unbound.rawValue] += early.expire(at: now)
        var actions: [Action] = []
        while let index = bursts.firstIndex(where: { $0.overdue(at: now) != nil }) {
            let reason = bursts[index].overdue(at: now) ?? .completed
            if reason == .silent { setAside(index, at: now) }
            actions += end(index, reason, at: now)
        }
        silent.removeAll { $0.until <= now }
        for index in silent.indices where silent[index].takeReport(at: now) {
            actions.append(.report(receptionReport(silent[index].announcement.ssrc, lostNow: 0)))
        }
        for index in bursts.indices {
            bursts[index].planner.giveUp(at: now)
            guard bursts[index].takeReport(at: now) else { continue }
            actions.append(.report(receptionReport(bursts[index].ssrc, lostNow: bursts[index].lostNow)))
        }
        return actions + proceed(at: now) + endIfDone(at: now) + ask(at: now)
    }

    // MARK: Reports

    private func receptionReport(_ ssrc: SSRC, lostNow: Int) -> ClientMessage.ReceptionReport {
        (statistics[ssrc] ?? TalkerStatistics()).report(ssrc, lostNow: lostNow)
    }

    private mutating func forgetOldStatistics(keeping ssrc: SSRC) {
        guard statistics.count > TalkerStatistics.talkersMaximum else { return }
        let other = statistics.keys.first { key in key != ssrc && !bursts.contains { $0.ssrc == key } }
        if let other { statistics[other] = nil }
    }
}
