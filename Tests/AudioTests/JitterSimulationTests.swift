// The jitter buffer on simulated networks, in virtual time: what it makes of loss, jitter, repair and gaps, in figures.
import MonotonicTime
import TestSupport
import Testing

@testable import Audio

/// A network between a talker and a listener, and what a listener's jitter buffer makes of a burst through it.
struct NetworkSimulation {
    /// Milliseconds of audio in a packet.
    var frame = 10
    var seconds = 20
    /// The share of packets lost, 0…1.
    var loss = 0.0
    /// Lost packets come so many in a row, on average.
    var lossLength = 1.0
    /// The delay varies by so many milliseconds.
    var jitter = 0.0
    /// The share of packets that come twice.
    var twice = 0.0
    /// A lost packet is asked for when one behind it comes, and comes so much later, in milliseconds; nil: never.
    var repairTime: Double?
    /// Nothing comes in these milliseconds; what was lost then is repaired like the rest.
    var gap: Range<Int>?
    /// Milliseconds of speech that were held before the first packet was sent.
    var held = 0
    var settings = JitterBufferSettings()

    struct Outcome {
        var bench: JitterBench
        var count = 0
        /// Packets that came at least once, whenever.
        var came: Set<Int> = []
        /// Behind the quickest possible, in milliseconds.
        var delayMean = 0.0
        var delayLast = 0.0
        var delayWorst = 0.0
        /// Shares of the burst.
        var concealed = 0.0
        var recovered = 0.0
        var heldMax = 0

        var summary: String {
            func number(_ value: Double) -> String { "\((value * 10).rounded() / 10)" }
            return "delay \(number(delayMean)) ms (last \(number(delayLast))), concealed \(number(concealed * 100)) %,"
                + " FEC \(number(recovered * 100)) %, target \(Int(bench.machine.target.milliseconds)) ms,"
                + " faster \(bench.accelerated / 48) ms, slower \(bench.expanded / 48) ms"
        }
    }

    func run(_ generator: inout SeededGenerator) -> Outcome {
        var outcome = Outcome(bench: JitterBench(settings))
        let count = seconds * 1_000 / frame
        outcome.count = count
        var arrivals: [(at: Double, sequence: Int, isRepaired: Bool)] = []
        var asked: [Int] = []
        var isLosing = false
        for sequence in 0..<count {
            let captured = Double((sequence + 1) * frame)
            let sent = max(captured, Double(held) + Double(sequence) * 2)
            if lossLength > 1 {
                // Two states: the mean lengths of losing and not losing give the share.
                let leave = 1 / lossLength
                let enter = leave * loss / max(1e-9, 1 - loss)
                isLosing = Double.random(in: 0..<1, using: &generator) < (isLosing ? 1 - leave : enter)
            } else {
                isLosing = Double.random(in: 0..<1, using: &generator) < loss
            }
            let inGap = gap.map { $0.contains(Int(sent)) } ?? false
            if isLosing || inGap {
                asked.append(sequence)
                continue
            }
            let came = sent + 30 + (jitter > 0 ? Double.random(in: 0...jitter, using: &generator) : 0)
            arrivals.append((came, sequence, false))
            if let repairTime {
                for missing in asked {
                    let extra = Double.random(in: 0...(1 + repairTime / 5), using: &generator)
                    arrivals.append((came + repairTime + extra, missing, true))
                }
                asked.removeAll()
            }
            if Double.random(in: 0..<1, using: &generator) < twice { arrivals.append((came + 7, sequence, false)) }
        }
        arrivals.sort { $0.at < $1.at }
        outcome.came = Set(arrivals.map(\.sequence))
        let start = outcome.bench.now
        var next = 0
        // The end is told when what is missing has been asked for and come.
        let end = max(Double(count * frame) + 60, arrivals.last?.at ?? 0) + 20
        var isEnded = false
        while !outcome.bench.machine.isIdle || next < arrivals.count || !isEnded {
            let time = (outcome.bench.now - start).milliseconds
            while next < arrivals.count, arrivals[next].at <= time {
                let (at, sequence, isRepaired) = arrivals[next]
                outcome.bench.insert(
                    sequence, time: sequence * frame * 48, marker: sequence == 0, samples: frame * 48,
                    at: start + .nanoseconds(Int64(at * 1e6)), isRepaired: isRepaired)
                next += 1
            }
            if !isEnded, time >= end {
                outcome.bench.machine.end(lastSequence: UInt16(truncatingIfNeeded: count - 1))
                isEnded = true
            }
            outcome.heldMax = max(
                outcome.heldMax, JitterBufferStateMachine.slotCount - outcome.bench.machine.store.freeCount)
            outcome.bench.play(blocks: 1)
            if time > end + 60_000 { break }
        }
        // The quickest packet's audio begins a frame before it is sent.
        let first = outcome.bench.sequences.first ?? 0
        let base = start.nanoseconds + Int64((Double(frame) + 30) * 1e6) + Int64(first * frame) * 1_000_000
        let delays = outcome.bench.transits.map { Double($0 - base) / 1e6 + Double(first * frame) }
        outcome.delayMean = delays.reduce(0, +) / Double(max(1, delays.count))
        outcome.delayLast = delays.last ?? 0
        outcome.delayWorst = delays.max() ?? 0
        let counts = outcome.bench.machine.statistics
        outcome.concealed = Double(counts.concealedSamples) / Double(count * frame * 48)
        outcome.recovered = Double(counts.recovered) / Double(count)
        return outcome
    }
}

