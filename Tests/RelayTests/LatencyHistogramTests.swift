// Times in classes.
import MonotonicTime
import Testing

@testable import RelayServer

@Suite struct LatencyHistogramTests {
    @Test func `each time falls into the first class that it does not exceed`() {
        var histogram = LatencyHistogram()
        for microseconds in [0, 25, 26, 1_000, 200_000] { histogram.count(.microseconds(microseconds)) }
        histogram.count(.seconds(9))
        histogram.count(.seconds(-1))
        #expect(histogram.counts == [3, 1, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 1, 1])
        #expect(histogram.total == 7)
        #expect(histogram.sum == 9_201_051_000)
    }

    @Test func `a share's bound is the end of its class, and is not known beyond the last`() {
        var histogram = LatencyHistogram()
        #expect(histogram.bound(ofShare: 0.5) == nil)
        for _ in 0..<99 { histogram.count(.microseconds(40)) }
        histogram.count(.seconds(1))
        #expect(histogram.bound(ofShare: 0.5) == 50)
        #expect(histogram.bound(ofShare: 0.99) == 50)
        #expect(histogram.bound(ofShare: 1) == nil)
    }
}
