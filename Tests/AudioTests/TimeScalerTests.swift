// Speech made shorter and longer, and the drift of two clocks taken out of it: measured in samples.
import Glibc
import MonotonicTime
import TestSupport
import Testing

@testable import Audio

@Suite struct TimeScalerTests {
    /// Puts frames through a scaler that changes each by as much as `change` says; gives what comes out.
    private func run(_ input: [Float], frame: Int = 480, _ change: (TimeScaler) -> Void) -> [Float] {
        let scaler = TimeScaler()
        var output: [Float] = []
        var place = 0
        func play(_ count: Int) {
            output += UnsafeBufferPointer(start: scaler.next, count: count)
            scaler.played(count)
        }
        while place < input.count {
            let count = min(frame, input.count - place)
            let room = scaler.room()
            for index in 0..<count { room[index] = input[place + index] }
            scaler.commit(count)
            place += count
            guard scaler.count >= TimeScaler.wanted else { continue }
            change(scaler)
            play(max(0, scaler.count - TimeScaler.wanted + frame))
        }
        play(scaler.count)
        return output
    }

    private func voice(_ hertz: Double, seconds: Double) -> [Float] {
        (0..<Int(seconds * 48_000)).map { index in
            let phase = 2 * .pi * hertz * Double(index) / 48_000
            return Float(0.3 * sin(phase) + 0.15 * sin(2 * phase + 1) + 0.1 * sin(3 * phase + 2))
        }
    }

    private func largestStep(_ samples: [Float]) -> Float {
        (1..<samples.count).map { abs(samples[$0] - samples[$0 - 1]) }.max() ?? 1
    }

    /// Times the samples go from below zero to above, a second.
    private func crossings(_ samples: [Float]) -> Double {
        let count = (1..<samples.count).count { samples[$0 - 1] < 0 && samples[$0] >= 0 }
        return Double(count) * 48_000 / Double(samples.count)
    }

    @Test(arguments: [85.0, 120, 210, 330], [120, 240, 360]) func `invented sound goes over to speech without a step`(
        hertz: Double, skipped: Int
    ) {
        let spoken = voice(hertz, seconds: 0.1)
        let scaler = TimeScaler()
        func put(_ samples: ArraySlice<Float>) {
            let room = scaler.room()
            for (index, sample) in samples.enumerated() { room[index] = sample }
            scaler.commit(samples.count)
        }
        func play(_ count: Int) -> [Float] {
            defer { scaler.played(count) }
            return Array(UnsafeBufferPointer(start: scaler.next, count: count))
        }
        put(spoken[..<1_600])
        var heard = play(scaler.count)
        // What a decoder invents is nearly what comes; the speech comes behind it.
        put(ArraySlice(spoken[1_600..<2_080].map { $0 * 0.9 }))
        heard += play(skipped)
        put(spoken[1_600..<2_560])
        scaler.join(invented: 480 - skipped, skipped: skipped)
        heard += play(scaler.count)
        #expect(heard.count == 2_560)
        // The step at 1,600 is the test's own.
        #expect(largestStep(Array(heard[1_600...])) < 1.1 * largestStep(spoken))
        #expect(zip(heard, spoken).allSatisfy { abs($0 - $1) < 0.11 * 0.55 })
        #expect(zip(heard, spoken).suffix(480).allSatisfy { abs($0 - $1) < 1e-6 })
    }

    @Test(arguments: [85.0, 120, 210, 330])
    func `a voice is shortened and lengthened without a step and keeps its pitch`(
        hertz: Double
    ) {
        let spoken = voice(hertz, seconds: 2)
        let calm = largestStep(spoken)
        let short = run(spoken) { _ = $0.shorten(by: 4_000) }
        let long = run(spoken) { _ = $0.lengthen(by: 4_000) }
        let (faster, slower) = (Double(spoken.count) / Double(short.count), Double(long.count) / Double(spoken.count))
        print("voice of \(hertz) Hz: at most \(faster) times as fast, \(slower) times as slow")
        // A fifth is the bound; most of it is used.
        #expect(faster > 1.15 && faster <= 1.27)
        #expect(slower > 1.1 && slower <= 1.27)
        for heard in [short, long] {
            #expect(largestStep(heard) < 1.3 * calm)
            #expect(abs(crossings(heard) / crossings(spoken) - 1) < 0.02)
        }
    }

    @Test func `noise is neither shortened nor lengthened`() {
        var generator = SeededGenerator(seed: 3)
        let noise = (0..<48_000).map { _ in Float.random(in: -0.5...0.5, using: &generator) }
        #expect(run(noise) { _ = $0.shorten(by: 2_000) } == noise)
        #expect(run(noise) { _ = $0.lengthen(by: 2_000) } == noise)
    }

