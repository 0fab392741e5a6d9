// Received bursts: what has arrived of one, what came before its floor message, and those that went silent. Pure.
import MonotonicTime
import RelayProtocol
import Vocabulary

/// A burst from the `FloorTaken` that announces it, or a packet of it, to its end.
struct HeardBurst: Sendable {
    /// Who talks, and how the packets are known.
    struct Announcement: Sendable {
        let talker: RelayMember
        let ssrc: SSRC
        let keyID: UInt64
        /// Whether what was said before the first packet that comes is to be heard.
        let wantsBeginning: Bool
        /// Whether that is fetched before the rest is heard.
        var isLate = false

        var name: BurstName { BurstName(ssrc: ssrc, keyID: keyID) }
    }

    /// How a burst is over at the relay whose beginning is still fetched: looked at behind what is held.
    enum HeldEnding: Sendable, Equatable {
        /// With this packet.
        case through(UInt16)
        /// With whatever came last.
        case unknown
    }

    let announcement: Announcement
    /// While its beginning is fetched.
    var late: LateEntry?
    var heldEnding: HeldEnding?
    /// The floor is idle, whether its last packet is waited for or not.
    private(set) var isConcluded = false
    /// What came of it, or was heard before it was interrupted: that is over and has its report.
    private(set) var sequences: SequenceRecord
    /// Those of them that had to be asked for.
    private(set) var repaired = 0
    var planner = RepairPlanner()
    private(set) var lastPacketAt: Instant
    /// From its first packet on.
    private var reports: ReportSchedule?
    /// Set once the floor is idle: the last sequence number and how long it is waited for.
    private(set) var ending: (last: UInt16, deadline: Instant)?

    /// The next one in its place, while it is being completed.
    var next: Announcement?

    /// What comes next is not what follows: more was said before than was fetched, and it is left out.
    private var leavesOut = false
    private let firstReport: Duration

    /// - Parameter heard: The last number that was heard of the burst before it was interrupted.
    init(
        _ announcement: Announcement, after heard: UInt16? = nil, late: LateEntry? = nil, roundTripTime: Duration,
        firstReport: Duration, at now: Instant
    ) {
        self.announcement = announcement
        sequences = heard.map { SequenceRecord(after: $0) } ?? SequenceRecord()
        self.late = late
        self.firstReport = firstReport
        planner.roundTripTime = roundTripTime
        lastPacketAt = now
    }

    var ssrc: SSRC { announcement.ssrc }
    var talker: RelayMember { announcement.talker }

    /// Whether a packet of it has come.
    var hasBegun: Bool { reports != nil }

    /// Whether the packets of that source and key id are this burst's.
    func isOf(_ ssrc: SSRC, _ keyID: UInt64) -> Bool { announcement.ssrc == ssrc && announcement.keyID == keyID }

    /// When something is to be done for it.
    var nextDeadline: Instant {
        // While the beginning is fetched, what comes is held: that is no silence.
        var due = isFetching ? Instant(nanoseconds: .max) : lastPacketAt + DownlinkStateMachine.silenceTimeout
        if let ending { due = min(due, ending.deadline) }
        if let report = reports?.next(lost: lostNow) { due = min(due, report) }
        if let repair = planner.nextDeadline { due = min(due, repair) }
        if let piece = late?.nextDeadline { due = min(due, piece) }
        return due
    }

    /// Why it is over though not all of it is there; nil: it is not, yet.
    func overdue(at now: Instant) -> ReceptionEnd? {
        if let ending, ending.deadline <= now { return .completed }
        return !isFetching && lastPacketAt + DownlinkStateMachine.silenceTimeout <= now ? .silent : nil
    }

    /// Whether what was said before this end came is to come before what comes now.
    var isFetching: Bool { late?.isFetching ?? false }

    /// Whether the floor is idle.
    var isOver: Bool { ending != nil || heldEnding != nil }

    /// Whether all of it is there, or nothing more can come.
    var isDone: Bool { ending != nil && planner.isDone }

