// The rules of the floor, one by one.
import MonotonicTime
import RelayProtocol
import Testing

@testable import RelayServer

private typealias Machine = FloorControlStateMachine
private typealias Request = FloorControlStateMachine.Request

@Suite struct FloorControlStateMachineTests {
    private let alice = SSRC(rawValue: 0xA)
    private let bob = SSRC(rawValue: 0xB)
    private let carol = SSRC(rawValue: 0xC)
    private var machine = FloorControlStateMachine()
    private var now = Instant(nanoseconds: 1_000_000_000)

    private func request(_ ssrc: SSRC, _ number: UInt32 = 1) -> Request {
        Request(
            ssrc: ssrc, requestID: FloorRequestID(rawValue: number), keyID: UInt64(ssrc.rawValue) << 8 | UInt64(number))
    }

    private mutating func take(_ ssrc: SSRC, _ number: UInt32 = 1) {
        let actions = machine.handle(.request(request(ssrc, number)), at: now)
        #expect(actions.contains(.taken(request(ssrc, number))))
    }

    @discardableResult
    private mutating func media(_ ssrc: SSRC, _ sequence: UInt16, request number: UInt32 = 1) -> Machine.MediaDecision {
        machine.media(ssrc: ssrc, keyID: request(ssrc, number).keyID, sequence: sequence, marker: true, at: now)
    }

    private mutating func release(_ ssrc: SSRC, last: UInt16?, request number: UInt32 = 1) -> [Machine.Action] {
        machine.handle(
            .release(ssrc: ssrc, requestID: FloorRequestID(rawValue: number), lastSequence: last), at: now)
    }

    private func idles(_ actions: [Machine.Action]) -> [(SSRC, UInt16?, Machine.EndReason)] {
        actions.compactMap {
            if case .idle(let ssrc, let last, let summary) = $0 { (ssrc, last, summary.reason) } else { nil }
        }
    }

    @Test mutating func `an idle floor is granted, and the others are told`() {
        let actions = machine.handle(.request(request(alice)), at: now)
        #expect(actions == [.grant(request(alice), talkTime: .seconds(60)), .taken(request(alice))])
        #expect(machine.nextDeadline == now + .seconds(5))
    }

    @Test mutating func `a taken floor is denied, and the denial names who has it`() {
        take(alice)
        #expect(machine.handle(.request(request(bob)), at: now) == [.deny(request(bob), holder: alice)])
        #expect(machine.holder == request(alice))
    }

    @Test mutating func `asking twice is answered twice and changes nothing`() {
        take(alice)
        media(alice, 1)
        now = now + .seconds(4)
        #expect(machine.handle(.request(request(alice)), at: now) == [.grant(request(alice), talkTime: .seconds(56))])
        #expect(machine.holder == request(alice))
    }

    @Test mutating func `a release after the last packet makes the floor idle at once`() {
        take(alice)
        for sequence in UInt16(65_534)...65_535 { media(alice, sequence) }
        media(alice, 0)
        let ended = idles(release(alice, last: 0))
        #expect(ended.count == 1)
        #expect(ended.first?.0 == alice)
        #expect(ended.first?.1 == 0)
        #expect(ended.first?.2 == .released)
        #expect(machine.holder == nil)
        #expect(machine.nextDeadline == nil)
    }

    @Test mutating func `media overtaken by the release are still forwarded, and the last one ends the burst`() {
        take(alice)
        media(alice, 10)
        #expect(release(alice, last: 12).isEmpty)
        #expect(machine.nextDeadline == now + .milliseconds(500))
        #expect(media(alice, 12) == .forward(isFirst: false, endsBurst: false))
        #expect(media(alice, 13) == .drop(.afterRelease))
        #expect(media(alice, 11) == .forward(isFirst: false, endsBurst: true))
        #expect(idles(machine.handle(.deadline, at: now)).first?.1 == 12)
    }

