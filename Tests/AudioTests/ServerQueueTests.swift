// What is learned of a sound server's steps: simulated servers, each with its own way to take, and a thread that writes by the rule.
import MonotonicTime
import Testing

@testable import Audio

@Suite struct ServerQueueTests {
    /// PulseAudio: plays what is there, in steps as short as a block.
    @Test func `a server that takes whatever is there gets no longer queue than before`() {
        var run = ServerRun(.takesAll, step: 100)
        run.play(for: .seconds(5))
        #expect(run.queue.learned.step == .zero && run.queue.learned.isProven)
        #expect(run.queue.target(run.depth) == 240 && run.silence == 240)
        #expect(run.missed == 0 && run.queue.refusals == 0)
    }

    /// PulseAudio on a busy machine: late at the start and now and then, and what it takes is of any length.
    @Test func `a server that is late is not taken for one that wants more`() {
        var run = ServerRun(.takesAll, step: 100)
        run.delayServer(by: .milliseconds(60))
        for round in 0..<100 {
            run.step = [90, 130, 100, 170, 110][round % 5]
            if round % 20 == 19 { run.delayServer(by: .milliseconds(25)) }
            run.play(for: .milliseconds(7))
        }
        #expect(run.queue.learned.step == .zero && run.queue.target(run.depth) == 240)
        #expect(!run.isLost)
    }

    /// PipeWire's PulseAudio interface: nothing is taken of a queue that is shorter than a step, and nothing is said.
    @Test(arguments: [128, 256, 512, 1_024, 2_048, 8_192])
    func `a server that takes nothing of a short queue is soon given whole steps`(step: Int) {
        var run = ServerRun(.takesWholeSteps, step: step)
        run.play(for: .seconds(2))
        #expect(!run.isLost && run.taken > 48_000, "\(run.taken) frames were taken")
        if let at = run.firstTakenAt {
            // Five steps: each shorter one was tried, for twice its length.
            let limit = Duration.milliseconds(40) + run.duration(5 * step)
            #expect(at - run.startedAt < limit, "first taken after \((at - run.startedAt).milliseconds) ms")
        }
        // The queue holds a step and a block, no more; one that is never refused stays as it is.
        #expect(run.queue.target(run.depth) == (step <= 128 ? 240 : step + 120))
        #expect(run.queue.refusals <= 1, "sound was interrupted \(run.queue.refusals) times")
        // The next stream begins with what was learned: nothing has to be tried.
        var next = ServerRun(.takesWholeSteps, step: step, learned: run.queue.learned)
        next.play(for: .seconds(2))
        #expect(next.queue.refusals == 0 && next.missed == 0)
        #expect(next.silence <= max(240, step + 120))
    }

    /// PipeWire's own plug-in: plays what is there and reports the underrun.
    @Test(arguments: [64, 256, 1_024, 4_096]) func `a server that reports underruns is given whole steps`(step: Int) {
        var run = ServerRun(.reportsUnderruns, step: step)
        run.play(for: .seconds(3))
        #expect(!run.isLost && run.taken > 48_000)
        #expect(run.underruns <= 5, "\(run.underruns) underruns")
        // It was asked for 256; where another program asked for less, no more than that is kept.
        #expect(run.queue.target(run.depth) <= max(376, step + 120) && run.queue.target(run.depth) >= step + 120)
    }

    /// Another program comes and goes, and the graph's step with it.
    @Test func `the queue follows a step that changes`() {
        var run = ServerRun(.takesWholeSteps, step: 256)
        run.play(for: .seconds(1))
        run.step = 1_024
        run.play(for: .seconds(1))
        #expect(run.queue.target(run.depth) == 1_144 && run.queue.refusals <= 2)
        run.step = 128
        run.play(for: .seconds(2))
        #expect(run.queue.target(run.depth) <= 376, "\(run.queue.target(run.depth)) frames")
        let refusals = run.queue.refusals
        run.play(for: .seconds(1))
        #expect(run.queue.refusals == refusals && !run.isLost)
    }

    /// ALSA's null: the clock of this machine is all there is.
    @Test func `a PCM without a clock is written to in real time`() {
        var run = ServerRun(.hasNoClock, step: 1)
        run.play(for: .seconds(5))
        #expect(run.queue.learned.step == .zero && run.queue.refusals == 0)
        #expect(abs(run.taken - 5 * 48_000) < 480)
    }

    /// A bound: a third of a second, or three steps.
    @Test func `a server that ceases to take is told soon`() {
        for step in [100, 256, 1_024] {
            var run = ServerRun(step == 100 ? .takesAll : .takesWholeSteps, step: step)
            run.play(for: .seconds(1))
            run.isDead = true
            let died = run.now
            run.play(for: .seconds(3))
            #expect(run.isLost && run.now - died < .milliseconds(400), "\((run.now - died).milliseconds) ms")
        }
    }

