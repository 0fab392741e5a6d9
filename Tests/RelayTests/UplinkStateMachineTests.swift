// The rules of the way out: holding, catching up, ending.
import MonotonicTime
import RelayProtocol
import TestSupport
import Testing
import Vocabulary

@testable import RelayClient

private typealias Action = UplinkStateMachine.Action

@Suite struct UplinkStateMachineTests {
    /// Time stamp 1,000 is that of the beginning, at 5 s.
    private static let timestampAtZero = 1_000 &- 5 * 48_000 as UInt32
    private var machine = UplinkStateMachine(firstSequence: 65_530, timestampAtZero: timestampAtZero)
    private var now = Instant(nanoseconds: 5_000_000_000)
    private let first = FloorRequestID(rawValue: 1)

    init() { _ = machine.handle(.linkReady, at: now) }

    private func frame(_ number: Int) -> OutgoingFrame {
        OutgoingFrame(
            payload: [UInt8(truncatingIfNeeded: number), 1, 2], samples: 960,
            capturedAt: Instant(nanoseconds: 5_000_000_000) + .milliseconds(20 * number))
    }

    private mutating func begin(_ number: UInt32 = 1) -> [Action] {
        machine.handle(.begin(BurstID(number: number), priority: 0), at: now)
    }

    private mutating func send(_ count: Int, from start: Int = 0) -> [Action] {
        (start..<start + count).flatMap { machine.handle(.frame(frame($0)), at: now) }
    }

    private func media(_ actions: [Action]) -> [UplinkStateMachine.MediaFrame] {
        actions.compactMap { if case .sendMedia(_, let frame) = $0 { frame } else { nil } }
    }

    private func endings(_ actions: [Action]) -> [(BurstID, TransmissionEnd, TransmissionReport)] {
        actions.compactMap {
            if case .tell(.transmissionEnded(let id, let end, let report)) = $0 { (id, end, report) } else { nil }
        }
    }

    private mutating func runDeadlines(for duration: Duration) -> [Action] {
        let end = now + duration
        var actions: [Action] = []
        while let due = machine.nextDeadline, due <= end {
            now = max(now, due)
            actions += machine.handle(.deadline, at: now)
        }
        now = end
        return actions
    }

    @Test mutating func `nothing is sent before the grant, and then everything in order, faster than real time`() {
        #expect(begin() == [.requestFloor(first, priority: 0)])
        #expect(send(10).isEmpty)
        let granted = machine.handle(.granted(first, duration: .seconds(60)), at: now)
        #expect(granted.first == .tell(.floorGranted(BurstID(number: 1), limit: .seconds(60))))
        #expect(media(granted).count == 2)
        let start = now
        let later = runDeadlines(for: .milliseconds(20))
        let all = media(granted) + media(later)
        #expect(all.map(\.payload) == (0..<10).map { frame($0).payload })
        #expect(all.map(\.sequence) == (0..<10).map { UInt16(65_530) &+ UInt16($0) })
        #expect(all.map(\.timestamp) == (0..<10).map { 1_000 + 960 * UInt32($0) })
        #expect(all.map(\.marker) == [true] + [Bool](repeating: false, count: 9))
        #expect(now - start == .milliseconds(20))
        #expect(machine.nextDeadline == nil, "caught up: no timer runs")
        now = now + .milliseconds(20)
        #expect(media(send(1, from: 10)).count == 1, "a frame goes at once when nothing is held")
    }

    @Test mutating func `the release follows the last frame and names its sequence`() {
        _ = begin()
        _ = machine.handle(.granted(first, duration: .seconds(60)), at: now)
        _ = send(1)
        let actions = machine.handle(.end, at: now)
        #expect(actions.first == .releaseFloor(first, lastSequence: 65_530))
        #expect(endings(actions).first?.1 == .completed)
        #expect(endings(actions).first?.2.sent == 1)
        #expect(machine.isIdle)
    }

