// Microphones that take time to hear, and those that go away while somebody speaks.
import Glibc
import MonotonicTime
import TestSupport
import Testing
import Vocabulary

@testable import Audio

@Suite(.serialized) struct MicrophoneHearingTests {
    private let start = Instant(nanoseconds: 7_000_000_000)

    /// Gives `samples` to a hearing in blocks of 5 ms, and says at which sample it told or passed what.
    private func outcomes(_ samples: [Float], _ hearing: inout MicrophoneHearing) -> [(Int, MicrophoneHearing.Outcome)]
    {
        var found: [(Int, MicrophoneHearing.Outcome)] = []
        samples.withUnsafeBufferPointer { samples in
            for place in stride(from: 0, to: samples.count - 239, by: 240) {
                let first = start + CaptureStateMachine.duration(Int64(place))
                let outcome = hearing.take(
                    samples.baseAddress! + place, count: 240, first: first, at: first + .milliseconds(5))
                if outcome != .wait { found.append((place, outcome)) }
                if hearing.isPassed { return }
            }
        }
        return found
    }

    @Test func `a microphone hears when its noise begins and not by a click`() throws {
        var generator = SeededGenerator(seed: 1)
        // 800 ms of zeros and of a decoder's last bit, with a click, then a quiet room.
        var samples = (0..<38_400).map { _ in Float(Int.random(in: -1...1, using: &generator)) / 32_768 }
        samples[9_000] = 0.9
        samples += (0..<24_000).map { _ in Float.random(in: -0.0003...0.0003, using: &generator) }
        // It has shown before that it gives nothing of its own.
        var hearing = MicrophoneHearing(settling: SettlingTimes(.zero))
        hearing.begin(waitsForLevel: true, afterGoAhead: false, at: start)
        let found = outcomes(samples, &hearing)
        // Told once, within 40 ms; without an answer it goes ahead half a second later… which is past the end here.
        #expect(found.count == 1)
        let told = try #require(found.first)
        #expect(told.1 == .tell(really: true) && (38_400...40_320).contains(told.0))
        let tone = start + CaptureStateMachine.duration(Int64(told.0) + 1_000)
        hearing.goAhead(from: tone)
        var rest = MicrophoneHearing()
        swap(&rest, &hearing)
        let passed = samples.withUnsafeBufferPointer {
            rest.take($0.baseAddress!, count: 2_400, first: tone - .milliseconds(10), at: tone + .milliseconds(40))
        }
        #expect(passed == .pass(dropping: 480))
        #expect(rest.isPassed)
    }

    // MARK: Chipsets that give noise before the voice

    /// Noise of a mean power in dBFS.
    private func noise(_ decibels: Float, milliseconds: Int, _ generator: inout SeededGenerator) -> [Float] {
        // A uniform distribution's power is a third of its peak's.
        let peak = 1.732 * powf(10, decibels / 20)
        return (0..<milliseconds * 48).map { _ in Float.random(in: -peak...peak, using: &generator) }
    }

    /// When it told, in milliseconds of the samples; nil: never.
    private func told(_ samples: [Float], _ hearing: inout MicrophoneHearing) -> Double? {
        hearing.begin(waitsForLevel: true, afterGoAhead: true, at: start)
        return outcomes(samples, &hearing).first { $0.1 == .tell(really: true) }.map { Double($0.0 + 240) / 48 }
    }

