// What the speaker plays and the microphone hears back, taken out of what is sent: in a room of numbers, and through the workers.
import Glibc
import MonotonicTime
import TestSupport
import Testing
import Vocabulary

@testable import Audio

@Suite(.serialized) struct EchoCancellerTests {
    private let start = Instant(nanoseconds: 5_000_000_000)

    /// What is sent of `microphone` while `speaker` is played 20 ms ahead of its time, in frames of 10 ms.
    private func sent(
        _ microphone: [Float], while speaker: [Float], suppressesNoise: Bool = false
    ) throws -> (samples: [Float], cancelling: Double) {
        let played = PlayedSound()
        let canceller = try EchoCanceller(played)
        let suppressor = try NoiseSuppressor(suppressesNoise: suppressesNoise, echo: canceller)
        return sent(microphone, while: speaker, through: (played, canceller, suppressor), from: start)
    }

    /// The same of a press at `start`, with parts that earlier ones may have gone through.
    private func sent(
        _ microphone: [Float], while speaker: [Float],
        through parts: (played: PlayedSound, canceller: EchoCanceller, suppressor: NoiseSuppressor), from start: Instant
    ) -> (samples: [Float], cancelling: Double) {
        let (played, canceller, suppressor) = parts
        canceller.begin()
        suppressor.begin()
        var output = microphone
        var written = 0
        var spent = Duration.zero
        output.withUnsafeMutableBufferPointer { output in
            for frame in stride(from: 0, to: microphone.count - 479, by: 480) {
                speaker.withUnsafeBufferPointer { speaker in
                    while written + playbackBlock <= min(speaker.count, frame + 480 + 960) {
                        played.add(
                            speaker.baseAddress! + written,
                            heardAt: start + CaptureStateMachine.duration(Int64(written)), isContinued: written > 0)
                        written += playbackBlock
                    }
                }
                canceller.stamp(at: start + CaptureStateMachine.duration(Int64(frame)), offset: 0)
                let began = Instant.now
                canceller.process(output.baseAddress! + frame, count: 480)
                spent += .now - began
                suppressor.process(output.baseAddress! + frame, count: 480)
            }
        }
        canceller.end()
        return (output, spent.milliseconds * 10 * 48 / Double(microphone.count) * 1_000)
    }

    @Test(arguments: [0, 480, 1_440], [false, true]) func `an echo is taken out within two seconds`(
        delay: Int, suppressesNoise: Bool
    ) throws {
        let speaker = farEnd(seconds: 6)
        var generator = SeededGenerator(seed: 41)
        let microphone = EchoPath(delay: delay).echo(of: speaker).map {
            $0 + .random(in: -0.0005...0.0005, using: &generator)
        }
        let (output, cost) = try sent(microphone, while: speaker, suppressesNoise: suppressesNoise)
        let loss = (0..<6).map { second in
            let range = second * 48_000..<(second + 1) * 48_000
            return decibels(power(microphone[range]) / power(output[range]))
        }
        print("echo after \(delay / 48) ms: quieter by \(loss.map { $0.rounded() }) dB, \(cost) us per 10 ms")
        #expect(loss[2...].allSatisfy { $0 > 25 })
    }

    @Test func `who speaks here comes through while the other speaks too`() throws {
        let speaker = farEnd(seconds: 7)
        var microphone = EchoPath(delay: 480).echo(of: speaker)
        let place = 3 * 48_000
        for index in voice.indices { microphone[place + index] += 2 * voice[index] }
        let (output, _) = try sent(microphone, while: speaker)
        let spoken = power(voice[...]) * 4
        let heard = power(output[place + NoiseSuppressor.block..<place + NoiseSuppressor.block + voice.count])
        print("double talk: \(decibels(heard / spoken)) dB of the near end come through")
        #expect(abs(decibels(heard / spoken)) < 3)
        // And what was learnt of the room is not lost by it, or soon learnt again.
        let after = 6 * 48_000..<7 * 48_000
        #expect(decibels(power(microphone[after]) / power(output[after])) > 15)
    }

