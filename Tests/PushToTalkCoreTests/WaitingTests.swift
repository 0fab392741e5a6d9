// Begins that wait for the floor, and begins that end what is only heard still.

import FoundationEssentials
import MonotonicTime
import PushToTalkCore
import Testing
import Vocabulary

private typealias Harness = ChannelManagerHarness

@Suite struct WaitingTests {
    private let channel = Harness.channel
    private let spoken = PTChannelError(.transmissionInProgress, explanation: "Ann is speaking")

    /// Ann speaks, and a press waits for the floor.
    private func waiting() -> ChannelManagerHarness {
        var harness = Harness()
        _ = harness.setParticipant(Harness.ann)
        _ = harness.send(.audioSessionActivated)
        let begun = harness.begin(.handsfreeButton, floor: .queueable)
        #expect(begun.actions == [.notice(.waitingForFloor(position: nil)), .playTone(.waiting)])
        #expect(begun.answer == .done, "nobody waits for an answer for as long as others talk")
        return harness
    }

    @Test func `who may only listen is refused at once`() {
        var harness = Harness()
        let begun = harness.begin(.handsfreeButton, floor: .listenOnly)
        #expect(begun.answer == .failed(.transmissionNotAllowed))
        #expect(harness.machine.transmission == nil && harness.machine.waiting == nil)
        #expect(!begun.actions.callbacks.contains(.didBeginTransmitting(channel, source: .handsfreeButton)))
        // The deny tone says so, and nothing is recorded for it.
        let opened = begun.actions + harness.send(.audioSessionActivated)
        #expect(opened.tones == [.denied] && !harness.machine.isCapturing)
    }

    @Test func `nothing is recorded or told while a begin waits and the other is heard`() {
        var harness = waiting()
        #expect(harness.send(.floorQueued(position: 2)) == [.notice(.waitingForFloor(position: 2))])
        #expect(harness.send(.floorQueued(position: 2)).isEmpty, "told once")
        #expect(harness.send(.floorQueued(position: 1)) == [.notice(.waitingForFloor(position: 1))])
        #expect(harness.machine.waiting?.position == 1)
        #expect(harness.machine.activeRemoteParticipant == Harness.ann)
        #expect(!harness.machine.isCapturing)
        #expect(harness.machine.nextDeadline == nil, "for as long as it is held")
    }

