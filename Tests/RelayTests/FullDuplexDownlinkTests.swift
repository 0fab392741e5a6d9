// Hearing several who talk at once: one burst for each, side by side.
import MonotonicTime
import RelayProtocol
import TestSupport
import Testing
import Vocabulary

@testable import RelayClient

private typealias Action = DownlinkStateMachine.Action

@Suite struct FullDuplexDownlinkTests {
    private var machine = DownlinkStateMachine()
    private var now = Instant(nanoseconds: 1_000_000_000)

    init() { machine.talkersMaximum = 4 }

    private func member(_ talker: Int) -> RelayMember { RelayMember(id: "\(talker)", name: "Unit \(talker)") }
    private func ssrc(_ talker: Int) -> SSRC { SSRC(rawValue: UInt32(10 + talker)) }

    private mutating func taken(_ talker: Int, burst: Int = 0) -> [Action] {
        machine.handle(.floorTaken(member(talker), ssrc: ssrc(talker), keyID: key(talker, burst)), at: now)
    }

    private func key(_ talker: Int, _ burst: Int = 0) -> UInt64 { UInt64(100 * burst + talker) }

    private mutating func idle(_ talker: Int, last: UInt16?) -> [Action] {
        machine.handle(.floorIdle(ssrc: ssrc(talker), lastSequence: last), at: now)
    }

    private mutating func packet(
        _ talker: Int, _ sequence: UInt16, burst: Int = 0, marker: Bool = false, isRepaired: Bool = false
    ) -> [Action] {
        let admission = machine.admit(
            ssrc: ssrc(talker), keyID: key(talker, burst), sequence: sequence, isRepaired: isRepaired)
        guard admission == .open else { return [] }
        let header = RTPHeader(
            marker: marker, sequence: sequence, timestamp: UInt32(sequence) * 960, ssrc: ssrc(talker))
        return machine.handle(
            .opened(header, payload: [UInt8(talker)], receivedAt: now, isRepaired: isRepaired), at: now)
    }

    private func told(_ actions: [Action]) -> [RelayLinkEvent] {
        actions.compactMap { if case .tell(let event) = $0 { event } else { nil } }
    }

    private struct Ended {
        let talker: String
        let end: ReceptionEnd
        let report: ReceptionReport
    }

    private func ended(_ actions: [Action]) -> [Ended] {
        told(actions).compactMap {
            guard case .burstEnded(let member, let end, let report) = $0 else { return nil }
            return Ended(talker: member.id, end: end, report: report)
        }
    }

    private func asks(_ actions: [Action]) -> [ClientMessage.RepairRequest] {
        actions.compactMap { if case .ask(let request) = $0 { request } else { nil } }
    }

