// A worker's view of the thread that has the rules.
import MonotonicTime
import Testing

@testable import RelayClient
@testable import RelayServer

@Suite struct RulesWatchTests {
    @Test func `a report that is not taken for half a second tells that the rules stand still, until it is`() {
        var watch = RulesWatch()
        var now = Instant(nanoseconds: 1_000_000_000)
        func hangs(_ handled: UInt64) -> Bool { watch.isHanging(handled: handled, at: now) }
        #expect(!hangs(0), "nothing was reported")
        watch.reported(3, at: now)
        now = now + .milliseconds(400)
        // Those behind it are no younger news.
        watch.reported(9, at: now)
        var isHanging = hangs(2)
        #expect(!isHanging)
        now = now + .milliseconds(100)
        isHanging = hangs(2)
        #expect(isHanging)
        isHanging = hangs(3)
        #expect(!isHanging, "the newest has waited for a tenth of a second")
        now = now + .milliseconds(400)
        isHanging = hangs(8)
        #expect(isHanging, "the oldest was taken, and the newest waits")
        isHanging = hangs(9)
        #expect(!isHanging, "everything is taken")
        now = now + .seconds(10)
        isHanging = hangs(9)
        #expect(!isHanging)
        watch.reported(10, at: now)
        isHanging = hangs(9)
        #expect(!isHanging, "it was made just now")
    }

    @Test func `a talker knows before the rules end its burst`() {
        #expect(RulesWatch.timeout + HearingWatch.answerTimeout < FloorControlStateMachine.Timers().mediaTimeout)
    }
}
