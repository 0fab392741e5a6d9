// Beginning and ending a transmission: order of callbacks, who may begin, what ends it.

import FoundationEssentials
import MonotonicTime
import PushToTalkCore
import Testing
import Vocabulary

@Suite struct TransmissionTests {
    typealias Harness = ChannelManagerHarness
    let channel = Harness.channel

    @Test func `a transmission runs in the documented order`() {
        var harness = Harness()
        let begin = harness.begin(.handsfreeButton)
        #expect(
            begin.actions == [
                .callback(.didBeginTransmitting(channel, source: .handsfreeButton)), .activateAudioSession,
            ])
        #expect(begin.answer == nil)
        #expect(
            harness.send(.audioSessionActivated) == [
                .callback(.didActivateAudioSession), .startCapture(.atOnce),
            ])
        #expect(
            harness.send(.captureBegan) == [
                .playTone(.microphoneOn), .complete(RequestIdentifier(rawValue: 2), nil),
            ])
        let stop = harness.stop(.handsfreeButton)
        #expect(
            stop.actions == [
                .notice(.transmissionEnding(.stopped(.handsfreeButton))), .stopCapture(.afterTail),
                .callback(.didEndTransmitting(channel, source: .handsfreeButton)),
            ])
        #expect(stop.answer == .done)
        #expect(
            harness.send(.captureEnded) == [
                .notice(.transmissionAudioFinished(erased: false)), .playTone(.microphoneOff),
                .deactivateAudioSession(.finish),
            ])
        #expect(harness.send(.audioSessionDeactivated) == [.callback(.didDeactivateAudioSession)])
        #expect(harness.machine.nextDeadline == nil)
    }

    @Test func `a release before the device is open ends without a session`() {
        var harness = Harness()
        _ = harness.begin()
        let stop = harness.stop()
        #expect(stop.actions.callbacks == [.didEndTransmitting(channel, source: .userRequest)])
        #expect(stop.actions.contains(.complete(RequestIdentifier(rawValue: 2), nil)))
        #expect(stop.actions.notices.contains(.transmissionAudioFinished(erased: false)))
        #expect(stop.actions.last == .deactivateAudioSession(.drop))
        #expect(harness.send(.audioSessionActivated).isEmpty)
        #expect(harness.send(.audioSessionDeactivated).isEmpty)
        #expect(harness.machine.audioSession == .inactive)
    }

    @Test func `a press during the tail or the play out gets its own activation`() {
        var harness = Harness()
        harness.talk()
        _ = harness.stop()
        #expect(harness.machine.isCapturing)
        #expect(
            harness.begin().actions == [
                .stopCapture(.immediately), .notice(.transmissionAudioFinished(erased: false)),
                .callback(.didDeactivateAudioSession),
                .callback(.didBeginTransmitting(channel, source: .userRequest)),
                .callback(.didActivateAudioSession), .startCapture(.atOnce),
            ])
        _ = harness.send(.captureBegan)
        _ = harness.stop()
        _ = harness.send(.captureEnded)
        let again = harness.begin().actions
        #expect(
            again == [
                .callback(.didDeactivateAudioSession),
                .callback(.didBeginTransmitting(channel, source: .userRequest)), .activateAudioSession,
            ])
        #expect(harness.send(.audioSessionActivated).callbacks == [.didActivateAudioSession])
    }

    @Test func `begins are refused with their codes`() {
        var harness = Harness(joined: false)
        #expect(harness.begin().answer == .failed(.channelNotFound))
        harness = Harness()
        let wrong = harness.request(.beginTransmitting(channelUUID: Harness.other, source: .userRequest))
        #expect(wrong.answer == .failed(.channelNotFound))
        #expect(wrong.actions.failure == .channelNotFound)

        for status in [PTServiceStatus.connecting, .unavailable] {
            _ = harness.setStatus(status)
            #expect(harness.begin().answer == .failed(.transmissionNotAllowed))
        }
        _ = harness.setStatus(.ready)
        _ = harness.setMode(.listenOnly)
        #expect(harness.begin().actions.failure == .transmissionNotAllowed)
        _ = harness.setMode(.halfDuplex)
        _ = harness.setParticipant(Harness.ann)
        #expect(harness.begin().actions.failure == .transmissionInProgress)
        _ = harness.setParticipant(nil)
        _ = harness.send(.callBegan(Harness.phone))
        #expect(harness.begin().actions.failure == .callActive)
        _ = harness.send(.callEnded(holder: "phone"))
        _ = harness.send(.audioSessionInterrupted(reason: "suspend"))
        #expect(harness.begin().actions.failure == .transmissionNotAllowed)
        _ = harness.send(.audioSessionInterruptionEnded)
        harness.talk()
        #expect(harness.machine.transmission != nil)
        #expect(harness.begin().actions.failure == .transmissionInProgress)
        #expect(harness.machine.transmission != nil)
    }

    @Test func `a refused begin is heard without a session for the delegate`() {
        var harness = Harness()
        _ = harness.setStatus(.connecting)
        #expect(harness.begin().actions.last == .activateAudioSession)
        #expect(
            harness.send(.audioSessionActivated) == [.playTone(.denied), .deactivateAudioSession(.finish)])
        #expect(harness.send(.audioSessionDeactivated).isEmpty)
    }

    @Test func `accessory buttons switched off do nothing but still release`() {
        var harness = Harness()
        harness.talk(.handsfreeButton)
        _ = harness.request(.setAccessoryButtonEventsEnabled(false, channelUUID: channel))
        #expect(harness.machine.transmission != nil)
        #expect(harness.stop(.handsfreeButton).answer == .done)
        let begin = harness.begin(.handsfreeButton)
        #expect(begin.answer == .failed(.transmissionNotAllowed))
        #expect(begin.actions.callbacks.isEmpty)
        #expect(
            harness.begin(.developerRequest).actions.callbacks.contains(
                .didBeginTransmitting(channel, source: .developerRequest)))
    }

    @Test func `stopping without a transmission fails`() {
        var harness = Harness()
        #expect(harness.stop().answer == .failed(.transmissionNotFound))
        #expect(harness.stop().actions.failure == .transmissionNotFound)
        let wrong = harness.request(.stopTransmitting(channelUUID: Harness.other, source: .userRequest))
        #expect(wrong.actions.failure == .channelNotFound)
    }

    @Test func `a refusal by the relay erases what was captured`() {
        var harness = Harness()
        harness.talk()
        let busy = PTChannelError(.transmissionInProgress, explanation: "Ann has the floor")
        #expect(
            harness.send(.transmissionRefused(busy)) == [
                .notice(.transmissionEnding(.refused(busy))), .stopCapture(.discarding),
                .callback(.didEndTransmitting(channel, source: .unknown)),
                .notice(.transmissionAudioFinished(erased: true)), .playTone(.denied),
                .deactivateAudioSession(.finish),
            ])
        #expect(harness.stop().answer == .failed(.transmissionNotFound))
    }

    @Test func `a refusal after the release is heard too`() {
        var harness = Harness()
        harness.talk()
        _ = harness.stop()
        let busy = PTChannelError(.transmissionInProgress, explanation: "Ann has the floor")
        #expect(
            harness.send(.transmissionRefused(busy)) == [
                .stopCapture(.discarding), .notice(.transmissionAudioFinished(erased: true)),
                .notice(.lastTransmissionNotCarried(busy)), .playTone(.denied), .deactivateAudioSession(.finish),
            ])
        _ = harness.send(.audioSessionDeactivated)
        #expect(
            harness.send(.transmissionRefused(busy)) == [
                .notice(.lastTransmissionNotCarried(busy)), .activateAudioSession,
            ])
        #expect(harness.send(.audioSessionActivated) == [.playTone(.denied), .deactivateAudioSession(.finish)])
    }

    @Test func `a refusal before the device is open fails the begin and is heard`() {
        var harness = Harness()
        _ = harness.begin()
        let busy = PTChannelError(.transmissionInProgress)
        let refused = harness.send(.transmissionRefused(busy))
        #expect(refused.contains(.complete(RequestIdentifier(rawValue: 2), busy)))
        #expect(!refused.contains(.stopCapture(.discarding)))
        #expect(harness.send(.audioSessionActivated) == [.playTone(.denied), .deactivateAudioSession(.finish)])
    }

    @Test func `the talk time limit warns and ends the transmission`() {
        var harness = Harness(.init(talkTimeLimit: .seconds(20), talkTimeWarning: .seconds(4)))
        harness.now = Instant.zero + .seconds(100)
        harness.talk()
        #expect(harness.machine.nextDeadline == Instant.zero + .seconds(116))
        #expect(
            harness.passDeadline() == [
                .notice(.talkTimeWarning(remaining: .seconds(4))), .playTone(.talkTimeWarning),
            ])
        #expect(harness.machine.nextDeadline == Instant.zero + .seconds(120))
        let end = harness.passDeadline()
        #expect(end.transmissionEnd == .talkTimeLimit)
        #expect(end.callbacks == [.didEndTransmitting(channel, source: .unknown)])
        #expect(end.tones == [.denied])
        #expect(harness.stop().answer == .failed(.transmissionNotFound))
        #expect(harness.machine.transmission == nil)
        _ = harness.send(.audioSessionDeactivated)
        harness.talk()
        #expect(harness.machine.nextDeadline == Instant.zero + .seconds(136))
    }

    @Test func `a limit shorter than its warning only ends`() {
        var harness = Harness(.init(talkTimeLimit: .seconds(3), talkTimeWarning: .seconds(4)))
        harness.talk()
        #expect(harness.machine.nextDeadline == Instant.zero + .seconds(3))
        #expect(harness.passDeadline().transmissionEnd == .talkTimeLimit)
    }

    @Test func `without a limit a transmission has no deadline`() {
        var harness = Harness(.init(talkTimeLimit: nil))
        harness.talk()
        #expect(harness.machine.nextDeadline == nil)
    }

    @Test func `a service that stops being ready ends the transmission`() {
        var harness = Harness()
        harness.talk()
        let actions = harness.setStatus(.connecting).actions
        #expect(actions.transmissionEnd == .serviceStatus(.connecting))
        #expect(actions.callbacks == [.didEndTransmitting(channel, source: .unknown)])
        #expect(actions.contains(.stopCapture(.immediately)))
    }

    @Test func `a mode that forbids the transmission ends it`() {
        var harness = Harness(mode: .fullDuplex)
        harness.talk()
        #expect(harness.setMode(.halfDuplex).actions.callbacks.isEmpty)
        #expect(harness.setMode(.listenOnly).actions.transmissionEnd == .transmissionMode(.listenOnly))
        _ = harness.setMode(.fullDuplex)
        _ = harness.setParticipant(Harness.ann)
        harness.talk()
        #expect(harness.setMode(.halfDuplex).actions.transmissionEnd == .transmissionMode(.halfDuplex))
        #expect(harness.machine.activeRemoteParticipant == Harness.ann)
    }

    @Test func `shutdown ends everything but the membership`() {
        var harness = Harness()
        harness.talk()
        let actions = harness.send(.shutdown)
        #expect(
            actions.callbacks == [.didEndTransmitting(channel, source: .unknown), .didDeactivateAudioSession])
        #expect(actions.transmissionEnd == .shutdown)
        #expect(actions.contains(.stopCapture(.immediately)))
        #expect(actions.last == .deactivateAudioSession(.drop))
        #expect(harness.machine.channel != nil)
        #expect(harness.begin().answer == .failed(.unknown))
        #expect(harness.request(.leave(channelUUID: channel)).answer == .failed(.unknown))
        #expect(harness.setParticipant(Harness.ann).answer == .failed(.unknown))
    }
}
