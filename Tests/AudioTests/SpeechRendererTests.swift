// Opus packets through jitter buffer, decoder, time scaling and drift correction, in virtual time.
import Glibc
import MonotonicTime
import TestSupport
import Testing
import Vocabulary

@testable import Audio

@Suite struct SpeechRendererTests {
    /// Syllables of a voice that glides, with short stops between them and a pause every two seconds, in 10 ms packets.
    private static func speech(seconds: Double) throws -> (samples: [Float], packets: [[UInt8]]) {
        var samples: [Float] = []
        var phase = 0.0
        for index in 0..<Int(seconds * 48_000) {
            let time = Double(index) / 48_000
            phase += 2 * .pi * (130 + 25 * sin(2 * .pi * 0.7 * time)) / 48_000
            let syllable = max(0, sin(2 * .pi * 2.2 * time))
            let isPause = time.truncatingRemainder(dividingBy: 2) > 1.6
            let sound = 0.3 * sin(phase) + 0.2 * sin(2 * phase) + 0.15 * sin(5 * phase) + 0.05 * sin(12 * phase)
            samples.append(isPause ? 0 : Float(sound * syllable.squareRoot()))
        }
        var settings = OpusSettings()
        settings.frameDuration = .milliseconds10
        let encoder = try OpusEncoder(settings)
        var packets: [[UInt8]] = []
        var packet = [UInt8](repeating: 0, count: opusPayloadMax)
        for start in stride(from: 0, to: samples.count - 479, by: 480) {
            let length = samples.withUnsafeBufferPointer { samples in
                packet.withUnsafeMutableBytes { encoder.encode(samples.baseAddress! + start, count: 480, into: $0) }
            }
            packets.append(Array(packet[..<Int(length)]))
        }
        return (samples, packets)
    }

    private struct Heard {
        var samples: [Float] = []
        var began: [Instant] = []
        var ends: [PlaybackEnd] = []
        var counts = PlaybackStatistics()
    }

    /// Plays packets that come at given milliseconds, and then `end`.
    private func play(
        _ packets: [[UInt8]], at times: [(milliseconds: Double, sequence: Int, isRepaired: Bool)], for span: Int,
        _ settings: JitterBufferSettings = .init()
    ) throws -> Heard {
        let renderer = try SpeechRenderer(settings, decoder: OpusDecoder())
        let start = Instant(nanoseconds: 5_000_000_000)
        let arrivals = times.sorted { $0.milliseconds < $1.milliseconds }
        var heard = Heard()
        var next = 0
        var block = [Float](repeating: 0, count: playbackBlock)
        let blockTime = CaptureStateMachine.duration(Int64(playbackBlock))
        var now = start
        while now < start + .milliseconds(span) {
            while next < arrivals.count, start + .nanoseconds(Int64(arrivals[next].milliseconds * 1e6)) <= now {
                let (time, sequence, isRepaired) = arrivals[next]
                let frame = ReceivedFrame(
                    sequence: UInt16(sequence), timestamp: UInt32(sequence * 480), marker: sequence == 0,
                    payload: packets[sequence], receivedAt: start + .nanoseconds(Int64(time * 1e6)),
                    isRepaired: isRepaired)
                let isOpus = frame.payload.withUnsafeBytes { renderer.insert(PacketHeader(frame), payload: $0) }
                #expect(isOpus)
                next += 1
                if next == arrivals.count { renderer.end(lastSequence: UInt16(packets.count - 1)) }
            }
            block.withUnsafeMutableBufferPointer { buffer in
                renderer.render(into: buffer.baseAddress!, count: buffer.count, at: now) { event in
                    switch event {
                    case .began(_, _, let offset):
                        heard.began.append(now + CaptureStateMachine.duration(Int64(offset)))
                    case .ended(let reason, _, _): heard.ends.append(reason)
                    }
                }
            }
            heard.samples += block
            now = now + blockTime
        }
        heard.counts = renderer.statistics
        #expect(renderer.isIdle)
        return heard
    }

    private func power(_ samples: ArraySlice<Float>) -> Double {
        samples.reduce(0) { $0 + Double($1 * $1) } / Double(max(1, samples.count))
    }

    /// The loudness of each 20 ms, in which speech made shorter or longer is still to be known.
    private func loudMilliseconds(_ samples: [Float]) -> Int {
        stride(from: 0, to: samples.count - 959, by: 960).count { power(samples[$0..<$0 + 960]) > 1e-3 } * 20
    }

    @Test func `on an even network speech is heard as it is after a few milliseconds`() throws {
        let (spoken, packets) = try Self.speech(seconds: 4)
        let heard = try play(
            packets, at: packets.indices.map { (Double($0 * 10 + 40), $0, false) }, for: 4_500)
        let counts = heard.counts
        #expect(heard.ends == [.complete] && counts.played == packets.count && counts.lost == 0)
        let wait = try #require(heard.began.first) - Instant(nanoseconds: 5_040_000_000)
        print(
            "renderer: even network, first packet waited \(wait.milliseconds) ms, made faster \(counts.acceleratedSamples / 48) ms"
        )
        #expect(wait <= .milliseconds(25))
        #expect(counts.concealedSamples == 0)
        #expect(abs(loudMilliseconds(heard.samples) - loudMilliseconds(spoken)) < 150)
    }

