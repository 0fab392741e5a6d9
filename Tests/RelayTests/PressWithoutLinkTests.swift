// A press while the link is lost and may come back: what is said is held for it, whole, or denied within two seconds.
import MonotonicTime
import RelayProtocol
import TestSupport
import Testing
import Vocabulary

@testable import RelayClient

private typealias Action = UplinkStateMachine.Action

@Suite struct PressWithoutLinkTests {
    private var machine = UplinkStateMachine(firstSequence: 65_530, timestampAtZero: 1_000 &- 5 * 48_000)
    private let start = Instant(nanoseconds: 5_000_000_000)
    private var now = Instant(nanoseconds: 5_000_000_000)
    private let first = FloorRequestID(rawValue: 1)

    init() {
        _ = machine.handle(.linkReady, at: now)
        _ = machine.handle(.linkLost, at: now)
    }

    private func payload(_ number: Int) -> [UInt8] { [UInt8(number >> 8), UInt8(number & 255)] }

    private mutating func begin(_ number: UInt32 = 1) -> [Action] {
        machine.handle(.begin(BurstID(number: number), priority: 0), at: now)
    }

    /// Says so many frames of 20 ms, each when its time has come.
    private mutating func say(_ count: Int, from first: Int = 0) -> [Action] {
        var actions: [Action] = []
        for number in first..<first + count {
            let frame = OutgoingFrame(payload: payload(number), samples: 960, capturedAt: now)
            actions += run(for: .milliseconds(20))
            actions += machine.handle(.frame(frame), at: now)
        }
        return actions
    }

    private mutating func run(for duration: Duration) -> [Action] {
        let end = now + duration
        var actions: [Action] = []
        while let due = machine.nextDeadline, due <= end {
            now = max(now, due)
            actions += machine.handle(.deadline, at: now)
        }
        now = end
        return actions
    }

    private func media(_ actions: [Action]) -> [UplinkStateMachine.MediaFrame] {
        actions.compactMap { if case .sendMedia(_, let frame) = $0 { frame } else { nil } }
    }

    private func endings(_ actions: [Action]) -> [(BurstID, TransmissionEnd, TransmissionReport)] {
        actions.compactMap {
            if case .tell(.transmissionEnded(let id, let end, let report)) = $0 { (id, end, report) } else { nil }
        }
    }

    @Test mutating func `with the link back in time it is granted, and heard whole from the press on`() {
        #expect(begin().isEmpty)
        #expect(say(95).isEmpty, "1.9 s, and nothing is refused")
        #expect(machine.handle(.linkReady, at: now) == [.requestFloor(first, priority: 0)])
        var actions = say(2, from: 95)
        actions += machine.handle(.granted(first, duration: .seconds(60)), at: now)
        actions += say(30, from: 97)
        #expect(media(actions).map(\.payload) == (0..<127).map { payload($0) })
        #expect(media(actions).map(\.marker) == [true] + [Bool](repeating: false, count: 126))
        #expect(endings(actions).isEmpty)
        let end = endings(machine.handle(.end, at: now)).first
        #expect(end?.1 == .completed)
        #expect(end?.2.sent == 127)
        #expect(end?.2.erased == 0)
    }

    @Test mutating func `without a link in time it ends after two seconds, and what was held is erased`() {
        _ = begin()
        let actions = say(120)
        #expect(endings(actions).map(\.1) == [.linkUnavailable])
        #expect(endings(actions).first?.2.erased == 99)
        #expect(media(actions).isEmpty)
        #expect(machine.strayFrames == 21, "what is said after the tone is no burst's")
        #expect(machine.handle(.linkReady, at: now).isEmpty, "and nothing is asked for any more")
        #expect(machine.nextDeadline == nil)
    }

    @Test mutating func `what was released before the link is back is sent whole when it is`() {
        _ = begin()
        _ = say(20)
        #expect(machine.handle(.end, at: now).isEmpty)
        #expect(run(for: .milliseconds(1_500)).isEmpty)
        #expect(machine.handle(.linkReady, at: now) == [.requestFloor(first, priority: 0)])
        var actions = machine.handle(.granted(first, duration: .seconds(60)), at: now)
        actions += run(for: .seconds(1))
        #expect(media(actions).map(\.payload) == (0..<20).map { payload($0) })
        #expect(actions.contains(.releaseFloor(first, lastSequence: 65_530 &+ 19)))
        #expect(endings(actions).map(\.1) == [.completed])
    }

