// The service with the real engines of `Audio`: WAV files as microphone and speaker, and devices that are not there.

import FoundationEssentials
import Glibc
import MonotonicTime
import PushToTalkCore
import Reactor
import Testing
import Vocabulary

@testable import Audio
@testable import ChannelService

extension ChannelService {
    /// Whether the microphone learns what the speaker plays; nil: there is no way to.
    fileprivate var isPlayedHandedOn: Bool? { (audio as? DeviceAudioSession)?.played?.isHandedOn }
}

@Suite struct DeviceAudioTests {
    let channel = ServiceUnderTest.channel
    let ann = PTParticipant(name: "Ann", image: nil)

    @Test func `what is said into one service is heard from the other`() async throws {
        // A machine that was halted for a moment stretches what is heard; then it is said again.
        var share = 0.0
        for _ in 1...4 where share <= 0.7 { share = try await shareHeardFromTheOther() }
        #expect(share > 0.7)
    }

    private func shareHeardFromTheOther() async throws -> Double {
        let directory = try TemporaryDirectory()
        let speech = chirp(seconds: 2)
        try writeWAV(speech, to: directory.file("speech.wav"))
        var playback = PlaybackConfiguration()
        playback.recordingKeepsTime = false
        let talker = try ServiceUnderTest(
            ChannelServiceConfiguration(
                microphone: .wav(path: directory.file("speech.wav")), speaker: .wav(path: directory.file("a.wav")),
                playback: playback))
        let listener = try ServiceUnderTest(
            ChannelServiceConfiguration(
                microphone: .wav(path: directory.file("speech.wav")), speaker: .wav(path: directory.file("b.wav")),
                playback: playback))
        try await talker.start()
        try await listener.start()
        await listener.service.burstBegan(ann)
        await talker.service.setFrameHandler { [service = listener.service] frame in
            talker.keep(frame)
            let packet = ReceivedFrame(
                sequence: UInt16(truncatingIfNeeded: frame.position / 480), timestamp: frame.position,
                marker: frame.isFirst, payload: frame.payload, receivedAt: .now)
            Task { await service.received(packet) }
        }

        let pressed = Instant.now
        try await talker.begin()
        let recording = Instant.now
        try await Task.sleep(for: .milliseconds(700))
        let released = Instant.now
        try await talker.stop()
        let stopped = Instant.now
        #expect(await talker.waitFor { $0 == .notice(.transmissionAudioFinished(erased: false)) })
        await listener.service.burstEnded(lastSequence: nil)
        #expect(await listener.waitFor { $0 == .notice(.activeRemoteParticipantChanged(nil)) })
        #expect(await eventually { await talker.service.snapshot.audioSession == .inactive })
        await talker.finish()
        await listener.finish()

        let frames = talker.frames
        #expect(frames.first?.isFirst == true)
        #expect(frames.last?.isLast == true)
        #expect(frames.map(\.position) == (0..<UInt32(frames.count)).map { $0 * 480 })
        // Everything from the start of recording to 200 ms after the release, to the frame, and nothing else.
        let firstFrame = try #require(frames.first)
        let captured = Duration.milliseconds(10 * frames.count)
        let expected = released - firstFrame.capturedAt + .milliseconds(200)
        let most = expected + (stopped - released)
        #expect(
            captured > expected - .milliseconds(60) && captured < most + .milliseconds(60),
            "\(captured) for \(expected) to \(most)")
        #expect(firstFrame.capturedAt >= pressed)
        print("press to recording: \((recording - pressed).milliseconds) ms, \(frames.count) frames")

