// Several voices on one speaker: their sum, its loudness, and which of them is told of.
import Glibc
import MonotonicTime
import TestSupport
import Testing
import Vocabulary

@testable import Audio

@Suite struct VoiceMixerTests {
    private let block = 120

    private func tone(_ hertz: Double, _ volume: Double, samples: Int) -> [Float] {
        (0..<samples).map { Float(volume * sin(2 * .pi * hertz * Double($0) / 48_000)) }
    }

    /// How loud a frequency is in what is heard: the amplitude of its sine.
    private func amplitude(of hertz: Double, in samples: some Collection<Float>) -> Double {
        var (real, imaginary, weight) = (0.0, 0.0, 0.0)
        for (index, sample) in samples.enumerated() {
            // A window, so that a loud tone is not found at other frequencies.
            let window = 0.5 - 0.5 * cos(2 * .pi * Double(index) / Double(samples.count))
            let angle = 2 * Double.pi * hertz * Double(index) / 48_000
            real += window * Double(sample) * cos(angle)
            imaginary += window * Double(sample) * sin(angle)
            weight += window
        }
        return 2 * (real * real + imaginary * imaginary).squareRoot() / weight
    }

    /// Mixes voices, of which an empty one is silent.
    private func mix(_ voices: [[Float]], with mixer: VoiceMixer) -> [Float] {
        var heard: [Float] = []
        var output = [Float](repeating: 9, count: block)
        for start in stride(from: 0, to: voices.map(\.count).max() ?? 0, by: block) {
            output.withUnsafeMutableBufferPointer { output in
                mixer.mix(voices.count, into: output.baseAddress!, count: block) { voice, target in
                    guard voices[voice].count >= start + block else { return false }
                    for index in 0..<block { target[index] = voices[voice][start + index] }
                    return true
                }
            }
            heard += output
        }
        return heard
    }

    @Test func `a voice alone and a sum that is not too loud pass as they are`() {
        let one = tone(500, 1, samples: 4_800)
        #expect(mix([one], with: VoiceMixer(capacity: block)) == one)
        #expect(mix([[], one, []], with: VoiceMixer(capacity: block)) == one)
        let other = tone(1_200, 0.3, samples: 4_800)
        let quiet = one.map { $0 * 0.5 }
        #expect(mix([quiet, other], with: VoiceMixer(capacity: block)) == zip(quiet, other).map { $0 + $1 })
        #expect(mix([[], []], with: VoiceMixer(capacity: block)).isEmpty)
    }

    @Test func `a sum that is too loud is turned down without other sounds`() {
        let mixer = VoiceMixer(capacity: block)
        let voices = [500.0, 1_200, 1_700, 2_300].map { tone($0, 0.8, samples: 48_000) }
        let heard = mix(voices, with: mixer)
        #expect(heard.allSatisfy { abs($0) < 1 })
        // After the first moment it is as clean as each voice was.
        let settled = heard[24_000...]
        let loudness = [500.0, 1_200, 1_700, 2_300].map { amplitude(of: $0, in: settled) }
        // As loud as it can be: the loudest of the sum is at the ceiling.
        let peak = (0..<48_000).map { index in abs(voices.reduce(0) { $0 + $1[index] }) }.max() ?? 0
        let expected = 0.8 * Double(MixLimiter.ceiling / peak)
        #expect(loudness.allSatisfy { abs($0 / expected - 1) < 0.03 }, "\(loudness) for \(expected)")
        #expect((loudness.max() ?? 1) - (loudness.min() ?? 0) < 0.002)
        // Where the gain going up and down with each block would be heard: 48 dB below the voices.
        for other in [250.0, 700, 900, 2_000, 2_900, 4_000] {
            #expect(amplitude(of: other, in: settled) < expected / 250, "\(other) Hz")
        }
        // One is left, and is as loud as it was before long, without a step.
        let alone = mix([tone(500, 0.5, samples: 96_000)], with: mixer)
        #expect(amplitude(of: 500, in: alone.prefix(2_400)) < 0.3)
        #expect(abs(amplitude(of: 500, in: alone.suffix(4_800)) - 0.5) < 0.005)
        let steps = zip(alone.dropFirst(), alone).map { abs($0 - $1) }
        #expect((steps.max() ?? 1) < 0.5 * 2 * .pi * 500 / 48_000 * 1.1)
    }

    @Test func `what is bent stays in order and below full scale`() {
        var last: Float = -1
        for step in -400...400 {
            let bent = MixLimiter.bent(Float(step) / 100)
            #expect(bent > last && abs(bent) < 1)
            last = bent
        }
        #expect(MixLimiter.bent(0.5) == 0.5 && MixLimiter.bent(-0.8) == -0.8)
    }

    // MARK: The sound