    /// The longest step of PipeWire's, which nobody told of: two of them missed at the start are no lost device.
    @Test func `a young stream is given three of the longest steps`() {
        var queue = ServerQueue()
        var now = Instant.zero + .seconds(100)
        queue.started(rate: 48_000, block: 120, capacity: 12_000, stepTold: 256, at: now)
        queue.wrote(2_000)
        // It takes what it finds once, and then nothing.
        now = now + .milliseconds(10)
        _ = queue.look(queued: 1_500, depth: .milliseconds(5), at: now)
        var advice = ServerQueue.Advice.write
        for _ in 0..<50 where advice != .lost {
            now = now + .milliseconds(10)
            advice = queue.look(queued: 1_500, depth: .milliseconds(5), at: now)
            if now < Instant.zero + .seconds(100) + .milliseconds(10 + 510) { #expect(advice != .lost) }
        }
        now = now + .milliseconds(50)
        #expect(queue.look(queued: 1_500, depth: .milliseconds(5), at: now) == .lost)
    }

    /// One that never begins is the worker's to give up (`StallClock`); it gets no more silence than the buffer holds.
    @Test func `a server that never begins is not taken for lost and not filled without end`() {
        var run = ServerRun(.takesWholeSteps, step: 256)
        run.isDead = true
        run.play(for: .seconds(10))
        #expect(!run.isLost && run.taken == 0)
        #expect(run.queued <= run.capacity)
    }

    @Test func `a halt of the machine is no loss of its server`() {
        var run = ServerRun(.takesWholeSteps, step: 256)
        run.play(for: .seconds(1))
        run.halt(for: .seconds(60))
        run.play(for: .seconds(1))
        #expect(!run.isLost && run.queue.refusals <= 1)
    }

    /// A thread that comes too late for one step has lapsed once, and the queue that follows is not longer for it.
    @Test func `a late thread is a lapse and no longer step`() {
        var run = ServerRun(.takesWholeSteps, step: 256)
        run.play(for: .seconds(1))
        let refusals = run.queue.refusals
        run.sleepThrough(.milliseconds(14))
        run.play(for: .seconds(1))
        #expect(run.queue.lapses == 1 && run.queue.refusals == refusals)
        #expect(run.queue.target(run.depth) == 376)
    }

    @Test(arguments: [8_000, 44_100, 96_000, 192_000]) func `frames and times agree at every rate`(rate: Int) {
        for step in [64, 236, 256, 1_024, 4_096] {
            var queue = ServerQueue()
            queue.started(rate: rate, block: rate / 400, capacity: rate, stepTold: step, at: .zero)
            #expect(queue.target(.zero) == max(2 * (rate / 400), step + rate / 400), "\(step) at \(rate)")
        }
    }
}

/// A server, and a thread that writes when the rule says so.
private struct ServerRun {
    enum Kind {
        case takesAll, takesWholeSteps, reportsUnderruns, hasNoClock
    }

    let kind: Kind
    let depth = Duration.milliseconds(5)
    let capacity = 12_000
    var step: Int
    var queue: ServerQueue
    var now = Instant.zero + .seconds(100)
    var startedAt = Instant.zero
    var firstTakenAt: Instant?
    var queued = 0
    var taken = 0
    var silence = 0
    /// Steps that played nothing, or not all, because the queue was short after something had been heard.
    var missed = 0
    var underruns = 0
    var isLost = false
    var isDead = false
    private let block = 120
    private var stepAt = Instant.zero
    private var isDry = false

    init(_ kind: Kind, step: Int, learned: ServerQueue.Learned = .init()) {
        self.kind = kind
        self.step = step
        queue = ServerQueue(learned)
        startedAt = now
        stepAt = now + .milliseconds(3)
        begin()
    }

    func duration(_ frames: Int) -> Duration { .nanoseconds(frames * 1_000_000_000 / 48_000) }

    private mutating func begin() {
        queue.started(
            rate: 48_000, block: block, capacity: capacity, stepTold: kind == .reportsUnderruns ? 256 : nil, at: now)
        queued = 0
        write(queue.target(depth))
        silence += queued
    }

    private mutating func write(_ frames: Int) {
        queued += frames
        queue.wrote(frames)
    }

    /// The server works until `instant`; the thread sleeps.
    private mutating func serve(until instant: Instant) {
        while stepAt <= instant {
            let at = stepAt
            stepAt = stepAt + duration(step)
            guard !isDead, !isDry else { continue }
            let part = min(queued, step)
            if part < step, firstTakenAt != nil { missed += 1 }
            switch kind {
            case .takesWholeSteps where part < step: continue
            case .reportsUnderruns where part < step: isDry = true
            default: break
            }
            if part > 0, firstTakenAt == nil { firstTakenAt = at }
            // A server that plays what is there never tells of the last frame.
            let gone = kind == .takesAll ? min(part, queued - 1) : part
            queued -= gone
            taken += gone
        }
        now = max(now, instant)
    }

    mutating func sleepThrough(_ span: Duration) { serve(until: now + span) }

    /// Everything stands still, the server too.
    mutating func halt(for span: Duration) {
        now = now + span
        stepAt = stepAt + span
    }

    mutating func delayServer(by span: Duration) { stepAt = stepAt + span }

    mutating func play(for span: Duration) {
        let end = now + span
        while now < end, !isLost {
            if isDry {
                isDry = false
                underruns += 1
                _ = queue.ranDry()
                begin()
                continue
            }
            switch queue.look(queued: queued, depth: depth, at: now) {
            case .write: write(block)
            case .pad(let frames):
                silence += frames
                write(frames)
            case .lost: isLost = true
            // A thread wakes a little late, and looks again after 100 ms at the latest.
            case .wait(let until): serve(until: min(until, now + .milliseconds(100)) + .microseconds(60))
            }
        }
    }
}
