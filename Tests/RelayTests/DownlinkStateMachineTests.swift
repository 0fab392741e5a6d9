// The rules of hearing: what is taken, where a burst begins and ends, what is reported.
import MonotonicTime
import RelayProtocol
import Testing

@testable import RelayClient

private typealias Action = DownlinkStateMachine.Action

@Suite struct DownlinkStateMachineTests {
    private var machine = DownlinkStateMachine()
    private var now = Instant(nanoseconds: 1_000_000_000)
    private let talker = RelayMember(id: "a", name: "Alice")
    private let ssrc = SSRC(rawValue: 7)

    private mutating func taken(keyID: UInt64 = 1) -> [Action] {
        machine.handle(.floorTaken(talker, ssrc: ssrc, keyID: keyID), at: now)
    }

    private mutating func packet(_ sequence: UInt16, marker: Bool = false) -> [Action] {
        #expect(machine.admit(ssrc: ssrc, keyID: 1, sequence: sequence) == .open)
        let header = RTPHeader(marker: marker, sequence: sequence, timestamp: UInt32(sequence) * 960, ssrc: ssrc)
        return machine.handle(.opened(header, payload: [UInt8(sequence & 255)], receivedAt: now), at: now)
    }

    private func ends(_ actions: [Action]) -> [(ReceptionEnd, ReceptionReport)] {
        actions.compactMap { if case .tell(.burstEnded(_, let end, let report)) = $0 { (end, report) } else { nil } }
    }

    private func reports(_ actions: [Action]) -> [ClientMessage.ReceptionReport] {
        actions.compactMap { if case .report(let report) = $0 { report } else { nil } }
    }

    @Test mutating func `a burst begins with its first frame and ends with the last that the relay names`() {
        #expect(taken() == [.tell(.floorTaken(by: talker))])
        let begun = packet(1, marker: true)
        #expect(begun.first == .tell(.burstBegan(talker)))
        #expect(begun.count == 2)
        _ = packet(2)
        let idle = machine.handle(.floorIdle(ssrc: ssrc, lastSequence: 2), at: now)
        #expect(ends(idle).first?.0 == .completed)
        #expect(ends(idle).first?.1.received == 2)
        #expect(idle.last == .tell(.floorIdle))
        #expect(machine.nextDeadline == nil)
    }

    @Test mutating func `packets overtaken by the idle are still played, and the last one ends the burst`() {
        _ = taken()
        _ = packet(1)
        #expect(machine.handle(.floorIdle(ssrc: ssrc, lastSequence: 3), at: now) == [.tell(.floorIdle)])
        #expect(ends(packet(3)).isEmpty)
        #expect(ends(packet(2)).first?.0 == .completed)
    }

    @Test mutating func `a last packet that is lost is waited for 200 ms, and counted`() {
        _ = taken()
        _ = packet(1)
        _ = machine.handle(.floorIdle(ssrc: ssrc, lastSequence: 3), at: now)
        #expect(machine.nextDeadline == now + .milliseconds(200))
        now = now + .milliseconds(200)
        let ended = ends(machine.handle(.deadline, at: now))
        #expect(ended.first?.0 == .completed)
        #expect(ended.first?.1.lost == 2)
    }

    @Test mutating func `a packet of another source or key id is not opened`() {
        _ = taken()
        #expect(machine.admit(ssrc: SSRC(rawValue: 8), keyID: 1, sequence: 1) == .hold)
        #expect(machine.admit(ssrc: ssrc, keyID: 2, sequence: 1) == .hold)
        machine.hold([1], at: now)
        now = now + .seconds(1)
        _ = machine.handle(.deadline, at: now)
        #expect(machine.dropped(.unbound) == 1)
    }

    @Test mutating func `packets that come before the floor message are taken with it, within bounds`() {
        for number in 0..<64 {
            #expect(machine.admit(ssrc: ssrc, keyID: 1, sequence: UInt16(number)) == .hold)
            machine.hold([UInt8(number)], at: now)
        }
        #expect(machine.admit(ssrc: ssrc, keyID: 1, sequence: 64) == .drop(.unbound))
        let actions = taken()
        guard case .retry(let packets)? = actions.last else { return #expect(Bool(false), "\(actions)") }
        #expect(packets.map(\.bytes) == (0..<64).map { [UInt8($0)] })
    }

    @Test mutating func `a packet is delivered once`() {
        _ = taken()
        _ = packet(1)
        #expect(machine.admit(ssrc: ssrc, keyID: 1, sequence: 1) == .drop(.duplicate))
        #expect(machine.dropped(.duplicate) == 1)
    }

    @Test mutating func `reception is reported every two seconds while a burst runs, and at its end`() {
        _ = taken()
        var sent: [ClientMessage.ReceptionReport] = []
        for number in 0..<250 {
            if number % 10 != 3 { _ = packet(UInt16(number)) }
            now = now + .milliseconds(20)
            if let due = machine.nextDeadline, due <= now { sent += reports(machine.handle(.deadline, at: now)) }
        }
        #expect(sent.count == 2)
        #expect(sent.first?.received == 90)
        #expect(sent.first?.lost == 10)
        sent = reports(machine.handle(.floorIdle(ssrc: ssrc, lastSequence: 249), at: now))
        #expect(sent.isEmpty, "some are missing, so the end is waited for")
        now = now + .milliseconds(200)
        sent = reports(machine.handle(.deadline, at: now))
        #expect(sent.first?.received == 225)
        #expect(sent.first?.lost == 25)
        #expect(sent.first?.highestSequence == 249)
    }

    @Test mutating func `the next burst ends the one before it`() {
        _ = taken()
        _ = packet(1)
        let actions = taken(keyID: 9)
        #expect(ends(actions).first?.0 == .superseded)
        #expect(actions.last == .tell(.floorTaken(by: talker)))
    }

    @Test mutating func `a lost link and long silence end the burst`() {
        _ = taken()
        _ = packet(1)
        #expect(ends(machine.handle(.linkLost, at: now)).first?.0 == .linkLost)
        _ = taken()
        _ = packet(1)
        now = now + .seconds(6)
        #expect(ends(machine.handle(.deadline, at: now)).first?.0 == .silent)
        #expect(machine.nextDeadline == nil)
    }

    @Test mutating func `a floor that nobody used begins and ends no burst`() {
        _ = taken()
        let actions = machine.handle(.floorIdle(ssrc: ssrc, lastSequence: nil), at: now)
        #expect(actions == [.tell(.floorIdle)])
    }
}