    /// A tone as Opus packets of 10 ms.
    private func packets(_ hertz: Double, seconds: Double) throws -> [[UInt8]] {
        let samples = tone(hertz, 0.3, samples: Int(seconds * 48_000))
        let encoder = try OpusEncoder(OpusSettings())
        var packet = [UInt8](repeating: 0, count: opusPayloadMax)
        return stride(from: 0, to: samples.count - 479, by: 480).map { start in
            let length = samples.withUnsafeBufferPointer { samples in
                packet.withUnsafeMutableBytes { encoder.encode(samples.baseAddress! + start, count: 480, into: $0) }
            }
            return Array(packet[..<Int(length)])
        }
    }

    private struct Heard {
        var samples: [Float] = []
        var told: [String] = []
    }

    /// Plays packets, each voice's from its time on (in ms), and does `command` at a time.
    private func play(
        _ talkers: [(voice: Int, from: Int, packets: [[UInt8]])], for span: Int,
        at time: Int = .max, _ command: (PlaybackSound) -> Void = { _ in }
    ) throws -> Heard {
        let rings = try PlaybackRings()
        var speech: [SpeechRenderer] = []
        for _ in 0..<PlaybackEngine.voicesMax { speech.append(try SpeechRenderer(.init(), decoder: OpusDecoder())) }
        let sound = PlaybackSound(rings, speech: speech, toneVolume: 0)
        let start = Instant(nanoseconds: 5_000_000_000)
        var heard = Heard()
        var output = [Float](repeating: 0, count: playbackBlock)
        let blockTime = CaptureStateMachine.duration(Int64(playbackBlock))
        var now = start
        var isCommanded = false
        while now < start + .milliseconds(span) {
            if !isCommanded, time < .max, now >= start + .milliseconds(time) {
                isCommanded = true
                command(sound)
            }
            for talker in talkers {
                for (number, packet) in talker.packets.enumerated() {
                    let due = start + .milliseconds(talker.from + 10 * number)
                    guard due <= now, due > now - blockTime else { continue }
                    let frame = ReceivedFrame(
                        sequence: UInt16(number), timestamp: UInt32(480 * number), marker: number == 0, payload: packet,
                        receivedAt: now)
                    packet.withUnsafeBytes { sound.insert(PacketHeader(frame), payload: $0, voice: talker.voice) }
                    if number == talker.packets.count - 1 {
                        sound.end(voice: talker.voice, lastSequence: UInt16(number))
                    }
                }
            }
            output.withUnsafeMutableBufferPointer {
                sound.render(into: $0.baseAddress!, delay: .zero, shortfall: .zero, at: now)
            }
            heard.samples += output
            while let slot = rings.next() {
                switch slot {
                case .began(let voice, _, _, _, _): heard.told.append("began \(voice)")
                case .ended(let voice, _, let end, let counts, _):
                    heard.told.append("\(end) \(voice): \(counts.played)")
                default: break
                }
            }
            now = now + blockTime
        }
        #expect(sound.isIdle)
        return heard
    }

    private func heard(_ sound: Heard, _ hertz: Double, _ range: Range<Int>) -> Double {
        amplitude(of: hertz, in: sound.samples[range.lowerBound * 48..<range.upperBound * 48])
    }

    @Test func `frequencies tell that two are heard at once and each alone`() throws {
        let (low, high) = (try packets(500, seconds: 1.2), try packets(1_300, seconds: 1.2))
        let sound = try play([(0, 0, low), (3, 600, high)], for: 2_500)
        #expect(heard(sound, 500, 200..<500) > 0.2 && heard(sound, 1_300, 200..<500) < 0.02)
        #expect(heard(sound, 500, 800..<1_100) > 0.2 && heard(sound, 1_300, 800..<1_100) > 0.2)
        #expect(heard(sound, 500, 1_400..<1_700) < 0.02 && heard(sound, 1_300, 1_400..<1_700) > 0.2)
        #expect(sound.told == ["began 0", "began 3", "complete 0: 120", "complete 3: 120"])
    }

    @Test func `a voice that is dropped leaves the others`() throws {
        let (low, high) = (try packets(500, seconds: 0.6), try packets(1_300, seconds: 1.2))
        let sound = try play([(1, 0, low), (2, 0, high)], for: 2_000, at: 595) { $0.discard(voice: 1, .flushed) }
        #expect(heard(sound, 500, 200..<500) > 0.2)
        #expect(heard(sound, 1_300, 700..<1_000) > 0.2 && heard(sound, 500, 700..<1_000) < 0.02)
        #expect(sound.told.prefix(2).sorted() == ["began 1", "began 2"])
        #expect(sound.told.contains { $0.hasPrefix("flushed 1") } && sound.told.last == "complete 2: 120")
    }
}