    /// A release in the middle of the other's words; at the next press only a tone is played.
    @Test func `the echo of one press is not taken out of the next`() throws {
        let played = PlayedSound()
        let canceller = try EchoCanceller(played)
        let parts = (played, canceller, try NoiseSuppressor(suppressesNoise: false, echo: canceller))
        // Until the middle of a syllable.
        let speaker = farEnd(seconds: 3.75)
        _ = sent(EchoPath(delay: 480).echo(of: speaker), while: speaker, through: parts, from: start)
        let tone = (0..<4_800).map { 0.3 * sinf(2 * .pi * 800 * Float($0) / 48_000) }
        let quiet = voice.map { $0 / 4 }
        let (output, _) = sent(quiet, while: tone, through: parts, from: start + .seconds(10))
        let heard = power(output[48_000 + NoiseSuppressor.block..<96_000])
        let spoken = power(quiet[48_000..<96_000 - NoiseSuppressor.block])
        print("after an echo: \(decibels(heard / spoken)) dB of what is said come through")
        #expect(abs(decibels(heard / spoken)) < 1)
    }

    /// 50 parts per million between the cards: the filter runs after the echo, and less of it goes.
    @Test func `clocks that drift cost some of it`() throws {
        let speaker = farEnd(seconds: 6)
        let echo = EchoPath(delay: 480).echo(of: speaker)
        let microphone = echo.indices.map { echo[min(echo.count - 1, $0 + Int((Double($0) * 50e-6).rounded()))] }
        let (output, _) = try sent(microphone, while: speaker)
        let loss = decibels(power(microphone[96_000...]) / power(output[96_000...]))
        print("echo with 50 ppm of drift: quieter by \(loss) dB")
        #expect(loss > 6)
    }

    // MARK: Nothing to do

    @Test func `without anything played samples stay as they are`() throws {
        let played = PlayedSound()
        let canceller = try EchoCanceller(played)
        canceller.begin()
        var samples = chirps(seconds: 1)
        let silence = [Float](repeating: 0, count: playbackBlock)
        samples.withUnsafeMutableBufferPointer { samples in
            for frame in stride(from: 0, to: 48_000, by: 480) {
                canceller.stamp(at: start + CaptureStateMachine.duration(Int64(frame)), offset: 0)
                // A speaker that runs on silence is none.
                if frame >= 24_000 {
                    silence.withUnsafeBufferPointer {
                        played.add(
                            $0.baseAddress!, heardAt: start + CaptureStateMachine.duration(Int64(frame)),
                            isContinued: frame > 24_000)
                    }
                }
                canceller.process(samples.baseAddress! + frame, count: 480)
            }
        }
        #expect(samples == chirps(seconds: 1))
    }

    /// The packets of a framer, and those of an encoder alone.
    @Test func `with the setting off what is sent is what the encoder makes of the samples`() throws {
        let framer = try SpeechFramer(OpusSettings())
        let encoder = try OpusEncoder(OpusSettings())
        var machine = CaptureStateMachine()
        machine.opened()
        _ = machine.start(burst: 1, at: start)
        machine.began(at: start)
        framer.begin()
        encoder.reset()
        let samples = chirps(seconds: 1)
        var (made, wanted): ([[UInt8]], [[UInt8]]) = ([], [])
        var packet = [UInt8](repeating: 0, count: opusPayloadMax)
        samples.withUnsafeBufferPointer { samples in
            guard let base = samples.baseAddress else { return }
            for place in stride(from: 0, to: samples.count - 119, by: 120) {
                let count = machine.take(120)
                framer.append(
                    base + place, count, at: start + CaptureStateMachine.duration(Int64(place)), in: machine
                ) { made.append(Array(framer.packet[..<Int($0.length)])) }
            }
            for place in stride(from: 0, to: samples.count - framer.frameSamples + 1, by: framer.frameSamples) {
                let length = packet.withUnsafeMutableBytes {
                    encoder.encode(base + place, count: framer.frameSamples, into: $0)
                }
                wanted.append(Array(packet[..<Int(length)]))
            }
        }
        #expect(!made.isEmpty && made == wanted)
    }

