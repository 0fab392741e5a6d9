import MonotonicTime
import Reactor
import TestSupport
import Testing

@Suite struct DeadlineHeapTests {
    @Test(arguments: [1, 2, 3] as [UInt64])
    func deadlinesComeOutInOrderWhateverWasMovedOrRemoved(seed: UInt64) {
        var generator = SeededGenerator(seed: seed)
        var heap = DeadlineHeap()
        let deadlines = (0..<200).map { _ in Deadline() }
        var expected: [Int: (at: Int64, latest: Int64)] = [:]
        for _ in 0..<5_000 {
            let index = Int.random(in: 0..<deadlines.count, using: &generator)
            switch Int.random(in: 0..<10, using: &generator) {
            case 0..<6:
                let at = Int64.random(in: 0..<1_000, using: &generator)
                let slack = Bool.random(using: &generator) ? 0 : Int64.random(in: 0..<100, using: &generator)
                heap.schedule(deadlines[index], at: Instant(nanoseconds: at), slack: .nanoseconds(slack))
                expected[index] = (at, at + slack)
            case 6..<8:
                heap.remove(deadlines[index])
                expected[index] = nil
            default:
                let now = Int64.random(in: 0..<1_000, using: &generator)
                let due = heap.popDue(at: Instant(nanoseconds: now))
                let mostUrgent = expected.values.map(\.latest).min()
                if let due {
                    #expect(due.latest.nanoseconds == mostUrgent && due.at.nanoseconds <= now, "seed \(seed)")
                    if let index = deadlines.firstIndex(where: { $0 === due }) { expected[index] = nil }
                } else {
                    #expect(mostUrgent.map { $0 > now } ?? true, "seed \(seed)")
                }
            }
            #expect(heap.count == expected.count)
            #expect(heap.next?.nanoseconds == expected.values.map(\.latest).min())
        }
    }

    @Test func whoIsAwakeDoesWhatIsDueAndCouldWait() {
        var heap = DeadlineHeap()
        let (patient, urgent) = (Deadline(), Deadline())
        heap.schedule(patient, at: Instant(nanoseconds: 10), slack: .nanoseconds(20))
        heap.schedule(urgent, at: Instant(nanoseconds: 40))
        #expect(heap.next?.nanoseconds == 30)
        #expect(heap.popDue(at: Instant(nanoseconds: 9)) == nil)
        #expect(heap.popDue(at: Instant(nanoseconds: 15)) === patient)
        #expect(heap.popDue(at: Instant(nanoseconds: 15)) == nil)
        #expect(heap.next?.nanoseconds == 40)
        // Also when only the time at which it is due has changed.
        heap.schedule(urgent, at: Instant(nanoseconds: 20), slack: .nanoseconds(20))
        #expect(heap.popDue(at: Instant(nanoseconds: 25)) === urgent)
    }

    @Test func equalDeadlinesComeOutInTheOrderInWhichTheyWereScheduled() {
        var heap = DeadlineHeap()
        let deadlines = (0..<100).map { _ in Deadline() }
        for deadline in deadlines { heap.schedule(deadline, at: Instant(nanoseconds: 5)) }
        // Those that leave do not disturb the others' order.
        for index in stride(from: 0, to: 100, by: 7) { heap.remove(deadlines[index]) }
        for index in 0..<100 where index % 7 != 0 {
            #expect(heap.popDue(at: Instant(nanoseconds: 5)) === deadlines[index])
        }
        #expect(heap.count == 0)
    }
}
