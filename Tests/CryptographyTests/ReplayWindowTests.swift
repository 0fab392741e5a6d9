// The replay window against the plainest possible model of it.
import Cryptography
import TestSupport
import Testing

@Suite struct ReplayWindowTests {
    @Test func `every counter passes once, in any order within the window`() {
        var random = SeededGenerator()
        for _ in 0..<200 {
            var window = ReplayWindow()
            var accepted: Set<UInt64> = []
            var center = UInt64.random(in: 0...1000, using: &random)
            for _ in 0..<600 {
                if Int.random(in: 0..<40, using: &random) == 0 { center += UInt64.random(in: 0...700, using: &random) }
                let reach = UInt64.random(in: 0...400, using: &random)
                let counter = Bool.random(using: &random) ? center + reach : center - min(center, reach)
                let highest = accepted.max()
                let isTooOld = highest.map { counter < $0 && $0 - counter >= ReplayWindow.size } ?? false
                let expected = !accepted.contains(counter) && !isTooOld
                #expect(window.allows(counter) == expected)
                let isAccepted = window.accept(counter)
                #expect(isAccepted == expected)
                if expected { accepted.insert(counter) }
                #expect(window.highestAccepted == accepted.max())
            }
        }
    }

    @Test func `the first counter may be any, and the last may be the last there is`() {
        var window = ReplayWindow()
        #expect(window.highestAccepted == nil)
        let counters: [UInt64] = [.max - 1, .max, .max, .max - 1_023, .max - 1_024, 0]
        #expect(counters.map { window.accept($0) } == [true, true, false, true, false, false])
    }
}
