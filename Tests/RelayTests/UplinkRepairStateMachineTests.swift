// The rules of sending again: what is kept, what goes once more, what is given up.
import MonotonicTime
import TestSupport
import Testing

@testable import RelayClient

@Suite struct UplinkRepairStateMachineTests {
    private var machine = UplinkRepairStateMachine()
    private var now = Instant(nanoseconds: 1_000_000_000)

    private mutating func send(_ number: UInt64, bytes: Int = 100) {
        let packet = [UInt8](repeating: UInt8(truncatingIfNeeded: number), count: bytes)
        #expect(machine.handle(.sent(datagram: number, packet: packet), at: now).isEmpty)
    }

    @Test mutating func `a lost packet goes again once, an acknowledged one never`() {
        send(1)
        send(2)
        #expect(machine.handle(.acknowledged(datagram: 1), at: now).isEmpty)
        #expect(machine.handle(.lost(datagram: 1), at: now).isEmpty)
        #expect(machine.handle(.lost(datagram: 2), at: now) == [.repair([UInt8](repeating: 2, count: 100))])
        #expect(machine.handle(.lost(datagram: 2), at: now).isEmpty)
        #expect(machine.handle(.acknowledged(datagram: 2), at: now).isEmpty)
        #expect(machine.repaired == 1 && machine.keptCount == 0)
    }

    @Test mutating func `what the transport does not take goes on the stream at once`() {
        #expect(machine.handle(.refused(packet: [7]), at: now) == [.repair([7])])
    }

    @Test mutating func `what is lost too late is given up`() {
        send(1)
        now = now + UplinkRepairStateMachine.ageMaximum
        #expect(machine.handle(.lost(datagram: 1), at: now).isEmpty)
        #expect(machine.givenUp == 1)
    }

    @Test mutating func `a lost link forgets everything`() {
        send(1)
        _ = machine.handle(.linkLost, at: now)
        #expect(machine.handle(.lost(datagram: 1), at: now).isEmpty)
        #expect(machine.keptCount == 0)
    }

    @Test mutating func `whatever happens, little is kept and nothing goes twice`() {
        let seed = SeededGenerator.seed()
        var random = SeededGenerator(seed: seed)
        var next: UInt64 = 0
        var again: Set<[UInt8]> = []
        for _ in 0..<20_000 {
            now = now + .milliseconds(Int.random(in: 0...10, using: &random))
            let known = UInt64.random(in: 0...(next + 2), using: &random)
            let actions: [UplinkRepairStateMachine.Action]
            switch Int.random(in: 0..<10, using: &random) {
            case 0...5:
                next += 1
                var packet = [UInt8](repeating: 0, count: Int.random(in: 8...1_160, using: &random))
                for byte in 0..<8 { packet[byte] = UInt8(truncatingIfNeeded: next >> UInt64(8 * byte)) }
                actions = machine.handle(.sent(datagram: next, packet: packet), at: now)
            case 6...7: actions = machine.handle(.acknowledged(datagram: known), at: now)
            default: actions = machine.handle(.lost(datagram: known), at: now)
            }
            for case .repair(let packet) in actions {
                #expect(again.insert(packet).inserted, "seed \(seed)")
            }
            #expect(machine.keptCount <= UplinkRepairStateMachine.packetsMaximum, "seed \(seed)")
        }
        #expect(machine.repaired > 100 && machine.givenUp > 100, "seed \(seed)")
    }
}
