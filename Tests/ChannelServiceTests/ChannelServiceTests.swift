// The service around the rules: order, answers, timers, frames and bounds, with simulated sound.

import Audio
import FoundationEssentials
import MonotonicTime
import PushToTalkCore
import Testing
import Vocabulary

@testable import ChannelService

@Suite struct ChannelServiceTests {
    let channel = ServiceUnderTest.channel
    let ann = PTParticipant(name: "Ann", image: nil)

    @Test func `a burst goes from press to tail`() async throws {
        let under = try ServiceUnderTest()
        try await under.start()
        try await under.begin(.handsfreeButton)
        await under.service.run { service in
            service.simulatedAudio.handler?(.frame(frame(0)))
            service.simulatedAudio.handler?(.frame(frame(960)))
        }
        let during = await under.service.snapshot
        #expect(during.transmission?.source == .handsfreeButton)
        #expect(during.isCapturing)
        #expect(during.audioSession == .active)
        try await under.stop(.handsfreeButton)
        #expect(await under.service.snapshot.transmission == nil)
        #expect(await under.service.snapshot.isCapturing)
        await under.service.run { service in
            service.simulatedAudio.handler?(.frame(frame(1920, last: true)))
            service.simulatedAudio.handler?(.captureEnded)
        }
        #expect(under.frames.map(\.position) == [0, 960, 1920])
        #expect(
            under.callbacks == [
                .didJoinChannel(channel, reason: .developerRequest),
                .didBeginTransmitting(channel, source: .handsfreeButton), .didActivateAudioSession,
                .didEndTransmitting(channel, source: .handsfreeButton), .didDeactivateAudioSession,
            ])
        #expect(
            await under.service.run { $0.simulatedAudio.commands } == [
                .prepared(.daemon), .activate, .startCapture(.atOnce), .tone(.microphoneOn), .stopCapture(.afterTail),
                .tone(.microphoneOff), .deactivate(.finish),
            ])
        let after = await under.service.snapshot
        #expect(!after.isCapturing)
        #expect(after.audioSession == .inactive)
        #expect(after.statistics.framesSent == 3)
        #expect(after.statistics.transmissions == 1)
        await under.finish()
    }

    @Test func `the level is told while something is recorded and its end once`() async throws {
        let under = try ServiceUnderTest()
        try await under.start()
        let levels = Shared<[Float?]>([])
        await under.service.setLevelHandler { level in levels.withLock { $0.append(level) } }
        for _ in 0..<2 {
            try await under.begin()
            await under.service.run { service in
                for level: Float in [-20, -20, -18.5] { service.simulatedAudio.handler?(.level(level)) }
            }
            #expect(await under.service.snapshot.inputLevel == -18.5)
            try await under.stop()
            await under.service.run { $0.simulatedAudio.handler?(.captureEnded) }
            #expect(await under.service.snapshot.inputLevel == nil)
        }
        // Each transmission begins with silence, and not with what the one before ended with.
        #expect(levels.withLock { $0 } == [-96, -20, -18.5, nil, -96, -20, -18.5, nil])
        #expect(await under.service.run { !$0.hasTimer }, "nothing wakes up for it")
        await under.service.setLevelHandler(nil)
        await under.finish()
    }

    @Test func `requests from within a callback wait for their turn`() async throws {
        let under = try ServiceUnderTest()
        let depth = Shared((now: 0, most: 0))
        let order = Shared<[String]>([])
        _ = await under.service.addObserver { [service = under.service, channel] event in
            depth.withLock {
                $0.now += 1
                $0.most = max($0.most, $0.now)
            }
            if event == .callback(.didBeginTransmitting(channel, source: .userRequest)) {
                service.assumeIsolated {
                    $0.request(.stopTransmitting(channelUUID: channel, source: .developerRequest)) { error in
                        order.withLock { $0.append("stopped \(error == nil)") }
                    }
                }
                order.withLock { $0.append("begin told") }
            }
            depth.withLock { $0.now -= 1 }
        }
        try await under.start()
        try await under.begin()
        #expect(depth.withLock { $0.most } == 1)
        #expect(order.withLock { $0 } == ["begin told", "stopped true"])
        #expect(
            under.callbacks.suffix(3).contains(.didEndTransmitting(channel, source: .developerRequest)))
        await under.finish()
    }

    @Test func `a begin is answered when the microphone records`() async throws {
        let under = try ServiceUnderTest()
        try await under.start()
        await under.service.run { $0.simulatedAudio.answers = false }
        let answered = Shared(false)
        await under.service.run { [channel] service in
            service.request(.beginTransmitting(channelUUID: channel, source: .userRequest)) { _ in
                answered.withLock { $0 = true }
            }
        }
        #expect(under.callbacks.last == .didBeginTransmitting(channel, source: .userRequest))
        await under.service.run { $0.simulatedAudio.handler?(.activated) }
        #expect(!answered.withLock { $0 })
        await under.service.run { $0.simulatedAudio.handler?(.captureBegan(firstSampleAt: .now)) }
        #expect(answered.withLock { $0 })
        await under.finish()
    }

    /// The burst that a failing speaker cuts off is told as played, which is no proof that the speaker works.
    @Test func `a failed speaker is shown until it is heard again`() async throws {
        let under = try ServiceUnderTest()
        try await under.start()
        await under.service.run {
            $0.simulatedAudio.handler?(.playbackFailed(reason: "moves no samples"))
            $0.simulatedAudio.handler?(.played(voice: 0))
        }
        #expect(await under.service.snapshot.speakerProblem == "moves no samples")
        #expect(await under.service.snapshot.audioProblem == "moves no samples")
        #expect(under.events.contains(.soundProblemsChanged))
        // Nor is a microphone that works.
        try await under.begin()
        #expect(await under.service.snapshot.speakerProblem == "moves no samples")
        await under.service.run { $0.simulatedAudio.handler?(.soundProblem(of: .speaker, nil)) }
        #expect(await under.service.snapshot.speakerProblem == nil)
        #expect(await under.service.snapshot.audioProblem == nil)
        await under.finish()
    }

    @Test func `a microphone that is missing is shown before the first press`() async throws {
        let under = try ServiceUnderTest()
        try await under.start()
        await under.service.run { $0.simulatedAudio.handler?(.soundProblem(of: .microphone, "no such device")) }
        #expect(await under.service.snapshot.microphoneProblem == "no such device")
        try await under.begin()
        #expect(await under.service.snapshot.microphoneProblem == nil)
        await under.finish()
    }

    @Test func `a microphone that vanishes ends the burst and the next one works`() async throws {
        let under = try ServiceUnderTest()
        try await under.start()
        try await under.begin()
        await under.service.run { $0.simulatedAudio.handler?(.captureFailed(reason: "unplugged")) }
        #expect(under.events.contains(.notice(.transmissionEnding(.audioFailed(reason: "unplugged")))))
        #expect(await under.service.snapshot.audioProblem == "unplugged")
        #expect(await under.service.snapshot.transmission == nil)
        #expect(await under.service.run { $0.simulatedAudio.commands.contains(.stopCapture(.discarding)) })
        try await under.begin()
        #expect(await under.service.snapshot.transmission != nil)
        #expect(await under.service.snapshot.audioProblem == nil)
        await under.finish()
    }

    @Test func `a refusal by the relay erases and is heard`() async throws {
        let under = try ServiceUnderTest()
        try await under.start()
        try await under.begin()
        let error = PTChannelError(.transmissionInProgress, explanation: "Ann has the floor")
        await under.service.transmissionRefused(error)
        #expect(under.events.contains(.notice(.transmissionEnding(.refused(error)))))
        #expect(under.events.contains(.notice(.transmissionAudioFinished(erased: true))))
        let commands = await under.service.run { $0.simulatedAudio.commands }
        #expect(commands.contains(.stopCapture(.discarding)))
        #expect(commands.contains(.tone(.denied)))
        await under.finish()
    }

    @Test func `frames that exist are delivered before an immediate end is told`() async throws {
        let under = try ServiceUnderTest()
        try await under.start()
        try await under.begin()
        await under.service.run { $0.simulatedAudio.framesLeft = [frame(0), frame(960)] }
        let framesAtFinish = Shared(-1)
        _ = await under.service.addObserver { [unowned under] event in
            guard event == .notice(.transmissionAudioFinished(erased: false)) else { return }
            framesAtFinish.withLock { $0 = under.frames.count }
        }
        try await under.service.perform(.leave(channelUUID: channel))
        #expect(framesAtFinish.withLock { $0 } == 2)
        await under.finish()
    }

    @Test func `the talk time limit needs nobody to poll`() async throws {
        let under = try ServiceUnderTest(
            rules: .init(talkTimeLimit: .seconds(2), talkTimeWarning: .milliseconds(1_900)))
        try await under.start()
        let start = Instant.now
        try await under.begin()
        #expect(await under.waitFor { $0 == .notice(.transmissionEnding(.talkTimeLimit)) })
        #expect(Instant.now - start >= .seconds(2))
        let commands = await under.service.run { $0.simulatedAudio.commands }
        #expect(commands.contains(.tone(.talkTimeWarning)))
        #expect(commands.contains(.stopCapture(.immediately)))
        #expect(await !under.service.run { $0.hasTimer })
        await under.finish()
    }

    @Test func `a received burst is played and its speaker shown until it was heard`() async throws {
        let under = try ServiceUnderTest()
        try await under.start()
        await under.service.burstBegan(ann)
        #expect(await under.service.snapshot.activeRemoteParticipant == ann)
        for sequence: UInt16 in [65_535, 0, 1] { await under.service.received(packet(sequence)) }
        await under.service.burstEnded(lastSequence: nil)
        #expect(await under.service.snapshot.activeRemoteParticipant == ann)
        let commands = await under.service.run { $0.simulatedAudio.commands }
        #expect(commands == [.prepared(.daemon), .activate, .packet(65_535), .packet(0), .packet(1), .endReception(1)])
        await under.service.run { $0.simulatedAudio.handler?(.played(voice: 0)) }
        #expect(await under.service.snapshot.activeRemoteParticipant == nil)
        #expect(under.callbacks.suffix(2) == [.didActivateAudioSession, .didDeactivateAudioSession])
        #expect(await under.service.snapshot.statistics.packetsPlayed == 3)
        await under.finish()
    }

    @Test func `a burst during an own transmission is played only after it`() async throws {
        let under = try ServiceUnderTest()
        try await under.start()
        try await under.begin()
        await under.service.burstBegan(ann)
        await under.service.received(packet(1))
        #expect(await under.service.snapshot.activeRemoteParticipant == nil)
        // It is kept, to be heard from its beginning afterwards.
        #expect(await under.service.snapshot.statistics.packetsDropped == 0)
        #expect(await !under.service.run { $0.simulatedAudio.commands.contains(.packet(1)) })
        #expect(await under.service.snapshot.transmission != nil)
        // The relay chose the other one: the rest of their burst is heard, in the session that is active already.
        await under.service.transmissionRefused(PTChannelError(.transmissionInProgress))
        #expect(await under.service.snapshot.activeRemoteParticipant == ann)
        await under.service.received(packet(2))
        let commands = await under.service.run { $0.simulatedAudio.commands }
        #expect(commands.contains(.packet(1)) && commands.contains(.packet(2)))
        #expect(await under.service.snapshot.audioSession == .active)
        await under.finish()
    }

    @Test func `leaving ends a reception too`() async throws {
        let under = try ServiceUnderTest()
        try await under.start()
        await under.service.burstBegan(ann)
        await under.service.received(packet(1))
        try await under.service.perform(.leave(channelUUID: channel))
        await under.service.received(packet(2))
        let commands = await under.service.run { $0.simulatedAudio.commands }
        #expect(commands.contains(.dropReception))
        #expect(!commands.contains(.packet(2)))
        #expect(commands.last == .prepared(nil))
        await under.finish()
    }

    @Test func `a call silences a reception and gives it back`() async throws {
        let under = try ServiceUnderTest()
        try await under.start()
        await under.service.burstBegan(ann)
        await under.service.setCallActive(holder: "phone", description: "a call")
        await under.service.received(packet(1))
        await #expect(throws: PTChannelError.self) { try await under.begin() }
        await under.service.setCallActive(holder: "phone", description: nil)
        await under.service.received(packet(2))
        let commands = await under.service.run { $0.simulatedAudio.commands }
        #expect(!commands.contains(.packet(1)))
        #expect(commands.contains(.packet(2)))
        #expect(await under.service.snapshot.statistics.packetsDropped == 1)
        await under.finish()
    }

    @Test func `a speaker that stays away is reported once`() async throws {
        let under = try ServiceUnderTest()
        try await under.start()
        await under.service.burstBegan(ann)
        for _ in 0..<5 { await under.service.run { $0.simulatedAudio.handler?(.playbackFailed(reason: "gone")) } }
        #expect(under.events.count { $0 == .notice(.audioSessionFailed(reason: "gone")) } == 1)
        #expect(await under.service.snapshot.activeRemoteParticipant == ann)
        await under.finish()
    }

    @Test func `shutdown ends the burst answers everybody and closes the devices`() async throws {
        let under = try ServiceUnderTest()
        try await under.start()
        await under.service.run { $0.simulatedAudio.answers = false }
        let answer = Shared<PTChannelError?>(nil)
        await under.service.run { [channel] service in
            service.request(.beginTransmitting(channelUUID: channel, source: .userRequest)) { error in
                answer.withLock { $0 = error }
            }
        }
        await under.service.shutdown()
        #expect(answer.withLock { $0?.code } == .unknown)
        #expect(under.callbacks.last == .didEndTransmitting(channel, source: .unknown))
        #expect(await under.service.run { $0.simulatedAudio.commands.last } == .close)
        await #expect(throws: PTChannelError.self) { try await under.begin() }
        #expect(await !under.service.run { $0.hasTimer })
        await under.service.shutdown()
    }

    @Test func `observers and waiting requests are bounded`() async throws {
        let under = try ServiceUnderTest()
        try await under.start()
        var tokens: [ChannelObserverToken] = []
        while let token = await under.service.addObserver({ _ in }) { tokens.append(token) }
        #expect(tokens.count == ChannelService.observersMax - 1)
        await under.service.removeObserver(tokens[0])
        let refused = Shared(0)
        let token = await under.service.addObserver { [service = under.service, channel] event in
            guard case .notice(.channelDescriptorChanged) = event else { return }
            service.assumeIsolated { service in
                for _ in 0..<(ChannelService.eventsQueuedMax + 10) {
                    service.request(.setServiceStatus(.ready, channelUUID: channel)) { error in
                        if error != nil { refused.withLock { $0 += 1 } }
                    }
                }
            }
        }
        #expect(token != nil)
        try await under.service.perform(
            .setChannelDescriptor(PTChannelDescriptor(name: "Other", image: nil), channelUUID: channel))
        #expect(refused.withLock { $0 } == 10)
        #expect(await under.service.snapshot.statistics.requestsDropped == 10)
        await under.finish()
    }
}
