// A relay that hangs, and a network that is gone, while somebody talks: nobody goes on talking to nobody.
import Glibc
import MonotonicTime
import Reactor
import RelayProtocol
import TestSupport
import Testing
import Vocabulary

@testable import RelayClient
@testable import RelayServer

@Suite struct HungRelayTests {
    /// How long a talker may go on without being told that it is not heard: the client's time limit, and what the first packet after the
    /// last answer was on its way.
    private static let bound = HearingWatch.answerTimeout + .milliseconds(400)
    private static let times = [1, 3, 5, 6, 8, 12, 30]

    /// The first of three members has the floor and says nothing, the second one waits, and the relay is held up beyond the first one's time.
    private func overdue() -> (core: RelayCore, ids: [ConnectionID], now: Instant) {
        let yard = RelayChannelConfiguration.yard(FloorRules(hasQueue: true))
        var core = RelayCore(channels: [yard], random: SeededGenerator(seed: 1))
        let ids = (1...3).map { ConnectionID(number: UInt64($0)) }
        let now = Instant(nanoseconds: 1_000_000_000)
        for id in ids { _ = core.enter(id, by: yard.joinMessage("Member \(id.number)"), at: now) }
        let epoch = UInt64(core.channels[0].keys.present.epoch) << 48
        for id in ids.prefix(2) {
            let request = ClientMessage.FloorRequest(
                requestID: .first, keyID: epoch | id.number << 24 | 1, mayQueue: true)
            _ = core.handle(.message(id, .floorRequest(request)), at: now)
        }
        return (core, ids, now + .seconds(30))
    }

    @Test func `a member that goes while its turn is overdue is told of like any other talker`() {
        let (made, ids, due) = overdue()
        var (core, now) = (made, due)
        let actions = core.handle(.disconnected(ids[1]), at: now)
        let granted = actions.count { if case .note(.floorGranted) = $0 { true } else { false } }
        let ended = actions.count { if case .note(.burstEnded) = $0 { true } else { false } }
        #expect(granted == 1 && ended == 2, "the first end, and the grant and the end of the second: \(actions)")
        let told = actions.sent(to: ids[2]).filter {
            switch $0 {
            case .floorTaken, .floorIdle: true
            default: false
            }
        }
        #expect(told.count == 3, "\(told)")
        now = now + .seconds(1)
        #expect(core.handle(.deadline, at: now).isEmpty)
    }

    @Test func `a member whose turn is overdue when the relay is told to drain gets it, and is not denied`() {
        let (made, ids, due) = overdue()
        var (core, now) = (made, due)
        let told = core.handle(.drain(to: nil), at: now).sent(to: ids[1])
        #expect(told.contains { if case .floorGranted = $0 { true } else { false } }, "\(told)")
        #expect(!told.contains { if case .floorDeny = $0 { true } else { false } }, "\(told)")
        #expect(!core.isDrained)
        let gone = core.handle(.disconnected(ids[1]), at: now)
        now = now + RelayCore.closingTime
        let closed = (gone + core.handle(.deadline, at: now)).count {
            if case .close(_, .goingDown, _) = $0 { true } else { false }
        }
        #expect(closed == 2 && core.isDrained)
    }

    /// Three members; the first one talks for 40 s, in frames of 20 ms, unless it is told to stop.
    private struct Scene {
        let world: SimulatedWorld
        /// When each frame of the first burst was said.
        var saidAt: [Instant] = []
        let faultAt: Instant

        init(seed: UInt64) {
            world = SimulatedWorld(clients: 3, faults: SimulatedFaults(), seed: seed)
            for client in 0..<3 { world.clientHandles(client, .join) }
            world.run(until: world.now + .seconds(2))
            faultAt = world.now + .seconds(3)
        }

        /// The first member says so many frames in its burst of that number, or until it is told that the burst is over.
        mutating func talk(_ number: UInt32, frames: Int) -> [Instant] {
            let burst = BurstID(number: number)
            var times: [Instant] = []
            world.clientHandles(0, .begin(burst, priority: 0))
            for frame in 0..<frames where world.logs[0].ended[burst] == nil {
                times.append(world.now)
                world.clientHandles(
                    0,
                    .frame(
                        OutgoingFrame(
                            payload: [0, UInt8(number), UInt8(frame >> 8), UInt8(frame & 255)], samples: 960,
                            capturedAt: world.now)))
                world.run(until: world.now + .milliseconds(20))
            }
            world.clientHandles(0, .end)
            return times
        }

        /// The first member says so many frames, and a fault begins meanwhile; until 5 s after its `seconds` are over.
        mutating func talk(frames: Int = 2_000, through seconds: Int, _ fault: @escaping (SimulatedWorld) -> Void) {
            let world = world
            world.at(faultAt) { fault(world) }
            saidAt = talk(1, frames: frames)
            world.run(until: max(world.now, faultAt + .seconds(seconds)) + .seconds(5))
        }

