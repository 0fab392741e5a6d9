// The small rules around listening: how often is asked, what waits to be told, what came too early, when a relay is doubted.
import MonotonicTime
import RelayProtocol
import TestSupport
import Testing

@testable import QUIC
@testable import RelayClient
@testable import RelayServer

@Suite struct RequestBudgetTests {
    @Test func `requests never exceed what a relay takes, and a rest earns some at once`() {
        let seed = SeededGenerator.seed()
        var random = SeededGenerator(seed: seed)
        var budget = RequestBudget()
        let limits = RelayLimits()
        var now = Instant(nanoseconds: 1_000_000_000)
        var relay = TokenBucket(depth: limits.repairBurst, perSecond: limits.repairsPerSecond, at: now)
        var made = 0
        for _ in 0..<5_000 {
            now = now + .milliseconds(Int.random(in: 0...(random.chance(2) ? 2_000 : 30), using: &random))
            guard budget.nextRequestAt <= now else { continue }
            budget.take(at: now)
            made += 1
            let isTaken = relay.take(at: now)
            #expect(isTaken, "seed \(seed)")
            #expect(budget.nextRequestAt >= now + RequestBudget.spacing, "seed \(seed)")
        }
        #expect(made > 1_000)
        // After a rest the next ones wait for nothing but the spacing.
        now = now + .seconds(10)
        for _ in 0..<RequestBudget.depth {
            #expect(budget.nextRequestAt <= now)
            budget.take(at: now)
            now = now + RequestBudget.spacing
        }
        // In the long run one is earned after the other.
        var times: [Instant] = []
        for _ in 0..<40 {
            now = max(now, budget.nextRequestAt)
            budget.take(at: now)
            times.append(now)
        }
        #expect(times[39] - times[29] == RequestBudget.interval * 10)
    }
}

@Suite struct RepairPlannerTests {
    private var planner = RepairPlanner()
    private var now = Instant(nanoseconds: 1_000_000_000)
    private var lastID: UInt32 = 0

    /// Asks at every deadline for `duration`; the times of the requests that asked for anything.
    private mutating func asks(for duration: Duration) -> [Duration] {
        let (start, end) = (now, now + duration)
        var times: [Duration] = []
        while let due = planner.nextDeadline, due <= end {
            now = max(now, due)
            lastID += 1
            if !planner.request(lastID, at: now).isEmpty { times.append(now - start) }
        }
        return times
    }

    @Test mutating func `a request without an answer is made again soon, then more rarely, and not for ever`() {
        planner.roundTripTime = .milliseconds(40)
        planner.miss(7, before: 10, mayBeLate: false, at: now)
        let times = asks(for: .seconds(20))
        #expect(times.count == RepairPlanner.asksMaximum)
        #expect(times.prefix(3) == [.zero, .milliseconds(80), .milliseconds(160)])
        let pauses = zip(times.dropFirst(), times).map { $0 - $1 }
        #expect(pauses == pauses.sorted())
        #expect(pauses.last! <= .milliseconds(80) * RepairPlanner.backoffMaximum)
        // A network that is away for two seconds in one direction is outlived.
        #expect(times.last! > .seconds(3))
        #expect(planner.isDone && planner.nextDeadline == nil)
    }

    @Test mutating func `over the wrap of the numbers one request asks for all that is missing`() {
        planner.miss(65_533, before: 3, mayBeLate: false, at: now)
        #expect(planner.request(1, at: now) == [SequenceRange(first: 65_533, last: 2)])
        for sequence in [65_533, 65_534, 65_535, 0, 1, 2] as [UInt16] { planner.arrived(sequence, at: now) }
        #expect(planner.isDone)
    }
}

@Suite struct OutboxTests {
    @Test func `what is told in the middle of telling comes afterwards, in order, in the same round`() {
        var outbox = Outbox<Int>()
        #expect(!outbox.needsRound)
        outbox.add(1)
        outbox.add(2)
        #expect(outbox.needsRound)
        let begins = outbox.beginRound()
        #expect(begins)
        var told: [Int] = []
        while let event = outbox.next() {
            told.append(event)
            // Whoever is told may call back: no second round begins, and what that causes waits for its turn.
            let begins = outbox.beginRound()
            #expect(!begins)
            #expect(!outbox.needsRound)
            if event < 3 { outbox.add(event + 10) }
        }
        #expect(told == [1, 2, 11, 12])
        #expect(!outbox.needsRound)
        let again = outbox.beginRound()
        let none = outbox.next()
        #expect(again)
        #expect(none == nil)
    }
}

