import DBus
import MonotonicTime
import Testing

@testable import DaemonAPI

@Suite struct CallRateTests {
    private func rate() -> CallRate {
        CallRate("joins", caller: .init(burst: 3, perSecond: 2), all: .init(burst: 5, perSecond: 4), at: .zero)
    }

    private func taken(_ rate: inout CallRate, _ caller: String, _ count: Int, at now: Instant) -> Int {
        (0..<count).count { _ in (try? rate.take(caller, at: now)) != nil }
    }

    @Test func `a caller has so many at once and so many a second, and all together have a bound`() {
        var rate = rate()
        #expect(taken(&rate, "a", 100, at: .zero) == 3)
        #expect(taken(&rate, "b", 100, at: .zero) == 2)
        #expect(taken(&rate, "a", 100, at: .zero + .seconds(1)) == 2)
        #expect(taken(&rate, "b", 100, at: .zero + .seconds(1)) == 2)
        #expect(taken(&rate, "a", 100, at: .zero + .seconds(100)) == 3)
    }

    @Test func `a refused caller takes nothing from the others, however often it asks`() {
        var rate = rate()
        for _ in 0..<10_000 { _ = taken(&rate, "a", 1, at: .zero) }
        #expect(taken(&rate, "b", 2, at: .zero) == 2)
        // Callers without number are not remembered without number, and have no more together.
        #expect((0..<10_000).reduce(0) { $0 + taken(&rate, "\($1)", 1, at: .zero + .seconds(10)) } == 5)
    }
}
