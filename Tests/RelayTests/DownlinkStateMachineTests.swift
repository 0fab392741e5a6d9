// The rules of hearing: what is taken, where a burst begins and ends, what is reported.
import MonotonicTime
import RelayProtocol
import Testing
import Vocabulary

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

    private func asks(_ actions: [Action]) -> [ClientMessage.RepairRequest] {
        actions.compactMap { if case .ask(let request) = $0 { request } else { nil } }
    }

    private func frames(_ actions: [Action]) -> [ReceivedFrame] {
        actions.compactMap { if case .tell(.frame(let frame)) = $0 { frame } else { nil } }
    }

    private mutating func repaired(_ sequence: UInt16, marker: Bool = false) -> [Action] {
        #expect(machine.admit(ssrc: ssrc, keyID: 1, sequence: sequence, isRepaired: true) == .open)
        let header = RTPHeader(marker: marker, sequence: sequence, timestamp: UInt32(sequence) * 960, ssrc: ssrc)
        return machine.handle(
            .opened(header, payload: [UInt8(sequence & 255)], receivedAt: now, isRepaired: true), at: now)
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
        _ = packet(1, marker: true)
        #expect(machine.handle(.floorIdle(ssrc: ssrc, lastSequence: 3), at: now) == [.tell(.floorIdle)])
        #expect(ends(packet(3)).isEmpty)
        #expect(ends(packet(2)).first?.0 == .completed)
    }

    @Test mutating func `last packets that are lost are asked for, and counted when the relay has them not`() {
        _ = taken()
        _ = packet(1, marker: true)
        _ = machine.handle(.floorIdle(ssrc: ssrc, lastSequence: 3), at: now)
        now = machine.nextDeadline!
        let asked = asks(machine.handle(.deadline, at: now))
        #expect(asked.map(\.ranges) == [[SequenceRange(first: 2, last: 3)]])
        let ended = ends(machine.handle(.answered(request: asked[0].id), at: now))
        #expect(ended.first?.0 == .completed)
        #expect(ended.first?.1.lost == 2)
        #expect(machine.nextDeadline == nil)
    }

    @Test mutating func `a burst that is never completed ends after 3 s`() {
        _ = taken()
        _ = packet(1, marker: true)
        let idleAt = now
        _ = machine.handle(.floorIdle(ssrc: ssrc, lastSequence: 3), at: now)
        var ended: [(ReceptionEnd, ReceptionReport)] = []
        var requests = 0
        while ended.isEmpty, let due = machine.nextDeadline {
            now = due
            let actions = machine.handle(.deadline, at: now)
            ended = ends(actions)
            requests += asks(actions).count
        }
        #expect(ended.first?.0 == .completed)
        #expect(now - idleAt <= .seconds(3))
        #expect((2...8).contains(requests))
    }

    @Test mutating func `a packet of another source or key id is not opened`() {
        _ = taken()
        #expect(machine.admit(ssrc: SSRC(rawValue: 8), keyID: 1, sequence: 1) == .hold)
        #expect(machine.admit(ssrc: ssrc, keyID: 2, sequence: 1) == .hold)
        machine.hold([1], receivedAt: now)
        now = now + .seconds(2)
        _ = machine.handle(.deadline, at: now)
        #expect(machine.dropped(.unbound) == 1)
    }

    @Test mutating func `packets that come before the floor message are taken with it, within bounds`() {
        for number in 0..<256 {
            #expect(machine.admit(ssrc: ssrc, keyID: 1, sequence: UInt16(number)) == .hold)
            machine.hold([UInt8(number)], receivedAt: now)
        }
        #expect(machine.admit(ssrc: ssrc, keyID: 1, sequence: 256) == .drop(.unbound))
        let actions = taken()
        guard case .retry(let packets)? = actions.last else { return #expect(Bool(false), "\(actions)") }
        #expect(packets.map(\.bytes) == (0..<256).map { [UInt8($0)] })
    }

    @Test mutating func `a packet is delivered once`() {
        _ = taken()
        _ = packet(1)
        #expect(machine.admit(ssrc: ssrc, keyID: 1, sequence: 1) == .drop(.duplicate))
        #expect(machine.dropped(.duplicate) == 1)
    }

    @Test mutating func `reception is reported every two seconds while packets are lost, and at the end`() {
        _ = taken()
        var sent: [ClientMessage.ReceptionReport] = []
        for number in 0..<250 {
            if number % 10 != 3 { _ = packet(UInt16(number), marker: number == 0) }
            now = now + .milliseconds(20)
            if let due = machine.nextDeadline, due <= now { sent += reports(machine.handle(.deadline, at: now)) }
        }
        #expect(sent.count == 2)
        #expect(sent.first?.received == 90)
        #expect(sent.first?.lost == 10)
        sent = reports(machine.handle(.floorIdle(ssrc: ssrc, lastSequence: 249), at: now))
        #expect(sent.isEmpty, "some are missing, so the end is waited for")
        now = now + .seconds(3)
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
        _ = packet(2)
        now = now + .seconds(6)
        #expect(ends(machine.handle(.deadline, at: now)).first?.0 == .silent)
        #expect(machine.nextDeadline == now + .seconds(2), "its talker may have the floor still: it is reported on")
        now = now + .seconds(2)
        #expect(reports(machine.handle(.deadline, at: now)).map(\.received) == [1])
        #expect(machine.handle(.floorIdle(ssrc: ssrc, lastSequence: 2), at: now) == [.tell(.floorIdle)])
        #expect(machine.nextDeadline == nil)
    }

    @Test mutating func `a burst that went silent is heard on when its packets come again, and is over with the next`()
    {
        for offersLateEntry in [true, false] {
            machine = DownlinkStateMachine()
            machine.offersLateEntry = offersLateEntry
            _ = taken()
            _ = packet(1, marker: true)
            now = now + .seconds(6)
            _ = machine.handle(.deadline, at: now)
            #expect(machine.admit(ssrc: ssrc, keyID: 2, sequence: 9) == .hold, "another key id is another burst")
            #expect(machine.admit(ssrc: ssrc, keyID: 1, sequence: 9, isRepaired: true) == .drop(.unbound))
            #expect(machine.admit(ssrc: ssrc, keyID: 1, sequence: 9) == .resume)
            let resumed = machine.handle(.resumed(ssrc: ssrc, keyID: 1), at: now)
            #expect(resumed.contains(.tell(.floorTaken(by: talker))))
            let fetch = Action.fetch(BurstName(ssrc: ssrc, keyID: 1), first: 2)
            #expect(resumed.contains(fetch) == offersLateEntry)
            #expect(machine.admit(ssrc: ssrc, keyID: 1, sequence: 9) == (offersLateEntry ? .hold : .open))
            // Silent again, and then another talker's turn.
            now = now + .seconds(40)
            _ = machine.handle(.deadline, at: now)
            now = now + .seconds(6)
            _ = machine.handle(.deadline, at: now)
            #expect(machine.admit(ssrc: ssrc, keyID: 1, sequence: 10) == .resume)
            _ = machine.handle(
                .floorTaken(RelayMember(id: "b", name: "Bob"), ssrc: SSRC(rawValue: 8), keyID: 3), at: now)
            #expect(machine.admit(ssrc: ssrc, keyID: 1, sequence: 10) == .hold)
        }
    }

    @Test mutating func `a floor that nobody used begins and ends no burst`() {
        _ = taken()
        let actions = machine.handle(.floorIdle(ssrc: ssrc, lastSequence: nil), at: now)
        #expect(actions == [.tell(.floorIdle)])
    }

    @Test mutating func `two missing packets are asked for at once, a single one after a moment`() {
        _ = taken()
        _ = packet(10, marker: true)
        #expect(asks(packet(13)).map(\.ranges) == [[SequenceRange(first: 11, last: 12)]])
        #expect(asks(packet(15)).isEmpty)
        let late = machine.nextDeadline!
        #expect(late > now && late <= now + .milliseconds(150))
        _ = packet(14)
        now = late
        #expect(asks(machine.handle(.deadline, at: now)).isEmpty, "it was only late")
    }

    @Test mutating func `a repaired packet is a frame like another, once, and was lost all the same`() {
        _ = taken()
        _ = packet(10, marker: true)
        let request = asks(packet(13))[0]
        #expect(request.ssrc == ssrc && request.keyID == 1)
        let told = frames(repaired(11) + repaired(12))
        #expect(told.map(\.sequence) == [11, 12] && told.allSatisfy(\.isRepaired))
        #expect(machine.admit(ssrc: ssrc, keyID: 1, sequence: 12) == .drop(.duplicate))
        #expect(machine.admit(ssrc: ssrc, keyID: 2, sequence: 12, isRepaired: true) == .drop(.unbound))
        _ = machine.handle(.answered(request: request.id), at: now)
        let actions = machine.handle(.floorIdle(ssrc: ssrc, lastSequence: 13), at: now)
        #expect(ends(actions).first?.1.received == 4)
        #expect(ends(actions).first?.1.lost == 0)
        #expect(reports(actions).first?.received == 2)
        #expect(reports(actions).first?.lost == 2)
    }

    @Test mutating func `what the relay has not yet is asked for again, and an answer that never comes too`() {
        _ = taken()
        _ = packet(10, marker: true)
        let first = asks(packet(13))[0]
        _ = machine.handle(.answered(request: first.id), at: now)
        now = machine.nextDeadline!
        let second = asks(machine.handle(.deadline, at: now))
        #expect(second.map(\.ranges) == [first.ranges])
        #expect(second[0].id > first.id)
        now = machine.nextDeadline!
        let third = asks(machine.handle(.deadline, at: now))
        #expect(third.map(\.ranges) == [first.ranges])
    }

    @Test mutating func `a beginning that was missed is asked for, but not by one who joined in the middle`() {
        _ = taken()
        _ = packet(100)
        now = machine.nextDeadline!
        let request = asks(machine.handle(.deadline, at: now))[0]
        #expect(request.ranges == [SequenceRange(first: 100 &- 1_000, last: 99)])
        let told = frames(repaired(97, marker: true) + repaired(99))
        #expect(told.map(\.sequence) == [97, 99])
        _ = machine.handle(.answered(request: request.id), at: now)
        now = now + .milliseconds(200)
        #expect(asks(machine.handle(.deadline, at: now)).map(\.ranges) == [[SequenceRange(first: 98, last: 98)]])

        machine = DownlinkStateMachine()
        _ = machine.handle(.floorTaken(talker, ssrc: ssrc, keyID: 1, isLate: true), at: now)
        _ = packet(100)
        now = now + .milliseconds(200)
        #expect(asks(machine.handle(.deadline, at: now)).isEmpty)
    }

    @Test mutating func `a burst that fell into a gap as a whole comes late`() {
        _ = taken()
        _ = machine.handle(.floorIdle(ssrc: ssrc, lastSequence: 5), at: now)
        now = machine.nextDeadline!
        let request = asks(machine.handle(.deadline, at: now))[0]
        #expect(request.ranges.first?.last == 5)
        var actions: [Action] = []
        for number in 1...5 { actions += repaired(UInt16(number), marker: number == 1) }
        #expect(frames(actions).count == 5)
        #expect(ends(actions).first?.0 == .completed)
        #expect(ends(actions).first?.1.lost == 0)
    }

    @Test mutating func `the next burst waits a second for one that is being completed`() {
        _ = taken()
        _ = packet(1, marker: true)
        _ = machine.handle(.floorIdle(ssrc: ssrc, lastSequence: 3), at: now)
        #expect(taken(keyID: 9).isEmpty)
        #expect(machine.admit(ssrc: ssrc, keyID: 9, sequence: 4) == .hold)
        machine.hold([4], receivedAt: now)
        let completed = repaired(2) + repaired(3)
        #expect(ends(completed).first?.0 == .completed)
        guard case .retry(let packets)? = completed.last(where: { if case .retry = $0 { true } else { false } }) else {
            return #expect(Bool(false), "\(completed)")
        }
        #expect(packets.map(\.bytes) == [[4]])

        _ = machine.handle(.linkLost, at: now)
        _ = taken()
        _ = packet(1, marker: true)
        _ = machine.handle(.floorIdle(ssrc: ssrc, lastSequence: 3), at: now)
        _ = taken(keyID: 9)
        now = now + .seconds(1)
        let actions = machine.handle(.deadline, at: now)
        #expect(ends(actions).first?.1.lost == 2)
        #expect(actions.contains(.tell(.floorTaken(by: talker))))
    }
}
