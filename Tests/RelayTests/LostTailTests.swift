// The end of a burst over a network that loses packets: all of it is heard, and the floor is free at once.
import MonotonicTime
import RelayProtocol
import TestSupport
import Testing

@testable import RelayClient
@testable import RelayServer

extension SimulationTests {
    /// The transport cannot tell of a loss where what was lost carried the release, too, and nothing came behind it.
    @Test(arguments: [1, 3, 5]) func `the end of no burst is lost, and nobody waits for it`(lossPercent: Int) {
        let minutes = Int(ProcessInfoEnvironment.value("PTTD_TEST_MINUTES") ?? "") ?? 8
        let seed = SeededGenerator.seed(for: "tails, loss \(lossPercent)")
        let faults = SimulatedFaults(lossPercent: lossPercent, jitter: .milliseconds(30), hidesLossAtRelease: true)
        let world = simulate(faults, clients: 3, minutes: minutes, seed: seed)
        checkRest(world, seed: seed)
        var count = 0
        for (client, log) in world.logs.enumerated() {
            let sent = log.ended.sorted { $0.key.number < $1.key.number }.map(\.value)
                .filter { $0.0 == .completed && $0.1.sent > 0 }.map(\.1.sent)
            #expect(sent == world.forwarded[client], "client \(client), seed \(seed)")
            count += sent.count
        }
        let longest = world.waits.max() ?? .zero
        print("loss \(lossPercent) %: \(count) bursts, at most \(longest) between a release and the idle floor")
        #expect(count > minutes * 12, "seed \(seed)")
        #expect(longest <= .milliseconds(500), "seed \(seed)")
    }
}
