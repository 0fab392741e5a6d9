// The two engines with real threads and real time, on WAV files.
import Glibc
import MonotonicTime
import Testing
import Vocabulary

@testable import Audio

// Serialised: each measures time, and two cores do not carry them all at once.
@Suite(.serialized) struct EngineTests {
    private func microphone(_ samples: [Float], rate: Int = 48_000, configuration: CaptureConfiguration = .init())
        throws -> (engine: CaptureEngine, path: String)
    {
        let path = temporaryPath("microphone.wav")
        writeFile(path, wav(samples, rate: rate))
        return (try CaptureEngine(device: .wav(path: path), configuration: configuration, logger: quiet), path)
    }

    @Test func `a burst has a first and a last frame and lasts from press to the end of the tail`() throws {
        let (engine, path) = try microphone(chirps(seconds: 2))
        defer { unlink(path) }
        let owner = Owner(microphone: engine)
        engine.prepare()
        owner.run(for: .milliseconds(50))
        #expect(!engine.isCapturing)
        let pressed = Instant.now
        let burst = engine.start()
        owner.run(for: .milliseconds(300))
        #expect(engine.isCapturing)
        engine.stop(tail: .milliseconds(200))
        let released = Instant.now
        #expect(owner.run(for: .seconds(2)) { !owner.ends.isEmpty })
        let frames = owner.frames
        #expect(owner.ends.first?.burst == burst && owner.ends.first?.reason == .stopped)
        #expect(frames.first?.isFirst == true && frames.last?.isLast == true)
        #expect(frames.count(where: \.isFirst) == 1 && frames.count(where: \.isLast) == 1)
        for (index, frame) in frames.enumerated() {
            #expect(frame.position == UInt32(index * 480) && frame.samples == 480 && frame.burst == burst)
            #expect(!frame.payload.isEmpty && frame.payload.count <= opusPayloadMax)
            #expect(frame.capturedAt == frames[0].capturedAt + .milliseconds(10 * index))
        }
        // From press to release and the tail, rounded up to frames; the encoder's look-ahead may need one more.
        let spoken = (released - pressed).milliseconds + 200
        #expect(Double(frames.count * 10) >= spoken && Double(frames.count * 10) < spoken + 60)
        let first = try #require(owner.begins.first)
        #expect(first.after < .milliseconds(20) && first.at >= pressed)
        // I1: the device has stopped, and nothing more comes.
        #expect(!engine.isCapturing)
        #expect(engine.statistics.deviceStarts == 1 && engine.statistics.deviceStops == 1)
        owner.run(for: .milliseconds(100))
        #expect(owner.frames.count == frames.count && engine.statistics.framesDropped == 0)
    }

    @Test func `an aborted burst ends at once without a last frame`() throws {
        let (engine, path) = try microphone(chirps(seconds: 1))
        defer { unlink(path) }
        let owner = Owner(microphone: engine)
        engine.start()
        owner.run(for: .milliseconds(150))
        engine.abort()
        let aborted = Instant.now
        #expect(owner.run(for: .seconds(1)) { !owner.ends.isEmpty })
        #expect(.now - aborted < .milliseconds(100))
        #expect(owner.ends.map(\.reason) == [.aborted])
        #expect(owner.frames.allSatisfy { !$0.isLast })
        #expect(engine.statistics.deviceStops == 1)
    }

    @Test func `a press within the tail ends the old burst and begins the next without a gap`() throws {
        let (engine, path) = try microphone(chirps(seconds: 2))
        defer { unlink(path) }
        let owner = Owner(microphone: engine)
        let first = engine.start()
        owner.run(for: .milliseconds(200))
        engine.stop()
        owner.run(for: .milliseconds(50))
        let second = engine.start()
        owner.run(for: .milliseconds(200))
        engine.stop(tail: .zero)
        #expect(owner.run(for: .seconds(1)) { owner.ends.count == 2 })
        #expect(owner.ends.map(\.burst) == [first, second])
        #expect(owner.ends.map(\.reason) == [.restarted, .stopped])
        #expect(owner.frames.count(where: \.isFirst) == 2 && owner.frames.count(where: \.isLast) == 2)
        #expect(engine.statistics.deviceStarts == 1 && engine.statistics.deviceStops == 1)
    }

