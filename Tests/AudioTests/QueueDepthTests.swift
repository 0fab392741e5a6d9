// How deep a playback device's queue is kept: the rule on single events, and on threads as late as a busy machine's was.
import MonotonicTime
import TestSupport
import Testing

@testable import Audio

@Suite struct QueueDepthTests {
    private func at(_ milliseconds: Int) -> Instant { Instant.zero + .milliseconds(milliseconds) }

    @Test func `the queue begins with the least and grows when it runs empty again`() {
        var queue = QueueDepth(least: .microseconds(7_500))
        queue.started(at: at(0))
        #expect(queue.depth == .microseconds(7_500))
        // Once is let pass, whenever it comes.
        let first = queue.ranEmpty(at: at(100))
        #expect(!first && queue.depth == .microseconds(7_500))
        // Soon again: by double steps.
        let again = queue.ranEmpty(at: at(200))
        #expect(again && queue.depth == .microseconds(12_500))
        // Later again, as time is counted while it plays: by one.
        var now = at(60_000)
        _ = play(&queue, for: .seconds(2), left: .milliseconds(1), from: &now)
        let later = queue.ranEmpty(at: now)
        #expect(later && queue.depth == .milliseconds(15))
        // After long enough without: let pass.
        _ = play(&queue, for: .milliseconds(4_500), left: .milliseconds(1), from: &now)
        let rare = queue.ranEmpty(at: now)
        #expect(!rare && queue.depth == .milliseconds(15))
        for time in 0..<100 { queue.ranEmpty(at: now + .milliseconds(time)) }
        #expect(queue.depth == QueueDepth.most)
        let beyond = queue.ranEmpty(at: now + .milliseconds(200))
        #expect(!beyond)
    }

    /// Plays for `span`, with `left` in the queue whenever the thread comes; returns whether the depth changed.
    private func play(_ queue: inout QueueDepth, for span: Duration, left: Duration, from start: inout Instant) -> Bool
    {
        var hasChanged = false
        let end = start + span
        queue.started(at: start)
        while start < end {
            start = start + .milliseconds(10)
            let changed = queue.found(left, at: start)
            hasChanged = hasChanged || changed
        }
        return hasChanged
    }

    @Test func `the queue shrinks only after calm in which it never came near emptiness`() {
        var queue = QueueDepth(least: .milliseconds(5))
        var now = at(0)
        queue.ranEmpty(at: now)
        queue.ranEmpty(at: now)
        #expect(queue.depth == .milliseconds(10))
        now = at(6_000)
        // Near to empty once: not in this span.
        let early = play(&queue, for: .seconds(4), left: .milliseconds(8), from: &now)
        queue.found(.milliseconds(2), at: now)
        let spoiled = play(&queue, for: .seconds(1), left: .milliseconds(8), from: &now)
        #expect(!early && !spoiled)
        let calm = play(&queue, for: .seconds(5), left: .milliseconds(8), from: &now)
        #expect(calm && queue.depth == .microseconds(7_500))
        // It was wrong to shrink: the next time takes twice as long.
        queue.ranEmpty(at: now)
        queue.ranEmpty(at: now)
        let tooSoon = play(&queue, for: .milliseconds(9_900), left: .milliseconds(8), from: &now)
        let inTime = play(&queue, for: .milliseconds(200), left: .milliseconds(8), from: &now)
        #expect(!tooSoon && inTime)
    }

    @Test func `bursts too short to judge by add up and pauses do not count`() {
        var queue = QueueDepth(least: .milliseconds(5))
        var now = at(0)
        queue.ranEmpty(at: now)
        queue.ranEmpty(at: now)
        var changes: [Int] = []
        for burst in 1...6 {
            now = now + .seconds(60)
            if play(&queue, for: .seconds(1), left: .milliseconds(6), from: &now) { changes.append(burst) }
        }
        #expect(changes == [5])
    }

    @Test func `a deep queue that is hardly used shrinks by half of what it did not need`() {
        var queue = QueueDepth(least: .microseconds(7_500))
        for time in 0..<5 { queue.ranEmpty(at: at(time)) }
        #expect(queue.depth == .microseconds(27_500))
        var now = at(10)
        _ = play(&queue, for: .seconds(5), left: .milliseconds(20), from: &now)
        #expect(queue.depth == .milliseconds(20))
    }

