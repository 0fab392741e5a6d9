// When a device that moves nothing counts as stalled, and when it is the machine that stood still.
import Glibc
import MonotonicTime
import Testing

@testable import Audio

@Suite struct StallClockTests {
    private func at(_ milliseconds: Int) -> Instant { Instant.zero + .milliseconds(milliseconds) }

    @Test func `a device that is waited for in vain for two seconds has stalled`() {
        var clock = StallClock()
        clock.moved(at: at(1_000))
        for wait in 1...20 {
            let early = clock.movedNothing(at: at(1_000 + wait * 100))
            #expect(!early)
        }
        let stalled = clock.movedNothing(at: at(3_100))
        #expect(stalled)
        clock.moved(at: at(3_200))
        let again = clock.movedNothing(at: at(3_300))
        #expect(!again)
    }

    @Test func `a halt of the machine is no stall of its device`() {
        var clock = StallClock()
        clock.moved(at: at(0))
        let once = clock.movedNothing(at: at(60_000))
        #expect(!once)
        // What it is watched for afterwards counts.
        var waits = 0
        while !clock.movedNothing(at: at(60_100 + waits * 100)), waits < 100 { waits += 1 }
        #expect((17...19).contains(waits))
    }

    /// A program that was halted for longer than a device may be still goes on speaking and hearing.
    @Test func `a burst goes on after the program was halted`() throws {
        let program = try #require(probe, "AudioProbe was not built: swift build --build-tests")
        let child = try #require(Child([program, "press", "null", "null"]))
        try #require(child.wait(for: "ready"), "\(child.text)")
        child.say("1")
        try #require(child.wait(for: "playback-began"), "\(child.text)")
        kill(child.identifier, SIGSTOP)
        usleep(UInt32(StallClock.limit.milliseconds * 1_000) + 200_000)
        kill(child.identifier, SIGCONT)
        child.say("t")
        #expect(child.wait(for: "tone-ended"), "\(child.text)")
        child.say("0")
        #expect(child.wait(for: "playback-ended"), "\(child.text)")
        child.say("q")
        let output = child.finish(within: .seconds(20))
        #expect(output.contains("capture-ended burst=1 reason=stopped"), "\(output)")
        #expect(!output.contains("failed"), "\(output)")
    }
}
