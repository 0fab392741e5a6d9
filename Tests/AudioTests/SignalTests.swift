// Rate conversion, the codec and sample formats: measured, not looked at.
import COpus
import Glibc
import TestSupport
import Testing

@testable import Audio

@Suite struct SignalTests {
    private func convert(_ input: [Float], from: Int, to: Int, part: Int) throws -> [Float] {
        let resampler = try #require(Resampler(from: from, to: to, inputMax: part))
        var output: [Float] = []
        var buffer = [Float](repeating: 0, count: resampler.outputMax)
        var position = 0
        while position < input.count {
            let count = min(part, input.count - position)
            let made = input.withUnsafeBufferPointer { input in
                buffer.withUnsafeMutableBufferPointer {
                    resampler.process(input.baseAddress! + position, count: count, into: $0.baseAddress!)
                }
            }
            output += buffer[..<made]
            position += count
        }
        return output
    }

    private func sine(_ hertz: Double, rate: Int, seconds: Double) -> [Float] {
        (0..<Int(Double(rate) * seconds)).map { Float(0.5 * sin(2 * .pi * hertz * Double($0) / Double(rate))) }
    }

    @Test(arguments: [8_000, 11_025, 16_000, 22_050, 32_000, 44_100, 88_200, 96_000, 192_000, 47_999])
    func `a sine comes through at either rate in time and clean`(rate: Int) throws {
        for (from, to) in [(rate, 48_000), (48_000, rate)] {
            let hertz = 1_000.0
            let output = try convert(sine(hertz, rate: from, seconds: 0.5), from: from, to: to, part: from / 200)
            // Half of the filter is held back, no more.
            #expect(abs(output.count - to / 2) <= 60 * max(1, to / from + 1) * max(1, from / to))
            let expected = sine(hertz, rate: to, seconds: 0.5)
            var (signal, noise): (Double, Double) = (0, 0)
            // The first and last bits of a sine that begins and ends at once are no sine.
            for index in output.count / 10..<output.count * 9 / 10 {
                signal += Double(expected[index] * expected[index])
                noise += Double((output[index] - expected[index]) * (output[index] - expected[index]))
            }
            #expect(10 * log10(signal / max(noise, 1e-20)) > 60, "\(from) to \(to)")
        }
    }

    @Test func `what the lower rate cannot carry is not folded back`() throws {
        let output = try convert(sine(15_000, rate: 48_000, seconds: 0.2), from: 48_000, to: 16_000, part: 240)
        let loudest = output.dropFirst(200).dropLast(200).map(abs).max() ?? 1
        #expect(loudest < 0.5 * 0.001)
    }

    @Test func `an unusable rate is refused`() {
        #expect(Resampler(from: 0, to: 48_000, inputMax: 1) == nil)
        #expect(Resampler(from: 48_000, to: 1_000_000, inputMax: 1) == nil)
    }

    @Test func `the codec gives back what was spoken a little later`() throws {
        for duration in [OpusSettings.FrameDuration.milliseconds10, .milliseconds20] {
            var settings = OpusSettings()
            settings.frameDuration = duration
            settings.bitrate = 32_000
            let encoder = try OpusEncoder(settings)
            let decoder = try OpusDecoder()
            let speech = chirps(seconds: 1)
            var heard: [Float] = []
            var buffer = [Float](repeating: 0, count: OpusDecoder.samplesMax)
            var packet = [UInt8](repeating: 0, count: opusPayloadMax)
            for start in stride(from: 0, to: speech.count, by: duration.samples) {
                let length = speech.withUnsafeBufferPointer { speech in
                    packet.withUnsafeMutableBytes {
                        encoder.encode(speech.baseAddress! + start, count: duration.samples, into: $0)
                    }
                }
                #expect(length > 0)
                let count = packet.withUnsafeBytes { bytes in
                    let part = UnsafeRawBufferPointer(rebasing: bytes[..<Int(length)])
                    #expect(OpusDecoder.samples(in: part) == duration.samples)
                    return buffer.withUnsafeMutableBufferPointer { decoder.decode(part, into: $0.baseAddress!) }
                }
                #expect(count == duration.samples)
                heard += buffer[..<count]
            }
            let found = find(speech[24_000..<28_800], in: heard, 23_000..<26_000)
            #expect(abs(found.offset - 24_000 - encoder.lookahead) <= 96)
            #expect(found.likeness > 0.8)
        }
    }

    @Test(arguments: 0..<40) func `no packet crashes the decoder`(seed: Int) throws {
        var generator = SeededGenerator(seed: UInt64(seed))
        let decoder = try OpusDecoder()
        var buffer = [Float](repeating: 0, count: OpusDecoder.samplesMax)
        for _ in 0..<100 {
            let packet = (0..<Int.random(in: 0...300, using: &generator)).map { _ in
                UInt8.random(in: .min ... .max, using: &generator)
            }
            let (count, restored) = packet.withUnsafeBytes { bytes in
                buffer.withUnsafeMutableBufferPointer { buffer -> (Int, Int) in
                    guard OpusDecoder.samples(in: bytes) != nil else { return (0, 0) }
                    let count = decoder.decode(bytes, into: buffer.baseAddress!)
                    return (count, decoder.recover(960, from: bytes, into: buffer.baseAddress!))
                }
            }
            #expect(count <= OpusDecoder.samplesMax && restored <= OpusDecoder.samplesMax, "seed \(seed)")
            #expect(buffer.withUnsafeMutableBufferPointer { decoder.conceal(480, into: $0.baseAddress!) } == 480)
        }
        #expect([].withUnsafeBytes { OpusDecoder.samples(in: $0) } == nil)
    }

    @Test(arguments: [SampleFormat.unsigned8, .signed16, .signed24Packed, .signed32, .float32])
    func `every sample value survives encoding`(format: SampleFormat) {
        let wild: [Float] = [.nan, .infinity, -.infinity, 2, -2, 1, -1, 0, .leastNonzeroMagnitude]
        var bytes = [UInt8](repeating: 0, count: wild.count * 2 * 4)
        var back = [Float](repeating: 0, count: wild.count)
        wild.withUnsafeBufferPointer { wild in
            bytes.withUnsafeMutableBytes { bytes in
                format.encode(wild.baseAddress!, frames: wild.count, channels: 2, into: bytes.baseAddress!)
                back.withUnsafeMutableBufferPointer {
                    format.decode(bytes.baseAddress!, frames: wild.count, channels: 2, into: $0.baseAddress!)
                }
            }
        }
        let expected: [Float] = [0, 1, -1, 1, -1, 1, -1, 0, 0]
        #expect(zip(back, expected).allSatisfy { abs($0 - $1) < 0.02 })
    }
}
