// Samples that are lost without a word are found by the clock, and nothing else is taken for them.
import MonotonicTime
import Testing
import Vocabulary

@testable import Audio

@Suite struct LostSamplesTests {
    @Test func `a microphone that loses nothing is told of nothing`() {
        var run = LostRun()
        run.capture(for: .seconds(60))
        #expect(run.lost == .zero)
    }

    @Test(arguments: [5.4, 11, 40, 200]) func `steps that are left out are told`(milliseconds: Double) {
        var run = LostRun()
        run.capture(for: .seconds(1))
        let span = Duration.nanoseconds(Int(milliseconds * 1e6))
        run.lose(span)
        run.capture(for: span + .milliseconds(150))
        #expect(abs((run.lost - span).milliseconds) < 1)
        // Once it is counted in, it is told no more.
        run.capture(for: .seconds(5))
        #expect(abs((run.lost - span).milliseconds) < 1)
    }

    @Test func `small losses add up`() {
        var run = LostRun()
        run.mind = .milliseconds(10)
        run.capture(for: .seconds(1))
        for _ in 0..<5 {
            run.lose(.microseconds(2_670))
            run.capture(for: .milliseconds(300))
        }
        #expect(run.lost >= .milliseconds(10) && run.lost < .milliseconds(13), "\(run.lost.milliseconds) ms")
    }

    /// The card is 300 ppm slow, or fast: an hour.
    @Test(arguments: [-300.0, 300.0]) func `a drift is no loss`(partsPerMillion: Double) {
        var run = LostRun()
        run.partsPerMillion = partsPerMillion
        run.mind = .milliseconds(10)
        run.capture(for: .seconds(3_600))
        #expect(run.lost == .zero)
    }

    /// The thread, or the machine, gets no turn: what waits in the device is read afterwards.
    @Test(arguments: [20, 100, 190]) func `a late thread is no loss`(milliseconds: Int) {
        var run = LostRun()
        for _ in 0..<20 {
            run.capture(for: .milliseconds(330))
            run.halt(.milliseconds(milliseconds))
        }
        #expect(run.lost < .milliseconds(1), "\(run.lost.milliseconds) ms")
    }

    /// Another program leaves, and the graph's step is four times as long: read later, said at the same time.
    @Test func `a longer step is no loss`() {
        var run = LostRun()
        run.capture(for: .seconds(1))
        run.step = 1_024
        run.capture(for: .seconds(2))
        #expect(run.lost < .milliseconds(1), "\(run.lost.milliseconds) ms")
    }

    /// A server whose word on its own delay changes, while samples come as they came.
    @Test func `a word of the device alone is no loss`() {
        var run = LostRun()
        run.capture(for: .seconds(1))
        run.saidWrongBy = .milliseconds(30)
        run.capture(for: .seconds(2))
        #expect(run.lost == .zero)
    }

    /// The whole burst: frames after a loss have the times at which they were said, and the end is where the finger let go.
    @Test func `packets after a loss leave out its time`() throws {
        let rings = try CaptureRings()
        let burst = CaptureBurst(
            rings, framer: try SpeechFramer(OpusSettings()), waitsForLevel: false, isWatched: false)
        let pressed = Instant.zero + .seconds(1_000)
        var next = pressed
        burst.opened()
        _ = burst.start(1, afterGoAhead: false, at: pressed)
        burst.deviceStarts(at: pressed)
        let samples = [Float](repeating: 0.1, count: 240)
        var isOver = false
        // Steps of 5 ms; after 300 ms 50 ms are lost, and after 800 ms it is released.
        for step in 0..<1_000 where !isOver {
            if step == 60 { next = next + .milliseconds(50) }
            if step == 150 { _ = burst.stop(end: pressed + .milliseconds(800)) }
            let first = next
            next = next + .milliseconds(5)
            isOver = .isComplete == burst.take(samples, 240, first: first, isBroken: false, at: next)
        }
        var frames: [OutgoingFrame] = []
        while let output = rings.next(device: .alsa("losing"), frameSamples: 480) {
            if case .frame(let frame) = output { frames.append(frame) }
        }
        let steps = zip(frames.dropFirst(), frames).map { Int($0.position) - Int($1.position) }
        #expect(steps.filter { $0 != 480 } == [6 * 480], "\(steps)")
        #expect(rings.statistics.overruns == 1)
        // What remains after 800 ms is silence that the codec holds back.
        #expect(isOver && frames.last.map { (38_400..<39_840).contains($0.position) } == true)
        for frame in frames.dropFirst(50) {
            #expect(frame.capturedAt == pressed + CaptureStateMachine.duration(Int64(frame.position)))
        }
    }
}

/// A microphone in steps of a graph, and the rule that watches it; what is told of is counted in, as the capture does.
private struct LostRun {
    var step = 256
    var partsPerMillion = 0.0
    /// Less than this is not counted in.
    var mind = Duration.milliseconds(1)
    var saidWrongBy = Duration.zero
    private(set) var lost = Duration.zero
    private var rule = LostSamples()
    private var position: Int64 = 0
    /// When the next step is due, and what has been captured and not read.
    private var due: Instant
    private var waiting: Int64 = 0
    private var now = Instant.zero + .seconds(1_000)
    private var reads = 0

    init() { due = now }

    private var stepTime: Duration { .nanoseconds(Int(Double(step) * 1e9 / 48_000 * (1 + partsPerMillion / 1e6))) }

    mutating func lose(_ span: Duration) { due = due + span }

    /// The device goes on; nobody reads.
    mutating func halt(_ span: Duration) {
        now = now + span
        while due + stepTime <= now {
            due = due + stepTime
            waiting += Int64(step)
        }
    }

    mutating func capture(for span: Duration) {
        let end = now + span
        while now < end {
            if waiting == 0 {
                due = due + stepTime
                now = max(now, due)
                waiting = Int64(step)
            }
            // As the device gives it: no more than 80 ms at once, and the thread wakes up to 0.9 ms late.
            let count = min(waiting, 3_840)
            waiting -= count
            position += count
            reads += 1
            let at = now + .microseconds(reads % 10 * 100)
            let behind = CaptureStateMachine.duration(waiting)
            let missing = rule.read(upTo: position, next: due - behind + saidWrongBy, at: at)
            if missing >= mind {
                position += CaptureStateMachine.samples(missing)
                lost = lost + missing
            }
        }
    }
}