        /// What nobody told the talker, and what nobody heard of it.
        func check(listeners: [Int] = [1, 2], bound: Duration, comment: Comment) {
            let burst = BurstID(number: 1)
            let ended = world.logs[0].ended[burst]
            #expect(ended != nil, comment)
            for listener in listeners {
                let heard = world.logs[listener].pieces["0 1"] ?? []
                let unheard = saidAt.indices.filter { !heard.contains(UInt16($0)) }
                guard let first = unheard.first else { continue }
                #expect(
                    ended?.0 != .completed, "\(unheard.count) frames were not heard, and nobody said so; \(comment)")
                let told = (world.logs[0].endedAt[burst] ?? world.now) - saidAt[first]
                #expect(told <= bound, "told after \(told); \(comment)")
            }
        }

        /// Everything works again: another burst is heard whole by everybody.
        mutating func checkRecovery(comment: Comment) {
            let times = talk(2, frames: 50)
            world.run(until: world.now + .seconds(20))
            #expect(times.count == 50 && world.logs[0].ended[BurstID(number: 2)]?.0 == .completed, comment)
            for listener in 1...2 {
                #expect(world.logs[listener].pieces["0 2"]?.count == 50, "listener \(listener); \(comment)")
                #expect(world.logs[listener].hearing == nil, comment)
            }
            for log in world.logs { #expect(log.violations.isEmpty && log.isReady, comment) }
            #expect(world.relay.channels.allSatisfy { $0.floor.holder == nil }, comment)
        }
    }