@Suite struct JitterSimulationTests {
    /// What holds whatever the network does.
    private func check(_ outcome: NetworkSimulation.Outcome, _ what: String) {
        let bench = outcome.bench
        let counts = bench.machine.statistics
        #expect(bench.machine.isIdle, "\(what)")
        #expect(bench.sequences == bench.sequences.sorted(), "\(what): order")
        #expect(Set(bench.sequences).count == bench.sequences.count, "\(what): twice")
        // All that came was played, or came when its time was over.
        #expect(counts.played == counts.received - counts.dropped, "\(what)")
        #expect(outcome.came.count <= counts.played + counts.late + counts.dropped, "\(what): vanished")
        #expect(outcome.heldMax <= JitterBufferStateMachine.slotCount, "\(what)")
        #expect(bench.ends.count == 1, "\(what)")
    }

    @Test func `loss and jitter table`() {
        var generator = SeededGenerator(seed: 11)
        for frame in [10, 20] {
            for jitter in [0.0, 5, 20, 50, 100] {
                for (loss, length) in [
                    (0.0, 1.0), (0.01, 1), (0.05, 1), (0.1, 1), (0.2, 1), (0.3, 1), (0.1, 4), (0.3, 4),
                ] {
                    var network = NetworkSimulation()
                    network.frame = frame
                    network.jitter = jitter
                    network.loss = loss
                    network.lossLength = length
                    network.repairTime = 50
                    network.twice = 0.02
                    let outcome = network.run(&generator)
                    let what = "\(frame) ms, jitter \(Int(jitter)) ms, loss \(Int(loss * 100)) % by \(Int(length))"
                    print("simulated: \(what): \(outcome.summary)")
                    check(outcome, what)
                    if loss == 0 {
                        #expect(outcome.concealed < 0.02, "\(what)")
                        #expect(outcome.delayMean < jitter + 25, "\(what)")
                    }
                    // Without repair it would be most of the loss.
                    #expect(outcome.concealed < 0.02 + loss * 0.15, "\(what)")
                    // Never longer than for the sake of repair at most, and not without loss.
                    #expect(outcome.delayMean < max(jitter, 20) + (loss == 0 ? 25 : 400), "\(what)")
                }
            }
        }
    }

    @Test func `repair table`() {
        var generator = SeededGenerator(seed: 12)
        for loss in [0.05, 0.15, 0.3] {
            for time in [10.0, 30, 60, 100, 150, 200, nil] {
                for waits in [true, false] {
                    var network = NetworkSimulation()
                    network.loss = loss
                    network.jitter = 5
                    network.repairTime = time
                    if !waits { network.settings.repairTargetMax = .zero }
                    let outcome = network.run(&generator)
                    let missing = outcome.count - outcome.bench.sequences.count
                    let what = "loss \(Int(loss * 100)) %, repair after \(time.map { "\(Int($0)) ms" } ?? "never")"
                    print(
                        "simulated: \(what), \(waits ? "waited for" : "not waited for"): \(missing) of \(outcome.count)",
                        "not played, \(outcome.summary)")
                    check(outcome, what)
                    if waits, loss > 0.1, let time, time <= 60 {
                        #expect(Double(missing) < 0.5 * loss * Double(outcome.count), "\(what)")
                    }
                }
            }
        }
    }