    @Test mutating func `a last packet that never comes is not waited for longer than half a second`() {
        take(alice)
        media(alice, 10)
        _ = release(alice, last: 11)
        now = now + .milliseconds(499)
        #expect(machine.handle(.deadline, at: now).isEmpty)
        now = now + .milliseconds(1)
        // The relay names the last sequence that it forwarded.
        #expect(idles(machine.handle(.deadline, at: now)).first?.1 == 10)
    }

    @Test mutating func `a gap in front of the last packet is waited for, as it may come again`() {
        take(alice)
        media(alice, 10)
        media(alice, 12)
        #expect(release(alice, last: 12).isEmpty)
        #expect(machine.nextDeadline == now + .milliseconds(500))
    }

    @Test mutating func `as long as missing packets come the others are waited for, two seconds at most`() {
        take(alice)
        media(alice, 10)
        let released = now
        _ = release(alice, last: 30)
        for sequence in UInt16(11)...14 {
            now = now + .milliseconds(450)
            #expect(machine.handle(.deadline, at: now).isEmpty)
            #expect(media(alice, sequence) == .forward(isFirst: false, endsBurst: false))
            #expect(machine.nextDeadline == min(now + .milliseconds(500), released + .seconds(2)))
        }
        #expect(idles(machine.handle(.deadline, at: released + .seconds(2))).first?.1 == 14)
    }

    @Test
    mutating func
        `a talker that was cut off by its time names its last packet, and is waited for no longer than one that let go`()
    {
        take(alice)
        media(alice, 10)
        for second in 1...15 {
            now = now + .seconds(4)
            if second < 15 { media(alice, 10 + UInt16(second)) }
        }
        #expect(machine.handle(.deadline, at: now) == [.revoke(request(alice), .talkTimeLimit)])
        #expect(machine.nextDeadline == now + .seconds(2))
        #expect(media(alice, 25) == .forward(isFirst: false, endsBurst: false))
        // It may be on its way to say so.
        #expect(machine.nextDeadline == now + .seconds(2))
        now = now + .milliseconds(100)
        #expect(release(alice, last: 27).isEmpty)
        #expect(machine.nextDeadline == now + .milliseconds(500))
    }

    @Test mutating func `a release without media ends the burst at once`() {
        take(alice)
        let ended = idles(release(alice, last: nil))
        #expect(ended.count == 1)
        #expect(ended.first?.1 == nil)
    }

    @Test mutating func `the release of another member or of another request changes nothing`() {
        take(alice)
        #expect(release(bob, last: nil).isEmpty)
        #expect(release(alice, last: nil, request: 2).isEmpty)
        #expect(machine.holder == request(alice))
    }

    @Test mutating func `who asks while the floor is being released is granted when it is idle`() {
        take(alice)
        media(alice, 1)
        _ = release(alice, last: 2)
        #expect(machine.handle(.request(request(bob)), at: now).isEmpty)
        #expect(machine.handle(.request(request(carol)), at: now) == [.deny(request(carol), holder: alice)])
        let actions = machine.handle(.deadline, at: now + .milliseconds(500))
        #expect(idles(actions).count == 1)
        #expect(actions.suffix(2) == [.grant(request(bob), talkTime: .seconds(60)), .taken(request(bob))])
    }

    @Test mutating func `who waits and gives up, or leaves, is not granted`() {
        for event in [
            Machine.Event.release(ssrc: bob, requestID: .first, lastSequence: nil), .left(ssrc: bob),
        ] {
            machine = FloorControlStateMachine()
            take(alice)
            media(alice, 1)
            _ = release(alice, last: 2)
            _ = machine.handle(.request(request(bob)), at: now)
            #expect(machine.handle(event, at: now).isEmpty)
            #expect(machine.handle(.deadline, at: now + .milliseconds(500)).count == 1)
            #expect(machine.holder == nil)
        }
    }