    @Test(arguments: times, [false, true])
    func `a talker is told in time that a relay hangs, and what it was not told of is heard`(
        seconds: Int, timersFirst: Bool
    ) {
        for round in 0..<8 {
            let seed = SeededGenerator.seed(for: "\(seconds) \(timersFirst) \(round)")
            var scene = Scene(seed: seed)
            scene.talk(through: seconds) { $0.stopRelay(for: .seconds(seconds), timersFirst: timersFirst) }
            let comment: Comment = "stopped for \(seconds) s, seed \(seed)"
            scene.check(bound: Self.bound, comment: comment)
            if seconds <= 3 { #expect(scene.world.logs[0].ended[BurstID(number: 1)]?.0 == .completed, comment) }
            scene.checkRecovery(comment: comment)
        }
    }

    @Test(arguments: times, [(true, false), (false, true), (true, true)])
    func `a talker is told in time that its network is gone, in whichever direction`(
        seconds: Int, direction: (up: Bool, down: Bool)
    ) {
        let seed = SeededGenerator.seed(for: "\(seconds) \(direction)")
        var scene = Scene(seed: seed)
        scene.talk(through: seconds) {
            $0.blackOut(0, up: direction.up, down: direction.down, for: .seconds(seconds))
        }
        let comment: Comment = "\(seconds) s without \(direction), seed \(seed)"
        scene.check(bound: Self.bound, comment: comment)
        if seconds <= 3 { #expect(scene.world.logs[0].ended[BurstID(number: 1)]?.0 == .completed, comment) }
        scene.checkRecovery(comment: comment)
    }

    @Test(arguments: times, [(true, false), (false, true), (true, true)])
    func `a listener whose network was gone hears the burst from where it was, and to its end`(
        seconds: Int, direction: (up: Bool, down: Bool)
    ) {
        // It goes on behind the gap, or is over before that ends.
        for frames in [2_000, 300] {
            let seed = SeededGenerator.seed(for: "\(seconds) \(direction) \(frames)")
            var scene = Scene(seed: seed)
            let world = scene.world
            scene.talk(frames: frames, through: seconds) {
                $0.blackOut(1, up: direction.up, down: direction.down, for: .seconds(seconds))
            }
            let comment: Comment = "\(seconds) s without \(direction), \(frames) frames, seed \(seed)"
            #expect(world.logs[0].ended[BurstID(number: 1)]?.0 == .completed, comment)
            #expect(world.logs[2].pieces["0 1"]?.count == frames, comment)
            // What is over is kept for 15 s.
            if frames == 2_000 || seconds <= 12 {
                #expect(world.logs[1].pieces["0 1"]?.count == frames, comment)
            }
            scene.checkRecovery(comment: comment)
        }
    }

    // MARK: The rules, one by one

    @Test func `the burst is over when its time has passed, whether a timer or a packet comes first`() {
        for isPacketFirst in [true, false] {
            var machine = FloorControlStateMachine()
            let request = FloorControlStateMachine.Request(
                ssrc: SSRC(rawValue: 7), member: .numbered(1), requestID: .first, keyID: 1)
            var now = Instant(nanoseconds: 1_000_000_000)
            _ = machine.handle(.request(request), at: now)
            _ = machine.media(ssrc: request.ssrc, keyID: 1, sequence: 1, marker: true, at: now)
            now = now + .seconds(8)
            let event: FloorControlStateMachine.Event =
                isPacketFirst ? .release(ssrc: request.ssrc, requestID: .first, lastSequence: 2) : .deadline
            let actions = machine.handle(event, at: now)
            #expect(actions.first == .revoke(request, .heldUp))
            #expect(machine.holder == nil)
        }
    }

    @Test func `what came in time is read after the relay was held up, though its time has passed`() {
        var machine = FloorControlStateMachine()
        let request = FloorControlStateMachine.Request(
            ssrc: SSRC(rawValue: 7), member: .numbered(1), requestID: .first, keyID: 1)
        var now = Instant(nanoseconds: 1_000_000_000)
        _ = machine.handle(.request(request), at: now)
        _ = machine.media(ssrc: request.ssrc, keyID: 1, sequence: 1, marker: true, at: now)
        _ = machine.handle(.release(ssrc: request.ssrc, requestID: .first, lastSequence: 2), at: now)
        now = now + .seconds(4)
        #expect(machine.handle(.deadline, at: now).isEmpty)
        #expect(
            machine.media(ssrc: request.ssrc, keyID: 1, sequence: 2, marker: false, at: now)
                == .forward(isFirst: false, endsBurst: true))
        #expect(machine.handle(.deadline, at: now).count == 1)
        // Not twice, and not when listeners have given it up.
        _ = machine.handle(.request(request), at: now)
        _ = machine.media(ssrc: request.ssrc, keyID: 1, sequence: 3, marker: true, at: now)
        _ = machine.handle(.release(ssrc: request.ssrc, requestID: .first, lastSequence: 5), at: now)
        now = now + .seconds(5)
        #expect(machine.handle(.deadline, at: now).count == 1)
        #expect(machine.holder == nil)
    }

    @Test func `only the relay's answers to what is said tell that it hears`() {
        var watch = HearingWatch()
        var now = Instant(nanoseconds: 1_000_000_000)
        #expect(watch.nextDeadline == nil)
        watch.sent(at: now)
        now = now + .seconds(3)
        watch.sent(at: now)
        #expect(watch.nextDeadline == now + .seconds(1))
        watch.answered()
        #expect(watch.nextDeadline == nil)
        watch.sent(at: now)
        watch.released(at: now)
        watch.answered()
        #expect(watch.nextDeadline == now + .seconds(6), "the end of the burst is awaited")
        watch.concluded()
        #expect(watch.nextDeadline == nil)
        // This machine was held up itself: the answers may be there.
        watch.sent(at: now)
        now = now + .seconds(9)
        var isGone = watch.isGone(at: now)
        #expect(!isGone)
        now = now + .seconds(4)
        isGone = watch.isGone(at: now)
        #expect(isGone && watch.nextDeadline == nil)
        // One that is always late does not wait for ever.
        watch.sent(at: now)
        for round in 1...2 {
            now = now + .seconds(9)
            isGone = watch.isGone(at: now)
            #expect(isGone == (round == 2))
        }
    }

    // MARK: Over sockets

    @Test(.timeLimit(.minutes(3))) func `a relay that stands still for eight seconds leaves nobody talking to nobody`()
        async throws
    {
        let isInTime = { (told: Duration) in told < .seconds(6) && told > .seconds(3) }
        let told = try await attempts(3, until: isInTime) { try await talkToStandingRelay() }
        #expect(isInTime(told), "told after \(told)")
    }

    /// How long somebody talks to a relay that stands still before it is told; then the relay goes on, and they talk again.
    private func talkToStandingRelay() async throws -> Duration {
        let relay = try await TestRelay()
        let alice = try await TestClient.joined("Alice", relay)
        let bob = try await TestClient.joined("Bob", relay)
        await alice.client.beginBurst(priority: 0)
        let talking = Task {
            for number in 0..<600 {
                await alice.client.send(
                    OutgoingFrame(payload: TestClient.payload(1, number), samples: 960, capturedAt: .now))
                try await Task.sleep(for: .milliseconds(20))
            }
        }
        try await bob.recorder.wait("the first frame") { if case .frame = $0 { true } else { nil } }
        let stopped = ContinuousClock.now
        relay.server.loop.execute { [loop = relay.server.loop] in loop.waiting { _ = usleep(8_000_000) } }
        let (end, _, _) = try await alice.transmissionEnd()
        let told = ContinuousClock.now - stopped
        #expect(end == .linkUnavailable)
        talking.cancel()
        let start = alice.recorder.events.count
        _ = try await bob.heardEnd()
        try await alice.untilReady(from: start)
        let heard = bob.recorder.events.count
        try await alice.talk(2, frames: 10)
        try await bob.recorder.wait("the last word", from: heard) {
            if case .frame(let frame) = $0, frame.payload == TestClient.payload(2, 9) { true } else { nil }
        }
        await relay.server.stop()
        return told
    }
}
