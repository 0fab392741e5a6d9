// Plans the repair of a received burst: which packets are missing, when they are requested, and when they are given up.
// Pure rules.
import MonotonicTime
import RelayProtocol
import Vocabulary

/// The gaps of one burst.
///
/// A single missing packet may only be late, so it is requested after a moment. Two or more in a row are lost and are
/// requested at once. Requests and answers can be lost, too, so an unanswered request is repeated soon, and less often
/// the longer nothing arrives. The relay limits the number of requests (`RequestBudget`). Once the floor is idle, the
/// relay will get no further packets: what its answer lacks then is lost for good.
struct RepairPlanner: Sendable {
    /// The most packets that are waited for at one time; the oldest are given up for new ones.
    static let missingMaximum = 1_024
    /// How long after the loss was noticed a packet is given up.
    static let ageMaximum: Duration = .seconds(10)
    /// How often one packet is asked for.
    static let asksMaximum = 12
    /// Beside the round trip, how long an answer may take.
    static let answerGrace: Duration = .milliseconds(40)
    /// How many times longer than that a packet that was asked for often is waited for, at most.
    static let backoffMaximum = 16
    /// How long a single packet may be late: half of a round trip, within these bounds.
    static let reorderingGrace: ClosedRange<Duration> = .milliseconds(20)...(.milliseconds(100))
    /// How far back is asked when the beginning is missing: 10 s of packets of 10 ms.
    static let beginningMaximum: UInt16 = 1_000

    fileprivate struct Missing: Sendable {
        var sequence: UInt16
        let since: Instant
        var askAt: Instant
        var asks = 0
        /// The request that is to bring it.
        var request: UInt32?
        /// Whether that was made after the floor was idle.
        var isLastChance = false
    }

    /// Measured by who knows; decides how long things take.
    var roundTripTime: Duration = .milliseconds(100)
    /// Of the sequence numbers, in the order missed.
    private var missing: [Missing] = []
    /// Everything before that number, when it is not known where the burst begins.
    private var beginning: Missing?
    /// What may be asked for; shared with other bursts by who holds them.
    var budget = RequestBudget()
    private var isOver = false
    /// Packets that were asked for.
    private(set) var asked = 0

    /// Whether nothing more can come.
    var isDone: Bool { missing.isEmpty && beginning == nil }

    /// Whether the packets before the first one are waited for.
    var lacksBeginning: Bool { beginning != nil }

    /// When `request` or `giveUp` has something to do.
    var nextDeadline: Instant? {
        var due: Instant?
        for each in missing { due = min(due ?? each.askAt, each.askAt) }
        if let beginning { due = min(due ?? beginning.askAt, beginning.askAt) }
        return due.map { max($0, budget.nextRequestAt) }
    }

    // MARK: What is missing

    /// The numbers from `first` to before `end` did not come, though later ones did or are known to exist.
    mutating func miss(_ first: UInt16, before end: UInt16, mayBeLate: Bool, at now: Instant) {
        let count = end &- first
        guard count > 0, count < UInt16(SequenceRecord.window) else { return }
        let grace = mayBeLate || count == 1 ? self.grace : .zero
        let known = Set(missing.map(\.sequence))
        for offset in 0..<count where !known.contains(first &+ offset) {
            missing.append(Missing(sequence: first &+ offset, since: now, askAt: now + grace))
        }
        if missing.count > Self.missingMaximum { missing.removeFirst(missing.count - Self.missingMaximum) }
    }

    /// The burst began before `first`, nobody knows where.
    mutating func missBeginning(before first: UInt16, at now: Instant) {
        beginning = Missing(sequence: first, since: now, askAt: now + grace)
    }

    /// The first packet of the burst has come.
    mutating func foundBeginning() { beginning = nil }

    /// A packet has come, on whatever way.
    mutating func arrived(_ sequence: UInt16, at now: Instant) {
        if let first = beginning?.sequence, first.sequenceDistance(from: sequence) > 0 {
            // What lies between is known to exist now; most of it follows in the same answer.
            beginning?.sequence = sequence
            miss(sequence &+ 1, before: first, mayBeLate: true, at: now)
            return
        }
        guard let index = missing.firstIndex(where: { $0.sequence == sequence }) else { return }
        missing.remove(at: index)
    }

