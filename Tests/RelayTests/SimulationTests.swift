// The relay's rules and several clients' over a hostile network, from a seed: what must hold whatever happens.
import MonotonicTime
import RelayProtocol
import TestSupport
import Testing
import Vocabulary

@testable import RelayClient
@testable import RelayServer

@Suite struct SimulationTests {
    /// Everyone presses now and then, talks for a while and releases, until `end`.
    private func chatter(_ world: SimulatedWorld, client: Int, until end: Instant) {
        let pause = Duration.milliseconds(Int.random(in: 100...6_000, using: &world.random))
        world.after(pause) {
            guard world.now < end else { return }
            world.logs[client].begun += 1
            let burst = BurstID(number: UInt32(world.logs[client].begun))
            if world.random.chance(8) { world.gap(of: client, up: world.random.oneInTwo()) }
            // What a member may ask for is cut by the relay; an emergency is nobody's privilege.
            let priority = world.isPlain ? 0 : world.random.chance(5) ? FloorPriority.emergency : 254
            world.clientHandles(client, .begin(burst, priority: priority))
            let frames = Int.random(in: 0...120, using: &world.random)
            self.say(world, client: client, burst: burst, frame: 0, of: frames, until: end)
        }
    }

    private func say(
        _ world: SimulatedWorld, client: Int, burst: BurstID, frame: Int, of count: Int, until end: Instant
    ) {
        guard frame < count else {
            if world.random.chance(15) { world.gap(of: client, up: world.random.oneInTwo()) }
            world.clientHandles(client, .end)
            return chatter(world, client: client, until: end)
        }
        let payload = [
            UInt8(client), UInt8(truncatingIfNeeded: burst.number), UInt8(frame >> 8), UInt8(frame & 255),
        ]
        // Nobody goes on talking after a burst was refused: the button is let go.
        guard world.logs[client].ended[burst] == nil else { return chatter(world, client: client, until: end) }
        world.logs[client].said[burst, default: 0] += 1
        world.clientHandles(
            client, .frame(OutgoingFrame(payload: payload, samples: 960, capturedAt: world.now)))
        world.after(.milliseconds(20)) {
            self.say(world, client: client, burst: burst, frame: frame + 1, of: count, until: end)
        }
    }

    /// Somebody's network is gone in one direction, whatever they are doing.
    private func gaps(_ world: SimulatedWorld, until end: Instant) {
        world.after(.milliseconds(Int.random(in: 3_000...12_000, using: &world.random))) {
            guard world.now < end else { return }
            world.gap(
                of: Int.random(in: 0..<world.clients.count, using: &world.random), up: world.random.oneInTwo())
            self.gaps(world, until: end)
        }
    }

    private func trouble(_ world: SimulatedWorld, until end: Instant) {
        world.after(.milliseconds(Int.random(in: 500...15_000, using: &world.random))) {
            guard world.now < end else { return }
            if world.faults.restartsRelay, world.random.chance(25) {
                world.restartRelay(after: .milliseconds(Int.random(in: 0...4_000, using: &world.random)))
            } else if world.faults.dropsLinks {
                world.dropLink(of: Int.random(in: 0..<world.clients.count, using: &world.random))
            }
            self.trouble(world, until: end)
        }
    }

    func simulate(
        _ faults: SimulatedFaults, clients: Int, rules: FloorRules = FloorRules(), priorities: [UInt8] = [],
        minutes: Int, seed: UInt64
    ) -> SimulatedWorld {
        let world = SimulatedWorld(clients: clients, faults: faults, rules: rules, priorities: priorities, seed: seed)
        let end = world.now + .seconds(60 * minutes)
        for client in 0..<clients {
            world.clientHandles(client, .join)
            chatter(world, client: client, until: end)
        }
        if faults.dropsLinks || faults.restartsRelay { trouble(world, until: end) }
        if faults.hasGaps { gaps(world, until: end) }
        // Then time to come to rest: the longest wait before a reconnection is half a minute.
        world.run(until: end + .seconds(90))
        return world
    }