    @Test mutating func `a burst that ended before its grant is sent whole on the grant`() {
        _ = begin()
        _ = send(5)
        #expect(machine.handle(.end, at: now).isEmpty)
        now = now + .milliseconds(300)
        var actions = machine.handle(.granted(first, duration: .seconds(60)), at: now)
        actions += runDeadlines(for: .milliseconds(50))
        #expect(media(actions).count == 5)
        #expect(actions.contains(.releaseFloor(first, lastSequence: 65_534)))
        #expect(endings(actions).first?.2.sent == 5)
    }

    @Test mutating func `denial erases what is held`() {
        _ = begin()
        _ = send(7)
        let actions = machine.handle(.denied(first, .taken), at: now)
        #expect(media(actions).isEmpty)
        #expect(endings(actions).first?.1 == .denied(.taken))
        #expect(endings(actions).first?.2.erased == 7)
        #expect(send(2).isEmpty)
        #expect(machine.strayFrames == 2)
        #expect(machine.handle(.end, at: now).isEmpty)
    }

    @Test mutating func `no answer within two seconds gives the wish back`() {
        _ = begin()
        _ = send(1)
        let actions = runDeadlines(for: .seconds(2))
        #expect(actions.first == .releaseFloor(first, lastSequence: nil))
        #expect(endings(actions).first?.1 == .notAnswered)
        #expect(machine.handle(.granted(first, duration: .seconds(1)), at: now).isEmpty, "too late")
    }

    @Test mutating func `more than one second of held audio is not sent late but erased`() {
        _ = begin()
        #expect(send(50).isEmpty)
        let actions = send(1, from: 50)
        #expect(actions.first == .releaseFloor(first, lastSequence: nil))
        #expect(endings(actions).first?.1 == .notAnswered)
        #expect(endings(actions).first?.2.erased == 51)
    }

    @Test
    mutating func `what comes all at once during the floor, after this machine was held up, is sent all the same`() {
        _ = begin()
        _ = machine.handle(.granted(first, duration: .seconds(60)), at: now)
        var actions = send(150) + runDeadlines(for: .seconds(1))
        #expect(media(actions).count == 150)
        #expect(endings(actions).isEmpty)
        // What is later than three seconds nobody should hear.
        actions = send(154, from: 150)
        #expect(actions.contains(.releaseFloor(first, lastSequence: 65_530 &+ 151)))
        guard case .revoked? = endings(actions).first?.1 else {
            return #expect(Bool(false), "\(endings(actions))")
        }
    }

    @Test mutating func `revocation ends the burst and names the last packet sent`() {
        _ = begin()
        _ = machine.handle(.granted(first, duration: .seconds(60)), at: now)
        _ = send(2)
        let actions = machine.handle(.revoked(first, .talkTimeLimit), at: now)
        #expect(actions.first == .releaseFloor(first, lastSequence: 65_531))
        #expect(endings(actions).first?.1 == .revoked(.talkTimeLimit))
    }

    @Test mutating func `a link that is gone for good ends every burst, once`() {
        _ = begin()
        _ = send(3)
        _ = machine.handle(.end, at: now)
        _ = begin(2)
        let ended = endings(machine.handle(.linkClosed, at: now))
        #expect(ended.map(\.0) == [BurstID(number: 1), BurstID(number: 2)])
        #expect(ended.allSatisfy { $0.1 == .linkUnavailable })
        #expect(ended.first?.2.erased == 3)
        #expect(machine.isIdle)
        #expect(endings(begin(3)).first?.1 == .linkUnavailable, "and none begins without a link")
    }

    @Test mutating func `a burst on the floor ends with the link`() {
        _ = begin()
        _ = machine.handle(.granted(first, duration: .seconds(60)), at: now)
        _ = send(5)
        let ended = endings(machine.handle(.linkLost, at: now))
        #expect(ended.first?.1 == .linkUnavailable)
        #expect(ended.first?.2.sent == 2)
        #expect(ended.first?.2.erased == 3)
    }