    /// A packet has been opened; false: it had come before. The first one begins the burst.
    mutating func take(_ header: RTPHeader, isRepaired: Bool, at now: Instant) -> Bool {
        if leavesOut, !isRepaired { leaveOut(before: header.sequence) }
        let highest = sequences.highest
        guard sequences.insert(header.sequence) == .new else { return false }
        if !hasBegun { reports = ReportSchedule(first: firstReport, at: now) }
        lastPacketAt = now
        if isFetching {
            late?.took(header.sequence, at: now)
        } else if isRepaired {
            repaired += 1
        }
        notice(header, highest: highest, at: now)
        return true
    }

    /// What was never wanted is not lost.
    private mutating func leaveOut(before sequence: UInt16) {
        leavesOut = false
        sequences.skip(to: sequence)
    }

    /// Notices what is missing around a packet that has come; `highest` was the highest number before it.
    private mutating func notice(_ header: RTPHeader, highest: UInt16?, at now: Instant) {
        let sequence = header.sequence
        planner.arrived(sequence, at: now)
        if let highest {
            if sequence.sequenceDistance(from: highest) > 1 {
                planner.miss(highest &+ 1, before: sequence, mayBeLate: false, at: now)
            }
        } else if !header.marker, announcement.wantsBeginning, !planner.lacksBeginning {
            planner.missBeginning(before: sequence, at: now)
        }
        if header.marker { planner.foundBeginning() }
    }

    /// The floor is idle, so its last number is known; what is missing is waited for until `deadline` at the latest.
    mutating func expect(through last: UInt16, until deadline: Instant, at now: Instant) {
        isConcluded = true
        // While what is left out has no end yet, the live words after it may still come, however few they are; they are not asked for.
        if leavesOut {
            planner.finish(at: now)
            return
        }
        if let highest = sequences.highest {
            if last.sequenceDistance(from: highest) > 0 {
                planner.miss(highest &+ 1, before: last &+ 1, mayBeLate: true, at: now)
            }
        } else if announcement.wantsBeginning {
            planner.missBeginning(before: last &+ 1, at: now)
        }
        planner.finish(at: now)
        ending = (last, deadline)
    }

    /// The beginning is there, or will not come: from now on it is heard like any other.
    mutating func endFetching(at now: Instant) {
        leavesOut = late?.leavesOut ?? false
        late = nil
        lastPacketAt = now
    }

    /// The next one waits for its end.
    mutating func hurry(until deadline: Instant) {
        if let known = ending { ending = (known.last, min(known.deadline, deadline)) }
        late?.hurry(until: deadline)
    }

    /// Whether reception is to be reported now; the next report follows.
    mutating func takeReport(at now: Instant) -> Bool {
        let lost = lostNow
        guard let due = reports?.next(lost: lost), due <= now else { return false }
        reports?.reported(lost: lost, at: now)
        return true
    }

    /// The packets that did not come as they were sent: those that are missing, and those that had to be asked for.
    var lostNow: Int { sequences.lost + repaired }

    /// What came of it, and what did not although it was sent.
    var report: ReceptionReport {
        var report = ReceptionReport()
        report.received = sequences.received
        report.lost = sequences.lost
        report.skipped = sequences.skipped
        if let last = ending?.last, let highest = sequences.highest {
            report.lost += max(0, last.sequenceDistance(from: highest))
        }
        return report
    }
}

/// The packets of the burst that the next `FloorTaken` will tell of: a few, and not for long. Media go by plain UDP and may overtake
/// the control stream.
struct EarlyPackets: Sendable {
    private(set) var packets: [DownlinkStateMachine.HeldPacket] = []

    /// Whether another packet fits.
    var hasRoom: Bool { packets.count < DownlinkStateMachine.heldPacketsMaximum }

    /// When `expire` has something to do.
    var nextDeadline: Instant? { packets.first.map { $0.receivedAt + DownlinkStateMachine.heldPacketTime } }

