// Channels with a program behind them, on the running service: its media, its pushes, restoration and calls.

import Audio
import FoundationEssentials
import MonotonicTime
import PushToTalkCore
import Testing
import Vocabulary

@testable import ChannelService

@Suite struct ProgramMediaTests {
    let channel = ServiceUnderTest.channel
    let ann = PTParticipant(name: "Ann", image: nil)
    let program = ChannelManagerStateMachine.JoinOptions(
        media: .application, program: .present, canStartProgram: true)

    @Test func `a program talks between the tones and nothing is recorded for it`() async throws {
        let under = try ServiceUnderTest()
        try await under.start(options: program)
        try await under.begin(.developerRequest)
        #expect(under.callbacks.last == .didActivateAudioSession)
        #expect(
            await under.service.run { $0.simulatedAudio.commands } == [
                .prepared(.application), .activate, .tone(.microphoneOn),
            ])
        #expect(await !under.service.snapshot.isCapturing)
        try await under.stop(.developerRequest)
        #expect(
            await under.service.run { $0.simulatedAudio.commands.suffix(2) } == [
                .tone(.microphoneOff), .deactivate(.finish),
            ])
        #expect(
            under.callbacks.suffix(2) == [
                .didEndTransmitting(channel, source: .developerRequest), .didDeactivateAudioSession,
            ])
        #expect(under.frames.isEmpty)
        await under.finish()
    }

    @Test func `a begin is answered when the program has the device`() async throws {
        let under = try ServiceUnderTest()
        try await under.start(options: program)
        await under.service.run { $0.simulatedAudio.answers = false }
        let answered = Shared(false)
        await under.service.run { [channel] service in
            service.request(.beginTransmitting(channelUUID: channel, source: .userRequest)) { _ in
                answered.withLock { $0 = true }
            }
        }
        await under.service.run { $0.simulatedAudio.handler?(.activated) }
        #expect(!answered.withLock { $0 })
        #expect(!under.callbacks.contains(.didActivateAudioSession))
        await under.service.run { $0.simulatedAudio.handler?(.tonesFinished(heard: true)) }
        #expect(answered.withLock { $0 })
        #expect(under.callbacks.last == .didActivateAudioSession)
        await under.finish()
    }

    @Test func `a burst of the relay is not played over a program`() async throws {
        let under = try ServiceUnderTest()
        try await under.start(options: program)
        await under.service.burstBegan(ann)
        await under.service.received(packet(1))
        await under.service.burstEnded(lastSequence: 1)
        #expect(await under.service.snapshot.activeRemoteParticipant == nil)
        #expect(await under.service.snapshot.statistics.packetsDropped == 1)
        #expect(await under.service.run { $0.simulatedAudio.commands } == [.prepared(.application)])
        await under.finish()
    }

    @Test func `a push is put to the program and its answer receives`() async throws {
        let under = try ServiceUnderTest()
        try await under.start(options: program)
        let token = try #require(await under.service.snapshot.pushToken)
        #expect(under.callbacks.last == .receivedEphemeralPushToken(token))
        let push = Push(identifier: "1", token: token, payload: try PushPayload(validating: "{}"))
        await under.service.push(.received(push))
        guard case .incomingPush(channel, let delivery)? = under.callbacks.last else {
            Issue.record("the program was not asked")
            return
        }
        await under.service.push(.answered(delivery.identifier, .activeRemoteParticipant(ann)))
        #expect(await under.service.snapshot.activeRemoteParticipant == ann)
        #expect(under.events.contains(.notice(.pushSettled(push, .delivered))))
        #expect(under.callbacks.last == .didActivateAudioSession)
        await under.finish()
    }

    @Test func `an answer from within the question waits for its turn`() async throws {
        let under = try ServiceUnderTest()
        try await under.start(options: program)
        try await under.begin()
        let token = await under.service.addObserver { [service = under.service, channel, ann] event in
            guard case .callback(.incomingPush(_, let delivery)) = event else { return }
            service.assumeIsolated {
                $0.request(.stopTransmitting(channelUUID: channel, source: .developerRequest))
                $0.push(.answered(delivery.identifier, .activeRemoteParticipant(ann)))
            }
        }
        #expect(token != nil)
        await under.service.push(
            .received(Push(identifier: "1", token: nil, payload: try PushPayload(validating: "{}"))))
        #expect(await under.service.snapshot.activeRemoteParticipant == ann)
        #expect(under.callbacks.suffix(1) == [.didEndTransmitting(channel, source: .developerRequest)])
        #expect(under.callbacks.count { $0 == .didActivateAudioSession } == 1)
        await under.finish()
    }

    @Test func `a program that does not answer is not waited for longer than the limit`() async throws {
        var rules = ChannelManagerStateMachine.Configuration()
        rules.pushes.answerLimit = .milliseconds(40)
        let under = try ServiceUnderTest(rules: rules)
        try await under.start(options: program)
        let push = Push(identifier: "1", token: nil, payload: try PushPayload(validating: "{}"))
        await under.service.push(.received(push))
        #expect(
            await under.waitFor {
                if case .notice(.pushSettled(push, .dropped(.notAnswered))) = $0 { true } else { false }
            })
        #expect(await eventually { await !under.service.run { $0.hasTimer } })
        await under.finish()
    }

    @Test func `a channel is restored from its file with token and settings`() async throws {
        let directory = try TemporaryDirectory()
        let store = RestorationStore(path: directory.file("channel"))
        let first = try ServiceUnderTest()
        try await first.start(mode: .fullDuplex, options: program)
        try await first.service.perform(.setAccessoryButtonEventsEnabled(false, channelUUID: channel))
        let before = await first.service.snapshot
        let joined = try #require(before.channel)
        try store.save(RestorationRecord(channel: joined, token: before.pushToken, application: "org.example.Talk"))
        try await first.begin()
        await first.finish()

        let second = try ServiceUnderTest()
        let token = await second.service.addObserver { [second] event in second.keep(event) }
        let record = try #require(store.load().record)
        try await second.service.perform(
            .join(
                channelUUID: record.channelUUID, record.descriptor, reason: .channelRestoration, mode: record.mode,
                options: .init(
                    media: record.media, program: .absent, canStartProgram: true,
                    accessoryButtonEventsEnabled: record.accessoryButtonEventsEnabled, restoredToken: record.token)))
        let after = await second.service.snapshot
        #expect(after.channel == joined)
        #expect(after.pushToken == before.pushToken)
        #expect(after.program == .absent)
        #expect(second.callbacks.first == .didJoinChannel(channel, reason: .channelRestoration))
        // A program that is started is told of its channel before anything else, the push included.
        let push = Push(identifier: "1", token: before.pushToken, payload: try PushPayload(validating: "{}"))
        await second.service.push(.received(push))
        #expect(second.events.last == .notice(.programWanted))
        let pushToken = try #require(after.pushToken)
        #expect(
            await second.service.restorationCallbacks == [
                .didJoinChannel(channel, reason: .channelRestoration), .receivedEphemeralPushToken(pushToken),
            ])
        await second.service.push(.programCame)
        guard case .incomingPush(channel, _)? = second.callbacks.last else {
            Issue.record("the program was not asked")
            return
        }
        await second.finish()
        if let token { await second.service.removeObserver(token) }
    }

    @Test func `several calls are over with the last`() async throws {
        let under = try ServiceUnderTest()
        try await under.start()
        await under.service.setCallActive(holder: "ofono", description: "oFono: +49 30 1234")
        await under.service.setCallActive(holder: "inhibitor", description: "Linphone")
        #expect(await under.service.snapshot.calls.map(\.holder) == ["ofono", "inhibitor"])
        await under.service.setCallActive(holder: "ofono", description: nil)
        await #expect(throws: PTChannelError.self) { try await under.begin() }
        await under.service.setCallActive(holder: "inhibitor", description: nil)
        #expect(await under.service.snapshot.calls.isEmpty)
        try await under.begin()
        await under.finish()
    }

    // MARK: With the engines

    @Test func `the tones of a programs transmission are heard`() async throws {
        let directory = try TemporaryDirectory()
        try writeWAV(chirp(seconds: 1), to: directory.file("speech.wav"))
        var playback = PlaybackConfiguration()
        playback.recordingKeepsTime = false
        let under = try ServiceUnderTest(
            ChannelServiceConfiguration(
                microphone: .wav(path: directory.file("speech.wav")), speaker: .wav(path: directory.file("out.wav")),
                playback: playback))
        try await under.start(options: program)
        try await under.begin()
        #expect(under.callbacks.last == .didActivateAudioSession)
        try await under.stop()
        #expect(await eventually { await under.service.snapshot.audioSession == .inactive })
        try await under.begin()
        try await under.stop()
        #expect(await eventually { await under.service.snapshot.audioSession == .inactive })
        await under.finish()
        #expect(try readWAV(directory.file("out.wav")).contains { abs($0) > 0.05 }, "no tone was heard")
        #expect(under.frames.isEmpty)
    }

    @Test func `a program gets its session also without tones and without a speaker`() async throws {
        let silent = try ServiceUnderTest(
            ChannelServiceConfiguration(
                microphone: .alsa("no-such-card"), speaker: .alsa("no-such-card"), playsTones: false))
        let broken = try ServiceUnderTest(
            ChannelServiceConfiguration(microphone: .alsa("no-such-card"), speaker: .alsa("no-such-card")))
        for under in [silent, broken] {
            try await under.start(options: program)
            try await under.begin()
            #expect(under.callbacks.last == .didActivateAudioSession)
            try await under.stop()
            #expect(await eventually { await under.service.snapshot.audioSession == .inactive })
            #expect(under.callbacks.last == .didDeactivateAudioSession)
            await under.finish()
        }
    }

    @Test func `the players device is closed while a program has it`() async throws {
        // ALSA's null device stands for one that only one at a time may have.
        let under = try ServiceUnderTest(
            ChannelServiceConfiguration(microphone: .alsa("null"), speaker: .alsa("null")))
        try await under.start(options: program)
        for _ in 0..<3 {
            try await under.begin()
            #expect(await under.service.run { ($0.audio as? DeviceAudioSession)?.hasOpenDevices == false })
            try await under.stop()
            #expect(await eventually { await under.service.snapshot.audioSession == .inactive })
            #expect(
                await eventually {
                    await under.service.run { ($0.audio as? DeviceAudioSession)?.hasOpenDevices == false }
                })
        }
        await under.finish()
    }
}
