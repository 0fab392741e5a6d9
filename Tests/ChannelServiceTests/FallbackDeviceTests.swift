// A microphone or a speaker that is of no use, and the one that stands in for it: with the real engines, and a file of
// zeros as a headset whose link is down.

import Audio
import Glibc
import MonotonicTime
import PushToTalkCore
import Testing
import Vocabulary

@testable import ChannelService

@Suite struct FallbackDeviceTests {
    private let directory: TemporaryDirectory

    init() throws {
        directory = try TemporaryDirectory()
        try writeWAV(chirp(seconds: 6), to: directory.file("fallback.wav"))
        try writeWAV([Float](repeating: 0, count: 480), to: directory.file("dead.wav"))
    }

    private var dead: AudioDevice { .wav(path: directory.file("dead.wav")) }

    private func configuration(
        microphone: AudioDevice, fallback: Bool = true, speaker: String = "out.wav"
    ) -> ChannelServiceConfiguration {
        var configuration = ChannelServiceConfiguration(
            microphone: microphone, speaker: .wav(path: directory.file(speaker)))
        if fallback { configuration.fallbackMicrophone = .wav(path: directory.file("fallback.wav")) }
        configuration.capture.isFileWatched = true
        configuration.playback.recordingKeepsTime = false
        return configuration
    }

    /// One burst without a hole in its order: one first frame, one last, positions that only grow.
    private func expectWhole(_ frames: ArraySlice<OutgoingFrame>) {
        #expect(frames.first?.isFirst == true && frames.last?.isLast == true)
        #expect(frames.count { $0.isFirst } == 1 && frames.count { $0.isLast } == 1)
        #expect(zip(frames, frames.dropFirst()).allSatisfy { $0.position < $1.position && $1.position % 480 == 0 })
    }

    @Test func `a microphone of zeros is replaced within a burst and the next burst begins with the fallback`()
        async throws
    {
        let under = try ServiceUnderTest(configuration(microphone: dead))
        try await under.start()
        try await under.begin()
        let began = Instant.now
        #expect(await eventually { under.frames.contains { $0.level > -40 } })
        let heard = Instant.now - began
        let problem = await under.service.snapshot.microphoneProblem
        #expect(
            problem?.contains("dead.wav gives no sound") == true && problem?.contains("fallback.wav is used") == true)
        try await Task.sleep(for: .milliseconds(300))
        try await under.stop()
        #expect(await under.waitFor { $0 == .notice(.transmissionAudioFinished(erased: false)) })
        let first = under.frames
        expectWhole(first[...])
        let loud = try #require(first.first { $0.level > -40 })
        let silence = loud.capturedAt - first[0].capturedAt
        #expect(silence >= .milliseconds(200) && silence < .milliseconds(1_000), "\(silence)")
        // The place in the burst is that of the sound in time.
        let place = Duration.nanoseconds(Int64(loud.position) * 1_000_000 / 48)
        #expect(abs((place - silence).milliseconds) <= 11, "\(place) for \(silence)")
        print(
            "zeros: the fallback is heard \(silence.milliseconds) ms into the burst, \(heard.milliseconds) ms after its begin"
        )

