// The jitter buffer: rules by example, and properties under a hostile network from a seed.
import MonotonicTime
import TestSupport
import Testing

@testable import Audio

@Suite struct JitterBufferTests {
    @Test func `a burst in order is played in order after the target and ends with its last packet`() {
        var bench = JitterBench()
        let start = bench.now
        for sequence in 0..<10 {
            bench.insert(sequence, marker: sequence == 0)
            bench.play(20)
        }
        #expect(bench.firsts == 1)
        bench.machine.end(lastSequence: 9)
        bench.play(60)
        #expect(bench.played == Array(0..<10))
        #expect(bench.ends == [.complete])
        #expect(bench.machine.isIdle)
        // About 20 ms of waiting before the first of ten frames; it may shrink a little.
        let silence = CaptureStateMachine.duration(Int64(bench.silence - bench.accelerated))
        #expect(abs((bench.now - start - silence).milliseconds - 200) < 1)
        #expect((20...22).contains(Double(bench.transits[0] - start.nanoseconds) / 1e6))
    }

    @Test func `the first packet waits for the initial target`() {
        var settings = JitterBufferSettings()
        settings.targetInitial = .milliseconds(100)
        var bench = JitterBench(settings)
        bench.insert(0, marker: true)
        bench.play(95)
        #expect(bench.played.isEmpty)
        bench.play(10)
        #expect(bench.sequences == [0])
    }

    @Test func `reordered packets are sorted`() {
        var bench = JitterBench()
        for sequence in [0, 2, 1, 4, 3] {
            bench.insert(sequence, marker: sequence == 0)
            bench.play(20)
        }
        bench.machine.end(lastSequence: 4)
        bench.play(100)
        #expect(bench.sequences == [0, 1, 2, 3, 4])
        #expect(bench.machine.statistics.lost == 0)
    }

    @Test func `a marker that comes behind its successors still begins the same burst`() {
        var bench = JitterBench()
        bench.insert(101)
        bench.insert(100, marker: true)
        bench.insert(102)
        bench.machine.end(lastSequence: 102)
        bench.play(200)
        #expect(bench.sequences == [100, 101, 102])
        #expect(bench.ends == [.complete])
    }

    @Test func `a duplicate is played once`() {
        var bench = JitterBench()
        bench.insert(0, marker: true)
        #expect(bench.insert(0, marker: true) == .duplicate)
        bench.insert(1)
        bench.play(65)
        #expect(bench.insert(0, marker: true) == .duplicate)
        bench.machine.end(lastSequence: 1)
        bench.play(100)
        #expect(bench.sequences == [0, 1])
        #expect(bench.machine.statistics.duplicate == 2)
    }

    @Test func `a lost packet is recovered from its successor`() {
        var bench = JitterBench()
        for sequence in [0, 1, 3, 4] {
            bench.insert(sequence, marker: sequence == 0)
            bench.play(sequence == 1 ? 40 : 20)
        }
        bench.machine.end(lastSequence: 4)
        bench.play(100)
        #expect(bench.played == [0, 1, nil, 3, 4])
        #expect(bench.recovered == [3])
        #expect(bench.machine.statistics.lost == 1)
        #expect(bench.machine.statistics.recovered == 1)
    }

    @Test func `of several lost packets the last is recovered and the others concealed`() {
        var bench = JitterBench()
        bench.insert(0, marker: true)
        bench.insert(4)
        bench.insert(5)
        bench.machine.end(lastSequence: 5)
        bench.play(300)
        #expect(bench.played == [0, nil, nil, nil, 4, 5])
        #expect(bench.recovered == [4])
        #expect(bench.invented == 2 * 960)
        #expect(bench.machine.statistics.lost == 3)
    }

    @Test func `a packet that comes after it was passed over is late`() {
        var bench = JitterBench()
        for sequence in [0, 2, 3, 4] { bench.insert(sequence, marker: sequence == 0) }
        bench.play(100)
        #expect(bench.insert(1) == .late)
        #expect(bench.machine.statistics.late == 1)
    }

    @Test func `when nothing is there invented sound waits and the packet is played when it comes`() {
        var bench = JitterBench()
        bench.insert(0, marker: true)
        bench.play(100)
        bench.insert(1)
        bench.play(40)
        bench.machine.end(lastSequence: 1)
        bench.play(40)
        #expect(bench.sequences == [0, 1])
        #expect(bench.invented > 0)
        #expect(bench.machine.statistics.lost == 0)
    }

