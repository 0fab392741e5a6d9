// T2 and T9 are a member's, not a connection's: coming back changes neither.
import MonotonicTime
import RelayProtocol
import TestSupport
import Testing

@testable import RelayServer

private typealias Machine = FloorControlStateMachine

@Suite struct TalkTimeTests {
    private let ann = MemberID.numbered(1)
    private let bob = MemberID.numbered(2)
    private var now = Instant(nanoseconds: 1_000_000_000)
    private var machine: Machine

    init() {
        var timers = Machine.Timers()
        timers.talkTimeLimit = .seconds(20)
        timers.retryAfter = .seconds(30)
        machine = Machine(timers: timers)
    }

    /// A request of a member on its connection of that source.
    private func request(_ source: UInt32, _ member: MemberID? = nil, priority: UInt8 = 0) -> FloorRequest {
        FloorRequest(
            ssrc: SSRC(rawValue: source), member: member ?? ann, requestID: .first, keyID: UInt64(source),
            priority: priority)
    }

    private mutating func ask(_ request: FloorRequest) -> [Machine.Action] {
        machine.handle(.request(request), at: now)
    }

    /// How long the request may talk; nil: it was not granted.
    private mutating func talkTime(_ request: FloorRequest) -> Duration? {
        for case .grant(request, let time) in ask(request) { return time }
        return nil
    }

    /// Talks for so many seconds; the actions of what is due meanwhile.
    @discardableResult
    private mutating func talk(_ request: FloorRequest, seconds: Int) -> [Machine.Action] {
        var actions: [Machine.Action] = []
        for tick in 0..<(10 * seconds) {
            _ = machine.media(
                ssrc: request.ssrc, keyID: request.keyID, sequence: UInt16(tick), marker: tick == 0, at: now)
            now = now + .milliseconds(100)
            if let due = machine.nextDeadline, due <= now { actions += machine.handle(.deadline, at: now) }
        }
        return actions
    }

    @Test mutating func `who was cut off waits as long on another connection`() {
        _ = ask(request(1))
        #expect(talk(request(1), seconds: 20) == [.revoke(request(1), .talkTimeLimit)])
        _ = machine.handle(.left(ssrc: SSRC(rawValue: 1)), at: now)
        now = now + .seconds(1)
        #expect(ask(request(2)) == [.retryLater(request(2), after: .seconds(29))])
        #expect(talkTime(request(3, bob)) == .seconds(20), "another member may")
        _ = machine.handle(.left(ssrc: SSRC(rawValue: 3)), at: now)
        #expect(talkTime(request(4, priority: 255)) == .seconds(20), "an emergency is heard")
        _ = machine.handle(.left(ssrc: SSRC(rawValue: 4)), at: now)
        now = now + .seconds(29)
        #expect(talkTime(request(5)) == .seconds(20))
    }

    @Test mutating func `a burst that goes on over another connection, and another, ends when it would have`() {
        _ = ask(request(1))
        talk(request(1), seconds: 8)
        _ = machine.handle(.left(ssrc: SSRC(rawValue: 1)), at: now)
        now = now + .seconds(2)
        #expect(talkTime(request(2)) == .seconds(12))
        talk(request(2), seconds: 7)
        _ = machine.handle(.left(ssrc: SSRC(rawValue: 2)), at: now)
        #expect(talkTime(request(3)) == .seconds(5))
        // It says nothing on this one.
        _ = machine.handle(.left(ssrc: SSRC(rawValue: 3)), at: now)
        #expect(talkTime(request(4)) == .seconds(5))
        #expect(ask(request(4)).contains(.grant(request(4), talkTime: .seconds(5))), "asked again, the same")
        let ended = talk(request(4), seconds: 5)
        #expect(ended == [.revoke(request(4), .talkTimeLimit)])
        #expect(ask(request(4, priority: 0)).isEmpty, "it is ending")
        _ = machine.handle(.left(ssrc: SSRC(rawValue: 4)), at: now)
        #expect(ask(request(5)) == [.retryLater(request(5), after: .seconds(30))])
    }

