// What is worn in place of the configured devices, with the real engines and files as devices.

import Audio
import MonotonicTime
import PushToTalkCore
import Testing
import Vocabulary

@testable import ChannelService

@Suite struct WornSoundTests {
    private let directory: TemporaryDirectory

    init() throws {
        directory = try TemporaryDirectory()
        // Of the two voices one is twice as loud, so that a level tells who is heard.
        try writeWAV(chirp(seconds: 8).map { $0 * 0.1 }, to: directory.file("configured.wav"))
        try writeWAV(chirp(seconds: 8), to: directory.file("worn.wav"))
        try writeWAV(
            [Float](repeating: 0, count: 24_000) + chirp(seconds: 8), to: directory.file("late.wav"))
    }

    private func device(_ name: String) -> AudioDevice { .wav(path: directory.file(name)) }

    private func configuration(
        microphone: String = "configured.wav", tones: Bool = false
    ) -> ChannelServiceConfiguration {
        var configuration = ChannelServiceConfiguration(microphone: device(microphone), speaker: device("out.wav"))
        configuration.capture.gain = .off
        configuration.playsTones = tones
        configuration.playback.recordingKeepsTime = false
        return configuration
    }

    private func worn(_ name: String = "worn.wav") -> WornSound { WornSound(microphone: .device(device(name))) }

    /// Talks for a while; the loudest level of the burst.
    private func talk(_ under: ServiceUnderTest, milliseconds: Int = 250) async throws -> Float {
        let before = under.frames.count
        let ends = under.frames.count { $0.isLast }
        try await under.begin()
        try await Task.sleep(for: .milliseconds(milliseconds))
        try await under.stop()
        #expect(await eventually { under.frames.count { $0.isLast } == ends + 1 })
        let burst = under.frames[before...]
        #expect(burst.count { $0.isFirst } == 1)
        return burst.map(\.level).max() ?? OutgoingFrame.levelMin
    }

    @Test func `a press with a worn microphone uses it and the next one without it does not`() async throws {
        let under = try ServiceUnderTest(configuration())
        try await under.start()
        #expect(try await talk(under) < -20)
        await under.service.use(worn())
        #expect(try await talk(under) > -16)
        await under.service.use(.none)
        #expect(try await talk(under) < -20)
        await under.service.use(worn())
        #expect(try await talk(under) > -16)
        #expect(await under.service.snapshot.microphoneProblem == nil)
        await under.finish()
    }

    @Test func `a worn microphone is heard from its first true sample on and its time is told`() async throws {
        let under = try ServiceUnderTest(configuration(tones: true))
        let times = Shared<[Duration]>([])
        await under.service.setWornMicrophoneHandler { report in
            if case .hears(let after, _) = report { times.withLock { $0.append(after) } }
        }
        try await under.start()
        await under.service.use(worn("late.wav"))
        let pressed = Instant.now
        try await under.begin()
        #expect(await eventually { under.frames.count > 20 })
        try await under.stop()
        #expect(await eventually { under.frames.contains(where: \.isLast) })
        let first = try #require(under.frames.first)
        #expect(first.capturedAt >= pressed + .milliseconds(500), "half a second of its link is not sent")
        #expect(under.frames.dropFirst().prefix(10).allSatisfy { $0.level > -30 })
        let told = times.withLock { $0 }
        #expect(told.count == 1 && told[0] >= .milliseconds(500))
        await under.finish()
    }

    @Test func `a press waits for a worn microphone that appears`() async throws {
        let under = try ServiceUnderTest(configuration())
        try await under.start()
        await under.service.use(WornSound(microphone: .awaited))
        async let begun: Void = under.begin()
        try await Task.sleep(for: .milliseconds(300))
        #expect(under.frames.isEmpty)
        #expect(await under.service.snapshot.isCapturing)
        await under.service.use(worn())
        _ = try await begun
        #expect(await eventually { under.frames.count > 20 })
        try await under.stop()
        #expect(await eventually { under.frames.contains(where: \.isLast) })
        #expect((under.frames.map(\.level).max() ?? 0) > -16)
        #expect(await under.service.snapshot.microphoneProblem == nil)
        await under.finish()
    }