    @Test mutating func `what was released is refused after two seconds, too`() {
        _ = begin()
        _ = say(20)
        _ = machine.handle(.end, at: now)
        let ended = endings(run(for: .seconds(5)))
        #expect(ended.map(\.1) == [.linkUnavailable])
        #expect(ended.first?.2.erased == 20)
    }

    @Test mutating func `several presses are sent in their order, each with a floor of its own`() {
        for press in 0..<3 {
            #expect(begin(UInt32(press + 1)).isEmpty)
            #expect(say(10, from: press * 10).isEmpty)
            #expect(machine.handle(.end, at: now).isEmpty)
        }
        var actions = machine.handle(.linkReady, at: now)
        for request in 1...3 {
            let id = FloorRequestID(rawValue: UInt32(request))
            #expect(actions.contains(.requestFloor(id, priority: 0)))
            actions = machine.handle(.granted(id, duration: .seconds(60)), at: now) + run(for: .milliseconds(100))
            #expect(media(actions).map(\.payload) == (0..<10).map { payload((request - 1) * 10 + $0) })
            #expect(media(actions).first?.marker == true)
        }
        #expect(machine.isIdle)
    }

    @Test mutating func `several presses are refused two seconds after each`() {
        _ = begin(1)
        _ = say(5)
        _ = machine.handle(.end, at: now)
        _ = run(for: .milliseconds(900))
        let second = now
        _ = begin(2)
        _ = say(5)
        #expect(endings(machine.handle(.end, at: now)).isEmpty)
        #expect(machine.nextDeadline == start + .seconds(2))
        let ended = endings(run(for: start + .seconds(2) - now))
        #expect(ended.map(\.0) == [BurstID(number: 1)])
        #expect(machine.nextDeadline == second + .seconds(2))
        #expect(endings(run(for: .seconds(2))).map(\.0) == [BurstID(number: 2)])
    }

    @Test mutating func `a link that is lost again while the floor is asked for does not begin the time anew`() {
        _ = begin()
        _ = say(50)
        #expect(machine.handle(.linkReady, at: now).count == 1)
        #expect(machine.handle(.linkLost, at: now).isEmpty)
        #expect(machine.nextDeadline == start + .seconds(2))
        _ = say(20, from: 50)
        let second = FloorRequestID(rawValue: 2)
        #expect(machine.handle(.linkReady, at: now) == [.requestFloor(second, priority: 0)])
        var actions = machine.handle(.granted(first, duration: .seconds(60)), at: now)
        #expect(actions.isEmpty, "an answer of the connection before")
        actions = machine.handle(.granted(second, duration: .seconds(60)), at: now) + run(for: .milliseconds(500))
        #expect(media(actions).count == 70)
        // And lost for the third time, on the floor: that is the end of it.
        #expect(endings(machine.handle(.linkLost, at: now)).map(\.1) == [.linkUnavailable])
    }

    @Test mutating func `a link that comes and goes keeps nobody waiting for ever`() {
        _ = begin()
        _ = say(5)
        _ = machine.handle(.end, at: now)
        var ended: [TransmissionEnd] = []
        for _ in 0..<40 where ended.isEmpty {
            _ = machine.handle(.linkReady, at: now)
            ended += endings(run(for: .milliseconds(100))).map(\.1)
            _ = machine.handle(.linkLost, at: now)
            ended += endings(run(for: .milliseconds(100))).map(\.1)
        }
        #expect(ended.count == 1)
        #expect(now - start <= .seconds(3))
    }

    @Test mutating func `an answer has a second at least after a link that came late`() {
        _ = begin()
        _ = say(99)
        #expect(machine.handle(.linkReady, at: now).count == 1)
        #expect(say(40, from: 99).isEmpty)
        var actions = machine.handle(.granted(first, duration: .seconds(60)), at: now)
        actions += say(25, from: 139)
        #expect(media(actions).map(\.payload) == (0..<164).map { payload($0) })
    }

