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
        #expect(machine.handle(.lost(datagram: 2), at: now) == [[UInt8](repeating: 2, count: 100)])
        #expect(machine.handle(.lost(datagram: 2), at: now).isEmpty)
        #expect(machine.handle(.acknowledged(datagram: 2), at: now).isEmpty)
        #expect(machine.repaired == 1 && machine.keptCount == 0)
    }

    @Test mutating func `what the transport does not take goes on the stream at once`() {
        #expect(machine.handle(.refused(packet: [7]), at: now) == [[7]])
    }

    @Test mutating func `what is lost too late is given up`() {
        send(1)
        now = now + UplinkRepairStateMachine.ageMaximum
        #expect(machine.handle(.lost(datagram: 1), at: now).isEmpty)
        #expect(machine.givenUp == 1)
    }

    @Test mutating func `what is not acknowledged goes behind the release at once, in order, and not a second time`() {
        for number in 1...5 as ClosedRange<UInt64> { send(number) }
        _ = machine.handle(.acknowledged(datagram: 2), at: now)
        // The last packet and the release are of one turn: the transport has not taken it yet.
        let last = [UInt8](repeating: 6, count: 100)
        #expect(machine.handle(.sealed(packet: last), at: now).isEmpty)
        let again = machine.handle(.released, at: now)
        #expect(again == [1, 3, 4, 5, 6].map { [UInt8](repeating: $0, count: 100) })
        #expect(machine.handle(.sent(datagram: 6, packet: last), at: now).isEmpty)
        for number in 1...6 as ClosedRange<UInt64> {
            #expect(machine.handle(.lost(datagram: number), at: now).isEmpty)
        }
        #expect(machine.keptCount == 0 && machine.nextDeadline == nil)
    }

    @Test mutating func `of a burst without an acknowledgement the rest goes when none has come in time`() {
        let count = UInt64(UplinkRepairStateMachine.tailPackets + 10)
        for number in 1...count { send(number) }
        #expect(machine.handle(.released, at: now).count == UplinkRepairStateMachine.tailPackets)
        // One of the rest is acknowledged, one is known to be lost before; the next burst has begun.
        _ = machine.handle(.acknowledged(datagram: 3), at: now)
        #expect(machine.handle(.lost(datagram: 4), at: now).count == 1)
        send(count + 1)
        #expect(machine.nextDeadline == now + machine.tailTimeout)
        #expect(machine.handle(.deadline, at: now).isEmpty)
        now = now + machine.tailTimeout
        let rest = machine.handle(.deadline, at: now)
        #expect(rest == [1, 2, 5, 6, 7, 8, 9, 10].map { [UInt8](repeating: $0, count: 100) })
        #expect(machine.keptCount == 1 && machine.nextDeadline == nil)
    }

    @Test mutating func `so much goes behind a release, and no more`() {
        for number in 1...20 as ClosedRange<UInt64> { send(number, bytes: 1_000) }
        #expect(machine.handle(.released, at: now).count == UplinkRepairStateMachine.tailBytes / 1_000)
        _ = machine.handle(.linkLost, at: now)
        #expect(machine.nextDeadline == nil)
        #expect(machine.handle(.released, at: now).isEmpty)
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
            let actions: [[UInt8]]
            switch Int.random(in: 0..<10, using: &random) {
            case 0...5:
                next += 1
                var packet = [UInt8](repeating: 0, count: Int.random(in: 8...1_160, using: &random))
                for byte in 0..<8 { packet[byte] = UInt8(truncatingIfNeeded: next >> UInt64(8 * byte)) }
                actions = machine.handle(.sent(datagram: next, packet: packet), at: now)
            case 6...7: actions = machine.handle(.acknowledged(datagram: known), at: now)
            default: actions = machine.handle(.lost(datagram: known), at: now)
            }
            for packet in actions {
                #expect(again.insert(packet).inserted, "seed \(seed)")
            }
            #expect(machine.keptCount <= UplinkRepairStateMachine.packetsMaximum, "seed \(seed)")
        }
        #expect(machine.repaired > 100 && machine.givenUp > 100, "seed \(seed)")
    }
}