    /// One packet of a burst is late, at several places of the speech.
    @Test(arguments: [6.0, 8, 10]) func `a packet that is late once hardly changes what is heard`(late: Double) throws {
        let (_, packets) = try Self.speech(seconds: 6)
        var settings = JitterBufferSettings()
        settings.targetInitial = settings.targetMin
        func heard(late sequence: Int?) throws -> Heard {
            try play(
                packets, at: packets.indices.map { (Double($0 * 10) + ($0 == sequence ? late : 0), $0, false) },
                for: 6_200, settings)
        }
        let even = try heard(late: nil)
        #expect(even.counts.concealedSamples == 0)
        var (differing, all, concealed) = (0.0, 0.0, 0)
        for sequence in stride(from: packets.count - 175, to: packets.count - 4, by: 23) {
            let late = try heard(late: sequence)
            #expect(late.ends == [.complete] && late.counts.played == packets.count && late.counts.lost == 0)
            concealed = max(concealed, late.counts.concealedSamples)
            // Nothing has moved: sample by sample it is the same sound.
            #expect(late.samples.count == even.samples.count)
            for index in even.samples.indices {
                let difference = Double(late.samples[index] - even.samples[index])
                differing += difference * difference
                all += Double(even.samples[index] * even.samples[index])
            }
        }
        print(
            "renderer: one packet late by \(late) ms, concealed \(concealed / 48) ms, differs by \(10 * log10(differing / all)) dB"
        )
        #expect(concealed > 0 && concealed <= JitterBufferStateMachine.concealStep)
        #expect(differing < 0.01 * all)
    }

    @Test func `speech held for a second is caught up within a few seconds`() throws {
        let (spoken, packets) = try Self.speech(seconds: 8)
        // The first second comes within 200 ms once it may.
        let times = packets.indices.map { (max(Double($0 * 10 + 40), 1_040 + Double($0) * 2), $0, false) }
        let heard = try play(packets, at: times, for: 9_500)
        let counts = heard.counts
        print(
            "renderer: held for 1 s, made faster \(counts.acceleratedSamples / 48) ms,",
            "\(loudMilliseconds(heard.samples)) ms of \(loudMilliseconds(spoken)) ms loud")
        #expect(heard.ends == [.complete] && counts.played == packets.count && counts.lost == 0)
        #expect(counts.acceleratedSamples / 48 > 900)
        // Speech at most a fifth shorter; the rest came out of the pauses.
        #expect(Double(loudMilliseconds(heard.samples)) > 0.79 * Double(loudMilliseconds(spoken)))
    }

    @Test func `a gap of two seconds is heard late and whole`() throws {
        let (spoken, packets) = try Self.speech(seconds: 12)
        let gap = 300..<500
        let times = packets.indices.map { index in
            gap.contains(index)
                ? (5_090 + Double(index - 300) * 0.5, index, true) : (Double(index * 10 + 40), index, false)
        }
        let heard = try play(packets, at: times, for: 14_500)
        let counts = heard.counts
        print(
            "renderer: gap of 2 s, concealed \(counts.concealedSamples / 48) ms, made faster \(counts.acceleratedSamples / 48) ms,",
            "\(loudMilliseconds(heard.samples)) ms of \(loudMilliseconds(spoken)) ms loud")
        #expect(heard.ends == [.complete] && counts.lost == 0 && counts.played == packets.count)
        #expect(counts.repaired == gap.count && counts.awaitedGaps == 1)
        #expect(Double(loudMilliseconds(heard.samples)) > 0.79 * Double(loudMilliseconds(spoken)))
        #expect(counts.concealedSamples <= JitterBufferStateMachine.concealMax + 960)
    }

    /// Any bytes that pass for Opus, at any time: the samples stay finite, every burst ends, and it comes to rest.
    @Test(arguments: 0..<10) func `any packets are survived`(seed: Int) throws {
        var generator = SeededGenerator(seed: UInt64(seed) &+ 500)
        let renderer = try SpeechRenderer(.init(), decoder: OpusDecoder())
        var now = Instant(nanoseconds: 1_000_000_000)
        var block = [Float](repeating: 0, count: playbackBlock)
        var (began, ended) = (0, 0)
        func render(_ blocks: Int) {
            for _ in 0..<blocks {
                block.withUnsafeMutableBufferPointer {
                    renderer.render(into: $0.baseAddress!, count: $0.count, at: now) { event in
                        if case .began = event { began += 1 } else { ended += 1 }
                    }
                }
                if !block.allSatisfy({ $0.isFinite }) { Issue.record("seed \(seed): not a number") }
                now = now + .milliseconds(5)
            }
        }
        for step in 0..<400 {
            let bytes = generator.bytes(.random(in: 1...60, using: &generator))
            let frame = ReceivedFrame(
                sequence: UInt16(truncatingIfNeeded: step + Int.random(in: -3...3, using: &generator)),
                timestamp: UInt32(truncatingIfNeeded: (step + 5) * 480), marker: generator.chance(1), payload: bytes,
                receivedAt: now, isRepaired: generator.chance(10))
            bytes.withUnsafeBytes { _ = renderer.insert(PacketHeader(frame), payload: $0) }
            if generator.chance(1) { renderer.end(lastSequence: UInt16(truncatingIfNeeded: step + 1)) }
            if generator.chance(1) { ended += renderer.flush(at: now) ? 1 : 0 }
            render(.random(in: 0...4, using: &generator))
        }
        render(2_000)
        #expect(renderer.isIdle, "seed \(seed)")
        #expect(ended >= began, "seed \(seed)")
    }
}
