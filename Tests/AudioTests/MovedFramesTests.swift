// A PCM without a clock is told from a card whose clock is another than this machine's.
import MonotonicTime
import Testing

@testable import Audio

@Suite struct MovedFramesTests {
    private let start = Instant.zero + .seconds(100)

    /// An hour of playing on a card that is fast or slow: it is never taken for one without a clock, and
    /// what is ahead is never much more than what waits.
    @Test(arguments: [-500, -200, 0, 200, 500]) func `a cards drift is no lack of a clock`(partsPerMillion: Int) {
        let rate = 48_000.0 * (1 + Double(partsPerMillion) / 1e6)
        var moved = MovedFrames(rate: 48_000, at: start)
        var (written, most, least, pauses) = (0, 0, Int.max, 0)
        for step in 0..<180_000 {
            let now = start + .milliseconds(step * 20)
            let played = Int(Double(step) * 0.02 * rate)
            if written > played { moved.isSeen(waiting: written - played, at: now) }
            // Now and then the server has taken everything, and plays it.
            let ahead = moved.ahead(at: now)
            if step > 10 { (most, least) = (max(most, ahead), min(least, ahead)) }
            if moved.pause(beyond: 1_200, at: now) != nil { pauses += 1 }
            moved.add(played + 1_200 - written)
            written = played + 1_200
        }
        #expect(pauses == 0)
        #expect(least > 0 && most < 1_500, "\(least)…\(most) frames ahead")
    }

    /// The same for reading, where nothing is ever seen to wait.
    @Test(arguments: [-500, 0, 500]) func `a microphones drift is none`(partsPerMillion: Int) {
        let rate = 48_000.0 * (1 + Double(partsPerMillion) / 1e6)
        var moved = MovedFrames(rate: 48_000, at: start)
        var (read, pauses) = (0, 0)
        for step in 1..<180_000 {
            let now = start + .milliseconds(step * 20)
            if moved.pause(at: now) != nil { pauses += 1 }
            let there = Int(Double(step) * 0.02 * rate)
            moved.add(there - read)
            read = there
        }
        #expect(pauses == 0)
    }

    @Test func `what takes everything at once is left alone until its time has come`() {
        var moved = MovedFrames(rate: 48_000, at: start)
        var now = start
        var frames = 0
        for _ in 0..<10_000 {
            if let pause = moved.pause(beyond: 360, at: now) { now = pause }
            moved.add(120)
            frames += 120
        }
        let ahead = Double(frames) / 48 - (now - start).milliseconds
        #expect(ahead >= 0 && ahead < 100, "\(ahead) ms ahead")
    }

    @Test func `a server that holds what it took is not taken for one that ran dry`() {
        var moved = MovedFrames(rate: 48_000, at: start)
        moved.add(960)
        moved.isSeen(waiting: 960, at: start)
        // It took all of it at once; 20 ms later, and not before, it has been heard.
        #expect(moved.ahead(at: start + .milliseconds(15)) > 200)
        #expect(moved.ahead(at: start + .milliseconds(21)) <= 0)
    }
}