    @Test func `it begins with its tone when the floor is free and the last words have been heard`() {
        var harness = waiting()
        #expect(harness.send(.floorGranted).isEmpty, "Ann is still being heard")
        let begun = harness.setParticipant(nil).actions
        #expect(
            begun == [
                .notice(.activeRemoteParticipantChanged(nil)), .callback(.didDeactivateAudioSession),
                .callback(.didBeginTransmitting(channel, source: .handsfreeButton)),
                .callback(.didActivateAudioSession), .startCapture(.afterGoAhead),
            ])
        let recording = harness.send(.captureBegan)
        #expect(recording.tones.isEmpty, "the session has sounded it before it recorded")
        #expect(recording.isEmpty, "the press was answered")
        #expect(harness.stop(.handsfreeButton).actions.contains(.stopCapture(.afterTail)))
    }

    @Test func `last words that take too long give way`() {
        var harness = waiting()
        _ = harness.send(.floorGranted)
        let granted = harness.now
        let begun = harness.passDeadline()
        #expect(harness.now == granted + .seconds(1))
        #expect(begun.callbacks.contains(.didBeginTransmitting(channel, source: .handsfreeButton)))
        #expect(harness.machine.activeRemoteParticipant == nil)
    }

    @Test func `letting go ends it quietly`() {
        for isGranted in [false, true] {
            var harness = waiting()
            if isGranted { _ = harness.send(.floorGranted) }
            let stopped = harness.stop(.handsfreeButton)
            #expect(stopped.answer == .done)
            #expect(stopped.actions.notices == [.waitingEnded(.stopped(.handsfreeButton))])
            #expect(stopped.actions.callbacks.isEmpty && stopped.actions.tones.isEmpty)
            #expect(harness.send(.floorGranted).isEmpty, "too late")
            #expect(harness.machine.transmission == nil)
        }
    }

    @Test func `what ends a transmission ends waiting`() {
        let ends: [(Event, TransmissionEndCause, Tone?)] = [
            (.callBegan(Harness.phone), .callActive, nil),
            (.audioSessionInterrupted(reason: "suspend"), .interrupted(reason: "suspend"), nil),
            (.transmissionRefused(spoken), .refused(spoken), .denied),
            (
                .request(.setServiceStatus(.unavailable, channelUUID: channel)), .serviceStatus(.unavailable), .denied
            ),
            (
                .request(.setTransmissionMode(.listenOnly, channelUUID: channel)), .transmissionMode(.listenOnly),
                .denied
            ),
            (.request(.leave(channelUUID: channel)), .leftChannel, nil),
            (.shutdown, .shutdown, nil),
        ]
        for (event, cause, tone) in ends {
            var harness = waiting()
            let actions = harness.send(event)
            #expect(actions.notices.contains(.waitingEnded(cause)))
            #expect(actions.tones == (tone.map { [$0] } ?? []), "\(cause)")
            #expect(harness.machine.waiting == nil)
            #expect(!actions.callbacks.contains { if case .didEndTransmitting = $0 { true } else { false } })
        }
    }

    @Test func `what no finger holds waits for a minute at most`() {
        for source in [PTChannelTransmitRequestSource.userRequest, .developerRequest] {
            var harness = Harness()
            let start = harness.now
            _ = harness.setParticipant(Harness.ann)
            _ = harness.send(.audioSessionActivated)
            #expect(harness.begin(source, floor: .queueable).answer == .done)
            let ended = harness.passDeadline()
            #expect(harness.now == start + .seconds(60))
            guard case .waitingEnded(.refused(let error))? = ended.notices.first else {
                Issue.record("\(ended)")
                return
            }
            #expect(error.code == .transmissionInProgress)
            #expect(ended.tones == [.denied])
            // The program's request was answered long ago: its delegate is told.
            #expect(ended.failure == (source == .developerRequest ? .transmissionInProgress : nil))
            #expect(harness.send(.floorGranted).isEmpty, "too late")
        }
    }

    @Test func `a program that waits is told when it does not begin`() {
        var harness = Harness()
        _ = harness.setParticipant(Harness.ann)
        _ = harness.send(.audioSessionActivated)
        _ = harness.begin(.developerRequest, floor: .queueable)
        #expect(harness.send(.transmissionRefused(spoken)).failure == .transmissionInProgress)
        _ = harness.begin(.developerRequest, floor: .queueable)
        let stopped = harness.stop(.developerRequest)
        #expect(stopped.answer == .done && stopped.actions.failure == nil, "what it asked for")
    }

    @Test func `a second begin is refused while one waits`() {
        var harness = waiting()
        for floor in [FloorOutlook.unknown, .idle, .queueable] {
            #expect(harness.begin(floor: floor).answer == .failed(.transmissionInProgress))
        }
        #expect(harness.machine.waiting != nil)
    }

    @Test func `who lost to another press is erased waits and hears the other`() {
        var harness = Harness()
        _ = harness.begin(.handsfreeButton, floor: .idle)
        _ = harness.send(.audioSessionActivated)
        _ = harness.send(.captureBegan)
        let queued = harness.send(.floorQueued(position: 1))
        #expect(
            queued.prefix(5) == [
                .notice(.transmissionEnding(.queued)), .stopCapture(.discarding),
                .callback(.didEndTransmitting(channel, source: .unknown)),
                .notice(.transmissionAudioFinished(erased: true)), .notice(.waitingForFloor(position: 1)),
            ])
        #expect(queued.tones == [.waiting])
        #expect(harness.setParticipant(Harness.ann).answer == .done)
        _ = harness.send(.floorGranted)
        #expect(
            harness.setParticipant(nil).actions.callbacks.contains(
                .didBeginTransmitting(channel, source: .handsfreeButton)))
    }

    @Test func `who has let go meanwhile is told that nothing was heard`() {
        var harness = Harness()
        harness.talk()
        _ = harness.stop()
        let queued = harness.send(.floorQueued(position: 1))
        #expect(queued.first == .stopCapture(.discarding))
        #expect(queued.notices.contains(.transmissionAudioFinished(erased: true)))
        #expect(queued.tones == [.denied])
        #expect(harness.machine.waiting == nil)
    }

    @Test func `a begin on a free floor stops what is only heard still`() {
        var harness = Harness()
        _ = harness.setParticipant(Harness.ann)
        _ = harness.send(.audioSessionActivated)
        let begun = harness.begin(floor: .idle).actions
        #expect(
            begun == [
                .notice(.activeRemoteParticipantChanged(nil)), .callback(.didDeactivateAudioSession),
                .callback(.didBeginTransmitting(channel, source: .userRequest)), .callback(.didActivateAudioSession),
                .startCapture(.atOnce),
            ])
    }

    @Test func `in full duplex what is heard goes on`() {
        var harness = Harness(mode: .fullDuplex)
        _ = harness.setParticipant(Harness.ann)
        _ = harness.send(.audioSessionActivated)
        #expect(harness.begin(floor: .idle).actions.notices.isEmpty)
        #expect(harness.machine.activeRemoteParticipant == Harness.ann)
    }

    @Test func `a taken floor that nobody may wait for is refused as apples is`() {
        var harness = Harness()
        _ = harness.setParticipant(Harness.ann)
        #expect(harness.begin(floor: .unknown).answer == .failed(.transmissionInProgress))
        #expect(harness.machine.activeRemoteParticipant == Harness.ann)
    }

    @Test func `waiting is refused for the same reasons as a begin`() {
        var harness = Harness()
        _ = harness.send(.callBegan(Harness.phone))
        #expect(harness.begin(floor: .queueable).answer == .failed(.callActive))
        #expect(harness.machine.waiting == nil)
    }
}
