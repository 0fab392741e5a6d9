// Channels with a program behind them: its pushes, its media, its coming and going, and several calls.

import FoundationEssentials
import MonotonicTime
import PushToTalkCore
import Testing
import Vocabulary

@Suite struct ProgramTests {
    typealias Harness = ChannelManagerHarness
    let channel = Harness.channel

    func joined(
        media: MediaOwner = .application, _ program: ChannelProgram = .present, mode: PTTransmissionMode = .halfDuplex
    ) -> Harness {
        var harness = Harness(joined: false)
        _ = harness.request(
            .join(
                channelUUID: channel, Harness.descriptor, mode: mode,
                options: .init(media: media, program: program, canStartProgram: true)))
        return harness
    }

    func push(_ token: PushToken?) throws -> Push {
        Push(identifier: "1", token: token, payload: try PushPayload(validating: "{}"))
    }

    // MARK: Tokens and pushes

    @Test func `a join gives a token and a leave takes it`() throws {
        var harness = Harness(joined: false)
        let options = Machine.JoinOptions(program: .present)
        let join = harness.request(.join(channelUUID: channel, Harness.descriptor, options: options)).actions
        let token = try #require(harness.machine.pushes.token)
        #expect(
            join == [
                .callback(.didJoinChannel(channel, reason: .developerRequest)),
                .callback(.receivedEphemeralPushToken(token)), .notice(.pushTokenChanged(token)),
            ])
        let leave = harness.request(.leave(channelUUID: channel)).actions
        #expect(
            leave == [
                .notice(.pushTokenChanged(nil)), .callback(.didLeaveChannel(channel, reason: .developerRequest)),
            ])
        let late = harness.send(.push(.received(try push(token))))
        #expect(late == [.notice(.pushSettled(try push(token), .dropped(.noProgram)))])
        _ = harness.request(.join(channelUUID: channel, Harness.descriptor, options: options))
        #expect(harness.machine.pushes.token != token)
    }

    @Test func `a channel without a program has no token`() {
        let harness = Harness()
        #expect(harness.machine.pushes.token == nil)
    }

    @Test func `a push leads to reception`() throws {
        var harness = joined()
        let push = try push(harness.machine.pushes.token)
        let delivery = try #require(harness.send(.push(.received(push))).asked)
        let answered = harness.send(
            .push(.answered(delivery.identifier, .activeRemoteParticipant(Harness.ann))))
        #expect(
            answered == [
                .notice(.activeRemoteParticipantChanged(Harness.ann)), .notice(.pushSettled(push, .delivered)),
                .activateAudioSession,
            ])
        #expect(harness.send(.audioSessionActivated).callbacks == [.didActivateAudioSession])
        #expect(harness.setParticipant(nil).actions.callbacks == [.didDeactivateAudioSession])
    }

    @Test func `a push may end the membership and with it the token`() throws {
        var harness = joined()
        let push = try push(harness.machine.pushes.token)
        let delivery = try #require(harness.send(.push(.received(push))).asked)
        harness.talk()
        let answered = harness.send(.push(.answered(delivery.identifier, .leaveChannel)))
        #expect(
            answered.callbacks == [
                .didEndTransmitting(channel, source: .developerRequest),
                .didLeaveChannel(channel, reason: .developerRequest),
            ])
        #expect(answered.notices.contains(.pushTokenChanged(nil)))
        #expect(answered.notices.last == .pushSettled(push, .delivered))
        #expect(harness.machine.pushes.token == nil)
    }

    @Test(arguments: MediaOwner.allCases) func `a participant while transmitting is an error`(_ media: MediaOwner)
        throws
    {
        var harness = joined(media: media)
        harness.talk()
        let delivery = try #require(harness.send(.push(.received(try push(nil)))).asked)
        let answered = harness.send(.push(.answered(delivery.identifier, .activeRemoteParticipant(Harness.ann))))
        guard case .pushSettled(_, .refused(let error)) = answered.notices.first else {
            Issue.record("\(answered)")
            return
        }
        #expect(error.code == .transmissionInProgress)
        #expect(harness.machine.transmission != nil)
        #expect(harness.machine.activeRemoteParticipant == nil)
    }

    @Test(arguments: MediaOwner.allCases) func `stopped before the answer the session stays active`(_ media: MediaOwner)
        throws
    {
        var harness = joined(media: media)
        harness.talk()
        if media == .application { _ = harness.send(.tonesFinished) }
        let delivery = try #require(harness.send(.push(.received(try push(nil)))).asked)
        let stop = harness.stop(.developerRequest).actions
        #expect(stop.callbacks == [.didEndTransmitting(channel, source: .developerRequest)])
        // Even a tail that is over meanwhile does not end the session: the answer is due.
        if media == .daemon { #expect(harness.send(.captureEnded).callbacks.isEmpty) }
        #expect(harness.machine.audioSession == .active)
        let answered = harness.send(.push(.answered(delivery.identifier, .activeRemoteParticipant(Harness.ann))))
        #expect(answered.callbacks.isEmpty)
        #expect(!answered.contains { $0.touchesDevice })
        #expect(harness.machine.audioSession == .active)
        #expect(harness.machine.restorationCallbacks.last == .didActivateAudioSession)
    }

    @Test func `a session is not held for an answer that does not come`() throws {
        var harness = joined()
        harness.talk()
        _ = harness.send(.tonesFinished)
        _ = harness.send(.push(.received(try push(nil))))
        _ = harness.stop()
        #expect(harness.machine.nextDeadline == harness.now + .seconds(10))
        #expect(harness.passDeadline().callbacks == [.didDeactivateAudioSession])
    }

    @Test func `a push does not open a session that is closing`() throws {
        var harness = joined(media: .daemon)
        harness.talk()
        _ = harness.stop()
        _ = harness.send(.captureEnded)
        #expect(harness.send(.push(.received(try push(nil)))).callbacks.count == 1)
        #expect(harness.send(.audioSessionDeactivated).callbacks == [.didDeactivateAudioSession])
    }

    // MARK: Media of a program

    @Test func `a program gets the device between the tones`() {
        var harness = joined()
        let begin = harness.begin()
        #expect(
            begin.actions == [.callback(.didBeginTransmitting(channel, source: .userRequest)), .activateAudioSession])
        #expect(harness.send(.audioSessionActivated) == [.playTone(.microphoneOn)])
        let heard = harness.send(.tonesFinished)
        #expect(heard == [.callback(.didActivateAudioSession), .complete(RequestIdentifier(rawValue: 2), nil)])
        #expect(!harness.machine.isCapturing)
        let stop = harness.stop().actions
        #expect(
            stop == [
                .notice(.transmissionEnding(.stopped(.userRequest))),
                .callback(.didEndTransmitting(channel, source: .userRequest)),
                .notice(.transmissionAudioFinished(erased: false)), .callback(.didDeactivateAudioSession),
                .playTone(.microphoneOff), .deactivateAudioSession(.finish),
            ])
    }

    @Test func `a tone that is never heard does not keep the device`() {
        var harness = joined()
        _ = harness.begin()
        _ = harness.send(.audioSessionActivated)
        #expect(harness.passDeadline().callbacks == [.didActivateAudioSession])
        #expect(harness.now == Instant.zero + .seconds(2))
        var broken = joined()
        _ = broken.begin()
        _ = broken.send(.audioSessionActivated)
        #expect(broken.send(.playbackFailed(reason: "no speaker")).callbacks == [.didActivateAudioSession])
    }

    @Test func `receiving has no tone and takes the device at once`() {
        var harness = joined()
        _ = harness.setParticipant(Harness.ann)
        #expect(harness.send(.audioSessionActivated) == [.callback(.didActivateAudioSession)])
        // A refused begin is not heard: the device is the program's.
        let refused = harness.begin().actions
        #expect(refused.failure == .transmissionInProgress)
        #expect(refused.tones.isEmpty)
        let end = harness.setParticipant(nil).actions
        #expect(end.suffix(2) == [.callback(.didDeactivateAudioSession), .deactivateAudioSession(.finish)])
    }

    @Test func `in full duplex a program is not told twice`() {
        var harness = joined(mode: .fullDuplex)
        _ = harness.setParticipant(Harness.ann)
        _ = harness.send(.audioSessionActivated)
        let begin = harness.begin()
        #expect(begin.actions == [.callback(.didBeginTransmitting(channel, source: .userRequest))])
        #expect(begin.answer == .done)
        #expect(harness.stop().actions.callbacks == [.didEndTransmitting(channel, source: .userRequest)])
        #expect(harness.setParticipant(nil).actions.callbacks == [.didDeactivateAudioSession])
    }

    @Test func `a stop during the tone gives the program no session`() {
        var harness = joined()
        _ = harness.begin()
        _ = harness.send(.audioSessionActivated)
        let stop = harness.stop().actions
        #expect(stop.callbacks == [.didEndTransmitting(channel, source: .userRequest)])
        #expect(stop.last == .deactivateAudioSession(.finish))
        #expect(harness.send(.tonesFinished).isEmpty)
    }

    @Test func `the talk time limit holds for programs too`() {
        var harness = joined()
        _ = harness.begin()
        _ = harness.send(.audioSessionActivated)
        _ = harness.send(.tonesFinished)
        let warning = harness.passDeadline()
        #expect(warning.notices == [.talkTimeWarning(remaining: .seconds(5))])
        #expect(warning.tones.isEmpty)
        let end = harness.passDeadline()
        #expect(end.transmissionEnd == .talkTimeLimit)
        #expect(end.tones == [.denied])
    }

    // MARK: Coming and going

    @Test func `a programs end ends its transmission and its reception not its membership`() {
        var harness = joined(mode: .fullDuplex)
        _ = harness.setParticipant(Harness.ann)
        _ = harness.send(.audioSessionActivated)
        harness.talk()
        let left = harness.send(.push(.programLeft))
        #expect(left.transmissionEnd == .programLeft)
        #expect(
            left.callbacks == [.didEndTransmitting(channel, source: .unknown), .didDeactivateAudioSession])
        #expect(harness.machine.channel?.uuid == channel)
        #expect(harness.machine.activeRemoteParticipant == nil)
        #expect(harness.machine.pushes.token != nil)
        #expect(harness.send(.push(.programLeft)).isEmpty)
    }

    @Test func `with the daemons media a programs end ends only what it asked for`() {
        var harness = joined(media: .daemon)
        harness.talk(.handsfreeButton)
        _ = harness.send(.push(.programLeft))
        #expect(harness.machine.transmission != nil)
        _ = harness.stop()
        _ = harness.send(.push(.programCame))
        harness.talk(.developerRequest)
        #expect(harness.send(.push(.programLeft)).transmissionEnd == .programLeft)
    }

    @Test func `a begin without the program that records starts it and is refused`() {
        var harness = joined(media: .application, .absent)
        let begin = harness.begin()
        #expect(begin.answer == .failed(.transmissionNotAllowed))
        #expect(begin.actions.notices == [.programWanted])
        // It is being started already.
        #expect(harness.begin().actions.notices.isEmpty)
        _ = harness.send(.push(.programCame))
        harness.talk()
        #expect(harness.machine.transmission != nil)
        var daemons = joined(media: .daemon, .absent)
        daemons.talk()
        #expect(daemons.machine.transmission != nil)
    }

    @Test func `a restored channel is as it was with its token`() throws {
        var harness = joined(mode: .fullDuplex)
        _ = harness.request(.setAccessoryButtonEventsEnabled(false, channelUUID: channel))
        let before = try #require(harness.machine.channel)
        let token = try #require(harness.machine.pushes.token)
        let record = RestorationRecord(channel: before, token: token, application: "org.example.Talk")
        var restored = Harness(joined: false)
        let join = restored.request(record.restoringJoin).actions
        #expect(
            join == [
                .callback(.didJoinChannel(channel, reason: .channelRestoration)),
                .callback(.receivedEphemeralPushToken(token)), .notice(.pushTokenChanged(token)),
            ])
        #expect(restored.machine.channel == before)
        #expect(restored.machine.pushes.program == .absent)
    }

    @Test func `a program that is started by a push is told of its channel first`() throws {
        var harness = joined(.absent)
        let token = try #require(harness.machine.pushes.token)
        #expect(harness.send(.push(.received(try push(token)))) == [.notice(.programWanted)])
        #expect(
            harness.machine.restorationCallbacks == [
                .didJoinChannel(channel, reason: .channelRestoration), .receivedEphemeralPushToken(token),
            ])
        #expect(harness.send(.push(.programCame)).asked?.push == (try push(token)))
    }

    @Test func `a program that comes back is told what goes on`() throws {
        var harness = joined(media: .daemon)
        let token = try #require(harness.machine.pushes.token)
        _ = harness.send(.push(.programLeft))
        harness.talk(.handsfreeButton)
        #expect(
            harness.machine.restorationCallbacks == [
                .didJoinChannel(channel, reason: .channelRestoration), .receivedEphemeralPushToken(token),
                .didBeginTransmitting(channel, source: .handsfreeButton), .didActivateAudioSession,
            ])
        #expect(Harness(joined: false).machine.restorationCallbacks.isEmpty)
    }

    // MARK: Calls

    @Test func `the audio is free when the last of several calls is over`() {
        var harness = joined(media: .daemon)
        harness.talk()
        let first = CallHold(holder: "ofono:1", description: "oFono: +49 30 1234")
        let second = CallHold(holder: "inhibitor:1", description: "Linphone: a call")
        #expect(harness.send(.callBegan(first)).transmissionEnd == .callActive)
        #expect(harness.send(.callBegan(second)) == [.notice(.callsChanged([first, second]))])
        #expect(harness.begin().answer == .failed(.callActive))
        #expect(harness.send(.callEnded(holder: "ofono:1")) == [.notice(.callsChanged([second]))])
        #expect(harness.begin().answer == .failed(.callActive))
        #expect(harness.send(.callEnded(holder: "ofono:1")).isEmpty)
        #expect(
            harness.send(.callEnded(holder: "inhibitor:1")) == [
                .notice(.callsChanged([])), .notice(.audioSessionInterruptionEnded),
            ])
        harness.talk()
        #expect(harness.machine.transmission != nil)
    }

    @Test func `a call is described anew without interrupting again`() {
        var harness = Harness()
        _ = harness.send(.callBegan(Harness.phone))
        let renamed = CallHold(holder: "phone", description: "a conference")
        #expect(harness.send(.callBegan(renamed)) == [.notice(.callsChanged([renamed]))])
        #expect(harness.send(.callBegan(renamed)).isEmpty)
        guard case .failedToBeginTransmitting(_, let error) = harness.begin().actions.callbacks.first else {
            Issue.record("a begin was not refused")
            return
        }
        #expect(error.explanation.contains("a conference"))
    }

    @Test func `calls are bounded`() {
        var harness = Harness()
        for number in 0...Machine.callsMax {
            _ = harness.send(.callBegan(CallHold(holder: "\(number)", description: "")))
        }
        #expect(harness.machine.calls.count == Machine.callsMax)
        #expect(Machine.callsMax == 512, "each of 256 inhibitor locks and of two services' 64 calls counts")
    }
}

extension [Action] {
    fileprivate var asked: PushDelivery? {
        for case .incomingPush(_, let delivery) in callbacks { return delivery }
        return nil
    }
}

extension Action {
    fileprivate var touchesDevice: Bool {
        switch self {
        case .activateAudioSession, .deactivateAudioSession: true
        default: false
        }
    }
}