    /// Eight seconds of packets of 20 ms on a network without jitter; those of `late` come 8 ms late.
    private func played(late: Set<Int>) -> JitterBench {
        var settings = JitterBufferSettings()
        settings.targetInitial = settings.targetMin
        var bench = JitterBench(settings)
        let start = bench.now
        var arrivals = (0..<400).map {
            (at: start + .milliseconds(20 * $0 + (late.contains($0) ? 8 : 0)), sequence: $0)
        }
        while !arrivals.isEmpty {
            while let next = arrivals.first, next.at <= bench.now {
                bench.insert(next.sequence, marker: next.sequence == 0, at: next.at)
                arrivals.removeFirst()
            }
            bench.play(blocks: 1)
        }
        bench.machine.end(lastSequence: 399)
        bench.play(100)
        #expect(bench.ends == [.complete] && bench.sequences == Array(0..<400))
        return bench
    }

    @Test func `a packet that is late once takes the place that it would have had`() throws {
        let even = played(late: [])
        #expect(even.invented == 0 && even.skipped == 0)
        let bench = played(late: [300, 360])
        #expect(bench.skipped == bench.invented && bench.skipped > 0)
        #expect(bench.skipped <= 2 * JitterBufferStateMachine.concealStep)
        #expect(bench.machine.statistics.concealedSamples == bench.invented)
        #expect(bench.transits == even.transits)
    }

    @Test func `packets that are late more often are played whole and the delay grows by what was invented`() throws {
        let even = played(late: [])
        let once = played(late: [300])
        let bench = played(late: [300, 320])
        #expect(bench.skipped == once.skipped)
        let grown = bench.transits[320] - even.transits[320]
        #expect(bench.invented - once.invented == JitterBufferStateMachine.concealStep)
        #expect(grown == CaptureStateMachine.duration(Int64(JitterBufferStateMachine.concealStep)).nanoseconds)
        // It is made up for later.
        #expect(try #require(bench.transits.last) < bench.transits[320])
    }

    @Test func `a packet that is longer late than the first invented sound is played whole`() {
        var bench = JitterBench()
        bench.insert(0, marker: true)
        // 20 ms of waiting, 20 ms of speech, the rest is invented.
        bench.play(55)
        bench.insert(1)
        bench.play(10)
        #expect(bench.sequences == [0, 1] && bench.skipped == 0)
        #expect(bench.invented == 2 * JitterBufferStateMachine.concealStep)
        #expect(bench.machine.statistics.concealedSamples == bench.invented)
    }

    @Test func `a burst whose end is never announced ends after the silence`() {
        var bench = JitterBench()
        bench.insert(0, marker: true)
        bench.play(2_980)
        #expect(bench.ends.isEmpty)
        bench.play(60)
        #expect(bench.ends == [.silence])
        #expect(bench.machine.isIdle)
        #expect(bench.invented <= JitterBufferStateMachine.concealMax)
    }

    @Test func `a burst whose last packets are lost ends soon after its end was announced`() {
        var bench = JitterBench()
        bench.insert(0, marker: true)
        bench.machine.end(lastSequence: 3)
        bench.play(200)
        #expect(bench.ends == [.silence])
        #expect(bench.machine.statistics.lost == 3)
    }

    @Test func `a second burst behind the first waits for its end`() {
        var bench = JitterBench()
        bench.insert(10, marker: true)
        bench.insert(11)
        bench.insert(9_000, base: 777, marker: true)
        bench.insert(9_001, base: 777)
        bench.machine.end(lastSequence: 9_001)
        bench.play(300)
        #expect(bench.sequences == [10, 11, 9_000, 9_001])
        #expect(bench.ends == [.superseded, .complete])
        #expect(bench.firsts == 2)
    }

    @Test func `a third burst ends the first`() {
        var bench = JitterBench()
        for start in [0, 9_000, 20_000] {
            for step in 0..<3 { bench.insert(start + step, base: UInt32(start) &* 77_777, marker: step == 0) }
        }
        bench.play(5_000)
        #expect(bench.ends.first == .superseded)
        #expect(bench.machine.isIdle)
        #expect(bench.sequences.starts(with: [9_000, 9_001, 9_002]))
    }