    @Test mutating func `a full queue refuses whoever would be the last, and an emergency is not that one`() {
        machine = FloorControlStateMachine(rules: FloorRules(hasQueue: true))
        take(alice)
        func waiting(_ number: UInt32, priority: UInt8 = 0) -> Request {
            Request(
                ssrc: SSRC(rawValue: 0x100 + number), requestID: .first, keyID: UInt64(number), priority: priority,
                mayQueue: true)
        }
        for number in UInt32(1)...64 {
            #expect(
                machine.handle(.request(waiting(number)), at: now) == [.queued(waiting(number), position: Int(number))])
        }
        #expect(machine.handle(.request(waiting(65)), at: now) == [.queueFull(waiting(65))])
        let urgent = waiting(66, priority: 255)
        let actions = machine.handle(.request(urgent), at: now)
        #expect(actions.first == .revoke(request(alice), .preempted), "it has the floor in a moment")
        #expect(actions.last == .queueFull(waiting(64)))
        #expect(!machine.isUnderWay(waiting(64)) && machine.isUnderWay(waiting(63)) && machine.holder == request(alice))
    }

    @Test mutating func `a holder that leaves frees the floor`() {
        take(alice)
        media(alice, 7)
        let ended = idles(machine.handle(.left(ssrc: alice), at: now))
        #expect(ended.first?.1 == 7)
        #expect(ended.first?.2 == .left)
    }

    @Test mutating func `five seconds without media free the floor, counted from the last packet`() {
        take(alice)
        now = now + .seconds(4)
        media(alice, 1)
        #expect(machine.handle(.deadline, at: now + .seconds(4)).isEmpty)
        let actions = machine.handle(.deadline, at: now + .seconds(5))
        #expect(actions.first == .revoke(request(alice), .noMedia))
        #expect(idles(actions).first?.2 == .revoked(.noMedia))
        #expect(machine.holder == nil)
    }

    @Test mutating func `the talk-time limit counts from the first packet and leaves time for the tail`() {
        take(alice)
        now = now + .seconds(3)
        let start = now
        for second in 0..<60 {
            now = start + .seconds(second)
            media(alice, UInt16(second))
            #expect(machine.handle(.deadline, at: now).isEmpty)
        }
        now = start + .seconds(60)
        #expect(machine.handle(.deadline, at: now) == [.revoke(request(alice), .talkTimeLimit)])
        #expect(media(alice, 60) == .forward(isFirst: false, endsBurst: false))
        let ended = idles(release(alice, last: 60))
        #expect(ended.first?.1 == 60)
        #expect(ended.first?.2 == .revoked(.talkTimeLimit))
    }

    @Test mutating func `a revoked talker that never releases loses the floor after the grace`() {
        take(alice)
        media(alice, 0)
        now = now + .seconds(4)
        media(alice, 1)
        // Keep it alive until the limit.
        for second in stride(from: 8, through: 60, by: 4) {
            now = Instant(nanoseconds: 1_000_000_000) + .seconds(second)
            media(alice, UInt16(second))
            _ = machine.handle(.deadline, at: now)
        }
        let deadline = machine.nextDeadline
        #expect(deadline == Instant(nanoseconds: 1_000_000_000) + .seconds(62))
        #expect(idles(machine.handle(.deadline, at: deadline!)).count == 1)
    }

    @Test mutating func `only media of the holder under the bound key id are forwarded, once each`() {
        #expect(media(alice, 1) == .drop(.noFloor))
        take(alice)
        #expect(media(bob, 1) == .drop(.noFloor))
        #expect(machine.media(ssrc: alice, keyID: 99, sequence: 1, marker: true, at: now) == .drop(.wrongKeyID))
        #expect(media(alice, 1) == .forward(isFirst: true, endsBurst: false))
        #expect(media(alice, 1) == .drop(.duplicate))
        #expect(media(alice, 2) == .forward(isFirst: false, endsBurst: false))
    }

    @Test mutating func `a holder that presses anew without a release begins a new burst`() {
        take(alice)
        media(alice, 1)
        let actions = machine.handle(.request(request(alice, 2)), at: now)
        #expect(idles(actions).first?.2 == .restarted)
        #expect(actions.suffix(2) == [.grant(request(alice, 2), talkTime: .seconds(60)), .taken(request(alice, 2))])
        #expect(media(alice, 2, request: 1) == .drop(.wrongKeyID))
    }
}