    @Test mutating func `a burst on the floor goes on over the next host, from what was not heard`() {
        machine.resumesBursts = true
        _ = begin()
        _ = machine.handle(.granted(first, duration: .seconds(60)), at: now)
        let before = media(send(2) + runDeadlines(for: .milliseconds(20)))
        for (number, frame) in before.enumerated() {
            machine.noteSent(datagram: UInt64(number), sequence: frame.sequence)
        }
        machine.noteAcknowledged(datagram: 0)
        #expect(machine.handle(.linkLost, at: now).isEmpty, "the talker is not told of an end that does not come")
        now = now + .milliseconds(1_500)
        #expect(send(2, from: 2).isEmpty)
        let second = FloorRequestID(rawValue: 2)
        #expect(machine.handle(.linkReady, at: now) == [.requestFloor(second, priority: 0)])
        var actions = machine.handle(.granted(second, duration: .seconds(60)), at: now)
        actions += runDeadlines(for: .milliseconds(20))
        let after = media(actions)
        #expect(after.map(\.payload) == (1..<4).map { frame($0).payload }, "what was acknowledged is not said again")
        #expect(after.first?.marker == true && after.first?.sequence == before[1].sequence &+ 1)
        #expect(after.first?.timestamp == before[1].timestamp, "by which a listener knows whether it has heard it")
        #expect(!machine.isIdle)
        let ended = endings(machine.handle(.end, at: now) + runDeadlines(for: .milliseconds(20)))
        #expect(ended.first?.1 == .completed && ended.first?.2.sent == 4 && ended.first?.2.erased == 0)
    }

    @Test mutating func `a burst whose next host does not come ends after three seconds`() {
        machine.resumesBursts = true
        _ = begin()
        _ = machine.handle(.granted(first, duration: .seconds(60)), at: now)
        _ = send(2)
        _ = machine.handle(.linkLost, at: now)
        #expect(endings(runDeadlines(for: .milliseconds(2_900))).isEmpty)
        #expect(endings(runDeadlines(for: .milliseconds(200))).map(\.1) == [.linkUnavailable])
        #expect(machine.nextDeadline == nil)
    }

    /// Three seconds of speech were sent and not acknowledged when the link was lost; it is back after `absence`.
    private mutating func resume(after absence: Duration) {
        machine.resumesBursts = true
        _ = begin()
        _ = machine.handle(.granted(first, duration: .seconds(60)), at: now)
        let sent = media(send(150) + runDeadlines(for: .seconds(1)))
        #expect(sent.count == 150)
        #expect(machine.handle(.linkLost, at: now).isEmpty)
        now = now + absence
        #expect(machine.handle(.linkReady, at: now) == [.requestFloor(FloorRequestID(rawValue: 2), priority: 0)])
    }

    @Test mutating func `a burst that goes on elsewhere has its newest three seconds while its request is under way`() {
        resume(after: .milliseconds(1_500))
        #expect(send(2, from: 150).isEmpty)
        now = now + .milliseconds(20)
        var actions = machine.handle(.granted(FloorRequestID(rawValue: 2), duration: .seconds(60)), at: now)
        actions += runDeadlines(for: .seconds(1))
        #expect(media(actions).map(\.payload) == (2..<152).map { frame($0).payload })
        let ended = endings(machine.handle(.end, at: now))
        #expect(ended.first?.1 == .completed && ended.first?.2.sent == 150 && ended.first?.2.erased == 2)
    }

    @Test mutating func `a burst that goes on elsewhere, and is not answered there, ends by its time all the same`() {
        resume(after: .milliseconds(2_500))
        #expect(send(100, from: 150).isEmpty)
        #expect(runDeadlines(for: .milliseconds(990)).isEmpty)
        let ended = endings(runDeadlines(for: .milliseconds(10)))
        #expect(ended.map(\.1) == [.notAnswered] && ended.first?.2.erased == 250)
        #expect(machine.nextDeadline == nil)
    }

    @Test mutating func `a press that finds the relay restarted is asked again over the next connection`() {
        _ = begin()
        _ = send(3)
        #expect(machine.handle(.linkLost, at: now).isEmpty)
        now = now + .milliseconds(300)
        _ = send(2, from: 3)
        let second = FloorRequestID(rawValue: 2)
        #expect(machine.handle(.linkReady, at: now) == [.requestFloor(second, priority: 0)])
        var actions = machine.handle(.granted(second, duration: .seconds(60)), at: now)
        actions += runDeadlines(for: .milliseconds(20))
        #expect(media(actions).map(\.payload) == (0..<5).map { frame($0).payload })
    }

