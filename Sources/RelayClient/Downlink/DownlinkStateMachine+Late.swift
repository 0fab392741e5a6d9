// Late entry: fetches the beginnings of bursts, and holds their live packets meanwhile.
import MonotonicTime
import RelayProtocol

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