    @Test(arguments: 0..<50 as Range<UInt64>) func `the queue keeps its bounds whatever happens`(seed: UInt64) {
        var generator = SeededGenerator(seed: seed)
        let least = Duration.microseconds(Int.random(in: 0...100_000, using: &generator))
        var queue = QueueDepth(least: least)
        var now = Instant.zero
        for _ in 0..<2_000 {
            now = now + .milliseconds(Int.random(in: 0...20_000, using: &generator))
            switch Int.random(in: 0..<10, using: &generator) {
            case 0: queue.ranEmpty(at: now)
            case 1: queue.started(at: now)
            default: queue.found(.microseconds(Int.random(in: 0...60_000, using: &generator)), at: now)
            }
            #expect(queue.depth >= queue.least && queue.depth <= QueueDepth.most, "seed \(seed)")
        }
    }

    @Test func `what a device has shown is remembered by its name`() {
        let name = temporaryPath("device")
        var queue = QueueMemory.depth(of: name, least: .milliseconds(5))
        queue.ranEmpty(at: at(0))
        queue.ranEmpty(at: at(0))
        QueueMemory.remember(queue, of: name)
        #expect(QueueMemory.depth(of: name, least: .milliseconds(5)) == queue)
        // Another setting begins anew, and so does another device.
        #expect(QueueMemory.depth(of: name, least: .milliseconds(8)).depth == .milliseconds(8))
        #expect(QueueMemory.depth(of: name + "2", least: .milliseconds(5)).depth == .milliseconds(5))
    }

    // MARK: On a thread that is late

    /// A machine that was busy and then is not: the queue comes back to the least within a minute of talk in short bursts,
    /// without running empty once more.
    @Test func `after a busy time the queue is soon short again`() {
        var run = QueueRun(burst: .seconds(3))
        run.play(for: .seconds(60), late: busyMachine)
        let afterBusy = run.queue.depth
        #expect(afterBusy >= .milliseconds(10))
        run.emptied = 0
        run.play(for: .seconds(60), late: quietMachine)
        #expect(run.queue.depth == run.queue.least && run.emptied == 0)
        print(
            "queue: \(afterBusy.milliseconds) ms after a busy minute, \(run.queue.depth.milliseconds) ms a minute later"
        )
    }

    /// Shrinking must not be paid for by the ear: over ten minutes of talk on a machine that stays busy the queue runs empty a few
    /// times a minute, for some milliseconds each.
    @Test(arguments: [Duration.seconds(3), .seconds(30)])
    func `on a busy machine the queue finds its depth and keeps it`(
        burst: Duration
    ) {
        var run = QueueRun(burst: burst)
        run.play(for: .seconds(600), late: busyMachine)
        print(
            "queue: bursts of \(burst.milliseconds) ms on a busy machine: ran empty \(run.emptied) times in ten minutes, mean depth",
            "\(run.meanDepth.milliseconds) ms, at last \(run.queue.depth.milliseconds) ms")
        #expect(run.emptied <= 50)
        #expect(run.meanDepth < .milliseconds(15))
        // It has learned, and does not get worse.
        let before = run.emptied
        run.play(for: .seconds(600), late: busyMachine)
        #expect(run.emptied - before <= before + 5)
    }

    /// A halt of 20 ms three times a minute and nothing else: no word has to wait for it all the time.
    @Test func `rare halts are let pass`() {
        var run = QueueRun(burst: .seconds(4))
        run.play(for: .seconds(600)) { $0 % 8_000 == 7_999 ? .milliseconds(20) : .microseconds(100) }
        #expect(run.queue.depth == run.queue.least && run.emptied == 30)
    }

    /// One every two seconds is too many: the wait for calm grows beyond the pauses between them.
    @Test func `halts that come again and again are learned`() {
        var run = QueueRun(burst: .seconds(4))
        let halts: (Int) -> Duration = { $0 % 800 == 799 ? .milliseconds(20) : .microseconds(100) }
        run.play(for: .seconds(600), late: halts)
        let learning = run.emptied
        run.play(for: .seconds(600), late: halts)
        print("queue: ran empty \(learning) times of 300 halts, then \(run.emptied - learning) of 300")
        #expect(learning <= 100 && run.emptied - learning <= 60)
    }

    /// What a sound server makes of its device's first blocks says nothing of the ones that follow.
    @Test func `running empty while a device is woken is not counted`() {
        var queue = QueueDepth(least: .milliseconds(5))
        queue.started(at: at(1_000), isCold: true)
        for time in 1_000..<1_200 { queue.ranEmpty(at: at(time)) }
        #expect(queue.depth == .milliseconds(5))
        queue.ranEmpty(at: at(1_200))
        queue.ranEmpty(at: at(1_201))
        #expect(queue.depth == .milliseconds(10))
        // One that was in use keeps its pace.
        queue.started(at: at(60_000))
        queue.ranEmpty(at: at(60_000))
        #expect(queue.depth == .milliseconds(15))
    }
}