@Suite struct EarlyPacketsTests {
    @Test func `early packets are few, keep the time they came, and are forgotten`() {
        var early = EarlyPackets()
        let start = Instant(nanoseconds: 1_000_000_000)
        for number in 0..<DownlinkStateMachine.heldPacketsMaximum {
            let isHeld = early.hold([UInt8(number & 255)], receivedAt: start + .milliseconds(number))
            #expect(isHeld)
        }
        let isHeld = early.hold([1], receivedAt: start + .seconds(1))
        #expect(!isHeld)
        #expect(early.nextDeadline == start + DownlinkStateMachine.heldPacketTime)
        let old = early.expire(at: start + DownlinkStateMachine.heldPacketTime + .milliseconds(9))
        #expect(old == 10)
        let rest = early.takeAll()
        #expect(rest.first?.receivedAt == start + .milliseconds(10))
        // Given back, for they are of yet another burst, they are no younger.
        for packet in rest {
            let isHeld = early.hold(packet.bytes, receivedAt: packet.receivedAt)
            #expect(isHeld)
        }
        #expect(early.nextDeadline == start + .milliseconds(10) + DownlinkStateMachine.heldPacketTime)
        let expired = early.expire(at: start + .seconds(9))
        #expect(expired == rest.count)
        #expect(early.nextDeadline == nil)
    }
}

@Suite struct AnswerDoubtTests {
    private let start = Instant(nanoseconds: 100_000_000_000)

    @Test func `an idle link's silence before a press says nothing about the relay`() {
        var doubt = FloorAnswerTimeout()
        doubt.asked(at: start)
        doubt.unanswered()
        let heard = start - .seconds(15)
        #expect(doubt.verdict(heard: heard, at: start + .seconds(1)) == .look(at: start + FloorAnswerTimeout.timeout))
        // The answer was on its way.
        #expect(doubt.verdict(heard: start + .milliseconds(1_500), at: start + FloorAnswerTimeout.timeout) == .isThere)
        #expect(doubt.verdict(heard: start + .milliseconds(1_500), at: start + .seconds(60)) == .isThere)
    }

    @Test func `a relay that says nothing at all after a press is gone, and told of once`() {
        var doubt = FloorAnswerTimeout()
        #expect(doubt.verdict(heard: nil, at: start) == .isThere)
        doubt.unanswered()
        #expect(doubt.verdict(heard: nil, at: start) == .isThere, "nothing was asked")
        doubt.asked(at: start)
        #expect(doubt.verdict(heard: nil, at: start + .seconds(9)) == .isThere, "it is still waited for")
        doubt.unanswered()
        #expect(doubt.verdict(heard: start, at: start + FloorAnswerTimeout.timeout) == .isGone)
        #expect(doubt.verdict(heard: start, at: start + FloorAnswerTimeout.timeout) == .isThere)
    }
}

@Suite struct ResumptionPacerTests {
    @Test func `a relay that gives tickets without end is not written down each time`() {
        func state(_ number: Int) -> ResumptionState {
            ResumptionState(
                session: [UInt8(truncatingIfNeeded: number), 1], transportParameters: [1], token: [],
                serverKeySHA256: [UInt8](repeating: 1, count: 32))
        }
        var pacer = ResumptionPacer()
        var saves = 0
        for number in 0..<1_000 {
            if pacer.came(state(number)) { saves += 1 }
            // Now and then the pause is over.
            if number % 100 == 99 { _ = pacer.take() }
        }
        #expect(saves == ResumptionPacer.savesMaximum)
        var other = ResumptionPacer()
        let (first, second) = (other.came(state(1)), other.came(state(2)))
        #expect(first)
        #expect(!second)
        let (kept, more) = (other.take(), other.take())
        #expect(kept == state(2))
        #expect(more == nil)
    }
}
