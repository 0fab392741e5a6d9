// Joining, leaving, receiving, and who has the audio session.

import FoundationEssentials
import MonotonicTime
import PushToTalkCore
import Testing
import Vocabulary

@Suite struct ChannelTests {
    typealias Harness = ChannelManagerHarness
    let channel = Harness.channel

    @Test func `a device has one channel at most`() {
        var harness = Harness(joined: false)
        let first = harness.request(.join(channelUUID: channel, Harness.descriptor, reason: .channelRestoration))
        #expect(first.actions == [.callback(.didJoinChannel(channel, reason: .channelRestoration))])
        #expect(first.answer == .done)
        for uuid in [Harness.other, channel] {
            let second = harness.request(.join(channelUUID: uuid, Harness.descriptor))
            #expect(second.actions.failure == .channelLimitReached)
            #expect(second.answer == .failed(.channelLimitReached))
        }
        #expect(harness.machine.channel?.uuid == channel)
    }

    @Test func `a channel has apples defaults`() {
        let harness = Harness()
        #expect(harness.machine.channel?.transmissionMode == .halfDuplex)
        #expect(harness.machine.channel?.serviceStatus == .ready)
        #expect(harness.machine.channel?.accessoryButtonEventsEnabled == true)
        #expect(harness.machine.channel?.descriptor == Harness.descriptor)
    }

    @Test(arguments: PTChannelLeaveReason.allCases) func `leaving says why`(_ reason: PTChannelLeaveReason) {
        var harness = Harness()
        let leave = harness.request(.leave(channelUUID: channel, reason: reason))
        #expect(leave.actions == [.callback(.didLeaveChannel(channel, reason: reason))])
        #expect(harness.request(.leave(channelUUID: channel)).actions.failure == .channelNotFound)
    }