    @Test mutating func `a press whose link does not come back ends after two seconds`() {
        _ = begin()
        _ = send(3)
        _ = machine.handle(.linkLost, at: now)
        now = now + .seconds(1)
        #expect(machine.handle(.deadline, at: now).isEmpty)
        let ended = endings(runDeadlines(for: .seconds(1)))
        #expect(ended.first?.1 == .linkUnavailable)
        #expect(ended.first?.2.erased == 3)
        #expect(machine.nextDeadline == nil)
    }

    @Test mutating func `a press before the last burst is out waits its turn and loses nothing`() {
        _ = begin()
        _ = send(4)
        _ = machine.handle(.end, at: now)
        #expect(begin(2).isEmpty)
        #expect(send(3, from: 20).isEmpty)
        var actions = machine.handle(.granted(first, duration: .seconds(60)), at: now)
        actions += runDeadlines(for: .milliseconds(20))
        #expect(media(actions).count == 4)
        let second = FloorRequestID(rawValue: 2)
        #expect(actions.suffix(3).contains(.requestFloor(second, priority: 0)))
        _ = machine.handle(.end, at: now)
        var rest = machine.handle(.granted(second, duration: .seconds(60)), at: now)
        rest += runDeadlines(for: .milliseconds(20))
        #expect(media(rest).map(\.payload) == (20..<23).map { frame($0).payload })
        #expect(media(rest).first?.marker == true)
        #expect(media(rest).first?.sequence == 65_534)
        #expect(media(rest).first?.timestamp == UInt32(20_200), "the RTP clock goes on through the pause")
    }

    /// A burst whose frames were captured so many milliseconds after the beginning.
    private mutating func timestamps(of number: UInt32, capturedAt times: [Double]) -> [UInt32] {
        var actions = begin(number)
        guard case .requestFloor(let request, _)? = actions.last else { return [] }
        actions += machine.handle(.granted(request, duration: .seconds(60)), at: now)
        for time in times {
            let captured = Instant(nanoseconds: 5_000_000_000 + Int64(time * 1_000_000))
            actions += machine.handle(.frame(.init(payload: [1], samples: 960, capturedAt: captured)), at: now)
            actions += runDeadlines(for: .milliseconds(20))
        }
        _ = machine.handle(.end, at: now)
        _ = machine.handle(.floorIdle, at: now)
        return media(actions).map(\.timestamp)
    }

    /// The time stamps of 100 frames without a gap.
    private func hundred(from first: UInt32) -> [UInt32] { (0..<100).map { first + 960 * UInt32($0) } }

    @Test mutating func `what a sound card counts too much or too little does not add up over bursts`() {
        // 100 frames of 20 ms in 1.95 s, so that the samples are 50 ms ahead of the clock: 2,400.
        let fast = timestamps(of: 1, capturedAt: (0..<100).map { 19.5 * Double($0) })
        #expect(fast == hundred(from: 1_000))
        // At once afterwards time does not go back; after a pause it is the clock's again.
        #expect(timestamps(of: 2, capturedAt: [1_960]) == [97_000])
        #expect(timestamps(of: 3, capturedAt: [3_000]) == [145_000])
        let slow = timestamps(of: 4, capturedAt: (0..<100).map { 4_000 + 20.5 * Double($0) })
        #expect(slow == hundred(from: 193_000))
        #expect(timestamps(of: 5, capturedAt: [7_000]) == [337_000])
    }

    @Test mutating func `the RTP clock goes on after a restart`() {
        #expect(timestamps(of: 1, capturedAt: [0, 20]) == [1_000, 1_960])
        machine = UplinkStateMachine(firstSequence: 9, timestampAtZero: Self.timestampAtZero)
        _ = machine.handle(.linkReady, at: now)
        #expect(timestamps(of: 1, capturedAt: [1_500]) == [73_000])
        // Also when the machine has run for days, and the clock has gone round.
        machine = UplinkStateMachine(firstSequence: 9, timestampAtZero: Self.timestampAtZero)
        _ = machine.handle(.linkReady, at: now)
        let days = 3 * 86_400_000
        let after = UInt32(truncatingIfNeeded: 1_000 + days * 48)
        #expect(timestamps(of: 1, capturedAt: [Double(days)]) == [after])
    }