    /// Keeps a packet; false when the store is full.
    mutating func hold(_ packet: [UInt8], receivedAt: Instant) -> Bool {
        guard hasRoom else { return false }
        packets.append(.init(bytes: packet, receivedAt: receivedAt))
        return true
    }

    /// All of them, in the order they came; none is left.
    mutating func takeAll() -> [DownlinkStateMachine.HeldPacket] {
        defer { packets = [] }
        return packets
    }

    /// Forgets those that are too old; returns how many those were.
    mutating func expire(at now: Instant) -> Int {
        let expired = packets.prefix { now >= $0.receivedAt + DownlinkStateMachine.heldPacketTime }.count
        packets.removeFirst(expired)
        return expired
    }
}

/// A burst that was ended here after a silence, although the relay has not reported its end.
///
/// Reception reports continue meanwhile: a relay sends no media to a listener that does not report, and new packets are
/// the first to show that a path works again.
struct SilentBurst: Sendable {
    /// How long more of it is waited for: twice the usual talk-time limit.
    static let timeMaximum: Duration = .seconds(120)

    let announcement: HeardBurst.Announcement
    private(set) var nextReport: Instant
    /// It is forgotten then.
    let until: Instant

    init(_ announcement: HeardBurst.Announcement, at now: Instant) {
        self.announcement = announcement
        until = now + Self.timeMaximum
        nextReport = now + ReportSchedule.lossInterval
    }

    /// Whether the packets of that source and key id are this burst's.
    func isOf(_ ssrc: SSRC, _ keyID: UInt64) -> Bool { announcement.ssrc == ssrc && announcement.keyID == keyID }

    /// Whether reception is to be reported now; the next report follows.
    mutating func takeReport(at now: Instant) -> Bool {
        guard nextReport <= now else { return false }
        nextReport = now + ReportSchedule.lossInterval
        return true
    }
}

extension DownlinkStateMachine {
    /// A burst is about to end since nothing came of it; more of it may come.
    mutating func setAside(_ index: Int, at now: Instant) {
        let burst = bursts[index]
        guard !burst.isOver, !burst.isConcluded else { return }
        noteInterruption(of: burst, at: now)
        forgetSilent(before: burst.talker, burst.ssrc)
        silent.append(SilentBurst(burst.announcement, at: now))
        silent.removeFirst(max(0, silent.count - RelayProtocolLimits.talkersMaximum))
    }

    /// A packet came of a burst that had gone silent: it is heard on, where the relay gives that from where it was.
    mutating func resume(_ ssrc: SSRC, _ keyID: UInt64, at now: Instant) -> [Action] {
        guard let burst = silent.first(where: { $0.isOf(ssrc, keyID) })?.announcement else { return [] }
        return taken(burst.talker, ssrc: ssrc, keyID: keyID, isLate: true, at: now)
    }

    /// A silent burst has ended, and its missing part is fetched. Nil: there is no such burst, or nothing to fetch.
    mutating func silentIdle(_ ssrc: SSRC, lastSequence: UInt16?, at now: Instant) -> [Action]? {
        guard let index = silent.firstIndex(where: { $0.announcement.ssrc == ssrc }) else { return nil }
        let keyID = silent[index].announcement.keyID
        let heard = heardBefore(silent[index].announcement.name, at: now)
        guard offersLateEntry, let last = lastSequence, heard.map({ last.sequenceDistance(from: $0) > 0 }) ?? true
        else {
            silent.remove(at: index)
            return nil
        }
        return resume(ssrc, keyID, at: now) + idle(ssrc, lastSequence: last, at: now)
    }

    /// A burst begins. An older silent burst in its place has ended, even if the relay did not report it.
    mutating func forgetSilent(before talker: RelayMember, _ ssrc: SSRC) {
        silent.removeAll {
            talkersMaximum == 1 || $0.announcement.ssrc == ssrc || $0.announcement.talker.id == talker.id
        }
    }
}