    @Test func `presses and releases faster than the thread still end every burst`() throws {
        let (engine, path) = try microphone(chirps(seconds: 1))
        defer { unlink(path) }
        let owner = Owner(microphone: engine)
        var bursts: [UInt32] = []
        for _ in 0..<10 {
            bursts.append(engine.start())
            engine.stop(tail: .zero)
        }
        #expect(owner.run(for: .seconds(3)) { owner.ends.count == 10 })
        #expect(owner.ends.map(\.burst) == bursts)
        #expect(!engine.isCapturing)
    }

    @Test func `a flood of commands ends the burst instead of losing the release`() throws {
        let (engine, path) = try microphone(chirps(seconds: 1))
        defer { unlink(path) }
        let owner = Owner(microphone: engine)
        for _ in 0..<2_000 { engine.start() }
        // Those that came after the one too many begin anew.
        engine.stop(tail: .zero)
        #expect(
            owner.run(for: .seconds(10)) {
                owner.outputs.contains { if case .failed(.unresponsive) = $0 { true } else { false } }
                    && !engine.isCapturing
            })
        #expect(engine.statistics.deviceStarts == engine.statistics.deviceStops)
    }

    @Test func `frames that nobody takes are dropped and counted and the end still comes`() throws {
        var configuration = CaptureConfiguration()
        configuration.opus.frameDuration = .milliseconds10
        let (engine, path) = try microphone(chirps(seconds: 1), configuration: configuration)
        defer { unlink(path) }
        engine.start()
        usleep(1_500_000)
        engine.stop(tail: .zero)
        let owner = Owner(microphone: engine)
        #expect(owner.run(for: .seconds(10)) { !owner.ends.isEmpty })
        #expect(owner.ends.map(\.reason) == [.stopped])
        #expect(owner.frames.last?.isLast == true)
        #expect(engine.statistics.framesDropped > 10)
        #expect(owner.frames.count + engine.statistics.framesDropped >= 150)
    }

    @Test func `a missing or malformed file is refused when the engine is made`() {
        #expect(throws: AudioError.self) {
            _ = try CaptureEngine(device: AudioDevice("wav:/no/such.wav"), logger: quiet)
        }
        let path = temporaryPath("text.wav")
        writeFile(path, Array("not a sound".utf8))
        defer { unlink(path) }
        #expect {
            _ = try CaptureEngine(device: .wav(path: path), logger: quiet)
        } throws: { error in
            guard case .malformedWAV? = error as? AudioError else { return false }
            return true
        }
    }

    @Test func `an unknown ALSA device ends the burst with an error that lists the known ones`() throws {
        let engine = try CaptureEngine(device: AudioDevice("no-such-device"), logger: quiet)
        let speaker = try PlaybackEngine(device: AudioDevice("no-such-device"), logger: quiet)
        let owner = Owner(microphone: engine, speaker: speaker)
        engine.start()
        speaker.play(.microphoneOn)
        #expect(owner.run(for: .seconds(5)) { !owner.ends.isEmpty && !owner.events.isEmpty })
        #expect(owner.ends.map(\.reason) == [.deviceFailed])
        #expect(
            owner.outputs.contains {
                if case .failed(.noSuchDevice("no-such-device")) = $0 { true } else { false }
            })
        #expect(
            owner.events.contains { if case .failed(.noSuchDevice) = $0 { true } else { false } })
    }

    @Test func `a missing speaker fails once a second and not with every packet`() throws {
        let speaker = try PlaybackEngine(device: AudioDevice("no-such-device"), logger: quiet)
        let owner = Owner(speaker: speaker)
        let began = Instant.now
        // 20 ms of silence in SILK (RFC 6716, section 3.1: configuration 1).
        for sequence in 0..<40 as Range<UInt16> {
            speaker.enqueue(
                ReceivedFrame(
                    sequence: sequence, timestamp: UInt32(sequence) * 960, marker: sequence == 0,
                    payload: [0x08, 0xFF, 0xFE], receivedAt: .now))
            owner.run(for: .milliseconds(20))
        }
        #expect(owner.run(for: .seconds(10)) { speaker.statistics.dropped >= 40 && !owner.playbackEnds.isEmpty })
        let seconds = Int((Instant.now - began) / .seconds(1))
        let failures = owner.events.count { if case .failed = $0 { true } else { false } }
        #expect((1...1 + seconds).contains(failures), "\(failures) in \(seconds) s")
        #expect(owner.playbackEnds.allSatisfy { $0.reason == .deviceFailed })
        #expect(speaker.statistics.dropped == 40)
    }

    /// ALSA's null PCM has no clock: the engine gives it one.
    @Test func `a device without a clock is paced by the engine`() throws {
        let engine = try CaptureEngine(device: .alsa("null"), logger: quiet)
        let speaker = try PlaybackEngine(device: .alsa("null"), logger: quiet)
        let owner = Owner(microphone: engine, speaker: speaker)
        engine.start()
        owner.run(for: .seconds(1))
        let released = Instant.now
        engine.stop(tail: .zero)
        #expect(owner.run(for: .seconds(10)) { !owner.ends.isEmpty })
        let began = try #require(owner.begins.first).at
        let due = Int((released - began).milliseconds / 10)
        #expect((due - 10...due + 20).contains(owner.frames.count), "\(owner.frames.count) frames of \(due)")
        // A machine that was halted meanwhile takes longer; then it is played again.
        var tones: [Duration] = []
        while tones.count < 4 && tones.allSatisfy({ $0 >= .milliseconds(500) }) {
            owner.events = []
            var times: [Instant] {
                owner.events.compactMap { event in
                    switch event {
                    case .toneBegan(.denied, let at), .toneEnded(.denied, let at): at
                    default: nil
                    }
                }
            }
            speaker.play(.denied)
            try #require(owner.run(for: .seconds(10)) { times.count == 2 })
            tones.append(times[1] - times[0])
        }
        #expect(tones.allSatisfy { $0 >= .milliseconds(390) } && tones.contains { $0 < .milliseconds(500) }, "\(tones)")
    }

    /// A queue that bears a machine which lets its threads wait.
    private static var patient: PlaybackConfiguration {
        var configuration = PlaybackConfiguration()
        configuration.deviceQueue = .milliseconds(20)
        return configuration
    }

    @Test func `a tone is played at its time and the file is the time since the engine was made`() throws {
        let path = temporaryPath("tones.wav")
        defer { unlink(path) }
        let speaker = try PlaybackEngine(device: .wav(path: path), configuration: Self.patient, logger: quiet)
        let owner = Owner(speaker: speaker)
        let origin = try #require(speaker.recordingOrigin)
        usleep(200_000)
        speaker.play(.microphoneOn)
        #expect(
            owner.run(for: .seconds(2)) {
                owner.events.contains { if case .toneEnded = $0 { true } else { false } } && !speaker.isPlaying
            })
        usleep(200_000)
        speaker.close()
        #expect(speaker.end.wait())
        let closed = Instant.now
        guard
            case .toneBegan(.microphoneOn, let began)? = owner.events.first(where: {
                if case .toneBegan = $0 { true } else { false }
            })
        else {
            Issue.record("the tone never began")
            return
        }
        let samples = try readWAV(path)
        let tone = ToneSound.goAhead.samples(volume: 0.25)
        let place = Int((began - origin).nanoseconds * 48 / 1_000_000)
        let found = find(tone[0..<4_800], in: samples, place - 480..<place + 480)
        #expect(abs(found.offset - place) <= 48)
        #expect(found.likeness > 0.999)
        // Nothing else is in the file, and it ends now.
        #expect(samples[..<(found.offset - 10)].allSatisfy { $0 == 0 })
        #expect(samples[(found.offset + tone.count + 10)...].allSatisfy { $0 == 0 })
        #expect(abs(samples.count - Int((closed - origin).nanoseconds * 48 / 1_000_000)) < 2_400)
    }

    @Test func `without keeping time only what was played is in the file`() throws {
        let path = temporaryPath("packed.wav")
        defer { unlink(path) }
        var configuration = PlaybackConfiguration()
        configuration.recordingKeepsTime = false
        let speaker = try PlaybackEngine(device: .wav(path: path), configuration: configuration, logger: quiet)
        let owner = Owner(speaker: speaker)
        #expect(speaker.recordingOrigin == nil)
        usleep(500_000)
        speaker.play(.microphoneOff)
        #expect(
            owner.run(for: .seconds(2)) {
                owner.events.contains { if case .toneEnded = $0 { true } else { false } } && !speaker.isPlaying
            })
        speaker.close()
        #expect(speaker.end.wait())
        let samples = try readWAV(path)
        #expect(samples.count > ToneSound.end.samples(volume: 1).count)
        #expect(samples.count < 48_000 / 3)
    }

    @Test func `malformed packets are counted and change nothing else`() throws {
        let path = temporaryPath("malformed.wav")
        defer { unlink(path) }
        let speaker = try PlaybackEngine(device: .wav(path: path), logger: quiet)
        let owner = Owner(speaker: speaker)
        func packet(_ payload: [UInt8]) -> ReceivedFrame {
            ReceivedFrame(sequence: 1, timestamp: 0, marker: true, payload: payload, receivedAt: .now)
        }
        #expect(speaker.enqueue(packet([])))
        #expect(!speaker.enqueue(packet([UInt8](repeating: 0, count: 1_276))))
        // Code 3 with a frame count of zero is no packet (RFC 6716, section 3.2.5).
        #expect(speaker.enqueue(packet([0x03, 0x00])))
        owner.run(for: .milliseconds(200))
        #expect(speaker.statistics.malformed == 2 && speaker.statistics.dropped == 1)
        #expect(owner.events.isEmpty && !speaker.isPlaying)
    }

    @Test func `flush ends the burst`() throws {
        let path = temporaryPath("flush.wav")
        let (engine, source) = try microphone(chirps(seconds: 2))
        defer {
            unlink(path)
            unlink(source)
        }
        let speaker = try PlaybackEngine(device: .wav(path: path), logger: quiet)
        let owner = Owner(microphone: engine, speaker: speaker)
        connect(owner)
        engine.start()
        owner.run(for: .milliseconds(300))
        engine.abort()
        speaker.flush()
        #expect(owner.run(for: .seconds(1)) { !owner.playbackEnds.isEmpty })
        #expect(owner.playbackEnds.first?.reason == .flushed)
        // Frames that were on their way are a burst whose end nobody tells.
        #expect(owner.run(for: .seconds(8)) { !speaker.isPlaying })
    }

    @Test func `idle engines do not wake`() throws {
        let path = temporaryPath("idle.wav")
        let (engine, source) = try microphone(chirps(seconds: 1))
        defer {
            unlink(path)
            unlink(source)
        }
        let speaker = try PlaybackEngine(device: .wav(path: path), logger: quiet)
        let owner = Owner(microphone: engine, speaker: speaker)
        engine.prepare()
        speaker.prepare()
        engine.start()
        speaker.play(.microphoneOn)
        owner.run(for: .milliseconds(300))
        engine.stop(tail: .zero)
        #expect(owner.run(for: .seconds(2)) { !owner.ends.isEmpty && !speaker.isPlaying })
        owner.run(for: .milliseconds(50))
        let before = (
            voluntarySwitches(ofThreadsNamed: "ptt-capture"), voluntarySwitches(ofThreadsNamed: "ptt-playback")
        )
        owner.run(for: .seconds(1))
        #expect(before.0 > 0 && voluntarySwitches(ofThreadsNamed: "ptt-capture") == before.0)
        #expect(before.1 > 0 && voluntarySwitches(ofThreadsNamed: "ptt-playback") == before.1)
    }

    /// What is spoken is heard: aligned by correlation, from the first sample to the last before the release.
    @Test(arguments: [48_000, 44_100, 16_000]) func `what is spoken is heard whole and in time`(rate: Int) throws {
        // A machine that was halted for a moment stretches what is heard; then it is said again.
        let isClear = try (1...4).contains { _ in try isHeardClearlyAndInTime(rate: rate) }
        #expect(isClear)
    }

    /// Whether it was heard without being stretched. That all of it was played is expected in any case.
    private func isHeardClearlyAndInTime(rate: Int) throws -> Bool {
        let path = temporaryPath("heard.wav")
        // Two sources of a rate give the same chirps: the file at its rate, the reference at 48 kHz.
        let (engine, source) = try microphone(chirps(seconds: 3, rate: rate), rate: rate)
        defer {
            unlink(path)
            unlink(source)
        }
        let spoken = chirps(seconds: 3)
        let speaker = try PlaybackEngine(device: .wav(path: path), configuration: Self.patient, logger: quiet)
        let owner = Owner(microphone: engine, speaker: speaker)
        let origin = try #require(speaker.recordingOrigin)
        connect(owner)
        let pressed = Instant.now
        engine.start()
        owner.run(for: .milliseconds(1_500))
        engine.stop()
        let released = Instant.now
        #expect(owner.run(for: .seconds(10)) { !owner.playbackEnds.isEmpty })
        speaker.close()
        #expect(speaker.end.wait())
        let heard = try readWAV(path)
        let began = try #require(owner.begins.first).at
        let start = Int((began - origin).nanoseconds * 48 / 1_000_000)
        // A machine that was halted may have let it speak for longer.
        let length = min(spoken.count, Int((released - began).nanoseconds * 48 / 1_000_000))
        // The delay moves while the jitter buffer catches up, so each chirp is looked for by itself; those that were
        // stretched or shortened are not found.
        var delays: [Double] = []
        var likenesses: [Float] = []
        for place in stride(from: 0, to: length - 4_800, by: 3 * 960) {
            let found = find(spoken[place..<place + 960], in: heard, start + place + 480..<start + place + 9_600)
            likenesses.append(found.likeness)
            if found.likeness > 0.6 { delays.append(Double(found.offset - start - place) / 48) }
        }
        let last = length / 960 * 960
        let end = find(spoken[last - 960..<last], in: heard, start + last - 480..<start + last + 8_640)
        let counts = try #require(owner.playbackEnds.first).counts
        print(
            "loop \(rate) Hz: first sample \(owner.begins[0].after.milliseconds) ms after the press,",
            "packet to speaker \((owner.playbackBegins[0].at - owner.playbackBegins[0].receivedAt).milliseconds) ms,",
            "mouth to ear \(delays.first ?? 0) ms at first, \(delays.last ?? 0) ms at last, median likeness \(likenesses.sorted()[likenesses.count / 2]),",
            "last 20 ms before the release: likeness \(end.likeness) at \(Double(end.offset - start - last + 960) / 48) ms,",
            "press to mouth \((began - pressed).milliseconds) ms")
        #expect(owner.playbackEnds.first?.reason == .complete)
        #expect(counts.lost == 0 && counts.malformed == 0 && counts.dropped == 0)
        #expect(counts.played == owner.frames.count)
        // A busy machine may delay a part; the others are there, and the end is.
        return likenesses.sorted()[likenesses.count / 2] > 0.6 && end.likeness > 0.6
            && !delays.isEmpty && delays.allSatisfy { $0 > 20 && $0 < 150 }
    }

    private func connect(_ owner: Owner) {
        var sequence: UInt16 = 65_530
        owner.onFrame = { frame in
            owner.speaker?.enqueue(
                ReceivedFrame(
                    sequence: sequence, timestamp: 4_294_960_000 &+ frame.position, marker: frame.isFirst,
                    payload: frame.payload, receivedAt: .now))
            if frame.isLast { owner.speaker?.end(lastSequence: sequence) }
            sequence &+= 1
        }
    }
}