    @Test mutating func `what the microphone loses within a burst passes in its time stamps, and nothing else does`() {
        _ = begin()
        _ = machine.handle(.granted(first, duration: .seconds(60)), at: now)
        var actions: [Action] = []
        // 25 frames are lost between the second and the third; later ones are a little late by the clock.
        for milliseconds in [0, 20, 540, 562, 581] {
            let captured = Instant(nanoseconds: 5_000_000_000) + .milliseconds(milliseconds)
            actions += machine.handle(.frame(.init(payload: [1], samples: 960, capturedAt: captured)), at: now)
            actions += runDeadlines(for: .milliseconds(20))
        }
        #expect(media(actions).map(\.timestamp) == [1_000, 1_960, 26_920, 27_880, 28_840])
        #expect(media(actions).map(\.marker) == [true, false, false, false, false])
    }

    @Test mutating func `bursts on their way are bounded`() {
        for number in 1...4 {
            _ = begin(UInt32(number))
            _ = send(1)
        }
        #expect(endings(begin(5)).first?.1 == .tooManyBursts)
    }

    @Test mutating func `a press without a frame gives the floor back`() {
        _ = begin()
        let actions = machine.handle(.end, at: now)
        #expect(actions.first == .releaseFloor(first, lastSequence: nil))
        #expect(endings(actions).first?.1 == .completed)
    }

    @Test mutating func `an aborted burst sends nothing more`() {
        _ = begin()
        _ = machine.handle(.granted(first, duration: .seconds(60)), at: now)
        _ = send(5)
        let actions = machine.handle(.abort, at: now)
        #expect(actions.first == .releaseFloor(first, lastSequence: 65_531))
        #expect(endings(actions).first?.2.sent == 2)
        #expect(endings(actions).first?.2.erased == 3)
    }

    @Test mutating func `frames that no datagram carries are dropped and counted`() {
        _ = begin()
        _ = machine.handle(.granted(first, duration: .seconds(60)), at: now)
        for payload in [[], [UInt8](repeating: 0, count: 1_001)] {
            let frame = OutgoingFrame(payload: payload, samples: 960, capturedAt: now)
            #expect(machine.handle(.frame(frame), at: now).isEmpty)
        }
        #expect(endings(machine.handle(.end, at: now)).first?.2.dropped == 2)
    }