    /// Two seconds without a packet: what was said then is repaired, and plays late, whole, in order, once.
    @Test(arguments: [10, 20], [10.0, 60, 200]) func `a gap of two seconds is played whole and caught up`(
        frame: Int, repairTime: Double
    ) {
        var generator = SeededGenerator(seed: UInt64(frame) + UInt64(repairTime))
        for loss in [0.0, 0.1] {
            var network = NetworkSimulation()
            network.frame = frame
            network.seconds = 40
            network.jitter = 10
            network.loss = loss
            network.repairTime = repairTime
            network.gap = 5_000..<7_000
            let outcome = network.run(&generator)
            let what = "gap of 2 s, \(frame) ms, repair after \(Int(repairTime)) ms, loss \(Int(loss * 100)) %"
            print(
                "simulated: \(what): worst delay \(Int(outcome.delayWorst)) ms, most held \(outcome.heldMax), \(outcome.summary)"
            )
            check(outcome, what)
            let heard = Set(outcome.bench.sequences)
            let gap = (5_000 / frame)..<(6_900 / frame)
            #expect(gap.allSatisfy { heard.contains($0) }, "\(what)")
            #expect(outcome.bench.machine.statistics.awaitedGaps >= 1)
            if loss == 0 { #expect(outcome.bench.sequences.count == outcome.count, "\(what)") }
            #expect(outcome.delayWorst > 1_900 && outcome.delayWorst < 3_500, "\(what)")
            #expect(outcome.delayLast < 200 + repairTime, "\(what)")
        }
    }

    @Test(arguments: [10, 20]) func `speech held for a second is played whole and caught up`(frame: Int) {
        var generator = SeededGenerator(seed: 5)
        var network = NetworkSimulation()
        network.frame = frame
        network.held = 1_000
        network.jitter = 5
        let outcome = network.run(&generator)
        print("simulated: held for 1 s, \(frame) ms: \(outcome.summary)")
        check(outcome, "held")
        #expect(outcome.bench.sequences.count == outcome.count)
        #expect(outcome.delayLast < 60)
    }

    @Test func `a gap that no repair comes for is waited for twice and never again`() {
        var bench = JitterBench()
        bench.insert(0, marker: true)
        bench.play(30)
        var sequence = 0
        for _ in 0..<20 {
            // Five packets in time, then five missing.
            for _ in 0..<5 {
                sequence += 1
                bench.insert(sequence)
                bench.play(20)
            }
            sequence += 5
            bench.play(100)
        }
        #expect(bench.machine.statistics.awaitedGaps == JitterBufferStateMachine.waitsInVainMax)
        #expect(bench.sequences == bench.sequences.sorted())
    }

    @Test func `a repaired packet does not count as delay`() {
        var bench = JitterBench()
        for sequence in 0..<200 {
            if sequence % 50 != 49 { bench.insert(sequence, marker: sequence == 0) }
            if sequence % 50 == 8, sequence > 50 { bench.insert(sequence - 9, isRepaired: true) }
            bench.play(20)
        }
        #expect(bench.machine.target <= .milliseconds(24))
        #expect(bench.machine.statistics.late == 3)
    }

    /// Any arrivals at all, repaired and not, with ends and flushes in between: bounds hold, and it comes to rest.
    @Test(arguments: 0..<40) func `any arrivals keep the invariants`(seed: Int) {
        var generator = SeededGenerator(seed: UInt64(seed) &+ 77)
        var network = NetworkSimulation()
        network.frame = [10, 20, 40, 60].randomElement(using: &generator) ?? 10
        network.seconds = 4
        network.loss = .random(in: 0...0.5, using: &generator)
        network.lossLength = .random(in: 1...12, using: &generator)
        network.jitter = .random(in: 0...400, using: &generator)
        network.twice = .random(in: 0...0.3, using: &generator)
        network.repairTime = Bool.random(using: &generator) ? .random(in: 5...900, using: &generator) : nil
        network.held = .random(in: 0...1_000, using: &generator)
        if Bool.random(using: &generator) {
            let start = Int.random(in: 0...2_000, using: &generator)
            network.gap = start..<start + .random(in: 1...2_200, using: &generator)
        }
        let outcome = network.run(&generator)
        let bench = outcome.bench
        #expect(bench.machine.isIdle, "seed \(seed)")
        #expect(bench.machine.store.freeCount == JitterBufferStateMachine.slotCount, "seed \(seed)")
        #expect(bench.sequences == bench.sequences.sorted(), "seed \(seed)")
        #expect(Set(bench.sequences).count == bench.sequences.count, "seed \(seed)")
    }
}