    /// The floor is idle: one more request for what is missing, and its answer is final.
    mutating func finish(at now: Instant) {
        isOver = true
        let time = now + grace
        for index in missing.indices { missing[index].hasten(to: time) }
        beginning?.hasten(to: time)
    }

    // MARK: Asking

    /// What to ask for now under that number; empty when nothing is due.
    mutating func request(_ id: UInt32, at now: Instant) -> [SequenceRange] {
        guard let due = nextDeadline, due <= now else { return [] }
        giveUp(at: now)
        var ranges: [SequenceRange] = []
        var count = 0
        if var beginning, beginning.askAt <= now {
            ranges.append(
                SequenceRange(
                    first: beginning.sequence &- Self.beginningMaximum, last: beginning.sequence &- 1))
            count += Int(Self.beginningMaximum)
            ask(&beginning, id, at: now)
            self.beginning = beginning
        }
        for index in missing.indices where missing[index].askAt <= now {
            let sequence = missing[index].sequence
            if let last = ranges.indices.last, ranges[last].last &+ 1 == sequence {
                ranges[last].last = sequence
            } else {
                guard ranges.count < RelayProtocolLimits.repairRangesMaximum else { break }
                ranges.append(SequenceRange(first: sequence, last: sequence))
            }
            count += 1
            guard count <= RelayProtocolLimits.repairPacketsMaximum else { break }
            asked += 1
            ask(&missing[index], id, at: now)
        }
        if !ranges.isEmpty { budget.take(at: now) }
        return ranges
    }

    /// The answer to the request is complete; what came of it has been taken.
    mutating func answered(_ id: UInt32, at now: Instant) {
        missing.removeAll { $0.request == id && $0.isLastChance }
        for index in missing.indices where missing[index].request == id { retry(&missing[index], at: now) }
        guard var first = beginning, first.request == id else { return }
        retry(&first, at: now)
        beginning = first.isLastChance ? nil : first
    }

    /// Forgets what is too old, or was asked for often enough.
    mutating func giveUp(at now: Instant) {
        func isHopeless(_ each: Missing) -> Bool {
            now - each.since >= Self.ageMaximum || (each.asks >= Self.asksMaximum && each.askAt <= now)
        }
        missing.removeAll(where: isHopeless)
        if let first = beginning, isHopeless(first) { beginning = nil }
    }

    private var grace: Duration {
        min(max(roundTripTime / 2, Self.reorderingGrace.lowerBound), Self.reorderingGrace.upperBound)
    }

    private func ask(_ each: inout Missing, _ id: UInt32, at now: Instant) {
        each.request = id
        each.isLastChance = isOver
        // Without an answer the request, or the answer, is lost: twice it is asked for again at once, then ever more rarely.
        each.askAt = now + (roundTripTime + Self.answerGrace) * min(1 << (each.asks / 2), Self.backoffMaximum)
        each.asks += 1
    }

    /// The relay did not have it, but still may.
    private func retry(_ each: inout Missing, at now: Instant) {
        each.request = nil
        each.askAt = now + (isOver ? .zero : .milliseconds(100) * (1 << min(each.asks - 1, 4)))
    }
}

extension RepairPlanner.Missing {
    fileprivate mutating func hasten(to time: Instant) {
        // One that is on its way keeps its time: what comes of it is known before.
        if request == nil { askAt = min(askAt, time) }
    }
}

/// It stays within the relay's limit per client (docs/relay-protocol.md, section 12: 16 requests at once, 20 a second),
/// with a margin for varying delays.
struct RequestBudget: Sendable {
    /// Requests at once, after a rest.
    static let depth = 12
    /// The time for which one is earned.
    static let interval: Duration = .milliseconds(50)
    /// The minimum time between two requests. Each contains everything that is due by then.
    static let spacing: Duration = .milliseconds(20)

    /// When everything is earned again.
    private var fullAt = Instant.zero
    private var lastAt: Instant?

    /// When the next request may be made.
    var nextRequestAt: Instant {
        // One is left when all but one interval of the debt is paid.
        let earned = Instant(nanoseconds: fullAt.nanoseconds - (Self.interval * (Self.depth - 1)).nanoseconds)
        return max(earned, lastAt.map { $0 + Self.spacing } ?? .zero)
    }

    /// A request is made.
    mutating func take(at now: Instant) {
        fullAt = max(fullAt, now) + Self.interval
        lastAt = now
    }
}