    @Test mutating func `what is said in an emergency is charged to nobody`() {
        _ = ask(request(1, priority: 255))
        talk(request(1, priority: 255), seconds: 15)
        _ = machine.handle(.left(ssrc: SSRC(rawValue: 1)), at: now)
        #expect(talkTime(request(2)) == .seconds(20))
    }

    @Test mutating func `who leaves in the moment of the limit has talked to it`() {
        _ = ask(request(1))
        talk(request(1), seconds: 19)
        now = now + .seconds(1)
        // The connection is gone before the deadline is looked at.
        _ = machine.handle(.left(ssrc: SSRC(rawValue: 1)), at: now)
        #expect(ask(request(2)) == [.retryLater(request(2), after: .seconds(30))])
    }

    @Test mutating func `a burst that was given back, or was silent for too long, is over, and the next one is whole`()
    {
        _ = ask(request(1))
        talk(request(1), seconds: 8)
        _ = machine.handle(.release(ssrc: SSRC(rawValue: 1), requestID: .first, lastSequence: 79), at: now)
        _ = machine.handle(.left(ssrc: SSRC(rawValue: 1)), at: now)
        #expect(talkTime(request(2)) == .seconds(20))
        talk(request(2), seconds: 8)
        _ = machine.handle(.left(ssrc: SSRC(rawValue: 2)), at: now)
        now = now + .seconds(5)
        #expect(talkTime(request(3)) == .seconds(20))
    }

    @Test func `however many are remembered, there is a bound, and who waits longest is kept`() {
        var barred = TalkTimeRecord<Void>()
        var interrupted = TalkTimeRecord<Duration>()
        let now = Instant(nanoseconds: 1_000_000_000)
        barred.set((), for: .numbered(0), until: now + .seconds(60), at: now)
        for number in 1...(2 * TalkTimeRecord<Void>.bound) {
            barred.set((), for: .numbered(number), until: now + .seconds(30), at: now)
            interrupted.set(.seconds(1), for: .numbered(number), until: now + .seconds(5), at: now)
        }
        #expect(max(barred.count, interrupted.count) == TalkTimeRecord<Void>.bound)
        #expect(barred.until(.numbered(0), at: now) == now + .seconds(60))
        let later = now + .seconds(31)
        barred.set((), for: .numbered(1), until: later + .seconds(1), at: later)
        interrupted.set(.seconds(1), for: .numbered(1), until: later + .seconds(5), at: later)
        #expect(max(barred.count, interrupted.count) == 2, "what is over goes")
    }

    @Test func `the relay's members are known over their connections`() {
        let channel = RelayChannelConfiguration.yard()
        var timers = Machine.Timers()
        timers.retryAfter = .seconds(30)
        var core = RelayCore(channels: [channel], timers: timers, random: SeededGenerator(seed: 1))
        var now = now
        var welcome: ServerMessage.Welcome?
        func join(_ number: UInt64) -> ConnectionID {
            let id = ConnectionID(number: number)
            welcome = core.enter(id, .numbered(7), by: channel.joinMessage("Ann"), at: now).welcome(for: id)
            return id
        }
        func ask(_ id: ConnectionID) -> [RelayCore.Action] {
            let key = UInt64(welcome!.mediaKey!.epoch) << 48 | id.number
            return core.handle(.message(id, .floorRequest(.init(requestID: .first, keyID: key))), at: now)
        }
        let first = join(1)
        _ = ask(first)
        for second in UInt16(0)...60 {
            let header = MediaPacketHeader(
                ssrc: welcome!.ssrc, sequence: second, marker: second == 0,
                keyID: UInt64(welcome!.mediaKey!.epoch) << 48 | 1)
            _ = core.media(header, bytes: [UInt8](repeating: 0, count: 50), from: first, at: now)
            _ = core.handle(.deadline, at: now)
            now = now + .seconds(1)
        }
        let again = join(2)
        var causes: [FloorDenyCause] = []
        for case .send(.floorDeny(let denial), to: [again]) in ask(again) { causes.append(denial.cause) }
        #expect(causes == [.retryAfterNotExpired])
    }
}
