// Who goes before whom: priorities, emergencies, four talkers, and who cuts in.
import MonotonicTime
import RelayProtocol
import Testing

@testable import RelayServer

private typealias Machine = FloorControlStateMachine

@Suite struct FloorRulesTests {
    private let sources = (0..<8).map { SSRC(rawValue: 0xA0 + $0) }
    private var now = Instant(nanoseconds: 1_000_000_000)
    private var machine = Machine()

    private mutating func use(_ rules: FloorRules, _ timers: Machine.Timers = .init()) {
        machine = Machine(timers: timers, rules: rules)
    }

    private func request(
        _ member: Int, _ number: UInt32 = 1, priority: UInt8 = 0, mayQueue: Bool = true
    ) -> FloorRequest {
        FloorRequest(
            ssrc: sources[member], requestID: FloorRequestID(rawValue: number),
            keyID: UInt64(member) << 8 | UInt64(number),
            priority: priority, mayQueue: mayQueue)
    }

    private mutating func ask(_ request: FloorRequest) -> [Machine.Action] {
        machine.handle(.request(request), at: now)
    }

    private mutating func release(_ request: FloorRequest, last: UInt16? = nil) -> [Machine.Action] {
        machine.handle(.release(ssrc: request.ssrc, requestID: request.requestID, lastSequence: last), at: now)
    }

    @discardableResult
    private mutating func media(_ request: FloorRequest, _ sequence: UInt16) -> Machine.MediaDecision {
        machine.media(ssrc: request.ssrc, keyID: request.keyID, sequence: sequence, marker: true, at: now)
    }

    private func granted(_ actions: [Machine.Action]) -> [FloorRequest] {
        actions.compactMap { if case .grant(let request, _) = $0 { request } else { nil } }
    }

    private func ended(_ actions: [Machine.Action]) -> [Machine.EndReason] {
        actions.compactMap { if case .idle(_, _, let summary) = $0 { summary.reason } else { nil } }
    }

    // MARK: Pre-emption

    @Test mutating func `a higher priority takes no floor unless the channel says by how much it has to be higher`() {
        _ = ask(request(0))
        #expect(ask(request(1, priority: 254)) == [.deny(request(1, priority: 254), holder: sources[0])])
        use(FloorRules(preemptionStep: 10))
        _ = ask(request(0, priority: 20))
        #expect(ask(request(1, priority: 29)) == [.deny(request(1, priority: 29), holder: sources[0])])
        #expect(ask(request(2, priority: 30)) == [.revoke(request(0, priority: 20), .preempted)])
    }

    @Test mutating func `who is pre-empted may finish for half a second, and then the other one has the floor`() {
        use(FloorRules(hasQueue: true, preemptionStep: 1))
        let (lower, higher) = (request(0), request(1, priority: 1))
        _ = ask(lower)
        media(lower, 1)
        #expect(ask(higher) == [.revoke(lower, .preempted)], "who is to have it in a moment is not told to wait")
        #expect(machine.nextDeadline == now + .milliseconds(500))
        #expect(media(lower, 2) == .forward(isFirst: false, endsBurst: false))
        let late = machine.handle(.deadline, at: now + .milliseconds(500))
        #expect(ended(late) == [.revoked(.preempted)])
        #expect(granted(late) == [higher])
        #expect(media(lower, 3) == .drop(.noFloor))
    }

    @Test mutating func `who answers a revocation at once hands the floor over at once`() {
        use(FloorRules(preemptionStep: 1))
        let (lower, higher) = (request(0), request(1, priority: 1))
        _ = ask(lower)
        media(lower, 1)
        _ = ask(higher)
        let actions = release(lower, last: 1)
        #expect(ended(actions) == [.revoked(.preempted)])
        #expect(granted(actions) == [higher])
    }

