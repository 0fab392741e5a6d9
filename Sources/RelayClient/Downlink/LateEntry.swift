// Late entry: how the beginnings of bursts are fetched, and what is held meanwhile. Pure.
import MonotonicTime
import RelayProtocol
import Vocabulary

/// Fetches what was said before this end came, piece by piece, oldest first.
///
/// Packets that come meanwhile are held unopened, so that everything is taken in the order in which it was said: numbers,
/// replay windows and gaps are then those of a burst that is heard from its start, only later. When nothing comes of it in
/// time, the burst is heard from where it is.
struct LateEntry: Sendable {
    /// Packets that are held: half a minute of packets of 10 ms.
    static let heldMaximum = 3_000
    /// Packets that are fetched: as many as a listener keeps of bursts that wait to be heard.
    static let packetsMaximum = 6_000
    /// How long nothing may come of a request.
    static let answerTime: Duration = .seconds(2)
    /// Requests in a row that nothing comes of.
    static let vainMaximum = 3
    /// How long all of it may take.
    static let timeMaximum: Duration = .seconds(20)

    private enum State: Sendable {
        /// The next piece is asked for then.
        case waiting(until: Instant)
        case asking
        case asked(BurstRequestID, lastHeard: Instant)
        case over
    }

    private let burst: BurstName
    private var state: State
    /// The first number that is lacking; nil: not known, it is the burst's first.
    private var next: UInt16?
    private var end: Instant
    private var vain = 0
    private var packets = 0
    /// Whether some of it was not fetched: what was said between the last packet that was and the first that came as it was said.
    private(set) var leavesOut = false
    private var held: [DownlinkStateMachine.HeldPacket] = []
    private var firstHeld: UInt16?

    /// Fetches `burst` from its start, or what comes after `sequence`, which was heard before the link was lost.
    init(_ burst: BurstName, after sequence: UInt16?, at now: Instant) {
        self.burst = burst
        next = sequence.map { $0 &+ 1 }
        state = .waiting(until: now)
        end = now + Self.timeMaximum
    }

    /// Whether more is to come before what is held.
    var isFetching: Bool { if case .over = state { false } else { true } }

    /// When `piece` has something to say.
    var nextDeadline: Instant? {
        switch state {
        case .waiting(let until): min(until, end)
        case .asked(_, let lastHeard): min(lastHeard + Self.answerTime, end)
        case .asking, .over: nil
        }
    }

    // MARK: Asking

    /// The piece to request now; `asked` reports its number.
    mutating func piece(at now: Instant) -> (burst: BurstName, first: UInt16?)? {
        switch state {
        case .asked(_, let lastHeard) where lastHeard + Self.answerTime <= now: failed(retryAt: now)
        case .waiting, .asking, .asked, .over: break
        }
        if end <= now { giveUp() }
        guard case .waiting(let until) = state, until <= now else { return nil }
        state = .asking
        return (burst, next)
    }

    /// The piece was asked for under that number.
    mutating func asked(_ request: BurstRequestID, at now: Instant) {
        if case .asking = state { state = .asked(request, lastHeard: now) }
    }

    /// Whether that is the request under way.
    func awaits(_ request: BurstRequestID) -> Bool {
        if case .asked(request, _) = state { true } else { false }
    }

    /// A packet of the answer was taken.
    mutating func took(_ sequence: UInt16, at now: Instant) {
        guard case .asked(let request, _) = state else { return }
        state = .asked(request, lastHeard: now)
        vain = 0
        packets += 1
        if next.map({ sequence.sequenceDistance(from: $0) >= 0 }) ?? true { next = sequence &+ 1 }
        // What follows has come already, as it was said; or it is more than can be kept.
        let isThere = firstHeld.map { $0.sequenceDistance(from: sequence) <= 1 } ?? false
        if isThere { state = .over } else if packets >= Self.packetsMaximum { giveUp() }
    }

    /// The answer is complete. `isWhole`: the relay has no more.
    mutating func answered(_ request: BurstRequestID, isWhole: Bool, at now: Instant) {
        guard awaits(request) else { return }
        if isWhole {
            state = .over
        } else {
            failed(retryAt: now)
        }
    }