    @Test mutating func `the floor that another has taken meanwhile is waited for, and who has let go is denied`() {
        _ = begin()
        _ = say(10)
        _ = machine.handle(.linkReady, at: now)
        #expect(
            machine.handle(.queued(first, position: 1), at: now) == [
                .tell(.floorQueued(BurstID(number: 1), position: 1))
            ])
        _ = machine.handle(.end, at: now)
        _ = machine.handle(.linkLost, at: now)
        _ = begin(2)
        _ = say(10)
        _ = machine.handle(.end, at: now)
        _ = machine.handle(.linkReady, at: now)
        let denied = machine.handle(.queued(FloorRequestID(rawValue: 2), position: 1), at: now)
        #expect(endings(denied).map(\.1) == [.denied(.taken)])
    }

    @Test mutating func `a relay that has refused the member refuses every press at once, and what was held`() {
        _ = begin()
        _ = say(10)
        let ended = endings(machine.handle(.linkClosed, at: now))
        #expect(ended.map(\.1) == [.linkUnavailable])
        #expect(ended.first?.2.erased == 10)
        #expect(endings(begin(2)).map(\.1) == [.linkUnavailable])
        #expect(machine.isIdle)
        // Until the link is being made again.
        _ = machine.handle(.linkComing, at: now)
        #expect(begin(3).isEmpty)
        #expect(!machine.isIdle)
    }

    @Test mutating func `an emergency's burst keeps its priority while it waits for the link`() {
        _ = machine.handle(.begin(BurstID(number: 1), priority: 255), at: now)
        _ = say(1)
        #expect(machine.handle(.linkReady, at: now) == [.requestFloor(first, priority: 255)])
    }
}

/// Which ends of a link let a burst wait, as the whole client has them.
@Suite struct PressAndLinkTests {
    private let relay = RelayLinkError.unreachable("nobody")

    @Test func `only what nobody has refused may come soon`() {
        #expect(RelayLinkState.connecting.mayBeReadySoon)
        for error in [relay, .lost("gone"), .closedByRelay("restart"), .system("no socket"), .protocolViolation("x")] {
            #expect(RelayLinkState.unavailable(error, retryAfter: .seconds(30)).mayBeReadySoon)
            #expect(!RelayLinkState.unavailable(error, retryAfter: nil).mayBeReadySoon)
        }
        for error in [
            RelayLinkError.wrongRelayKey, .invitationRefused("no"), .full("x"), .versionMismatch("2"), .replaced,
        ] {
            #expect(!RelayLinkState.unavailable(error, retryAfter: .seconds(1)).mayBeReadySoon)
        }
        #expect(!RelayLinkState.stopped.mayBeReadySoon && !RelayLinkState.ready(channelName: "Yard").mayBeReadySoon)
    }

    @Test func `a press ends a long wait at once, and further ones keep their distance`() {
        var machine = RelayClientStateMachine()
        var now = Instant(nanoseconds: 1)
        _ = machine.handle(.join, at: now)
        #expect(machine.handle(.wanted, at: now).isEmpty, "it is being tried")
        for _ in 0..<6 {
            _ = machine.handle(.connectionEnded(relay), at: now)
            now = machine.nextDeadline ?? now
            _ = machine.handle(.deadline, at: now)
        }
        _ = machine.handle(.connectionEnded(relay), at: now)
        now = now + .seconds(5)
        #expect(machine.handle(.wanted, at: now) == [.tell(.connecting), .connect])
        _ = machine.handle(.connectionEnded(relay), at: now)
        #expect(machine.handle(.wanted, at: now).isEmpty)
        #expect(machine.nextDeadline == now + .milliseconds(250), "and the waits begin anew")
    }

    @Test func `a press begins an old attempt anew, and leaves a young one alone`() {
        var machine = RelayClientStateMachine()
        var now = Instant(nanoseconds: 1)
        _ = machine.handle(.join, at: now)
        for age in [1_000, 3_000, 3_000] {
            now = now + .milliseconds(age - 1)
            #expect(machine.handle(.wanted, at: now).isEmpty)
            now = now + .milliseconds(1)
            #expect(machine.handle(.wanted, at: now) == [.close(.none), .tell(.connecting), .connect])
            #expect(machine.nextDeadline == now + RelayClientStateMachine.connectTimeout)
        }
    }

    @Test func `a press does not press a relay that has refused`() {
        for cause in [JoinRefusal.channelFull, .relayBusy, .other] {
            var machine = RelayClientStateMachine()
            let now = Instant(nanoseconds: 1)
            _ = machine.handle(.join, at: now)
            _ = machine.handle(.connected, at: now)
            _ = machine.handle(.refused(.init(cause: cause, phrase: "no", retryAfter: .seconds(20))), at: now)
            #expect(machine.handle(.wanted, at: now + .seconds(5)).isEmpty)
            #expect(machine.nextDeadline == now + .seconds(20))
        }
        for error in [RelayLinkError.replaced, .wrongRelayKey] {
            var machine = RelayClientStateMachine()
            let now = Instant(nanoseconds: 1)
            _ = machine.handle(.join, at: now)
            _ = machine.handle(.connectionEnded(error), at: now)
            #expect(machine.handle(.wanted, at: now + .seconds(5)).isEmpty)
        }
    }
}