    func checkRest(_ world: SimulatedWorld, seed: UInt64) {
        for (number, log) in world.logs.enumerated() {
            #expect(log.violations.isEmpty, "client \(number), seed \(seed)")
            #expect(log.ended.count == log.begun, "client \(number) has bursts that never ended, seed \(seed)")
            #expect(log.isReady, "client \(number) is not back, seed \(seed)")
            #expect(log.hearing == nil, "client \(number) hears without end, seed \(seed)")
            for (burst, (_, report)) in log.ended {
                #expect(
                    report.sent + report.erased + report.dropped <= log.said[burst] ?? 0, "\(burst), seed \(seed)")
            }
        }
        #expect(world.relay.channels.allSatisfy { $0.floor.holder == nil }, "the floor is stuck, seed \(seed)")
        #expect(world.relay.nextDeadline == nil, "seed \(seed)")
        #expect(world.relay.memberCount(of: world.channel.id) == world.clients.count, "seed \(seed)")
    }

    @Test func `without faults everybody hears every burst whole`() {
        let seed = SeededGenerator.seed()
        let world = simulate(SimulatedFaults(), clients: 4, minutes: 5, seed: seed)
        checkRest(world, seed: seed)
        var completed = 0
        for (talker, log) in world.logs.enumerated() {
            for (burst, (end, report)) in log.ended where end == .completed && report.sent > 0 {
                completed += 1
                #expect(report.sent == log.said[burst], "seed \(seed)")
                for (listener, other) in world.logs.enumerated() where listener != talker {
                    let heard = other.heard.first {
                        $0.talker == "\(talker)" && $0.burst == UInt8(truncatingIfNeeded: burst.number)
                            && $0.frames == report.sent
                    }
                    #expect(heard != nil, "\(listener) did not hear \(burst) of \(talker) whole, seed \(seed)")
                }
            }
        }
        #expect(completed > 25, "seed \(seed)")
        #expect(world.relay.counters.droppedTotal == 0, "seed \(seed)")
    }

    @Test func `with loss, doubles and reordering no frame is heard twice, in another's burst, or outside of one`() {
        let first = SeededGenerator.seed()
        for round in 0..<2 {
            let seed = first &+ UInt64(round)
            let faults = SimulatedFaults(
                lossPercent: 10, duplicatePercent: 5, jitter: .milliseconds(80), dropsLinks: false)
            let world = simulate(faults, clients: 4, minutes: 5, seed: seed)
            checkRest(world, seed: seed)
            #expect(world.logs.reduce(0) { $0 + $1.heard.count } > 75, "seed \(seed)")
        }
    }

    @Test func `through dropped links and restarted relays nothing gets stuck`() {
        let first = SeededGenerator.seed()
        for round in 0..<3 {
            let seed = first &+ UInt64(round)
            let faults = SimulatedFaults(
                lossPercent: 5, duplicatePercent: 5, jitter: .milliseconds(50), dropsLinks: true, restartsRelay: true)
            let world = simulate(faults, clients: 5, minutes: 8, seed: seed)
            checkRest(world, seed: seed)
            #expect(world.generation > 3, "seed \(seed)")
        }
    }

    @Test func `a listener that comes back in the middle of a burst hears nothing twice, and nothing that is past`() {
        let first = SeededGenerator.seed()
        for round in 0..<4 {
            let seed = first &+ UInt64(round)
            let faults = SimulatedFaults(
                lossPercent: 30, duplicatePercent: 5, jitter: .milliseconds(80), dropsLinks: true,
                restartsRelay: round % 2 == 1, hasGaps: true)
            checkRest(simulate(faults, clients: 3, minutes: 3, seed: seed), seed: seed)
        }
    }

    @Test(arguments: [
        FloorRules(hasQueue: true), FloorRules(hasQueue: true, preemptionStep: 10), FloorRules(mode: .cutIn),
        FloorRules(mode: .listenOnly, hasQueue: true),
    ])
    func `where some wait and some take the floor from others, nothing gets stuck either`(rules: FloorRules) {
        let seed = SeededGenerator.seed()
        let faults = SimulatedFaults(
            lossPercent: 5, duplicatePercent: 5, jitter: .milliseconds(50), dropsLinks: true, restartsRelay: true)
        let world = simulate(
            faults, clients: 5, rules: rules, priorities: [0, 0, 10, 10, 30], minutes: 5, seed: seed)
        checkRest(world, seed: seed)
        let ends = world.logs.flatMap { $0.ended.values.map(\.0) }
        let revoked = ends.count { if case .revoked(.preempted) = $0 { true } else { false } }
        #expect(rules.mode == .listenOnly || revoked > 0, "seed \(seed)")
        #expect(ends.count { $0 == .completed } > 10, "seed \(seed)")
        if rules.mode == .listenOnly {
            // Who has no priority says nothing.
            #expect(world.logs[0...1].allSatisfy { $0.ended.values.allSatisfy { $0.1.sent == 0 } }, "seed \(seed)")
        }
    }

    /// What every listener heard of the bursts that their talkers sent to the end.
    private func wholeness(_ world: SimulatedWorld, seed: UInt64) -> (
        bursts: Int, whole: Int, frames: Int, missing: Int
    ) {
        var result = (bursts: 0, whole: 0, frames: 0, missing: 0)
        for (talker, log) in world.logs.enumerated() {
            for (burst, (end, report)) in log.ended where end == .completed && report.sent > 0 {
                for (listener, other) in world.logs.enumerated() where listener != talker {
                    let heard = other.heard.first {
                        $0.talker == "\(talker)" && $0.burst == UInt8(truncatingIfNeeded: burst.number)
                    }
                    let count = heard?.frames ?? 0
                    #expect(count <= report.sent, "seed \(seed)")
                    // What is missing within the burst is known to be.
                    if let heard { #expect(heard.frames + heard.lost <= report.sent, "seed \(seed)") }
                    result.bursts += 1
                    result.frames += report.sent
                    result.missing += report.sent - count
                    if count == report.sent { result.whole += 1 }
                }
            }
        }
        return result
    }

    @Test func `through loss and gaps of two seconds bursts are heard late but whole`() {
        var all = (bursts: 0, whole: 0, frames: 0, missing: 0)
        for lossPercent in [0, 10, 30] {
            let seed = SeededGenerator.seed(for: "loss \(lossPercent)")
            let faults = SimulatedFaults(
                lossPercent: lossPercent, duplicatePercent: 2, jitter: .milliseconds(30), hasGaps: true)
            let world = simulate(faults, clients: 3, minutes: 4, seed: seed)
            checkRest(world, seed: seed)
            let heard = wholeness(world, seed: seed)
            print("loss \(lossPercent) %, \(world.gaps) gaps: \(heard)")
            #expect(heard.bursts > 40 && world.gaps > 8, "seed \(seed)")
            #expect(heard.missing * 100 <= heard.frames * 5, "seed \(seed): \(heard)")
            #expect(heard.whole * 100 >= heard.bursts * 85, "seed \(seed): \(heard)")
            #expect(world.relay.counters.protocolViolations == 0, "seed \(seed)")
            all = (
                all.bursts + heard.bursts, all.whole + heard.whole, all.frames + heard.frames,
                all.missing + heard.missing
            )
        }
        // What is sent again may still come after the floor was freed, when loss and a gap meet at a release: without repair a gap
        // costs a third of a burst, and loss its share of every one. One seed alone says less than all of them.
        #expect(all.missing * 100 <= all.frames * 2, "\(all)")
        #expect(all.whole * 100 >= all.bursts * 92, "\(all)")
    }
}

extension SeededGenerator {
    fileprivate mutating func oneInTwo() -> Bool { chance(50) }
}