    /// The relay gives nothing.
    mutating func refused(_ refusal: ServerMessage.BurstRefused, at now: Instant) {
        guard awaits(refusal.id) else { return }
        if refusal.cause == .tooMuch {
            failed(retryAt: BurstQueries.retry(after: refusal, at: now))
        } else {
            giveUp()
        }
    }

    /// What was said meanwhile has to be heard now.
    mutating func hurry(until deadline: Instant) { end = min(end, deadline) }

    /// A piece that contained packets is not a failure; `took` has recorded it.
    private mutating func failed(retryAt time: Instant) {
        vain += 1
        if vain < Self.vainMaximum { state = .waiting(until: time) } else { giveUp() }
    }

    private mutating func giveUp() {
        if isFetching { leavesOut = true }
        state = .over
    }

    // MARK: What comes meanwhile

    /// Whether one more packet can be held.
    var hasRoom: Bool { held.count < Self.heldMaximum }

    /// Holds a packet of the burst.
    mutating func hold(_ packet: DownlinkStateMachine.HeldPacket, _ sequence: UInt16) {
        if firstHeld == nil { firstHeld = sequence }
        held.append(packet)
    }

    /// All that was held, in the order it came.
    mutating func takeHeld() -> [DownlinkStateMachine.HeldPacket] {
        defer { held = [] }
        return held
    }
}

extension DownlinkStateMachine {
    /// How long it is known how far a burst was heard: less than half of the sequence numbers are, in packets of 10 ms.
    private static let interruptionMemory: Duration = .seconds(300)

    /// The last number that was heard of a burst before it was interrupted; nil: nothing was.
    func heardBefore(_ burst: BurstName, at now: Instant) -> UInt16? {
        interrupted.first { $0.burst == burst && now - $0.at < Self.interruptionMemory }?.last
    }

    /// The link is lost during bursts, which may continue when it is back.
    mutating func interrupt(at now: Instant) {
        for burst in bursts { noteInterruption(of: burst, at: now) }
    }

    /// More packets of a burst may come later. It then continues where it was interrupted.
    mutating func noteInterruption(of burst: HeardBurst, at now: Instant) {
        guard burst.hasBegun, let last = burst.sequences.highest else { return }
        interrupted.removeAll { $0.burst == burst.announcement.name }
        interrupted.append((burst.announcement.name, last, now))
        interrupted.removeFirst(max(0, interrupted.count - RelayProtocolLimits.talkersMaximum))
    }

    /// The next piece of a burst's beginning was asked for under that number.
    mutating func asked(_ request: BurstRequestID, for burst: BurstName, at now: Instant) {
        guard let index = bursts.firstIndex(where: { $0.isOf(burst.ssrc, burst.keyID) }) else { return }
        bursts[index].late?.asked(request, at: now)
    }

    /// Asks for the next pieces of bursts' beginnings; behind the last one, takes what was held.
    mutating func proceed(at now: Instant) -> [Action] {
        var actions: [Action] = []
        for index in bursts.indices where bursts[index].late != nil {
            if let piece = bursts[index].late?.piece(at: now) {
                actions.append(.fetch(piece.burst, first: piece.first))
                continue
            }
            guard !bursts[index].isFetching, let held = bursts[index].late?.takeHeld() else { continue }
            bursts[index].endFetching(at: now)
            if !held.isEmpty { actions.append(.retry(held)) }
            if bursts[index].heldEnding != nil { actions.append(.conclude(bursts[index].ssrc)) }
        }
        return actions
    }

    /// What was held of a burst has been taken, and the floor has been idle for a while.
    mutating func conclude(_ ssrc: SSRC, at now: Instant) -> [Action] {
        guard let index = bursts.firstIndex(where: { $0.ssrc == ssrc }), let ending = bursts[index].heldEnding else {
            return []
        }
        guard case .through(let last) = ending else { return end(index, .completed, at: now) + ask(at: now) }
        bursts[index].heldEnding = nil
        let time = bursts[index].next == nil ? Self.completionTime : Self.supersedingTime
        bursts[index].expect(through: last, until: now + time, at: now)
        return endIfDone(at: now) + ask(at: now)
    }
}
