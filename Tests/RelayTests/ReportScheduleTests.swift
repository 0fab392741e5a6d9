// When a listener reports its reception of a burst.
import MonotonicTime
import TestSupport
import Testing

@testable import RelayClient

@Suite struct ReportScheduleTests {
    /// The seconds at which a burst is reported on when packets are lost at those seconds.
    private func times(first: Duration, lostAt losses: [Double] = [], until end: Double) -> [Double] {
        var schedule = ReportSchedule(first: first, at: .zero)
        var times: [Double] = []
        for step in 0...Int(end * 10) {
            let (now, lost) = (Double(step) / 10, losses.count { $0 <= Double(step) / 10 })
            let instant = Instant.zero + .milliseconds(100 * step)
            guard schedule.next(lost: lost) <= instant else { continue }
            schedule.reported(lost: lost, at: instant)
            times.append(now)
        }
        return times
    }

    @Test func `while nothing is lost, reports come every four seconds, spread over the listeners`() {
        #expect(times(first: .seconds(1), until: 20) == [1, 2, 6, 10, 14, 18])
        #expect(times(first: .milliseconds(1_500), until: 20) == [1.5, 4, 8, 12, 16, 20])
        #expect(times(first: .seconds(2), until: 20) == [2, 6, 10, 14, 18])
    }

    @Test func `while packets are lost, they come every two`() {
        #expect(times(first: .seconds(2), lostAt: (0..<100).map { Double($0) / 10 }, until: 9) == [2, 4, 6, 8])
    }

    @Test func `a loss makes the next report earlier, and the one after it tells that it is over`() {
        #expect(times(first: .seconds(2), lostAt: [6.5], until: 20) == [2, 6, 8, 10, 14, 18])
        // What is lost late in the interval is told at once.
        #expect(times(first: .seconds(2), lostAt: [9.3], until: 20) == [2, 6, 9.3, 11.3, 15.3, 19.3])
    }

    @Test func `a packet that was only late is no loss`() {
        var schedule = ReportSchedule(first: .seconds(2), at: .zero)
        schedule.reported(lost: 0, at: .zero + .seconds(2))
        schedule.reported(lost: 0, at: .zero + .seconds(6))
        #expect(schedule.next(lost: 1) == .zero + .seconds(8))
        #expect(schedule.next(lost: 0) == .zero + .seconds(10))
    }
}
