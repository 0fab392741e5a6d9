// Sound cards whose clocks run apart: an hour of talk in virtual time, and the estimate under jitter.
import MonotonicTime
import TestSupport
import Testing

@testable import Audio

@Suite struct DriftTests {
    private struct Hour {
        var milliseconds = 3_600_000
        var talker = 0.0
        var speaker = 0.0
        var jitter = 5.0
        var corrects = true
        /// Milliseconds that a burst and the silence after it last.
        var burst = 3_600_000
        var silence = 0
    }

    private struct Outcome {
        var bench = JitterBench()
        /// Mean delay behind the quickest packet within each minute, in milliseconds.
        var minutes: [Double] = []
        var drift = 0.0
        var packets = 0
    }

    /// Frames, in milliseconds.
    private static let frame = 10

    /// An hour; the talker's card makes frames of its own time, the speaker's takes a block of its own at once.
    private func run(_ hour: Hour, seed: UInt64) -> Outcome {
        var generator = SeededGenerator(seed: seed)
        var outcome = Outcome()
        outcome.bench.speakerPartsPerMillion = hour.speaker
        let start = outcome.bench.now
        // The speaker's card against this machine's clock, as the playback thread sees it.
        var card = ClockSlope()
        let perBurst = hour.burst / Self.frame
        let perMinute = 60_000 / Self.frame
        let period = hour.burst + hour.silence
        var (sum, count) = (0.0, 0)
        var blocks: Int64 = 0
        func play(until end: Instant, burst origin: Instant) {
            // A server hands on now a little more, now a little less.
            let wobble = Int64(generator.next() % 3_000_000)
            card.observe(
                outcome.bench.now.nanoseconds + wobble
                    - CaptureStateMachine.duration(blocks * Int64(playbackBlock)).nanoseconds,
                at: outcome.bench.now.nanoseconds)
            if hour.corrects {
                outcome.bench.correction = outcome.bench.machine.talkerPartsPerMillion + card.partsPerMillion
            }
            while outcome.bench.now < end {
                outcome.bench.play(blocks: 1)
                blocks += 1
            }
            for transit in outcome.bench.transits { sum += Double(transit - origin.nanoseconds) / 1e6 }
            count += outcome.bench.transits.count
            outcome.bench.transits.removeAll(keepingCapacity: true)
            outcome.bench.played.removeAll(keepingCapacity: true)
        }
        for place in 0..<hour.milliseconds / period {
            let origin = start + .milliseconds(place * period)
            var came = origin
            for step in 0..<perBurst {
                let number = place * perBurst + step
                let delay = 30e6 + Double(generator.next() % 1_000) / 1_000 * hour.jitter * 1e6
                came =
                    origin
                    + .nanoseconds(Int64(Double((step + 1) * Self.frame) * 1e6 / (1 + hour.talker / 1e6) + delay))
                play(until: came, burst: origin)
                outcome.bench.insert(
                    number % 65_536, time: (place * period + step * Self.frame) * 48, marker: step == 0,
                    samples: Self.frame * 48, at: came)
                outcome.packets += 1
                if number % perMinute == perMinute - 1, count > 0 {
                    // Without the drift of the talker's clock against this one, up to the minute's middle.
                    let apart = -Double((step - perMinute / 2) * Self.frame) * hour.talker / 1e6
                    outcome.minutes.append(
                        sum / Double(count) - Double(30 + Self.frame) - (hour.silence == 0 ? apart : 0))
                    (sum, count) = (0, 0)
                }
            }
            outcome.bench.machine.end(lastSequence: UInt16((place * perBurst + perBurst - 1) % 65_536))
            play(until: came + .milliseconds(200), burst: origin)
        }
        outcome.drift = outcome.bench.correction
        return outcome
    }

    private func report(_ hour: Hour, _ outcome: Outcome, _ what: String) {
        let counts = outcome.bench.machine.statistics
        print(
            "drift: \(what), talker \(Int(hour.talker)) ppm, speaker \(Int(hour.speaker)) ppm:",
            "corrected \(Int(outcome.drift.rounded())) ppm, delay \((outcome.minutes.first ?? 0).rounded()) ms in the first minute,",
            "\((outcome.minutes.last ?? 0).rounded()) ms in the last, \((outcome.minutes.max() ?? 0).rounded()) ms at most;",
            "concealed \(counts.concealedSamples / 48) ms, lost \(counts.lost), made faster \(counts.acceleratedSamples / 48) ms,",
            "slower \(counts.expandedSamples / 48) ms")
    }

    @Test(arguments: [(200.0, -200.0), (-200, 200)])
    func `a continuous hour grows no delay and has no gaps`(talker: Double, speaker: Double) {
        var hour = Hour()
        (hour.talker, hour.speaker) = (talker, speaker)
        let outcome = run(hour, seed: 9)
        report(hour, outcome, "one hour without a pause")
        let counts = outcome.bench.machine.statistics
        #expect(abs(outcome.drift - (talker - speaker)) < 30)
        #expect(outcome.minutes.allSatisfy { $0 > 0 && $0 < 40 })
        #expect(abs((outcome.minutes.last ?? 0) - outcome.minutes[1]) < 8)
        #expect(counts.lost == 0 && counts.late == 0)
        #expect(counts.played == outcome.packets)
        #expect(counts.concealedSamples == 0)
        // Of 1440 ms that the clocks came apart.
        #expect((counts.acceleratedSamples + counts.expandedSamples) / 48 < 50)
    }

    @Test func `an hour of bursts grows no delay`() {
        var hour = Hour()
        hour.talker = 200
        (hour.burst, hour.silence) = (8_000, 4_000)
        let outcome = run(hour, seed: 10)
        report(hour, outcome, "an hour of bursts of 8 s")
        let counts = outcome.bench.machine.statistics
        #expect(outcome.minutes.allSatisfy { $0 > 0 && $0 < 40 })
        #expect(counts.lost == 0 && counts.concealedSamples == 0)
        #expect(counts.played == outcome.packets)
        #expect(outcome.bench.ends.allSatisfy { $0 == .complete })
    }

    /// What the correction is for: without it, speech has to be made shorter or longer by all of the drift.
    @Test func `without correction speech is rescaled by the whole drift`() {
        var hour = Hour()
        hour.talker = 200
        hour.milliseconds = 900_000
        hour.burst = hour.milliseconds
        hour.corrects = false
        let outcome = run(hour, seed: 9)
        report(hour, outcome, "not corrected, a quarter of an hour")
        #expect(outcome.bench.machine.statistics.acceleratedSamples / 48 > 120)
    }

    @Test func `the slope is found under jitter and a step is none`() {
        for (jitter, error) in [(0.0, 2.0), (5, 15), (20, 40)] {
            var generator = SeededGenerator(seed: 3)
            var slope = ClockSlope()
            var worst = 0.0
            for step in 0..<20_000 {
                let time = Int64(step) * 10_000_000
                var value = Double(time) * 150 / 1e6 + Double.random(in: 0...jitter, using: &generator) * 1e6
                // Another route after 100 s.
                if step > 10_000 { value += 40e6 }
                slope.observe(Int64(value), at: time)
                if step > 6_000 { worst = max(worst, abs(slope.partsPerMillion - 150)) }
            }
            print("slope of 150 ppm under jitter of \(jitter) ms: \(slope.partsPerMillion), worst error \(worst)")
            #expect(worst < error)
        }
    }
}