    @Test func `a worn microphone that does not appear is replaced and a release meanwhile ends it`() async throws {
        let under = try ServiceUnderTest(configuration())
        try await under.start()
        await under.service.use(WornSound(microphone: .awaited))
        async let begun: Void = under.begin()
        try await Task.sleep(for: .milliseconds(50))
        await under.service.use(WornSound(microphone: .missing("the microphone of the vest is away")))
        _ = try await begun
        #expect(await eventually { under.frames.count > 20 })
        let problem = await under.service.snapshot.microphoneProblem
        #expect(problem?.hasPrefix("the microphone of the vest is away; ") == true, "\(problem ?? "")")
        #expect(problem?.contains("configured.wav is used") == true)
        try await under.stop()
        #expect(await eventually { under.frames.contains(where: \.isLast) })

        let count = under.frames.count
        await under.service.use(WornSound(microphone: .awaited))
        let service = under.service
        let second = Task {
            try? await service.perform(
                .beginTransmitting(channelUUID: ServiceUnderTest.channel, source: .userRequest))
        }
        try await Task.sleep(for: .milliseconds(50))
        try await under.stop()
        await second.value
        await under.service.use(worn())
        #expect(await eventually { await under.service.snapshot.audioSession == .inactive })
        try await Task.sleep(for: .milliseconds(100))
        #expect(under.frames.count == count, "what comes after the release is not sent")
        #expect(await !under.service.snapshot.isCapturing)
        await under.finish()
    }

    @Test func `a worn microphone that goes away while it talks is replaced at once`() async throws {
        let under = try ServiceUnderTest(configuration())
        try await under.start()
        await under.service.use(worn())
        try await under.begin()
        #expect(await eventually { under.frames.count > 20 })
        let gone = Instant.now
        await under.service.use(WornSound(microphone: .missing("the headset is gone")))
        let before = under.frames.count
        #expect(await eventually { under.frames.count > before + 20 })
        let other = try #require(under.frames.first { $0.capturedAt > gone })
        print("the other microphone's first sample \((other.capturedAt - gone).milliseconds) ms after the loss")
        #expect(under.frames.suffix(10).allSatisfy { $0.level < -20 })
        #expect(await under.service.snapshot.microphoneProblem?.contains("the headset is gone") == true)
        try await under.stop()
        #expect(await eventually { under.frames.contains(where: \.isLast) })
        #expect(zip(under.frames, under.frames.dropFirst()).allSatisfy { $0.position < $1.position })
        // It has been connected anew, and is trusted.
        await under.service.use(worn())
        #expect(try await talk(under) > -16)
        await under.finish()
    }

    @Test func `speech moves to the configured speaker when the worn one goes and says the last seconds again`()
        async throws
    {
        let under = try ServiceUnderTest(configuration())
        try await under.start()
        await under.service.use(WornSound(speaker: device("ear.wav")))
        let talker = try ServiceUnderTest(configuration(microphone: "worn.wav"))
        try await talker.start()
        try await talker.begin()
        #expect(await eventually { talker.frames.count >= 200 })
        try await talker.stop()
        let packets = talker.frames.prefix(200).map { frame in
            ReceivedFrame(
                sequence: UInt16(truncatingIfNeeded: frame.position / 480), timestamp: frame.position,
                marker: frame.isFirst, payload: frame.payload, receivedAt: .now)
        }
        await talker.finish()
        await under.service.burstBegan(PTParticipant(name: "Ann", image: nil))
        for (index, packet) in packets.enumerated() {
            if index == 100 { await under.service.use(.none) }
            await under.service.received(packet)
            try await Task.sleep(for: .milliseconds(8))
        }
        await under.service.burstEnded(lastSequence: packets.last?.sequence)
        #expect(await under.waitFor { $0 == .notice(.activeRemoteParticipantChanged(nil)) })
        #expect(await eventually { await under.service.snapshot.audioSession == .inactive })
        await under.finish()
        let ear = try readWAV(directory.file("ear.wav"))
        #expect(ear.count > 20_000, "it was heard there first: \(ear.count) samples")
        let out = try readWAV(directory.file("out.wav"))
        let share = shareHeard(of: Array(chirp(seconds: 2)), in: out)
        #expect(share > 0.7, "\(share) of it, in \(out.count) samples, \(out.count { abs($0) > 0.02 }) of them loud")
    }

    @Test func `a worn speaker is left as soon as nothing plays and a kept one plays silence`() async throws {
        var configuration = configuration(tones: true)
        configuration.playback.recordingKeepsTime = true
        let under = try ServiceUnderTest(configuration)
        try await under.start()
        await under.service.use(WornSound(speaker: device("kept.wav"), keepsLink: true))
        try await Task.sleep(for: .milliseconds(400))
        await under.service.use(WornSound(speaker: device("ear.wav")))
        await under.service.signal(.microphoneOff)
        #expect(await eventually { await under.service.snapshot.audioSession == .inactive })
        await under.finish()
        let kept = try readWAV(directory.file("kept.wav"))
        #expect(kept.count > 48 * 200 && kept.allSatisfy { $0 == 0 }, "\(kept.count) samples")
        #expect(try readWAV(directory.file("ear.wav")).contains { abs($0) > 0.02 })
    }
}