        try await under.begin()
        #expect(await eventually { under.frames.count > first.count + 20 })
        #expect(await under.service.snapshot.microphoneProblem == problem)
        try await under.stop()
        #expect(await eventually { under.frames.count { $0.isLast } == 2 })
        let second = under.frames[first.count...]
        expectWhole(second)
        #expect(second.prefix(20).dropFirst(2).allSatisfy { $0.level > -40 }, "it begins without silence")
        await under.finish()
    }

    @Test func `a missing microphone costs nothing and is used again once it has worked beside the fallback`()
        async throws
    {
        let main = directory.file("main.wav")
        let under = try ServiceUnderTest(configuration(microphone: .wav(path: main)))
        try await under.start()
        func talk(_ milliseconds: Int) async throws {
            let ends = under.frames.count { $0.isLast }
            try await under.begin()
            try await Task.sleep(for: .milliseconds(milliseconds))
            try await under.stop()
            #expect(await eventually { under.frames.count { $0.isLast } == ends + 1 })
        }
        for _ in 0..<2 {
            let before = under.frames.count
            try await talk(200)
            expectWhole(under.frames[before...])
            #expect(under.frames[before...].prefix(20).dropFirst(2).allSatisfy { $0.level > -40 })
            #expect(await under.service.snapshot.microphoneProblem?.contains("main.wav") == true)
        }
        try writeWAV(chirp(seconds: 3), to: main)
        try await talk(700)
        #expect(await under.service.snapshot.microphoneProblem != nil)
        try await talk(200)
        #expect(await under.service.snapshot.microphoneProblem == nil)
        #expect(await eventually { await under.service.snapshot.audioSession == .inactive })
        await under.finish()
    }

    @Test func `without a fallback the person is warned and the burst ends`() async throws {
        let under = try ServiceUnderTest(configuration(microphone: dead, fallback: false))
        try await under.start()
        try await under.begin()
        #expect(await eventually { await under.service.snapshot.microphoneProblem?.contains("gives no sound") == true })
        #expect(under.frames.allSatisfy { !$0.isLast }, "it goes on for a moment")
        let channel = ServiceUnderTest.channel
        #expect(await eventually { under.callbacks.contains(.didEndTransmitting(channel, source: .unknown)) })
        #expect(await eventually { await under.service.snapshot.audioSession == .inactive })
        await under.finish()
        // The warning, and the tone of a device that failed.
        let sound = try readWAV(directory.file("out.wav"))
        #expect(sound.count { abs($0) > 0.02 } > 48_000 / 3)
    }

    @Test func `two microphones of no use end the burst once`() async throws {
        var configuration = configuration(microphone: .alsa("no-such-microphone"))
        configuration.fallbackMicrophone = .alsa("no-such-fallback")
        let under = try ServiceUnderTest(configuration)
        try await under.start()
        for count in 1...3 {
            await #expect(throws: PTChannelError.self) { try await under.begin() }
            #expect(under.callbacks.count { if case .didEndTransmitting = $0 { true } else { false } } == count)
        }
        #expect(await eventually { await under.service.snapshot.audioSession == .inactive })
        await under.finish()
    }

    @Test func `a missing speaker is replaced and what was said is said again`() async throws {
        var configuration = configuration(microphone: .wav(path: directory.file("fallback.wav")))
        configuration.speaker = .alsa("no-such-speaker")
        configuration.fallbackSpeaker = .wav(path: directory.file("out.wav"))
        let under = try ServiceUnderTest(configuration)
        try await under.start()
        let packets = try await spoken(seconds: 1)
        await under.service.burstBegan(PTParticipant(name: "Ann", image: nil))
        for packet in packets {
            await under.service.received(packet)
            try await Task.sleep(for: .milliseconds(8))
        }
        await under.service.burstEnded(lastSequence: packets.last?.sequence)
        #expect(await under.waitFor { $0 == .notice(.activeRemoteParticipantChanged(nil)) })
        let problem = await under.service.snapshot.speakerProblem
        #expect(problem?.contains("no-such-speaker") == true && problem?.contains("out.wav is used") == true)
        #expect(await eventually { await under.service.snapshot.audioSession == .inactive })
        await under.finish()
        let share = shareHeard(of: chirp(seconds: 1), in: try readWAV(directory.file("out.wav")))
        #expect(share > 0.7, "\(share)")
    }

    /// The packets of the first seconds of the chirp, as another member sends them.
    private func spoken(seconds: Int) async throws -> [ReceivedFrame] {
        let talker = try ServiceUnderTest(
            configuration(
                microphone: .wav(path: directory.file("fallback.wav")), fallback: false, speaker: "talker.wav"))
        try await talker.start()
        try await talker.begin()
        #expect(await eventually { talker.frames.count >= seconds * 100 })
        try await talker.stop()
        let frames = talker.frames.prefix(seconds * 100)
        await talker.finish()
        return frames.map { frame in
            ReceivedFrame(
                sequence: UInt16(truncatingIfNeeded: frame.position / 480), timestamp: frame.position,
                marker: frame.isFirst, payload: frame.payload, receivedAt: .now)
        }
    }
}