    @Test mutating func `who waits is not overtaken by who matters as much, but by who matters more`() {
        use(FloorRules(hasQueue: true, preemptionStep: 200))
        _ = ask(request(0))
        #expect(ask(request(1, priority: 5)) == [.queued(request(1, priority: 5), position: 1)])
        #expect(ask(request(2, priority: 5)) == [.queued(request(2, priority: 5), position: 2)])
        let actions = ask(request(3, priority: 6))
        #expect(
            actions == [
                .queued(request(3, priority: 6), position: 1), .queued(request(1, priority: 5), position: 2),
                .queued(request(2, priority: 5), position: 3),
            ])
        #expect(granted(release(request(0))) == [request(3, priority: 6)])
    }

    @Test mutating func `the sixty-fifth who wants to wait is told that too many do`() {
        use(FloorRules(hasQueue: true))
        for member in 0...65 as ClosedRange<UInt32> {
            let request = FloorRequest(
                ssrc: SSRC(rawValue: 0x100 + member), requestID: .first, keyID: UInt64(member), mayQueue: true)
            let actions = ask(request)
            switch member {
            case 0: #expect(granted(actions) == [request])
            case 65: #expect(actions == [.queueFull(request)])
            default: #expect(actions == [.queued(request, position: Int(member))])
            }
        }
        #expect(machine.waiting.count == 64)
    }

    // MARK: Emergencies

    @Test(arguments: FloorRules.Mode.allCases)
    mutating func `an emergency takes the floor in every mode, and nothing takes it from an emergency`(
        mode: FloorRules.Mode
    ) {
        use(FloorRules(mode: mode))
        for member in 0..<machine.rules.talkersMaximum { _ = ask(request(member, priority: 254)) }
        let emergency = request(6, priority: 255)
        #expect(ask(emergency) == [.revoke(request(0, priority: 254), .preempted)])
        #expect(granted(release(request(0, priority: 254))) == [emergency])
        for member in 1..<machine.rules.talkersMaximum { _ = release(request(member, priority: 254)) }
        // All of the floor to emergencies.
        for member in 1..<machine.rules.talkersMaximum { _ = ask(request(member, 2, priority: 255)) }
        #expect(machine.holders.allSatisfy(\.isEmergency) && machine.holders.count == machine.rules.talkersMaximum)
        #expect(ask(request(7, 1, priority: 254)) == [.deny(request(7, 1, priority: 254), holder: sources[6])])
        if mode != .cutIn {
            #expect(ask(request(7, 2, priority: 255)) == [.deny(request(7, 2, priority: 255), holder: sources[6])])
        }
    }

    @Test mutating func `an emergency does not wait for all of the grace of a burst that is over`() {
        let (first, emergency) = (request(0), request(1, priority: 255))
        _ = ask(first)
        media(first, 1)
        _ = release(first, last: 9)
        #expect(ask(emergency).isEmpty)
        let asked = now
        #expect(machine.nextDeadline == asked + .milliseconds(500))
        // More of it comes, for which anybody else would wait longer.
        now = now + .milliseconds(300)
        media(first, 2)
        #expect(machine.nextDeadline == asked + .milliseconds(500))
        #expect(granted(machine.handle(.deadline, at: asked + .milliseconds(500))) == [emergency])
    }

    // MARK: Full duplex

    @Test mutating func `four may talk at once, the fifth is refused, or waits where there is a queue`() {
        for hasQueue in [false, true] {
            use(FloorRules(mode: .fullDuplex, hasQueue: hasQueue))
            for member in 0..<4 { #expect(granted(ask(request(member))) == [request(member)]) }
            let fifth = ask(request(4))
            #expect(fifth == (hasQueue ? [.queued(request(4), position: 1)] : [.deny(request(4), holder: sources[0])]))
            for member in 0..<4 {
                #expect(media(request(member), 7) == .forward(isFirst: true, endsBurst: false))
            }
            #expect(media(request(4), 7) == .drop(.noFloor))
            let actions = release(request(2), last: 7)
            #expect(ended(actions) == [.released])
            #expect(granted(actions) == (hasQueue ? [request(4)] : []))
            #expect(machine.holders.map(\.ssrc).prefix(3) == [sources[0], sources[1], sources[3]])
        }
    }

    @Test mutating func `of four talkers the least important, and of those the first, gives way`() {
        use(FloorRules(mode: .fullDuplex, preemptionStep: 1))
        for (member, priority) in [UInt8(9), 3, 3, 5].enumerated() { _ = ask(request(member, priority: priority)) }
        #expect(ask(request(4, priority: 4)) == [.revoke(request(1, priority: 3), .preempted)])
        #expect(ask(request(5, priority: 4)) == [.revoke(request(2, priority: 3), .preempted)])
        #expect(ask(request(6, priority: 4)) == [.deny(request(6, priority: 4), holder: sources[0])])
    }

    @Test mutating func `each of several talkers has its own time limit and its own silence`() {
        var timers = Machine.Timers()
        timers.talkTimeLimit = .seconds(8)
        use(FloorRules(mode: .fullDuplex), timers)
        for member in 0..<2 { _ = ask(request(member)) }
        for second in 0..<8 {
            now = Instant(nanoseconds: 1_000_000_000) + .seconds(second)
            media(request(0), UInt16(second))
            let actions = machine.handle(.deadline, at: now)
            // The other one never says a word.
            #expect(second == 5 ? ended(actions) == [.revoked(.noMedia)] : actions.isEmpty)
        }
        now = Instant(nanoseconds: 1_000_000_000) + .seconds(8)
        #expect(machine.handle(.deadline, at: now) == [.revoke(request(0), .talkTimeLimit)])
    }

    @Test
    mutating func `who is overtaken in the moment of a release is answered at once, not when the next burst ends`() {
        for hasQueue in [false, true] {
            use(FloorRules(mode: .fullDuplex, hasQueue: hasQueue))
            for member in 0..<4 { _ = ask(request(member)) }
            for member in 0..<2 {
                media(request(member), 1)
                _ = release(request(member), last: 9)
            }
            #expect(ask(request(4)).isEmpty)
            let overtaken = ask(request(5, priority: 7))
            #expect(
                overtaken == (hasQueue ? [.queued(request(4), position: 2)] : [.deny(request(4), holder: sources[0])]))
        }
    }

    @Test mutating func `who asks again while its own burst is ending waits for that, and keeps nobody else waiting`() {
        use(FloorRules(mode: .fullDuplex))
        _ = ask(request(0))
        media(request(0), 1)
        _ = release(request(0), last: 3)
        #expect(ask(request(0, 2)).isEmpty)
        #expect(granted(ask(request(1))) == [request(1)])
        #expect(granted(machine.handle(.deadline, at: now + .milliseconds(500))) == [request(0, 2)])
    }

    // MARK: Cut-in

    @Test mutating func `where the newest wins, who asks last has the floor, and who asked before it does not wait`() {
        use(FloorRules(mode: .cutIn, hasQueue: true))
        _ = ask(request(0, priority: 100))
        media(request(0, priority: 100), 1)
        #expect(ask(request(1)) == [.revoke(request(0, priority: 100), .preempted)])
        #expect(ask(request(2)) == [.deny(request(1), holder: sources[0])])
        #expect(granted(release(request(0, priority: 100), last: 1)) == [request(2)])
    }

    // MARK: Who may not

    @Test mutating func `who may not talk any more is cut off at once, and the next one has the floor`() {
        use(FloorRules(hasQueue: true))
        for member in 0..<3 { _ = ask(request(member)) }
        #expect(
            machine.handle(.silenced(ssrc: sources[1]), at: now) == [
                .notPermitted(request(1)), .queued(request(2), position: 1),
            ])
        let actions = machine.handle(.silenced(ssrc: sources[0]), at: now)
        #expect(actions.first == .revoke(request(0), .noPermission))
        #expect(ended(actions) == [.revoked(.noPermission)])
        #expect(granted(actions) == [request(2)])
        #expect(machine.handle(.silenced(ssrc: sources[5]), at: now).isEmpty)
    }

    @Test mutating func `who talked too long may not ask at once where the relay says so, but for an emergency`() {
        var timers = Machine.Timers()
        timers.retryAfter = .seconds(5)
        timers.talkTimeLimit = .seconds(1)
        use(FloorRules(), timers)
        _ = ask(request(0))
        media(request(0), 1)
        now = now + .seconds(1)
        _ = machine.handle(.deadline, at: now)
        _ = release(request(0), last: 1)
        now = now + .seconds(2)
        #expect(ask(request(0, 2)) == [.retryLater(request(0, 2), after: .seconds(3))])
        #expect(granted(ask(request(0, 3, priority: 255))) == [request(0, 3, priority: 255)])
        _ = release(request(0, 3))
        now = now + .seconds(3)
        #expect(granted(ask(request(0, 4))) == [request(0, 4)])
    }
}
