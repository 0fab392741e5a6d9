// Coming late to a burst, in a simulated network that loses, doubles and reorders packets.
import MonotonicTime
import RelayProtocol
import TestSupport
import Testing
import Vocabulary

@testable import RelayClient

@Suite struct LateEntrySimulationTests {
    @Test func `who joins in the middle of a burst hears all of it, through loss, doubles and reordering`() {
        let first = SeededGenerator.seed()
        for round in 0..<24 {
            let seed = first &+ UInt64(round)
            let isLossy = round % 2 == 1
            let faults =
                isLossy
                ? SimulatedFaults(lossPercent: 8, duplicatePercent: 4, jitter: .milliseconds(40)) : SimulatedFaults()
            let world = SimulatedWorld(clients: 3, faults: faults, seed: seed)
            for client in 0..<2 { world.clientHandles(client, .join) }
            world.run(until: world.now + .seconds(5))
            let frames = 400
            world.clientHandles(0, .begin(BurstID(number: 1), priority: 0))
            for number in 0..<frames {
                world.after(.milliseconds(20 * number)) {
                    let payload = [0, 1, UInt8(number >> 8), UInt8(number & 255)]
                    world.clientHandles(0, .frame(OutgoingFrame(payload: payload, samples: 960, capturedAt: world.now)))
                }
            }
            world.after(.milliseconds(20 * frames)) { world.clientHandles(0, .end) }
            let late = Duration.milliseconds(Int.random(in: 200...7_500, using: &world.random))
            world.after(late) { world.clientHandles(2, .join) }
            world.run(until: world.now + .seconds(60))
            for log in world.logs { #expect(log.violations.isEmpty, "seed \(seed)") }
            for listener in 1...2 {
                let heard = world.logs[listener].heard
                #expect(heard.count == 1, "listener \(listener) came after \(late), seed \(seed)")
                let missing = frames - (heard.first?.frames ?? 0)
                #expect(missing <= (isLossy ? 4 : 0), "listener \(listener) came after \(late), seed \(seed)")
            }
        }
    }
}
