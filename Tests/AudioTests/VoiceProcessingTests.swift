// What is done to speech before it is encoded: loudness, noise, and the copies against loss.
import MonotonicTime
import TestSupport
import Testing

@testable import Audio

@Suite struct VoiceProcessingTests {
    /// Passes `samples` through a gain control in frames of 10 ms.
    private func controlled(_ samples: [Float], _ control: inout GainControl) -> [Float] {
        var output = samples
        output.withUnsafeMutableBufferPointer { buffer in
            guard let base = buffer.baseAddress else { return }
            for start in stride(from: 0, to: buffer.count - 479, by: 480) { control.process(base + start, count: 480) }
        }
        return output
    }

    private func level(_ samples: ArraySlice<Float>) -> Float {
        samples.withUnsafeBufferPointer { $0.baseAddress.map { SpeechFramer.level($0, count: samples.count) } ?? 0 }
    }

    /// Words of half a second with as long pauses of faint noise.
    private func words(volume: Double, seconds: Double) -> [Float] {
        var generator = SeededGenerator(seed: 3)
        var samples = chirps(seconds: seconds, volume: volume)
        for index in samples.indices where index / 24_000 % 2 == 1 { samples[index] = 0 }
        for index in samples.indices { samples[index] += .random(in: -0.0005...0.0005, using: &generator) }
        return samples
    }

    @Test(arguments: [0.03, 0.9]) func `faint and loud speech come out alike and pauses are not turned up`(
        volume: Double
    ) {
        var control = GainControl()
        let spoken = words(volume: volume, seconds: 5)
        let output = controlled(spoken, &control)
        let wanted = min(GainControl.gainMax, max(GainControl.gainMin, GainControl.target - level(spoken[..<24_000])))
        #expect(abs(level(output[192_000..<216_000]) - level(spoken[192_000..<216_000]) - wanted) < 2.5)
        // In a pause of a second more, the gain stays.
        let before = control.decibels
        var generator = SeededGenerator(seed: 4)
        _ = controlled((0..<48_000).map { _ in .random(in: -0.0005...0.0005, using: &generator) }, &control)
        #expect(control.decibels == before)
    }

    @Test(arguments: 0..<6) func `nothing comes out above the ceiling and nothing is delayed`(seed: Int) {
        var generator = SeededGenerator(seed: UInt64(seed))
        var control = GainControl(fixed: seed % 2 == 0 ? nil : 30)
        // Bursts of all loudnesses, up to beyond full scale.
        var samples: [Float] = []
        while samples.count < 24_000 {
            let volume = Float.random(in: 0...1.5, using: &generator)
            samples += (0..<Int.random(in: 1...2_000, using: &generator)).map { _ in
                .random(in: -volume...volume, using: &generator)
            }
        }
        let output = controlled(samples, &control)
        let whole = samples.count / 480 * 480
        #expect(output[..<whole].allSatisfy { abs($0) <= GainControl.ceiling * 1.0001 }, "seed \(seed)")
        // Each sample keeps its place and its sign.
        #expect(zip(samples, output).prefix(whole).allSatisfy { $0 * $1 >= 0 }, "seed \(seed)")
    }

    @Test func `steady noise is made quieter and speech comes through five milliseconds later`() throws {
        var generator = SeededGenerator(seed: 5)
        let suppressor = try NoiseSuppressor()
        var samples = words(volume: 0.3, seconds: 4)
        for index in samples.indices { samples[index] += .random(in: -0.02...0.02, using: &generator) }
        var output = samples
        output.withUnsafeMutableBufferPointer { buffer in
            guard let base = buffer.baseAddress else { return }
            for start in stride(from: 0, to: buffer.count, by: 480) { suppressor.process(base + start, count: 480) }
        }
        // The pause after 3.5 s.
        #expect(level(output[172_000..<190_000]) < level(samples[172_000..<190_000]) - 6)
        let found = find(samples[150_000..<152_000], in: output, 150_000..<150_480)
        #expect(found.offset == 150_000 + NoiseSuppressor.block && found.likeness > 0.9)
        // Nothing of a burst is heard in the next.
        suppressor.begin()
        var silence = [Float](repeating: 0, count: NoiseSuppressor.block)
        silence.withUnsafeMutableBufferPointer { suppressor.process($0.baseAddress!, count: NoiseSuppressor.block) }
        #expect(silence.allSatisfy { $0 == 0 })
    }

    // MARK: Copies against loss

    @Test func `protection begins at three percent and ends at one`() {
        var settings = OpusSettings()
        settings.bitrate = 24_000
        var protection = LossProtection(settings)
        let told = [2, 3, 2, 100, 1, 2].map { protection.expect(percent: $0) }
        #expect(told.map(\.lossPercent) == [0, 5, 5, 30, 0, 0])
        #expect(told.map(\.isWidebandAtMost) == [false, true, true, true, false, false])
        #expect(told.map(\.bitrate) == [24_000, 32_000, 32_000, 32_000, 24_000, 24_000])
    }

    /// Decodes all packets but each fifth, which the one after it (or nothing) stands in for; how near that comes to
    /// what would have been heard, in dB.
    private func restored(_ duration: OpusSettings.FrameDuration, loss: Int, byCopies: Bool) throws -> Double {
        var settings = OpusSettings()
        settings.frameDuration = duration
        let encoder = try OpusEncoder(settings)
        var protection = LossProtection(settings)
        encoder.protect(protection.expect(percent: loss))
        let (whole, holed) = (try OpusDecoder(), try OpusDecoder())
        let speech = voice
        let samples = duration.samples
        var packet = [UInt8](repeating: 0, count: opusPayloadMax)
        var heard = [Float](repeating: 0, count: OpusDecoder.samplesMax)
        var stand = heard
        var before = heard
        var (signal, error) = (0.0, 1e-9)
        for (number, start) in stride(from: 0, to: speech.count - samples + 1, by: samples).enumerated() {
            let length = speech.withUnsafeBufferPointer { speech in
                packet.withUnsafeMutableBytes {
                    encoder.encode(speech.baseAddress! + start, count: samples, into: $0)
                }
            }
            try #require(length > 0)
            packet.withUnsafeBytes { bytes in
                let bytes = UnsafeRawBufferPointer(rebasing: bytes[..<Int(length)])
                before = heard
                _ = heard.withUnsafeMutableBufferPointer { whole.decode(bytes, into: $0.baseAddress!) }
                if number % 5 == 3 { return }
                stand.withUnsafeMutableBufferPointer { stand in
                    guard let base = stand.baseAddress else { return }
                    if number % 5 == 4 {
                        _ =
                            byCopies
                            ? holed.recover(samples, from: bytes, into: base) : holed.conceal(samples, into: base)
                        for index in 0..<samples where number > 20 {
                            signal += Double(before[index] * before[index])
                            error += Double((before[index] - base[index]) * (before[index] - base[index]))
                        }
                    }
                    _ = holed.decode(bytes, into: base)
                }
            }
        }
        return 10 * log10Of(signal / error)
    }

    @Test(arguments: [OpusSettings.FrameDuration.milliseconds10, .milliseconds20], [3, 10, 30])
    func `a lost frame comes back from the next ones copy`(duration: OpusSettings.FrameDuration, loss: Int) throws {
        let byCopy = try restored(duration, loss: loss, byCopies: true)
        let concealed = try restored(duration, loss: loss, byCopies: false)
        print("lost frames of \(duration.rawValue) ms at \(loss) %: \(byCopy) dB by copies, \(concealed) dB concealed")
        #expect(byCopy > concealed + 2)
    }
}
