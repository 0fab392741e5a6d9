import Bridge
import BusTestSupport
import Reactor
import Synchronization
import Testing

@testable import pttd

@Suite(.timeLimit(.minutes(1))) struct PolicyClockTests {
    private final class Wall: Sendable {
        private let time: Mutex<PolicyClock.TimeOfDay>
        init(_ minute: Int, _ second: Int) { time = Mutex(PolicyClock.TimeOfDay(minute: minute, second: second)) }
        var now: PolicyClock.TimeOfDay { time.withLock { $0 } }
        func set(_ minute: Int) { time.withLock { $0 = PolicyClock.TimeOfDay(minute: minute, second: 0) } }
    }

    @Test func theEndOfTheHoursIsToldWhenItComes() async throws {
        var policy = JoinPolicy()
        policy.hours = [try #require(JoinPolicy.Hours("08:00-18:00"))]
        let loop = try EventLoop(name: "test")
        let wall = Wall(1_079, 59)
        let clock = PolicyClock(policy, loop: loop) { wall.now }
        let told = Recorder<Bool>()
        #expect(await clock.isOpen)
        await clock.start { told.record($0) }
        // One second before six; the wall clock then says so.
        wall.set(1_080)
        #expect(try await told.wait(for: 1) == [false])
        // Set back, or woken in the morning.
        wall.set(480)
        await clock.look()
        #expect(told.all == [false, true])
        await clock.stop()
        loop.stop()
    }

    @Test func withoutHoursNothingIsWaitedFor() async throws {
        let loop = try EventLoop(name: "test")
        let clock = PolicyClock(JoinPolicy(), loop: loop)
        await clock.start { _ in }
        #expect(await clock.isOpen)
        #expect(await !clock.isWaiting)
        await clock.stop()
        loop.stop()
    }
}
