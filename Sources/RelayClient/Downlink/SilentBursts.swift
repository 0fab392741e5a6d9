// Bursts that went silent because the relay stalled or this end lost its network. They continue when their packets
// arrive again.
import MonotonicTime
import RelayProtocol
import Vocabulary

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
