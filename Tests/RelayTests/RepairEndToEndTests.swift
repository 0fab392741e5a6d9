// A burst over real sockets and a bad network: what is lost comes again, and a gap ends nothing.
import MonotonicTime
import RelayProtocol
import TestSupport
import Testing
import Vocabulary

@testable import RelayClient
@testable import RelayServer

@Suite(.serialized) struct RepairEndToEndTests {
    private struct World {
        let relay: TestRelay
        let talker: TestClient
        let listener: TestClient
        /// Between the talker and the relay, and between the relay and the listener.
        let up: LossyPath
        let down: LossyPath
        let seed: UInt64

        init(seed: UInt64) async throws {
            self.seed = seed
            // A machine that halts in between does not end the wait for what is repaired.
            relay = try await TestRelay {
                ($0.timers.repairGrace, $0.timers.releaseGrace) = (.seconds(3), .seconds(4))
            }
            let link = try await relay.invitation()
            up = try LossyPath(to: link.port, seed: seed)
            down = try LossyPath(to: link.port, seed: seed &+ 1)
            var first = link
            first.port = up.port
            var second = link
            second.port = down.port
            talker = try await TestClient("talker", first)
            listener = try await TestClient("listener", second)
            try await talker.untilReady()
            try await listener.untilReady()
        }

        /// All frames of the burst, once each; they may come in any order.
        func expectWhole(_ burst: Int, frames: Int, from start: Int) async throws {
            let (end, report, _) = try await listener.heardEnd(from: start)
            let heard = listener.heard(from: start)
            let said = (0..<frames).map { TestClient.payload(burst, $0) }
            let repaired = listener.recorder.events[start...].count {
                if case .frame(let frame) = $0 { frame.isRepaired } else { false }
            }
            let counters = await talker.client.counters
            print(
                "burst \(burst): \(heard.count) of \(frames) heard, \(repaired) asked for again, "
                    + "\(counters.packetsRepaired) sent again, lost \(report.lost)")
            #expect(end == .completed, "seed \(seed)")
            #expect(report.lost == 0 && report.received == frames, "seed \(seed)")
            #expect(Set(heard) == Set(said) && heard.count == frames, "seed \(seed)")
        }

        func close() async throws {
            up.stop()
            down.stop()
            await relay.server.stop()
        }
    }

    @Test func `a burst through 30 percent loss both ways is heard whole, and its talker hears of the loss`()
        async throws
    {
        let world = try await World(seed: SeededGenerator.seed())
        for path in [world.up, world.down] {
            path.set(.toServer, .init(lossPercent: 30, delayMilliseconds: 10, jitterMilliseconds: 5))
            path.set(.toClient, .init(lossPercent: 30, delayMilliseconds: 10, jitterMilliseconds: 5))
        }
        let frames = 250
        try await world.talker.talk(1, frames: frames, spacing: .milliseconds(20))
        try await world.expectWhole(1, frames: frames, from: 0)
        let (percent, _) = try await world.talker.recorder.wait("what the listener misses") {
            if case .listenerLoss(let percent) = $0 { percent } else { nil }
        }
        #expect((10...90).contains(percent), "seed \(world.seed)")
        try await world.close()
    }

    @Test func `gaps on either side end nothing, and what was said in them is heard late`() async throws {
        let world = try await World(seed: SeededGenerator.seed())
        let frames = 300
        let talk = Task { try await world.talker.talk(1, frames: frames, spacing: .milliseconds(10)) }
        try await Task.sleep(for: .milliseconds(200))
        for direction in [LossyPath.Direction.toServer, .toClient] { world.up.blackOut(direction, true) }
        try await Task.sleep(for: .seconds(2))
        for direction in [LossyPath.Direction.toServer, .toClient] { world.up.blackOut(direction, false) }
        try await Task.sleep(for: .milliseconds(400))
        // The second gap swallows the release and the idle floor.
        for direction in [LossyPath.Direction.toServer, .toClient] { world.down.blackOut(direction, true) }
        try await Task.sleep(for: .seconds(2))
        for direction in [LossyPath.Direction.toServer, .toClient] { world.down.blackOut(direction, false) }
        try await talk.value
        try await world.expectWhole(1, frames: frames, from: 0)
        let (end, report, _) = try await world.talker.transmissionEnd()
        #expect(end == .completed && report.sent == frames)
        try await world.close()
    }
}
