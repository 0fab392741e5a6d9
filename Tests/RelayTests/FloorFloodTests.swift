// Programs of one machine that press and let go as fast as they can: what that costs this machine, and nobody else.
import MonotonicTime
import RelayProtocol
import TestSupport
import Testing
import Vocabulary

@testable import RelayClient
@testable import RelayServer

@Suite struct FloorFloodTests {
    /// Begins and ends a burst every millisecond, with and without a frame in it; `framed` had one.
    private func flood(_ world: SimulatedWorld, _ number: UInt32, framed: UInt8 = 0, until end: Instant) {
        guard world.now < end else { return }
        world.logs[0].begun += 1
        let burst = BurstID(number: number)
        world.clientHandles(0, .begin(burst, priority: 0))
        var framed = framed
        if framed < 200, world.random.chance(2) {
            world.logs[0].said[burst] = 1
            framed += 1
            let payload = [0, framed, 0, 0]
            world.clientHandles(0, .frame(OutgoingFrame(payload: payload, samples: 960, capturedAt: world.now)))
        }
        world.clientHandles(0, .end)
        world.after(.milliseconds(1)) { self.flood(world, number + 1, framed: framed, until: end) }
    }

    /// A press of one second; when it was granted, and when it ended.
    private func press(_ world: SimulatedWorld, _ client: Int, _ burst: BurstID) -> Bool {
        world.logs[client].begun += 1
        world.clientHandles(client, .begin(burst, priority: 0))
        for index in 0..<50 {
            let payload = [UInt8(client), UInt8(truncatingIfNeeded: burst.number), 0, UInt8(index)]
            world.clientHandles(
                client, .frame(OutgoingFrame(payload: payload, samples: 960, capturedAt: world.now)))
            world.run(until: world.now + .milliseconds(20))
        }
        world.clientHandles(client, .end)
        world.run(until: world.now + .seconds(1))
        return world.logs[client].ended[burst].map { $0.0 == .completed && $0.1.sent == 50 } ?? false
    }

    @Test(arguments: [0, 2, 6]) func `a local flood of presses costs nobody a connection`(gapSeconds: Int) {
        let seed = SeededGenerator.seed(for: "flood, gap of \(gapSeconds) s")
        let world = SimulatedWorld(clients: 2, faults: SimulatedFaults(), seed: seed)
        for client in 0...1 { world.clientHandles(client, .join) }
        world.run(until: world.now + .seconds(1))
        let end = world.now + .seconds(20)
        flood(world, 1, until: end)
        world.run(until: world.now + .seconds(5))
        // What the relay reads all at once after a gap is no flood either.
        if gapSeconds > 0 { world.blackOut(0, up: true, down: false, for: .seconds(Int64(gapSeconds))) }
        world.run(until: end + .seconds(3))
        let readySince = world.logs[0].lastReadyChange
        #expect(world.relay.counters.protocolViolations == 0, "seed \(seed)")
        #expect(world.logs[0].isReady && world.logs.allSatisfy(\.violations.isEmpty), "seed \(seed)")
        #expect(gapSeconds > 3 || readySince < end - .seconds(19), "it kept its connection, seed \(seed)")
        #expect(world.logs[0].ended.count == world.logs[0].begun, "seed \(seed)")
        #expect(press(world, 0, BurstID(number: 65_535)), "seed \(seed)")
        #expect(press(world, 1, BurstID(number: 1)), "seed \(seed)")
    }
}