    @Test mutating func `four who talk at once are heard side by side, and each frame names who said it`() {
        for talker in 0..<4 { #expect(taken(talker) == [.tell(.floorTaken(by: member(talker)))]) }
        for sequence in UInt16(0)..<20 {
            for talker in 0..<4 {
                let events = told(packet(talker, sequence, marker: sequence == 0))
                #expect(events.contains(.burstBegan(member(talker))) == (sequence == 0))
                guard case .frame(let frame)? = events.last else { return #expect(Bool(false), "\(events)") }
                #expect(frame.talker == member(talker) && frame.payload == [UInt8(talker)])
            }
        }
        for talker in [2, 0, 3] {
            let actions = idle(talker, last: 19)
            #expect(ended(actions).map(\.talker) == ["\(talker)"])
            #expect(ended(actions).first?.report.received == 20)
            #expect(told(actions).last == .floorReleased(by: member(talker)))
        }
        #expect(told(packet(1, 20)).count == 1, "the last one goes on")
        #expect(told(idle(1, last: 20)).last == .floorIdle)
        #expect(machine.nextDeadline == nil)
    }

    @Test mutating func `packets that overtake their FloorTaken wait in one place, each for its own`() {
        _ = taken(0)
        for talker in [1, 2, 1] {
            #expect(machine.admit(ssrc: ssrc(talker), keyID: key(talker), sequence: 1) == .hold)
            machine.hold([UInt8(talker)], receivedAt: now)
        }
        func retried(_ actions: [Action]) -> [[UInt8]] {
            for case .retry(let packets) in actions { return packets.map(\.bytes) }
            return []
        }
        #expect(retried(taken(1)) == [[1], [2], [1]])
        // Who carries that out is told to keep the other's.
        #expect(machine.admit(ssrc: ssrc(1), keyID: key(1), sequence: 1) == .open)
        #expect(machine.admit(ssrc: ssrc(2), keyID: key(2), sequence: 1) == .hold)
        machine.hold([2], receivedAt: now)
        #expect(retried(taken(2)) == [[2]])
    }

    @Test mutating func `who talks again waits for the end of its own burst, and for nobody else's`() {
        _ = taken(0)
        _ = packet(0, 1, marker: true)
        #expect(told(idle(0, last: 4)) == [.floorIdle], "two are missing, which are on their way")
        #expect(taken(0, burst: 1).isEmpty)
        #expect(told(taken(1)) == [.floorTaken(by: member(1))])
        var actions: [Action] = []
        for sequence in UInt16(2)...4 { actions += packet(0, sequence, isRepaired: true) }
        #expect(ended(actions).map(\.talker) == ["0"])
        #expect(told(actions).last == .floorTaken(by: member(0)))
        #expect(told(packet(0, 5, burst: 1, marker: true)).first == .burstBegan(member(0)))
    }

    @Test mutating func `a talker that comes back with another source is one talker still`() {
        _ = taken(0)
        _ = packet(0, 1, marker: true)
        let actions = machine.handle(.floorTaken(member(0), ssrc: SSRC(rawValue: 99), keyID: 7), at: now)
        #expect(ended(actions).map(\.end) == [.superseded])
        #expect(told(actions).last == .floorTaken(by: member(0)))
    }

    @Test mutating func `a fifth takes the place of one that is over`() {
        for talker in 0..<4 {
            _ = taken(talker)
            _ = packet(talker, 1, marker: true)
        }
        _ = idle(2, last: 9)
        #expect(taken(4).isEmpty, "what is missing is on its way")
        #expect(told(packet(0, 2)).count == 1)
        now = now + DownlinkStateMachine.supersedingTime
        let actions = machine.handle(.deadline, at: now)
        #expect(ended(actions).map(\.talker) == ["2"])
        #expect(told(actions).contains(.floorTaken(by: member(4))))
        #expect(told(packet(4, 1, marker: true)).count == 2)
    }

    @Test mutating func `a talker of whom nothing is heard is told to be gone`() {
        _ = taken(0)
        _ = taken(1)
        _ = packet(1, 1, marker: true)
        now = now + .seconds(5)
        _ = packet(1, 2)
        now = now + .seconds(1)
        #expect(told(machine.handle(.deadline, at: now)).contains(.floorReleased(by: member(0))))
        // A floor that nobody used is idle again.
        #expect(told(idle(1, last: 2)).last == .floorIdle)
        #expect(told(idle(0, last: nil)) == [.floorIdle])
    }

    @Test mutating func `requests for all bursts together stay within what a relay takes`() {
        for talker in 0..<4 { _ = taken(talker) }
        var times: [Instant] = []
        var last: UInt32 = 0
        for step in 0..<1_500 {
            now = now + .milliseconds(10)
            var actions: [Action] = []
            // Every other packet is lost, and no request is ever answered.
            if step % 2 == 0 {
                for talker in 0..<4 { actions += packet(talker, UInt16(step), marker: step == 0) }
            }
            if let due = machine.nextDeadline, due <= now { actions += machine.handle(.deadline, at: now) }
            for request in asks(actions) {
                #expect(request.id == last + 1)
                last = request.id
                times.append(now)
            }
        }
        // Those of the first second are from what a rest has earned.
        #expect(times.count <= RequestBudget.depth + 15 * 20 + 1)
        for (index, time) in times.enumerated() where index >= 40 {
            #expect(time - times[index - 40] >= .milliseconds((40 - RequestBudget.depth) * 50 - 10))
        }
        #expect(times.count > 100)
    }

    @Test mutating func `whatever happens, a burst begins, goes on and ends once, and no more are heard than may talk`()
    {
        var random = SeededGenerator()
        for maximum in [1, 4] {
            machine = DownlinkStateMachine()
            machine.talkersMaximum = maximum
            var heard: [String: Int] = [:]
            var bursts = [Int](repeating: 0, count: 6)
            func take(_ actions: [Action]) {
                for event in told(actions) {
                    switch event {
                    case .burstBegan(let member):
                        #expect(heard[member.id] == nil)
                        heard[member.id] = 0
                        #expect(heard.count <= maximum)
                    case .frame(let frame):
                        let talker = frame.talker?.id ?? "?"
                        #expect(heard[talker] != nil)
                        heard[talker, default: 0] += 1
                    case .burstEnded(let member, _, let report):
                        #expect(report.received == heard[member.id])
                        heard[member.id] = nil
                    default: break
                    }
                }
            }
            for step in 0..<4_000 {
                now = now + .milliseconds(Int.random(in: 0...30, using: &random))
                if let due = machine.nextDeadline, due <= now { take(machine.handle(.deadline, at: now)) }
                let talker = Int.random(in: 0..<6, using: &random)
                switch Int.random(in: 0..<100, using: &random) {
                case 0..<4:
                    bursts[talker] += 1
                    take(taken(talker, burst: bursts[talker]))
                case 4..<8: take(idle(talker, last: random.chance(20) ? nil : UInt16(step & 0xFFFF)))
                case 8: take(machine.handle(.linkLost, at: now))
                default:
                    let sequence = UInt16(truncatingIfNeeded: step + Int.random(in: -3...3, using: &random))
                    take(packet(talker, sequence, burst: bursts[talker], isRepaired: random.chance(10)))
                }
            }
            var steps = 0
            while let due = machine.nextDeadline, steps < 10_000 {
                now = max(now, due)
                take(machine.handle(.deadline, at: now))
                steps += 1
            }
            #expect(machine.nextDeadline == nil && heard.isEmpty)
        }
    }
}