/// A device that plays what a late thread writes, in bursts with pauses of as long.
private struct QueueRun {
    var queue = QueueDepth(least: .microseconds(7_500))
    var emptied = 0
    private let burst: Duration
    private var now = Instant.zero
    private var period = 0
    private var depthTime = 0.0
    private var playedTime = 0.0

    init(burst: Duration) { self.burst = burst }

    /// Over all that was played.
    var meanDepth: Duration { .microseconds(Int(1_000 * depthTime / playedTime)) }

    /// - Parameter late: How late the thread wakes in each 2.5 ms of playing.
    mutating func play(for span: Duration, late: (Int) -> Duration) {
        var left = span
        while left > .zero {
            now = now + burst
            playBurst(min(left, burst), late)
            left = left - burst
        }
    }

    private mutating func playBurst(_ span: Duration, _ late: (Int) -> Duration) {
        let block = Duration.microseconds(2_500)
        let end = now + span
        let origin = now
        let first = period
        queue.started(at: now)
        var level = queue.depth
        while now < end {
            // Sleeps until a block fits, and is late.
            let wait = level - (queue.depth - block)
            let lateness = late(period)
            let passed = max(.zero, wait) + lateness
            now = now + passed
            level = level - passed
            depthTime += queue.depth.milliseconds * passed.milliseconds
            playedTime += passed.milliseconds
            if level <= .zero {
                emptied += 1
                queue.ranEmpty(at: now)
                level = queue.depth
            } else {
                queue.found(level, at: now)
            }
            while level + block <= queue.depth { level = level + block }
            period = first + max(period - first + 1, Int((now - origin).nanoseconds / block.nanoseconds))
        }
    }
}

/// A thread that is hardly ever late, as with real-time priority.
private func quietMachine(_ period: Int) -> Duration { .microseconds(period % 100 == 0 ? 400 : 80) }

/// What a thread of ordinary priority saw that slept from one multiple of 2.5 ms to the next, on two cores with five times as
/// many busy processes: 20 s of it, over and over. Periods since the one before in which it was late by 3 ms or more, and
/// how late, in tenths of a millisecond.
private func busyMachine(_ period: Int) -> Duration { busyPattern[period % 8_000] ?? .microseconds(600) }

private let busyPattern: [Int: Duration] = {
    var pattern: [Int: Duration] = [:]
    var place = 0
    for word in recorded.split(whereSeparator: { $0 == " " || $0 == "\n" }) {
        let parts = word.split(separator: ":").compactMap { Int($0) }
        place += parts[0]
        pattern[place] = .microseconds(100 * parts[1])
    }
    return pattern
}()

private let recorded = """
    68:40 280:33 225:30 319:40 54:50 154:39 117:35 91:39 4:50 3:35 326:35 131:39 24:37 56:39 40:39 48:39 80:40 91:45
    29:40 48:40 24:40 110:50 91:48 2:93 34:32 3:36 29:34 24:34 40:34 8:35 19:40 8:40 8:40 80:39 40:40 3:33 186:36
    160:34 3:32 157:37 75:40 24:39 128:40 49:54 492:34 131:54 37:34 51:39 320:41 205:34 27:39 32:32 24:40 32:39
    43:44 2:34 60:54 4:34 59:39 72:39 56:40 40:40 16:40 8:39 56:39 80:39 59:44 2:35 51:39 24:40 61:34 8:34 43:32
    64:39 56:39 24:39 40:39 40:39 8:40 32:39 64:39 16:39 8:39 61:34 11:39 40:39 11:33 13:39 24:39 16:40 32:40 48:39
    40:39 56:39 16:39 8:39 64:39 6:49 2:39 72:40 24:39 8:40 40:39 8:39 48:39 8:39 40:39 16:39 56:39 16:39 8:39 35:44
    5:39 35:44 5:39 24:39 5:34 3:40 56:39 24:39 8:40 32:39 8:39 40:40 5:34 3:39 32:40 32:39 40:39 8:40 8:40 32:40
    32:39 24:39 8:32 16:40 32:39 40:39 8:39 32:39 69:34 3:39 16:39 13:34 19:39 5:34 43:40 32:39 16:39 32:40 8:39
    37:33 51:38 8:39 5:34 40:35 11:40 40:40 16:40 13:34 11:39 24:39 16:39 8:39 13:34 17:49 2:39 48:39
    """
