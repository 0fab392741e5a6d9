// What is learned of a device: how deep its queue must be, when it is opened again, and who holds it.
import Glibc
import MonotonicTime
import TestSupport
import Testing

@testable import Audio

@Suite struct DeviceRulesTests {
    private func at(_ milliseconds: Int) -> Instant { Instant.zero + .milliseconds(milliseconds) }

    @Test func theQueueBeginsWithTheLeastAndGrowsWithEveryTimeItRunsEmpty() {
        var queue = QueueDepth(least: .microseconds(7_500))
        queue.started(at: at(0))
        #expect(queue.depth == .microseconds(7_500))
        let answer1 = queue.ranEmpty(at: at(100))
        #expect(answer1)
        #expect(queue.depth == .milliseconds(10))
        // Soon again: by double steps.
        let answer2 = queue.ranEmpty(at: at(200))
        #expect(answer2)
        #expect(queue.depth == .milliseconds(15))
        let answer3 = queue.ranEmpty(at: at(10_000))
        #expect(answer3)
        #expect(queue.depth == .microseconds(17_500))
        for time in 0..<100 { queue.ranEmpty(at: at(10_000 + time)) }
        #expect(queue.depth == QueueDepth.most)
        let answer4 = queue.ranEmpty(at: at(11_000))
        #expect(!answer4)
    }

    @Test func theQueueShrinksOnlyAfterCalmInWhichItNeverCameNearEmptiness() {
        var queue = QueueDepth(least: .milliseconds(5))
        queue.started(at: at(0))
        queue.ranEmpty(at: at(0))
        queue.ranEmpty(at: at(5_000))
        #expect(queue.depth == .milliseconds(10))
        // Near to empty once: not in this span.
        let answer5 = queue.found(.milliseconds(3), at: at(6_000))
        #expect(!answer5)
        let answer6 = queue.found(.milliseconds(8), at: at(40_000))
        #expect(!answer6)
        let answer7 = queue.found(.milliseconds(8), at: at(41_000))
        #expect(!answer7)
        let answer8 = queue.found(.milliseconds(8), at: at(71_000))
        #expect(answer8)
        #expect(queue.depth == .microseconds(7_500))
        // It was wrong to shrink: the next time takes twice as long.
        let answer9 = queue.ranEmpty(at: at(72_000))
        #expect(answer9)
        let answer10 = queue.found(.milliseconds(8), at: at(110_000))
        #expect(!answer10)
        let answer11 = queue.found(.milliseconds(8), at: at(133_000))
        #expect(answer11)
    }

    @Test(arguments: 0..<50 as Range<UInt64>) func theQueueKeepsItsBoundsWhateverHappens(seed: UInt64) {
        var generator = SeededGenerator(seed: seed)
        let least = Duration.microseconds(Int.random(in: 0...100_000, using: &generator))
        var queue = QueueDepth(least: least)
        var now = Instant.zero
        for _ in 0..<2_000 {
            now = now + .milliseconds(Int.random(in: 0...20_000, using: &generator))
            switch Int.random(in: 0..<10, using: &generator) {
            case 0: queue.ranEmpty(at: now)
            case 1: queue.started(at: now)
            default: queue.found(.microseconds(Int.random(in: 0...60_000, using: &generator)), at: now)
            }
            #expect(queue.depth >= queue.least && queue.depth <= QueueDepth.most, "seed \(seed)")
        }
    }

    @Test func whatADeviceHasShownIsRememberedByItsName() {
        let name = temporaryPath("device")
        var queue = QueueMemory.depth(of: name, least: .milliseconds(5))
        queue.ranEmpty(at: at(0))
        QueueMemory.remember(queue, of: name)
        #expect(QueueMemory.depth(of: name, least: .milliseconds(5)) == queue)
        // Another setting begins anew, and so does another device.
        #expect(QueueMemory.depth(of: name, least: .milliseconds(8)).depth == .milliseconds(8))
        #expect(QueueMemory.depth(of: name + "2", least: .milliseconds(5)).depth == .milliseconds(5))
    }

    @Test func whoHoldsACardIsToldByNameAndProcess() throws {
        let proc = temporaryPath("proc")
        defer { _ = Child(["rm", "-rf", proc])?.finish(within: .seconds(5)) }
        for folder in ["", "/asound", "/4711", "/asound/card0", "/asound/card1", "/asound/card1/pcm0p"] {
            mkdir(proc + folder, 0o700)
        }
        for folder in ["/asound/card0/pcm0c", "/asound/card0/pcm0c/sub0", "/asound/card1/pcm0p/sub0"] {
            mkdir(proc + folder, 0o700)
        }
        symlink("card1", proc + "/asound/Device")
        writeFile(proc + "/4711/comm", Array("aplay\n".utf8))
        writeFile(proc + "/asound/card0/pcm0c/sub0/status", Array("closed\n".utf8))
        writeFile(
            proc + "/asound/card1/pcm0p/sub0/status",
            Array("state: RUNNING\nowner_pid   : 4711\ntrigger_time: 1\n".utf8))
        let holder = "aplay (process 4711, card 1)"
        for name in ["default", "hw:1,0", "plughw:CARD=Device,DEV=0", "hw:1"] {
            #expect(DeviceHolders.all(of: name, proc: proc) == [holder], "\(name)")
        }
        #expect(DeviceHolders.all(of: "hw:0,0", proc: proc).isEmpty)
        #expect(DeviceHolders.all(of: "default", proc: "/no/such/proc").isEmpty)
        let words = "\(AudioError.deviceBusy("alsa:hw:1", holders: [holder]))"
        #expect(words.contains("aplay (process 4711, card 1) has it"))
    }
}