    @Test func `of 100 links that come up late nothing from before is sent and the tone is soon`() throws {
        var generator = SeededGenerator(seed: 18)
        var latest = 0.0
        for press in 0..<100 {
            // Zeros, a decoder's last bit, the chipset's noise, or one after the other; then a room with people.
            let late = Int.random(in: 0...1_500, using: &generator)
            let cut = Int.random(in: 0...late, using: &generator)
            let before: [Float] =
                switch press % 4 {
                case 0: [Float](repeating: 0, count: late * 48)
                case 1: noise(-90, milliseconds: late, &generator)
                case 2: noise(-69, milliseconds: min(late, 990), &generator)
                default:
                    [Float](repeating: 0, count: cut * 48)
                        + noise(-69, milliseconds: min(late - cut, 990), &generator)
                }
            let came = Double(before.count) / 48
            var hearing = MicrophoneHearing()
            let heardAt = try #require(
                told(before + noise(-50, milliseconds: 400, &generator), &hearing), "press \(press)")
            #expect(heardAt >= came, "press \(press): told at \(heardAt) ms, the room at \(came) ms")
            latest = max(latest, heardAt - came)
            // The tone needs a moment more; what the microphone gave before it is void, and not a sample after it is.
            let tone = start + .nanoseconds(Int64(heardAt * 1e6)) + .milliseconds(20)
            hearing.goAhead(from: tone)
            var sample = [Float](repeating: 0.1, count: 4_800)
            let passed = hearing.take(
                &sample, count: 4_800, first: tone - .milliseconds(40), at: tone + .milliseconds(60))
            #expect(passed == .pass(dropping: 1_920), "press \(press)")
        }
        print("the go-ahead was told \(latest) ms after the first true sample at most")
        #expect(latest <= 40)
    }

    @Test func `a chipset's noise before a quiet room is waited through and learned`() throws {
        var generator = SeededGenerator(seed: 4)
        var hearing = MicrophoneHearing()
        var waits: [Double] = []
        for press in 0..<6 {
            let chipset = Int.random(in: 300...420, using: &generator)
            let samples =
                noise(-69, milliseconds: chipset, &generator) + noise(-77, milliseconds: 1_500, &generator)
            let heardAt = try #require(told(samples, &hearing), "press \(press)")
            #expect(heardAt >= Double(chipset), "press \(press): told at \(heardAt) ms of \(chipset) ms of noise")
            waits.append(heardAt)
        }
        // The first press knows nothing and waits for a second; the others know better.
        #expect(waits[0] >= 990 && waits[0] <= 1_010)
        #expect(waits.dropFirst().allSatisfy { $0 < 570 }, "\(waits)")
    }

    @Test func `a microphone without noise of its own is heard at once from its second press on`() throws {
        var generator = SeededGenerator(seed: 5)
        var hearing = MicrophoneHearing()
        let waits = try (0..<3).map { _ in
            try #require(told(noise(-72, milliseconds: 1_500, &generator), &hearing))
        }
        #expect(waits[0] > 900 && waits[1] < 60 && waits[2] < 60, "\(waits)")
        // Persons do not wait: speech within the wait is a room's sound.
        var fresh = MicrophoneHearing()
        let speech = noise(-72, milliseconds: 500, &generator) + noise(-30, milliseconds: 500, &generator)
        let heardAt = try #require(told(speech, &fresh))
        #expect(heardAt >= 500 && heardAt < 550)
    }

    @Test func `what is learned is bounded and forgotten after eight presses`() {
        var times = SettlingTimes()
        #expect(times.wait == .seconds(1))
        times.add(.seconds(60))
        #expect(times.wait == .seconds(2))
        for _ in 0..<8 { times.add(.zero) }
        #expect(times.wait == .milliseconds(20))
    }

    // MARK: Silence

    @Test func `a silent microphone is taken as it is after two and a half seconds`() throws {
        var hearing = MicrophoneHearing()
        hearing.begin(waitsForLevel: true, afterGoAhead: false, at: start)
        let found = outcomes([Float](repeating: 0, count: 48_000 * 4), &hearing)
        #expect(found.map(\.1) == [.tell(really: false), .pass(dropping: 0)])
        #expect((119_000...121_000).contains(found[0].0) && (143_000...145_000).contains(found[1].0))
    }

    @Test func `a microphone that gives nothing at all is not waited for longer`() {
        var hearing = MicrophoneHearing()
        hearing.begin(waitsForLevel: true, afterGoAhead: true, at: start)
        var sample: Float = 0
        let told = [2_400, 2_500, 3_001].map {
            hearing.take(&sample, count: 0, first: start, at: start + .milliseconds($0))
        }
        #expect(told == [.wait, .tell(really: false), .wait])
        #expect(hearing.isPassed)
    }

    @Test func `only blue ALSAIs waited for by itself`() throws {
        #expect(MicrophoneStart.automatic.waitsForLevel(of: .alsa("bluealsa:DEV=00:11:22:33:44:55,PROFILE=sco")))
        #expect(!MicrophoneStart.automatic.waitsForLevel(of: .alsa("default")))
        #expect(MicrophoneStart.whenHeard.waitsForLevel(of: .alsa("default")))
        #expect(!MicrophoneStart.atOnce.waitsForLevel(of: .alsa("bluealsa")))
    }

    @Test func `what is said before the go ahead is not sent`() throws {
        let path = temporaryPath("headset.wav")
        // 300 ms of a link that does not run yet.
        writeFile(path, wav([Float](repeating: 0, count: 14_400) + chirps(seconds: 3)))
        defer { unlink(path) }
        var configuration = CaptureConfiguration()
        configuration.microphoneStart = .whenHeard
        let engine = try CaptureEngine(device: .wav(path: path), configuration: configuration, logger: quiet)
        let owner = Owner(microphone: engine)
        let pressed = Instant.now
        engine.start()
        #expect(owner.run(for: .seconds(5)) { owner.outputs.contains { if case .hears = $0 { true } else { false } } })
        #expect(owner.frames.isEmpty && owner.begins.isEmpty)
        for case .hears(_, let after, let really, _) in owner.outputs {
            #expect(really && after >= .milliseconds(300))
        }
        let tone = Instant.now + .milliseconds(30)
        engine.goAhead(from: tone)
        #expect(owner.run(for: .seconds(5)) { owner.frames.count > 5 })
        let began = try #require(owner.begins.first)
        #expect(began.at >= tone - .microseconds(30) && began.at > pressed + .milliseconds(300))
        #expect(owner.frames.allSatisfy { $0.capturedAt >= began.at && $0.level > -40 })
        engine.stop(tail: .zero)
        #expect(owner.run(for: .seconds(5)) { owner.ends.map(\.reason) == [.stopped] })

        // Released before the microphone hears: nothing is sent, and it ends at once.
        let frames = owner.frames.count
        engine.start()
        engine.stop()
        #expect(owner.run(for: .seconds(5)) { owner.ends.count == 2 })
        #expect(owner.ends[1].reason == .stopped && owner.frames.count == frames && !engine.isCapturing)
    }
}