    // MARK: Through the workers

    /// A speaker and a microphone in one room, in real time, and nobody in it: what is sent is what is left of the other's voice.
    @Test func `what the far end says does not come back to it`() throws {
        // A machine that was halted lets the speaker run dry, and the room is learnt anew: then it is said again.
        var loss = 0.0
        for _ in 1...3 where loss <= 15 { loss = try lossThroughTheWorkers() }
        #expect(loss > 15)
    }

    /// By how many decibels what is sent is below what the microphone hears.
    private func lossThroughTheWorkers() throws -> Double {
        let room = Room(path: EchoPath(delay: 480, taps: 24))
        let played = PlayedSound()
        var configuration = PlaybackConfiguration()
        configuration.played = played
        let speaker = try PlaybackWorker(
            sink: RoomSpeaker(room), speech: [SpeechRenderer(JitterBufferSettings(), decoder: OpusDecoder())],
            configuration: configuration)
        let microphone = try CaptureWorker(
            source: RoomMicrophone(room), framer: SpeechFramer(OpusSettings(), echoOf: played), waitsForLevel: false,
            isWatched: false)
        let playing = try RealTimeThread(name: "ptt-room-ear") { speaker.run() }
        let capturing = try RealTimeThread(name: "ptt-room-mic") { microphone.run() }
        let packets = try self.packets(of: farEnd(seconds: 6))
        microphone.rings.command(.start(burst: 1, at: .now, afterGoAhead: false))
        let began = Instant.now
        var next = 0
        var frames: [OutgoingFrame] = []
        var isOver = false
        while !isOver, .now < began + .seconds(20) {
            while next < packets.count, began + .milliseconds(10 * next) <= .now {
                let packet = ReceivedFrame(
                    sequence: UInt16(next), timestamp: UInt32(next * 480), marker: next == 0, payload: packets[next],
                    receivedAt: .now)
                _ = speaker.rings.enqueue(packet, voice: 0)
                next += 1
                if next == packets.count {
                    microphone.rings.command(.stop(end: .now))
                }
            }
            while let output = microphone.nextOutput(device: .alsa("room")) {
                if case .frame(let frame) = output { frames.append(frame) }
                if case .ended = output { isOver = true }
            }
            while speaker.rings.next() != nil {}
            usleep(2_000)
        }
        speaker.rings.shutDown()
        microphone.rings.shutDown()
        #expect(playing.end.wait() && capturing.end.wait() && isOver)
        // From the third second on, what the microphone heard against what was sent, in frames' levels.
        let heard = room.heardByMicrophone
        try #require(frames.count >= 550 && heard.count >= 264_000)
        let sent = frames[250..<550].reduce(0) { $0 + pow(10, Double($1.level) / 10) } / 300
        let echo = power(heard[120_000..<264_000])
        print(
            "through the workers: the echo at \(decibels(echo)) dBFS is sent at \(decibels(sent)) dBFS,",
            "\(room.underruns) underruns")
        #expect(decibels(echo) > -40)
        return decibels(echo / sent)
    }

    private func packets(of samples: [Float]) throws -> [[UInt8]] {
        let encoder = try OpusEncoder(OpusSettings())
        var packet = [UInt8](repeating: 0, count: opusPayloadMax)
        return samples.withUnsafeBufferPointer { samples in
            stride(from: 0, to: samples.count - 479, by: 480).map { place in
                let length = packet.withUnsafeMutableBytes {
                    encoder.encode(samples.baseAddress! + place, count: 480, into: $0)
                }
                return Array(packet[..<Int(length)])
            }
        }
    }
}
