// Ages by a clock that jumps: what it has jumped by is nobody's age.
import TestSupport
import Testing

@testable import Recordings

@Suite struct RecordingClockTests {
    private let day = 86_400
    /// 2026-06-01.
    private let start = 1_780_272_000
    private let tolerance = RecordingClock.Tolerance(age: 30 * 86_400)

    private func clock() -> RecordingClock { RecordingClock(now: start, newest: nil, tolerance: tolerance) }

    @Test func `as long as the clock goes on, an age is a difference of two readings`() {
        var clock = clock()
        for hour in 1...(40 * 24) {
            clock.advance(to: start + hour * 3_600, elapsed: 3_600, tolerance: tolerance)
            #expect(clock.stretches.count == 1 && clock.age(of: start) == hour * 3_600)
        }
        #expect(clock.age(of: start - 100 * day) == 140 * day, "also of what is older than all that is known")
    }

    @Test func `a machine that was off for some days has grown older by them`() {
        var clock = clock()
        clock.advance(to: start + 5 * day, elapsed: 0, tolerance: tolerance)
        #expect(clock.age(of: start) == 5 * day && clock.stretches.count == 1)
    }

    @Test func `a clock ten years ahead makes nothing old, and nothing young when it is set right`() {
        var clock = clock()
        let wrong = start + 3_650 * day
        clock.advance(to: wrong, elapsed: 0, tolerance: tolerance)
        #expect(clock.age(of: start - 2 * day) == 2 * day)
        // Made while the clock is wrong.
        clock.advance(to: wrong + day, elapsed: day, tolerance: tolerance)
        #expect(clock.age(of: wrong) == day && clock.age(of: start - 2 * day) == 3 * day)
        // It is right again, within one run.
        clock.advance(to: start + day + 60, elapsed: 60, tolerance: tolerance)
        #expect(clock.age(of: start - 2 * day) == 3 * day + 60)
        #expect(abs(clock.age(of: wrong) - day) <= 120)
        // Half a year on, with bounds kept.
        for step in 2...180 { clock.advance(to: start + step * day, elapsed: day, tolerance: tolerance) }
        #expect(clock.age(of: start) == 180 * day && abs(clock.age(of: wrong) - 180 * day) <= day)
    }

    @Test func `a machine whose clock begins in the past at every start counts the time between starts`() {
        var clock = clock()
        let built = start - 400 * day
        for boot in 1...100 {
            clock.advance(to: built, elapsed: 0, tolerance: tolerance)
            // The time comes from the network a minute later.
            clock.advance(to: start + boot * day, elapsed: 60, tolerance: tolerance)
            #expect(clock.age(of: start) == boot * day)
        }
        #expect(clock.stretches.count <= RecordingClock.stretchesMax)
    }

    @Test func `what is recorded before the network tells the time does not grow older with each start`() {
        var clock = clock()
        let built = start - 400 * day
        for boot in 1...100 {
            clock.advance(to: built, elapsed: 0, tolerance: tolerance)
            clock.advance(to: built + 40, elapsed: 40, tolerance: tolerance)
            #expect((0...60).contains(clock.age(of: built + 30)), "start \(boot)")
            clock.advance(to: start + boot * day, elapsed: 20, tolerance: tolerance)
            // The time for which the machine was off may count.
            #expect((0...day).contains(clock.age(of: built + 30)), "start \(boot)")
            #expect(clock.age(of: start) == boot * day)
        }
    }

    @Test func `without a history the newest recording is what is known, and a long silence is not an age`() {
        let clock = RecordingClock(now: start, newest: start - 3_650 * day, tolerance: tolerance)
        #expect(clock.age(of: start - 3_650 * day) == 0 && clock.age(of: start - 3_660 * day) == 10 * day)
        #expect(clock.age(of: start) == 0)
        let near = RecordingClock(now: start, newest: start - day, tolerance: tolerance)
        #expect(near.age(of: start - 40 * day) == 40 * day)
    }

    /// However the clock jumps: a recording's age never exceeds the time that has passed by more than the tolerance a jump has.
    @Test func `no sequence of jumps makes a recording older than it is by more than what may count as time`() {
        var random = SeededGenerator(seed: 17)
        for _ in 0..<2_000 {
            var clock = clock()
            var (wall, truth, made) = (start, 0, start)
            var (jumps, madeAt) = (0, 0)
            for step in 0..<12 {
                let elapsed = Int.random(in: 0...3 * day, using: &random)
                truth += elapsed
                wall += elapsed
                if Bool.random(using: &random) {
                    wall += Int.random(in: -4_000 * day...4_000 * day, using: &random)
                    jumps += 1
                }
                wall = max(wall, RecordingClock.isSetAfter)
                clock.advance(to: wall, elapsed: elapsed, tolerance: tolerance)
                if step == 3 { (made, madeAt, jumps) = (wall, truth, 0) }
                guard step >= 3 else { continue }
                let age = clock.age(of: made)
                let most = truth - madeAt + (jumps + 1) * (tolerance.forward + RecordingClock.Tolerance.backward)
                #expect(age <= most, "\(clock), made \(made): \(age) and not \(truth - madeAt)")
            }
        }
    }

    @Test func `what is written is read again, and what is damaged is not`() {
        var clock = clock()
        clock.advance(to: start + 900 * day, elapsed: 0, tolerance: tolerance)
        #expect(RecordingClock(text: clock.text) == clock)
        let text = Array(clock.text)
        for count in 0..<text.count { #expect(RecordingClock(text: String(text[..<count])) == nil) }
        for wrong in [
            "", "end", "pttd recordings clock 1\nend", "pttd recordings clock 1\n1 2\nend",
            "pttd recordings clock 1\n9 2 99999999999999999\nend",
        ] {
            #expect(RecordingClock(text: wrong) == nil)
        }
    }
}