        let heard = try readWAV(directory.file("b.wav"))
        let said = Array(speech.prefix(frames.count * 480))
        let tones = try readWAV(directory.file("a.wav"))
        #expect(tones.contains { abs($0) > 0.05 }, "no tone was heard")
        return shareHeard(of: said, in: heard)
    }

    /// The tone of a press is played while the microphone runs: with the setting it is handed on, without there is no path.
    @Test(arguments: [false, true]) func `the microphone learns what the speaker plays if echoes are cancelled`(
        cancelsEcho: Bool
    ) async throws {
        let directory = try TemporaryDirectory()
        try writeWAV(chirp(seconds: 2), to: directory.file("speech.wav"))
        let talker = try ServiceUnderTest(
            ChannelServiceConfiguration(
                microphone: .wav(path: directory.file("speech.wav")), speaker: .wav(path: directory.file("a.wav")),
                cancelsEcho: cancelsEcho))
        try await talker.start()
        #expect(await talker.service.isPlayedHandedOn == (cancelsEcho ? false : nil))
        try await talker.begin()
        if cancelsEcho { #expect(await eventually { await talker.service.isPlayedHandedOn == true }) }
        #expect(await eventually { talker.frames.count >= 20 })
        try await talker.stop()
        #expect(await talker.waitFor { $0 == .notice(.transmissionAudioFinished(erased: false)) })
        await talker.finish()
    }

    @Test func `messages that come while one plays are heard one after the other`() async throws {
        let directory = try TemporaryDirectory()
        try writeWAV(chirp(seconds: 2), to: directory.file("speech.wav"))
        var playback = PlaybackConfiguration()
        playback.recordingKeepsTime = false
        let configuration = { (name: String) in
            ChannelServiceConfiguration(
                microphone: .wav(path: directory.file("speech.wav")), speaker: .wav(path: directory.file(name)),
                playback: playback, playsTones: false)
        }
        let talker = try ServiceUnderTest(configuration("talker.wav"))
        try await talker.start()
        try await talker.begin()
        #expect(await eventually { talker.frames.count >= 60 })
        try await talker.stop()
        await talker.finish()
        let message = talker.frames.prefix(60)

        let listener = try ServiceUnderTest(configuration("listener.wav"))
        try await listener.start()
        // Three messages at once, as after a dead spot: each whole, before the first has been heard.
        let speakers = ["Ann", "Bob", "Cleo"].map { PTParticipant(name: $0, image: nil) }
        for (place, speaker) in speakers.enumerated() {
            await listener.service.burstBegan(speaker)
            for frame in message {
                let sequence = UInt16(place * 2_000) + UInt16(frame.position / 480)
                await listener.service.received(
                    ReceivedFrame(
                        sequence: sequence, timestamp: UInt32(place * 10_000_000) + frame.position,
                        marker: frame.isFirst, payload: frame.payload, receivedAt: .now))
            }
            await listener.service.burstEnded(lastSequence: nil)
        }
        #expect(await listener.waitFor { $0 == .notice(.activeRemoteParticipantChanged(nil)) })
        let shown = listener.events.compactMap { event -> String?? in
            if case .notice(.activeRemoteParticipantChanged(let participant)) = event {
                .some(participant?.name)
            } else {
                nil
            }
        }
        #expect(shown == ["Ann", "Bob", "Cleo", nil])
        #expect(listener.callbacks.count { $0 == .didActivateAudioSession } == 1)
        let statistics = await listener.service.snapshot.statistics
        #expect(statistics.packetsPlayed == 180)
        #expect(statistics.packetsDropped == 0)
        #expect(await eventually { await listener.service.snapshot.audioSession == .inactive })
        await listener.finish()
        // 3 × 600 ms, but for what was caught up.
        let heard = try readWAV(directory.file("listener.wav"))
        #expect(heard.count > 48_000 * 12 / 10, "\(heard.count) samples")
    }

    @Test func `a second press during the tail records again`() async throws {
        let directory = try TemporaryDirectory()
        try writeWAV(chirp(seconds: 2), to: directory.file("speech.wav"))
        let under = try ServiceUnderTest(
            ChannelServiceConfiguration(
                microphone: .wav(path: directory.file("speech.wav")), speaker: .wav(path: directory.file("out.wav"))))
        try await under.start()
        for _ in 0..<3 {
            try await under.begin()
            try await Task.sleep(for: .milliseconds(60))
            try await under.stop()
        }
        #expect(
            await eventually { under.events.count { $0 == .notice(.transmissionAudioFinished(erased: false)) } == 3 })
        #expect(Set(under.frames.map(\.burst)).count == 3)
        #expect(await eventually { await under.service.snapshot.audioSession == .inactive })
        #expect(await !under.service.snapshot.isCapturing)
        let session = under.callbacks.filter { $0 == .didActivateAudioSession || $0 == .didDeactivateAudioSession }
        #expect(session.count == 6)
        await under.finish()
    }

    @Test func `a refused burst gives no frames after the refusal`() async throws {
        let directory = try TemporaryDirectory()
        try writeWAV(chirp(seconds: 2), to: directory.file("speech.wav"))
        let under = try ServiceUnderTest(
            ChannelServiceConfiguration(
                microphone: .wav(path: directory.file("speech.wav")), speaker: .wav(path: directory.file("out.wav"))))
        try await under.start()
        try await under.begin()
        await under.service.transmissionRefused(PTChannelError(.transmissionInProgress))
        let count = under.frames.count
        #expect(await eventually { await under.service.snapshot.audioSession == .inactive })
        try await Task.sleep(for: .milliseconds(60))
        #expect(under.frames.count == count)
        try await under.begin()
        #expect(await eventually { under.frames.count > count })
        await under.finish()
    }

    @Test func `a missing microphone fails the begin and is tried again`() async throws {
        let directory = try TemporaryDirectory()
        let under = try ServiceUnderTest(
            ChannelServiceConfiguration(
                microphone: .wav(path: directory.file("speech.wav")), speaker: .wav(path: directory.file("out.wav"))))
        try await under.start()
        await #expect(throws: PTChannelError.self) { try await under.begin() }
        let problem = try #require(await under.service.snapshot.audioProblem)
        #expect(problem.contains("speech.wav"))
        #expect(
            under.callbacks.contains(.didEndTransmitting(channel, source: .unknown)), "the begin has no end")
        try writeWAV(chirp(seconds: 1), to: directory.file("speech.wav"))
        try await under.begin()
        #expect(await eventually { !under.frames.isEmpty })
        #expect(await under.service.snapshot.audioProblem == nil)
        await under.finish()
    }

    @Test func `an unknown sound card fails the begin in words`() async throws {
        let under = try ServiceUnderTest(
            ChannelServiceConfiguration(
                microphone: .alsa("no-such-microphone"), speaker: .alsa("no-such-speaker")))
        try await under.start()
        for _ in 0..<2 {
            do throws(PTChannelError) {
                try await under.begin()
                Issue.record("it began without a microphone")
            } catch {
                #expect(error.code == .unknown)
                #expect(error.explanation.contains("no-such-microphone"))
            }
        }
        await under.service.burstBegan(ann)
        await under.service.received(packet(1))
        await under.service.burstEnded(lastSequence: 1)
        #expect(await under.waitFor { $0 == .notice(.activeRemoteParticipantChanged(nil)) })
        #expect(await eventually { await under.service.snapshot.audioSession == .inactive })
        await under.finish()
    }

    @Test func `a microphone that takes time to hear is waited for and then the tone sounds`() async throws {
        let directory = try TemporaryDirectory()
        // A Bluetooth link that runs after 400 ms.
        try writeWAV([Float](repeating: 0, count: 19_200) + chirp(seconds: 2), to: directory.file("speech.wav"))
        var configuration = ChannelServiceConfiguration(
            microphone: .wav(path: directory.file("speech.wav")), speaker: .wav(path: directory.file("out.wav")))
        configuration.capture.microphoneStart = .whenHeard
        configuration.playback.recordingKeepsTime = false
        let under = try ServiceUnderTest(configuration)
        try await under.start()
        let pressed = Instant.now
        // The begin is done when the microphone records.
        try await under.begin()
        #expect(.now - pressed >= .milliseconds(400))
        #expect(await eventually { under.frames.count >= 20 })
        #expect(await under.service.snapshot.inputLevel.map { $0 > -40 } ?? false)
        try await under.stop()
        #expect(await under.waitFor { $0 == .notice(.transmissionAudioFinished(erased: false)) })
        #expect(await eventually { await under.service.snapshot.audioSession == .inactive })
        #expect(await under.service.snapshot.inputLevel == nil)
        await under.finish()
        let frames = under.frames
        #expect(frames.first.map { $0.capturedAt >= pressed + .milliseconds(400) } ?? false)
        // But the last, which are the encoder's own delay.
        #expect(frames.dropLast(2).allSatisfy { $0.level > -60 })
        // One tone for the beginning and one for the end.
        let tones = try readWAV(directory.file("out.wav"))
        #expect(tones.count { abs($0) > 0.02 } > 4_800 && tones.count < 48_000, "\(tones.count) samples of tones")
    }

    /// Without a speaker nobody waits for a tone.
    @Test func `without tones a microphone that takes time begins when it hears`() async throws {
        let directory = try TemporaryDirectory()
        try writeWAV([Float](repeating: 0, count: 4_800) + chirp(seconds: 2), to: directory.file("speech.wav"))
        var configuration = ChannelServiceConfiguration(
            microphone: .wav(path: directory.file("speech.wav")), speaker: .alsa("no-such-speaker"))
        configuration.capture.microphoneStart = .whenHeard
        let under = try ServiceUnderTest(configuration)
        try await under.start()
        try await under.begin()
        #expect(await eventually { !under.frames.isEmpty })
        await under.finish()
    }

    @Test func `cutting a tail gives frames of its burst and no stale news`() async throws {
        let directory = try TemporaryDirectory()
        try writeWAV(chirp(seconds: 2), to: directory.file("speech.wav"))
        let loop = try EventLoop(name: "test")
        defer { loop.stop() }
        let log = Shared<[String]>([])
        let session = try await loop.run {
            let configuration = ChannelServiceConfiguration(
                microphone: .wav(path: directory.file("speech.wav")), speaker: .wav(path: directory.file("out.wav")),
                tail: .milliseconds(40))
            let session = DeviceAudioSession(configuration: configuration, loop: loop, logger: quietLogger)
            session.handler = { event in
                log.withLock {
                    switch event {
                    case .captureBegan: $0.append("began")
                    case .frame(let frame): $0.append("frame \(frame.burst)")
                    default: $0.append("\(event)")
                    }
                }
            }
            // The loop does not come to hear what the microphone says: all of it waits when the next press comes.
            session.startCapture(.atOnce)
            loop.waiting { _ = usleep(120_000) }
            session.stopCapture(.afterTail)
            loop.waiting { _ = usleep(400_000) }
            session.stopCapture(.immediately)
            log.withLock { $0.append("cut") }
            session.startCapture(.atOnce)
            log.withLock { $0.append("second") }
            return LoopConfined(session)
        }
        #expect(await eventually { log.withLock { $0 }.contains("frame 2") })
        try await loop.run {
            session.value.stopCapture(.discarding)
            session.value.close {}
        }
        let told = log.withLock { $0 }
        let cut = try #require(told.firstIndex(of: "cut"))
        #expect(cut > 0)
        #expect(told[..<cut].allSatisfy { $0 == "frame 1" }, "\(told)")
        #expect(told[(cut + 1)...].prefix(2) == ["second", "began"], "\(told)")
        #expect(told[(cut + 3)...].allSatisfy { $0 == "frame 2" }, "\(told)")
    }

    /// The rules let no tone of their own sound for a begin that waited for the floor.
    @Test func `after a begin that waited a program's channel has its first tone`() async throws {
        let directory = try TemporaryDirectory()
        try writeWAV(chirp(seconds: 2), to: directory.file("speech.wav"))
        let loop = try EventLoop(name: "test")
        defer { loop.stop() }
        let log = Shared<[String]>([])
        let session = try await loop.run {
            let configuration = ChannelServiceConfiguration(
                microphone: .wav(path: directory.file("speech.wav")), speaker: .wav(path: directory.file("out.wav")))
            let session = DeviceAudioSession(configuration: configuration, loop: loop, logger: quietLogger)
            session.handler = { event in
                log.withLock {
                    switch event {
                    case .captureBegan: $0.append("began")
                    case .frame, .level: break
                    default: $0.append("\(event)")
                    }
                }
            }
            session.prepare(for: .daemon)
            session.activate()
            session.startCapture(.afterGoAhead)
            return LoopConfined(session)
        }
        #expect(await eventually { log.withLock { $0 }.contains("began") })
        try await loop.run {
            session.value.stopCapture(.discarding)
            session.value.deactivate(.drop)
            session.value.prepare(for: .application)
            log.withLock { $0 = [] }
            session.value.activate()
        }
        #expect(await eventually { log.withLock { $0 }.contains("activated") })
        try await loop.run { session.value.play(.microphoneOn) }
        #expect(await eventually { log.withLock { $0 }.contains("tonesFinished(heard: true)") })
        try await loop.run { session.value.close {} }
    }

    /// The speaker failed a moment ago and is left alone: who waits for what it drops is told all the same.
    @Test func `a burst and a tone that a missing speaker drops are over`() async throws {
        let loop = try EventLoop(name: "test")
        defer { loop.stop() }
        let log = Shared<[String]>([])
        let session = try await loop.run {
            let configuration = ChannelServiceConfiguration(
                microphone: .alsa("no-such-microphone"), speaker: .alsa("no-such-speaker"))
            let session = DeviceAudioSession(configuration: configuration, loop: loop, logger: quietLogger)
            session.handler = { event in log.withLock { $0.append("\(event)") } }
            session.activate()
            _ = session.play(packet(1), voice: 0)
            return LoopConfined(session)
        }
        #expect(await eventually { log.withLock { $0 }.contains("played(voice: 0)") })
        try await loop.run {
            log.withLock { $0 = [] }
            for sequence in 2...20 as ClosedRange<UInt16> { _ = session.value.play(packet(sequence), voice: 0) }
            session.value.endReception(lastSequence: 20, voice: 0)
        }
        #expect(await eventually { log.withLock { $0 }.contains("played(voice: 0)") })
        try await loop.run {
            session.value.play(.denied)
            session.value.deactivate(.finish)
        }
        #expect(await eventually { log.withLock { $0 }.contains("deactivated") })
        try await loop.run { session.value.close {} }
    }
}

/// Carries a sound system of a loop between the calls of a test on that loop.
private struct LoopConfined<Value>: @unchecked Sendable {
    let value: Value
    init(_ value: Value) { self.value = value }
}