    @Test func `every burst ends exactly once and every frame is accounted for, whatever happens`() {
        let seed = SeededGenerator.seed()
        var random = SeededGenerator(seed: seed)
        var machine = UplinkStateMachine(firstSequence: 0, timestampAtZero: 0)
        var now = Instant(nanoseconds: 1)
        var begun: UInt32 = 0
        var ended: [BurstID: TransmissionReport] = [:]
        var framesGiven = 0
        var asked: [FloorRequestID] = []
        var sent = 0
        var lastSequence: UInt16?

        func take(_ actions: [Action]) {
            for action in actions {
                switch action {
                case .tell(.transmissionEnded(let id, _, let report)):
                    #expect(ended[id] == nil, "\(id) ended twice; seed \(seed)")
                    ended[id] = report
                case .sendMedia(_, let frame):
                    if let lastSequence { #expect(frame.sequence == lastSequence &+ 1) }
                    lastSequence = frame.sequence
                    sent += 1
                case .requestFloor(let id, _):
                    #expect(asked.last.map { $0 < id } ?? true)
                    asked.append(id)
                default: break
                }
            }
        }
        for _ in 0..<100_000 {
            now = now + .milliseconds(Int.random(in: 0...10, using: &random))
            if let due = machine.nextDeadline, due <= now { take(machine.handle(.deadline, at: now)) }
            let request = asked.last ?? FloorRequestID(rawValue: 0)
            switch Int.random(in: 0..<100, using: &random) {
            case 0..<10:
                begun += 1
                take(machine.handle(.begin(BurstID(number: begun), priority: 0), at: now))
            case 10..<55:
                framesGiven += 1
                take(machine.handle(.frame(.init(payload: [1], samples: 960, capturedAt: now)), at: now))
            case 55..<65: take(machine.handle(.end, at: now))
            case 65..<68: take(machine.handle(.abort, at: now))
            case 68..<85: take(machine.handle(.granted(request, duration: .seconds(1)), at: now))
            case 85..<90: take(machine.handle(.denied(request, .taken), at: now))
            case 90..<92: take(machine.handle(.revoked(request, .noMedia), at: now))
            case 92: take(machine.handle(.queued(request, position: 1), at: now))
            case 93: take(machine.handle(.keyRenewed, at: now))
            case 94..<95: take(machine.handle(.linkLost, at: now))
            case 95 where random.chance(20): take(machine.handle(.linkClosed, at: now))
            case 96 where random.chance(50): take(machine.handle(.linkComing, at: now))
            default: take(machine.handle(.linkReady, at: now))
            }
        }
        take(machine.handle(.linkClosed, at: now))
        #expect(machine.isIdle)
        #expect(ended.count == Int(begun))
        #expect(ended.values.reduce(0) { $0 + $1.sent } == sent)
        let accounted = ended.values.reduce(0) { $0 + $1.sent + $1.erased + $1.dropped } + machine.strayFrames
        #expect(accounted == framesGiven, "seed \(seed)")
        #expect(sent > 1_000)
    }

    @Test mutating func `held audio goes out by its length, as fast with short frames as with long ones`() {
        _ = begin()
        for number in 0..<20 {
            let frame = OutgoingFrame(
                payload: [UInt8(number)], samples: 480, capturedAt: now + .milliseconds(10 * number))
            _ = machine.handle(.frame(frame), at: now)
        }
        #expect(media(machine.handle(.granted(first, duration: .seconds(60)), at: now)).count == 4)
        #expect(media(runDeadlines(for: .milliseconds(5))).count == 4)
    }

    @Test
    mutating func `who is queued erases what it held, waits without a limit, and sends what comes after the grant`() {
        _ = begin()
        _ = send(5)
        #expect(
            machine.handle(.queued(first, position: 2), at: now) == [
                .tell(.floorQueued(BurstID(number: 1), position: 2))
            ])
        #expect(machine.nextDeadline == nil)
        #expect(send(1, from: 5).isEmpty)
        now = now + .seconds(30)
        #expect(machine.handle(.granted(first, duration: .seconds(60)), at: now).count == 1, "nothing is held")
        #expect(send(1, from: 6).isEmpty, "captured before the grant")
        let live = OutgoingFrame(payload: [9], samples: 960, capturedAt: now + .milliseconds(1))
        #expect(media(machine.handle(.frame(live), at: now)).map(\.payload) == [[9]])
        let end = endings(machine.handle(.end, at: now)).first
        #expect(end?.1 == .completed)
        #expect(end?.2.sent == 1)
        #expect(end?.2.erased == 7)
    }

    @Test mutating func `who waits asks once more under a renewed key, and the older request is forgotten`() {
        #expect(machine.handle(.keyRenewed, at: now).isEmpty)
        _ = begin()
        #expect(machine.handle(.keyRenewed, at: now).isEmpty, "the relay grants the key before to who has just asked")
        _ = machine.handle(.queued(first, position: 2), at: now)
        let second = FloorRequestID(rawValue: 2)
        #expect(machine.handle(.keyRenewed, at: now) == [.requestFloor(second, priority: 0)])
        #expect(machine.nextDeadline == nil)
        #expect(machine.handle(.granted(first, duration: .seconds(60)), at: now).isEmpty)
        _ = machine.handle(.queued(second, position: 2), at: now)
        now = now + .seconds(30)
        #expect(machine.handle(.granted(second, duration: .seconds(60)), at: now).count == 1)
        #expect(machine.handle(.keyRenewed, at: now).isEmpty, "a burst goes on under its key")
        let live = OutgoingFrame(payload: [9], samples: 960, capturedAt: now + .milliseconds(1))
        #expect(media(machine.handle(.frame(live), at: now)).map(\.payload) == [[9]])
        let ended = machine.handle(.end, at: now)
        #expect(ended.contains { if case .releaseFloor(second, _) = $0 { true } else { false } })
    }

