// When the microphone runs, and where a burst ends.
import MonotonicTime
import TestSupport
import Testing

@testable import Audio

@Suite struct CaptureStateMachineTests {
    private let start = Instant(nanoseconds: 5_000_000_000)

    private func capturing() -> CaptureStateMachine {
        var machine = CaptureStateMachine()
        machine.opened()
        _ = machine.start(burst: 1, at: start)
        machine.began(at: start)
        return machine
    }

    @Test func `a burst ends with the last sample of its tail and fades out`() {
        var machine = capturing()
        let result1 = machine.take(48_000)
        #expect(result1 == 48_000)
        let stopped = machine.stop(end: start + .milliseconds(1_200))
        #expect(stopped)
        #expect(machine.state == .tail)
        let result2 = machine.take(9_000)
        #expect(result2 == 9_000)
        #expect(!machine.isComplete)
        let result3 = machine.take(960)
        #expect(result3 == 600)
        #expect(machine.isComplete)
        #expect(machine.position == 57_600)
        #expect(machine.gain(at: 57_600 - 480) == 1)
        #expect(machine.gain(at: 57_600 - 240) == 0.5)
        #expect(machine.gain(at: 57_600) == 0)
        machine.ended(deviceOpen: true)
        #expect(machine.state == .prepared)
        let result4 = machine.take(240)
        #expect(result4 == 0)
    }

    @Test func `what was said before the press is nobodys`() throws {
        let rings = try CaptureRings()
        let burst = CaptureBurst(
            rings, framer: try SpeechFramer(OpusSettings()), waitsForLevel: false, isWatched: false)
        burst.opened()
        _ = burst.start(1, afterGoAhead: false, at: start)
        burst.deviceStarts(at: start)
        // A sound server with steps of 2,048 samples hands on two of them that it had, of which the second spans the press.
        let samples = [Float](repeating: 0.5, count: 2_048)
        let first = start - CaptureStateMachine.duration(3_072)
        for step in 0..<4 {
            let time = first + CaptureStateMachine.duration(Int64(step) * 2_048)
            let now = start + .milliseconds(5 + 43 * step)
            _ = burst.take(samples, 2_048, first: time, isBroken: false, at: now)
            #expect(burst.hasBegun == (step > 0))
        }
        var began: Instant?
        while let output = rings.next(device: .alsa("early"), frameSamples: 480) {
            if case .began(_, let instant, _) = output { began = instant }
        }
        // To the sample.
        let sample = CaptureStateMachine.duration(1)
        #expect(began.map { (start - sample...start + sample).contains($0) } == true)
    }

    @Test func `a second release does not move the end`() {
        var machine = capturing()
        let result5 = machine.stop(end: start + .milliseconds(100))
        #expect(result5)
        let result6 = machine.stop(end: start + .seconds(100))
        #expect(!result6)
        #expect(machine.endPosition == 4_800)
    }

    @Test func `a release before the first sample gives an empty burst`() {
        var machine = CaptureStateMachine()
        let result7 = machine.start(burst: 1, at: start)
        #expect(result7 == .openAndRun)
        machine.opened()
        let result8 = machine.stop(end: start + .milliseconds(10))
        #expect(result8)
        #expect(machine.isRunning)
        machine.began(at: start + .milliseconds(20))
        let result9 = machine.take(240)
        #expect(result9 == 0)
        #expect(machine.isComplete)
    }

    @Test func `a press within the tail goes on as a new burst without a gap`() {
        var machine = capturing()
        _ = machine.take(4_800)
        _ = machine.stop(end: start + .milliseconds(300))
        let result10 = machine.start(burst: 2, at: start + .milliseconds(150))
        #expect(result10 == .goOn(finishing: 1))
        #expect(machine.firstSampleAt == start + .milliseconds(100))
        #expect(machine.position == 0 && machine.endPosition == nil && machine.burst == 2)
    }

    @Test func `the tail is over by the clock even when the device gives nothing`() {
        var machine = capturing()
        _ = machine.stop(end: start + .milliseconds(200))
        #expect(!machine.isOverdue(at: start + .milliseconds(600), grace: .milliseconds(500)))
        #expect(machine.isOverdue(at: start + .milliseconds(701), grace: .milliseconds(500)))
    }

    @Test func `the device is not closed under a burst`() {
        var machine = capturing()
        let result11 = machine.unprepare()
        #expect(!result11)
        machine.ended(deviceOpen: true)
        let result12 = machine.unprepare()
        #expect(result12)
        #expect(machine.state == .closed && machine.prepare())
    }

    /// Any order of events: samples are taken only while the device runs, and every burst's end is final.
    @Test(arguments: 0..<50) func `in any order of events nothing is taken outside a burst`(seed: Int) {
        var generator = SeededGenerator(seed: UInt64(seed))
        var machine = CaptureStateMachine()
        var now = start
        var burst: UInt32 = 0
        var end: Int64?
        for _ in 0..<400 {
            now = now + .milliseconds(Int.random(in: 0...30, using: &generator))
            switch Int.random(in: 0..<7, using: &generator) {
            case 0:
                burst += 1
                _ = machine.start(burst: burst, at: now)
                machine.opened()
                end = nil
            case 1: _ = machine.stop(end: now + .milliseconds(Int.random(in: -50...300, using: &generator)))
            case 2: machine.opened()
            case 3: if machine.isRunning { machine.began(at: now) }
            case 4 where machine.isComplete:
                machine.ended(deviceOpen: .random(using: &generator))
                end = nil
            default:
                let before = machine.position
                let wanted = Int.random(in: 0...960, using: &generator)
                let taken = machine.take(wanted)
                #expect(taken >= 0 && taken <= wanted, "seed \(seed)")
                #expect(machine.isRunning || taken == 0, "seed \(seed)")
                #expect(machine.position == before + Int64(taken), "seed \(seed)")
            }
            if let known = machine.endPosition {
                #expect(machine.position <= known, "seed \(seed)")
                if let end { #expect(known == end, "seed \(seed)") }
                end = known
            }
        }
    }
}
