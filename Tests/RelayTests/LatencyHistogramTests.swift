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
}