    @Test func `a pause is cut down to what is heard as one and speech stays whole`() {
        // A second of voice, two of faint noise, a second of voice.
        var generator = SeededGenerator(seed: 4)
        let pause = (0..<96_000).map { _ in Float.random(in: -0.002...0.002, using: &generator) }
        let spoken = voice(150, seconds: 1) + pause + voice(150, seconds: 1)
        var isSpeech = true
        let heard = run(spoken) { scaler in
            isSpeech = (0..<480).contains { abs(scaler.next[$0]) > 0.01 }
            if !isSpeech { _ = scaler.shorten(by: 96_000) }
        }
        let first = heard.firstIndex { abs($0) > 0.01 } ?? 0
        let quiet = heard.indices.filter { index in
            index > first && index + 480 < heard.count && abs(heard[index]) < 0.003 && abs(heard[index + 480]) < 0.003
        }
        print("a pause of 2000 ms became \((heard.count - 96_000) / 48) ms")
        #expect(heard.count - 96_000 >= TimeScaler.pauseMin && heard.count - 96_000 < 20_000)
        #expect(!quiet.isEmpty)
        #expect(largestStep(heard) < 1.3 * largestStep(spoken))
    }

    /// 10 ms or 20 ms, whole or in odd parts: whatever is asked, no sample is invented out of nothing.
    @Test(arguments: 0..<8) func `any requests leave the scaler sane`(seed: Int) {
        var generator = SeededGenerator(seed: UInt64(seed))
        let scaler = TimeScaler()
        for _ in 0..<150 {
            if scaler.count < TimeScaler.wanted {
                let count = [120, 480, 960, 961, OpusDecoder.samplesMax].randomElement(using: &generator) ?? 480
                let room = scaler.room()
                let volume = Float(seed % 2 == 0 ? 1 : 1e-3)
                for index in 0..<count {
                    room[index] = Float(Int32(truncatingIfNeeded: generator.next())) / Float(Int32.max) * volume
                }
                scaler.commit(count)
            }
            let before = scaler.count
            switch Int.random(in: 0..<5, using: &generator) {
            case 0:
                let removed = scaler.shorten(by: .random(in: 0...9_000, using: &generator))
                #expect(removed >= 0 && scaler.count == before - removed, "seed \(seed)")
            case 1:
                let added = scaler.lengthen(by: .random(in: 0...9_000, using: &generator))
                #expect(added >= 0 && scaler.count == before + added, "seed \(seed)")
            case 2: scaler.reset()
            default: scaler.played(.random(in: 0...scaler.count, using: &generator))
            }
            for index in 0..<scaler.count where !(abs(scaler.next[index]) <= 1) {
                Issue.record("seed \(seed): sample \(scaler.next[index])")
                return
            }
        }
    }
}

@Suite struct DriftCorrectorTests {
    /// Sends a tone through a corrector that learns of the drift in the middle; gives what comes out.
    private func run(_ drift: Double, seconds: Double, learnedAfter: Double) throws -> [Float] {
        let corrector = try DriftCorrector()
        let input = (0..<Int(seconds * 48_000)).map { Float(0.5 * sin(2 * .pi * 400 * Double($0) / 48_000)) }
        var output: [Float] = []
        var block = [Float](repeating: 0, count: 240)
        corrector.begin()
        input.withUnsafeBufferPointer { input in
            guard let start = input.baseAddress else { return }
            var place = 0
            while place < input.count {
                if Double(place) > learnedAfter * 48_000 { corrector.set(drift) }
                if corrector.isWanted { corrector.engage(start + place - 2 * corrector.delay) }
                let (taken, made) = block.withUnsafeMutableBufferPointer {
                    corrector.process(
                        start + place, count: min(480, input.count - place), into: $0.baseAddress!, wanted: 240)
                }
                place += taken
                output += block[..<made]
                if taken == 0, made == 0 { break }
            }
        }
        return output
    }

    @Test(arguments: [-300.0, -200, 20, 200, 300])
    func `a tone is stretched by the drift and has no step where that begins`(
        drift: Double
    )
        throws
    {
        let heard = try run(drift, seconds: 4, learnedAfter: 1)
        // What is left in the filter, and the drift of 3 s.
        let expected = 192_000 - 3 * 48_000 * drift / 1e6
        print("drift \(drift) ppm: \(heard.count) samples of \(expected)")
        #expect(abs(Double(heard.count) - expected) < 80)
        // A sine's second difference is small everywhere: a step or a gap would stand out.
        let calm = 0.5 * pow(2 * Double.pi * 400 / 48_000, 2)
        var worst: Float = 0
        for index in 1..<heard.count - 1 {
            worst = max(worst, abs(heard[index + 1] - 2 * heard[index] + heard[index - 1]))
        }
        #expect(Double(worst) < 1.2 * calm)
    }

    @Test func `without drift samples pass unchanged`() throws {
        let heard = try run(0, seconds: 0.5, learnedAfter: 0)
        #expect(heard == (0..<24_000).map { Float(0.5 * sin(2 * .pi * 400 * Double($0) / 48_000)) })
    }
}