    @Test func `leaving while transmitting ends it first`() {
        var harness = Harness()
        harness.talk()
        let leave = harness.request(.leave(channelUUID: channel, reason: .userRequest)).actions
        #expect(
            leave.callbacks == [
                .didEndTransmitting(channel, source: .userRequest), .didDeactivateAudioSession,
                .didLeaveChannel(channel, reason: .userRequest),
            ])
        #expect(leave.contains(.stopCapture(.immediately)))
        #expect(leave.contains(.deactivateAudioSession(.drop)))
        // A channel joined at once may be talked on at once, while the device is still closing.
        _ = harness.request(.join(channelUUID: Harness.other, Harness.descriptor))
        let begin = harness.request(.beginTransmitting(channelUUID: Harness.other, source: .userRequest)).actions
        #expect(begin.last == .activateAudioSession)
        #expect(harness.send(.audioSessionActivated).contains(.startCapture(.atOnce)))
    }

    @Test func `leaving while receiving clears the participant`() {
        var harness = Harness()
        _ = harness.setParticipant(Harness.ann)
        _ = harness.send(.audioSessionActivated)
        let leave = harness.request(.leave(channelUUID: channel)).actions
        #expect(
            leave == [
                .notice(.activeRemoteParticipantChanged(nil)), .callback(.didDeactivateAudioSession),
                .deactivateAudioSession(.drop), .callback(.didLeaveChannel(channel, reason: .developerRequest)),
            ])
    }

    @Test func `receiving runs in the documented order`() {
        var harness = Harness()
        let set = harness.setParticipant(Harness.ann)
        #expect(set.actions == [.notice(.activeRemoteParticipantChanged(Harness.ann)), .activateAudioSession])
        #expect(set.answer == .done)
        #expect(harness.send(.audioSessionActivated) == [.callback(.didActivateAudioSession)])
        #expect(harness.setParticipant(Harness.bob).actions == [.notice(.activeRemoteParticipantChanged(Harness.bob))])
        #expect(
            harness.setParticipant(nil).actions == [
                .notice(.activeRemoteParticipantChanged(nil)), .deactivateAudioSession(.finish),
            ])
        #expect(harness.send(.audioSessionDeactivated) == [.callback(.didDeactivateAudioSession)])
        #expect(harness.setParticipant(nil).answer == .done)
    }

    @Test func `a participant during a transmission in half duplex is an error`() {
        var harness = Harness()
        harness.talk()
        #expect(harness.setParticipant(Harness.ann).answer == .failed(.transmissionInProgress))
        #expect(harness.setParticipant(nil).answer == .done)
        #expect(harness.machine.transmission != nil)
    }

    @Test func `stop then receive keeps the session`() {
        var harness = Harness()
        harness.talk()
        _ = harness.stop()
        #expect(
            harness.setParticipant(Harness.ann).actions == [
                .stopCapture(.immediately), .notice(.transmissionAudioFinished(erased: false)),
                .notice(.activeRemoteParticipantChanged(Harness.ann)), .playTone(.microphoneOff),
            ])
        #expect(harness.machine.audioSession == .active)
        #expect(harness.setParticipant(nil).actions.last == .deactivateAudioSession(.finish))
    }

    @Test func `full duplex transmits without a second activation`() {
        var harness = Harness(mode: .fullDuplex)
        _ = harness.setParticipant(Harness.ann)
        _ = harness.send(.audioSessionActivated)
        let begin = harness.begin()
        #expect(
            begin.actions == [
                .callback(.didBeginTransmitting(channel, source: .userRequest)), .startCapture(.atOnce),
            ])
        #expect(begin.answer == nil)
        _ = harness.stop()
        #expect(harness.send(.captureEnded).callbacks.isEmpty)
        #expect(harness.setParticipant(nil).actions.last == .deactivateAudioSession(.finish))

        harness.talk()
        #expect(harness.setParticipant(Harness.bob).answer == .done)
        #expect(harness.setParticipant(nil).actions == [.notice(.activeRemoteParticipantChanged(nil))])
        #expect(harness.machine.transmission != nil)
    }

    @Test func `a call ends the transmission and keeps the session down`() {
        var harness = Harness()
        harness.talk()
        let call = harness.send(.callBegan(Harness.phone))
        #expect(call.transmissionEnd == .callActive)
        #expect(call.callbacks == [.didEndTransmitting(channel, source: .unknown), .didDeactivateAudioSession])
        #expect(call.tones.isEmpty)
        #expect(harness.send(.callBegan(Harness.phone)).isEmpty)
        _ = harness.send(.audioSessionDeactivated)
        #expect(harness.setParticipant(Harness.ann).actions == [.notice(.activeRemoteParticipantChanged(Harness.ann))])
        #expect(
            harness.send(.callEnded(holder: "phone")) == [
                .notice(.callsChanged([])), .notice(.audioSessionInterruptionEnded), .activateAudioSession,
            ])
        #expect(harness.send(.audioSessionActivated) == [.callback(.didActivateAudioSession)])
    }

    @Test func `an interruption during a call ends with the later of both`() {
        var harness = Harness()
        _ = harness.setParticipant(Harness.ann)
        _ = harness.send(.audioSessionActivated)
        #expect(harness.send(.audioSessionInterrupted(reason: "suspend")).callbacks == [.didDeactivateAudioSession])
        _ = harness.send(.callBegan(Harness.phone))
        _ = harness.send(.audioSessionDeactivated)
        #expect(harness.send(.audioSessionInterruptionEnded).isEmpty)
        #expect(harness.send(.callEnded(holder: "phone")).contains(.activateAudioSession))
    }

    @Test func `a device that vanishes ends the transmission and is tried again`() {
        var harness = Harness()
        harness.talk()
        let failed = harness.send(.audioSessionFailed(reason: "unplugged"))
        #expect(
            failed == [
                .notice(.audioSessionFailed(reason: "unplugged")),
                .notice(.transmissionEnding(.audioFailed(reason: "unplugged"))),
                .callback(.didEndTransmitting(channel, source: .unknown)),
                .notice(.transmissionAudioFinished(erased: false)), .callback(.didDeactivateAudioSession),
            ])
        #expect(harness.machine.audioSession == .inactive)
        #expect(harness.begin().actions.last == .activateAudioSession)
        #expect(harness.send(.audioSessionActivated).contains(.startCapture(.atOnce)))
    }

    @Test func `a device that does not open fails the begin`() {
        var harness = Harness()
        _ = harness.begin()
        let failed = harness.send(.audioSessionFailed(reason: "no such device"))
        let error = PTChannelError(.unknown, explanation: "no such device")
        #expect(failed.contains(.complete(RequestIdentifier(rawValue: 2), error)))
        #expect(failed.callbacks == [.didEndTransmitting(channel, source: .unknown)])
        #expect(failed.tones.isEmpty)
        #expect(harness.machine.nextDeadline == nil)
    }

    @Test func `a device that does not answer fails in time`() {
        var harness = Harness()
        _ = harness.begin()
        let late = harness.passDeadline()
        #expect(harness.now == Instant.zero + .seconds(5))
        #expect(late.first == .deactivateAudioSession(.drop))
        #expect(late.callbacks == [.didEndTransmitting(channel, source: .unknown)])
        _ = harness.passDeadline()
        #expect(harness.machine.audioSession == .inactive)
    }

    @Test func `a device that fails while receiving is not tried in a loop`() {
        var harness = Harness()
        _ = harness.setParticipant(Harness.ann)
        #expect(
            harness.send(.audioSessionFailed(reason: "busy")) == [.notice(.audioSessionFailed(reason: "busy"))])
        #expect(harness.machine.activeRemoteParticipant == Harness.ann)
        #expect(harness.setParticipant(Harness.bob).actions.last == .activateAudioSession)
    }

    @Test func `a microphone that fails leaves the speaker for the tone`() {
        var harness = Harness()
        harness.talk()
        let failed = harness.send(.captureFailed(reason: "no microphone"))
        #expect(failed.transmissionEnd == .audioFailed(reason: "no microphone"))
        #expect(failed.tones == [.deviceFailed])
        // The news may be of a burst before this one, and the microphone record: it is stopped whatever it does.
        #expect(failed.filter(\.isStopOfCapture) == [.stopCapture(.discarding)])
        #expect(failed.notices.contains(.transmissionAudioFinished(erased: false)))
        #expect(failed.last == .deactivateAudioSession(.finish))
    }

    @Test func `a microphone that does not start fails the begin in time`() {
        var harness = Harness()
        _ = harness.begin()
        _ = harness.send(.audioSessionActivated)
        let late = harness.passDeadline()
        #expect(harness.now == Instant.zero + .seconds(5))
        #expect(late.callbacks == [.didEndTransmitting(channel, source: .unknown)])
        #expect(late.contains(.stopCapture(.discarding)))
        #expect(late.tones == [.deviceFailed])
        #expect(harness.send(.captureBegan).isEmpty)
    }

    @Test func `a tail that does not end is cut`() {
        var harness = Harness()
        harness.talk()
        _ = harness.stop()
        let cut = harness.passDeadline()
        #expect(cut.first == .stopCapture(.immediately))
        #expect(!harness.machine.isCapturing)
        #expect(harness.passDeadline() == [.deactivateAudioSession(.drop), .callback(.didDeactivateAudioSession)])
    }

    @Test func `settings want the active channel`() {
        var harness = Harness()
        let requests: [Machine.Request] = [
            .setChannelDescriptor(Harness.descriptor, channelUUID: Harness.other),
            .setTransmissionMode(.fullDuplex, channelUUID: Harness.other),
            .setServiceStatus(.connecting, channelUUID: Harness.other),
            .setActiveRemoteParticipant(nil, channelUUID: Harness.other),
            .setAccessoryButtonEventsEnabled(false, channelUUID: Harness.other),
        ]
        for request in requests {
            let result = harness.request(request)
            #expect(result.answer == .failed(.channelNotFound))
            #expect(result.actions.isEmpty)
        }
        let other = PTChannelDescriptor(name: "Night shift", image: PTImage(named: "weather-clear-night"))
        let changed = harness.request(.setChannelDescriptor(other, channelUUID: channel))
        #expect(changed.actions == [.notice(.channelDescriptorChanged(other))])
        #expect(harness.request(.setChannelDescriptor(other, channelUUID: channel)).actions.isEmpty)
        #expect(harness.machine.channel?.descriptor == other)
    }
}