    @Test mutating func `who let go before it was queued is denied, and who lets go while it waits ends quietly`() {
        _ = begin()
        _ = send(5)
        _ = machine.handle(.end, at: now)
        let late = machine.handle(.queued(first, position: 1), at: now)
        #expect(late.first == .releaseFloor(first, lastSequence: nil))
        #expect(endings(late).first?.1 == .denied(.taken))
        _ = begin(2)
        let second = FloorRequestID(rawValue: 2)
        _ = machine.handle(.queued(second, position: 1), at: now)
        let quiet = machine.handle(.end, at: now)
        #expect(quiet.first == .releaseFloor(second, lastSequence: nil))
        #expect(endings(quiet).first?.1 == .aborted)
        #expect(machine.isIdle)
    }

    private func requests(_ actions: [Action]) -> Int {
        actions.count { if case .requestFloor = $0 { true } else { false } }
    }

    @Test mutating func `a flood of presses is a trickle of requests, and the next press is asked for at once`() {
        var asked = 0
        var messages = 0
        var last: FloorRequestID?
        for number in 1...10_000 as ClosedRange<UInt32> {
            now = now + .milliseconds(1)
            var actions = begin(number) + machine.handle(.end, at: now)
            if let due = machine.nextDeadline, due <= now { actions += machine.handle(.deadline, at: now) }
            asked += requests(actions)
            messages += actions.count {
                switch $0 {
                case .requestFloor, .releaseFloor: true
                default: false
                }
            }
            for case .requestFloor(let id, _) in actions { last = id }
            // The relay keeps up.
            if let last { _ = machine.handle(.granted(last, duration: .seconds(60)), at: now) }
        }
        #expect(machine.isIdle)
        let (depth, rate) = (FloorRequestPacer.requestsAtOnce, FloorRequestPacer.requestsPerSecond)
        #expect(asked <= depth + 10 * rate && messages <= 2 * asked, "\(asked) requests, \(messages) messages")
        #expect(asked >= 10 * rate, "it is asked all the same: \(asked)")
        now = now + .seconds(1)
        #expect(requests(begin(10_001)) == 1)
    }

    @Test mutating func `a press that comes too soon after many is asked for a moment later, and an emergency at once`()
    {
        var number: UInt32 = 0
        func flood(_ machine: inout UplinkStateMachine, at now: Instant) {
            for _ in 0..<100 {
                number += 1
                _ = machine.handle(.begin(BurstID(number: number), priority: 0), at: now)
                _ = machine.handle(.end, at: now)
                _ = machine.handle(.floorIdle, at: now)
            }
        }
        flood(&machine, at: now)
        #expect(requests(begin(1_000)) == 0)
        #expect(send(3).isEmpty)
        let due = machine.nextDeadline
        #expect(due == now + FloorRequestPacer.pause)
        now = due ?? now
        #expect(requests(machine.handle(.deadline, at: now)) == 1)
        machine = UplinkStateMachine(firstSequence: 0, timestampAtZero: 0)
        _ = machine.handle(.linkReady, at: now)
        flood(&machine, at: now)
        #expect(requests(machine.handle(.begin(BurstID(number: 2_000), priority: 255), at: now)) == 1)
    }

    @Test mutating func `a relay that answers nothing is not asked again and again, and a lost link ends that`() {
        var asked = 0
        for number in 1...60 as ClosedRange<UInt32> {
            now = now + .milliseconds(500)
            asked += requests(begin(number) + machine.handle(.end, at: now))
        }
        #expect(asked == FloorRequestPacer.unansweredMaximum)
        // What is said to it ends as unanswered.
        _ = begin(100)
        _ = send(3)
        let ended = endings(runDeadlines(for: .seconds(3)))
        #expect(ended.map(\.1) == [.notAnswered])
        #expect(machine.nextDeadline == nil)
        _ = machine.handle(.linkLost, at: now)
        _ = machine.handle(.linkReady, at: now)
        #expect(requests(begin(101)) == 1)
    }
}