    @Test func `numbers and times wrap around`() {
        var bench = JitterBench()
        for step in 0..<20 {
            bench.insert((65_530 + step) % 65_536, time: step * 960, base: .max - 5_000, marker: step == 0)
            bench.play(20)
        }
        bench.machine.end(lastSequence: UInt16((65_530 + 19) % 65_536))
        bench.play(100)
        #expect(bench.sequences.count == 20)
        #expect(bench.ends == [.complete])
        #expect(bench.machine.statistics.lost == 0)
    }

    @Test func `time that the talker left out passes in silence`() {
        var bench = JitterBench()
        bench.insert(0, marker: true)
        bench.play(20)
        bench.insert(1)
        bench.play(220)
        // 200 ms are missing between 1 and 2, and have passed meanwhile: the delay does not grow by them.
        bench.insert(2, time: 2 * 960 + 9_600)
        bench.play(20)
        bench.insert(3, time: 3 * 960 + 9_600)
        bench.machine.end(lastSequence: 3)
        bench.play(100)
        #expect(bench.sequences == [0, 1, 2, 3])
        #expect(bench.machine.statistics.lost == 0)
        #expect(bench.ends == [.complete])
    }

    @Test func `a timestamp that jumps by hours without that time passing does not stop the burst`() {
        var bench = JitterBench()
        bench.insert(0, marker: true)
        bench.insert(1)
        bench.play(100)
        bench.insert(2, time: 400_000_000)
        bench.insert(3, time: 400_000_960)
        bench.play(4_000)
        #expect(bench.sequences == [0, 1, 2, 3])
        #expect(bench.machine.isIdle)
    }

    @Test func `speech held until the grant is played whole and the delay shrinks`() {
        var bench = JitterBench()
        // A second of speech at once, then two seconds in real time.
        for sequence in 0..<50 { bench.insert(sequence, marker: sequence == 0) }
        for sequence in 50..<150 {
            bench.play(20)
            bench.insert(sequence)
        }
        bench.machine.end(lastSequence: 149)
        bench.play(1_000)
        #expect(bench.sequences == Array(0..<150))
        #expect(bench.ends == [.complete])
        #expect(bench.accelerated > 24_000)
        #expect(bench.machine.statistics.dropped == 0)
    }

    @Test func `the target follows the measured jitter within its bounds`() {
        var calm = JitterBench()
        for sequence in 0..<400 {
            calm.insert(sequence, marker: sequence == 0)
            calm.play(20)
        }
        #expect(calm.machine.target == .milliseconds(5))

        var rough = JitterBench()
        var generator = SeededGenerator(seed: 7)
        for sequence in 0..<400 {
            rough.insert(
                sequence, marker: sequence == 0,
                at: rough.now + .milliseconds(Int.random(in: 0...90, using: &generator)))
            rough.play(20)
        }
        #expect(rough.machine.target >= .milliseconds(75) && rough.machine.target <= .milliseconds(95))

        var absurd = JitterBench()
        for sequence in 0..<400 {
            absurd.insert(sequence, marker: sequence == 0, at: absurd.now + .milliseconds(sequence % 3 * 400))
            absurd.play(20)
        }
        #expect(absurd.machine.target == .milliseconds(400))
    }

    @Test func `flush forgets everything and strays of the finished burst stay out`() {
        var bench = JitterBench()
        for sequence in 0..<5 { bench.insert(sequence, marker: sequence == 0) }
        bench.play(60)
        #expect(bench.machine.flush(at: bench.now) == true)
        #expect(bench.machine.isIdle)
        #expect(bench.insert(4) == .late)
        #expect(bench.machine.isIdle)
        // The next burst goes on counting and begins with the marker.
        #expect(bench.insert(5, marker: true) == .stored)
    }

    @Test func `a full buffer refuses and counts`() {
        var bench = JitterBench()
        for sequence in 0..<JitterBufferStateMachine.slotCount {
            #expect(bench.insert(sequence, marker: sequence == 0) == .stored)
        }
        #expect(bench.insert(JitterBufferStateMachine.slotCount) == .full)
        #expect(bench.machine.statistics.dropped == 1)
    }

