// Join and leave notices of a channel: sent at once while there are few, and in batches while there are many. Pure.
import MonotonicTime
import RelayProtocol

/// Pending join and leave notices for the members of one channel.
///
/// When thousands reconnect at once, announcing each of them to each other one costs a number of writes that grows with
/// the square of their number. So beyond a few changes within `window`, notices are collected until its end and sent
/// together. A batch fits the backlog of a client that has just got the list of all members
/// (`RelayLimits.rosterUpdateBytes`); the rest follows as fast as a slow client reads.
///
/// Few changes in each of very many channels are many for the relay. Once it has sent what `RelayLimits.rosterNotices`
/// allows, notices are collected for longer (`crowdedWindow`). A talker is introduced at once all the same.
struct RosterUpdates: Sendable, Equatable {
    /// Somebody has come or gone.
    struct Change: Sendable, Equatable {
        let member: MemberID
        /// Its message, encoded for the control stream.
        let frame: [UInt8]
    }

    /// So long news are kept at most.
    static let window: Duration = .milliseconds(200)
    /// And so long while the relay has sent too many of them.
    static let crowdedWindow: Duration = .seconds(2)
    /// Maximum number of changes per window that are sent at once.
    static let calmChanges = 16

    /// The last one of each member, in the order they came.
    private var kept: [Change] = []
    /// Members with changes that were not sent yet.
    private(set) var waiting: Set<MemberID> = []
    private var windowEnds = Instant.zero
    private var toldInWindow = 0
    private var isBusy = false
    /// The rate limit in bytes.
    private var budget: TokenBucket
    /// More changes than this are not kept.
    private let changesMaximum: Int

    init(limits: RelayLimits = RelayLimits()) {
        budget = TokenBucket(depth: limits.rosterUpdateBytes, perSecond: limits.rosterNewsPerSecond, at: .zero)
        // Everybody who is there has come, everybody before has gone, and some come and go.
        changesMaximum = 4 * limits.membersPerChannel
    }

    /// When `take` must be called, at the latest.
    var nextDeadline: Instant? { kept.isEmpty ? nil : windowEnds }

    /// Notes a change. Returns whether it is to be sent at once; otherwise it is kept.
    ///
    /// - Parameters:
    ///   - recipients: How many it is to be sent to.
    ///   - notices: How many notices the relay may still send at once.
    mutating func note(_ change: Change, to recipients: Int, _ notices: inout TokenBucket, at now: Instant) -> Bool {
        if kept.isEmpty, now >= windowEnds {
            windowEnds = now + Self.window
            toldInWindow = 0
            isBusy = false
        }
        if !isBusy, toldInWindow < Self.calmChanges, notices.take(recipients, at: now) {
            toldInWindow += 1
            return true
        }
        // The first one that is kept decides for how long.
        if kept.isEmpty, !notices.holds(recipients, at: now) { windowEnds = now + Self.crowdedWindow }
        isBusy = true
        if !waiting.insert(change.member).inserted { kept.removeAll { $0.member == change.member } }
        kept.append(change)
        return false
    }

    /// Whether there are unsent changes of `member`.
    func concerns(_ member: MemberID) -> Bool { waiting.contains(member) }

    /// The changes to send now, in order. The rest waits for the end of the window that begins now.
    mutating func take(at now: Instant) -> [Change] {
        windowEnds = now + Self.window
        toldInWindow = 0
        var count = 0
        while count < kept.count,
            kept.count - count > changesMaximum || budget.take(kept[count].frame.count, at: now)
        {
            count += 1
        }
        let told = Array(kept.prefix(count))
        kept.removeFirst(count)
        for change in told { waiting.remove(change.member) }
        return told
    }

    /// Drops all changes, because nobody is there to get them.
    mutating func forget() {
        kept = []
        waiting = []
    }

    /// The unsent change of `member`, which is to be sent before the rest.
    mutating func take(of member: MemberID) -> Change? {
        guard waiting.remove(member) != nil else { return nil }
        return kept.firstIndex { $0.member == member }.map { kept.remove(at: $0) }
    }
}
