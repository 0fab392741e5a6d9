// Deadlines by key, against a dictionary that is searched.
import MonotonicTime
import TestSupport
import Testing

@testable import RelayServer

@Suite struct DeadlinesTests {
    @Test func `the earliest comes first, whatever was moved and removed`() {
        var random = SeededGenerator(seed: 11)
        var deadlines = Deadlines<Int>()
        var model: [Int: Instant] = [:]
        for _ in 0..<20_000 {
            let key = Int.random(in: 0..<40, using: &random)
            switch Int.random(in: 0..<8, using: &random) {
            case 0...4:
                let at = Instant(nanoseconds: Int64.random(in: 0..<30, using: &random))
                deadlines[key] = at
                model[key] = at
            case 5:
                deadlines[key] = nil
                model[key] = nil
            default:
                let now = Instant(nanoseconds: Int64.random(in: 0..<30, using: &random))
                let first = model.min { ($0.value, $0.key) < ($1.value, $1.key) }
                let due = first.flatMap { $0.value <= now ? $0.key : nil }
                #expect(deadlines.popDue(at: now) == due)
                if let due { model[due] = nil }
            }
            #expect(deadlines[key] == model[key])
            #expect(deadlines.next == model.values.min())
        }
    }
}