    @Test func `an empty or oversized payload is refused`() {
        var bench = JitterBench()
        #expect(bench.insert(0, marker: true, payload: []) == .full)
        #expect(bench.insert(0, marker: true, payload: [UInt8](repeating: 1, count: 1276)) == .full)
        #expect(bench.machine.statistics.malformed == 2)
        #expect(bench.machine.isIdle)
    }

    /// Loss, duplicates, reordering and jitter: whatever the network does, the order holds, nothing plays twice,
    /// everything is accounted for, and the machine comes to rest.
    @Test(arguments: 0..<60) func `under any network the order holds and the burst ends`(seed: Int) {
        var generator = SeededGenerator(seed: UInt64(seed))
        var settings = JitterBufferSettings()
        settings.targetInitial = .milliseconds(Int.random(in: 0...200, using: &generator))
        var bench = JitterBench(settings)
        let count = Int.random(in: 1...300, using: &generator)
        let first = Int.random(in: 0...40_000, using: &generator)
        let loss = Double.random(in: 0...0.4, using: &generator)
        let twice = Double.random(in: 0...0.2, using: &generator)
        let jitter = Int.random(in: 0...300, using: &generator)
        let announces = Bool.random(using: &generator)
        var arrivals: [(at: Int, sequence: Int)] = []
        for step in 0..<count {
            while true {
                if Double.random(in: 0..<1, using: &generator) >= loss {
                    arrivals.append((step * 20 + Int.random(in: 0...jitter, using: &generator), first + step))
                }
                if Double.random(in: 0..<1, using: &generator) >= twice { break }
            }
        }
        arrivals.sort { $0.at < $1.at }
        let distinct = Set(arrivals.map(\.sequence)).count
        let base = bench.now
        var next = 0
        let span = count * 20 + jitter + 6_000
        for millisecond in stride(from: 0, to: span, by: 5) {
            while next < arrivals.count, arrivals[next].at <= millisecond {
                bench.insert(
                    arrivals[next].sequence, marker: arrivals[next].sequence == first,
                    at: base + .milliseconds(arrivals[next].at))
                next += 1
            }
            if announces, millisecond == (count * 20) / 5 * 5 {
                bench.machine.end(lastSequence: UInt16(first + count - 1))
            }
            bench.play(5)
        }
        let counts = bench.machine.statistics
        #expect(bench.machine.isIdle, "seed \(seed)")
        #expect(bench.sequences == bench.sequences.sorted(), "seed \(seed)")
        #expect(Set(bench.sequences).count == bench.sequences.count, "seed \(seed)")
        #expect(bench.sequences.count == counts.played, "seed \(seed)")
        #expect(counts.received == counts.played + counts.dropped, "seed \(seed)")
        #expect(counts.received + counts.late + counts.duplicate >= distinct, "seed \(seed)")
        #expect(counts.received + counts.late + counts.duplicate == arrivals.count, "seed \(seed)")
    }

    /// Random garbage in every field: the machine never traps, stays within its bounds, and comes to rest.
    @Test(arguments: 0..<20) func `any packets leave the machine sane`(seed: Int) {
        var generator = SeededGenerator(seed: UInt64(seed) &+ 1_000)
        var bench = JitterBench()
        for _ in 0..<600 {
            switch Int.random(in: 0..<10, using: &generator) {
            case 0: bench.machine.end(lastSequence: .random(in: .min ... .max, using: &generator))
            case 1: bench.play(5 * Int.random(in: 0...20, using: &generator))
            case 2: _ = bench.machine.flush(at: bench.now)
            case 3...5:
                bench.insert(
                    Int.random(in: 0...65_535, using: &generator),
                    time: Int.random(in: 0...Int(UInt32.max), using: &generator),
                    marker: .random(using: &generator), samples: Int.random(in: 1...5_760, using: &generator))
            default:
                let sequence = Int.random(in: 0...300, using: &generator)
                bench.insert(
                    sequence, time: sequence * 960 + Int.random(in: 0...5, using: &generator) * 480,
                    marker: Int.random(in: 0..<50, using: &generator) == 0)
            }
            #expect(bench.machine.heldCount <= JitterBufferStateMachine.slotCount)
        }
        bench.play(60_000)
        #expect(bench.machine.isIdle, "seed \(seed)")
    }
}
