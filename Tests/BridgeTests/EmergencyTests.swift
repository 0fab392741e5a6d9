import Accessories
import Bridge
import FoundationEssentials
import MonotonicTime
import PushToTalkCore
import RelayClient
import Testing
import Vocabulary

/// An emergency begins above all others, and goes on asking while somebody else speaks.
@Suite struct EmergencyTests {
    private typealias Machine = BridgeStateMachine
    private let channel = UUID()
    private let other = RelayMember(id: "b", name: "Unit 8")
    private let start = Instant.zero + .seconds(100)
    private let taken = PTChannelError(.transmissionInProgress, explanation: "Unit 8 is speaking")

    private func ready() -> Machine {
        var bridge = Machine()
        _ = bridge.handle(.link(.state(.ready(channelName: "Local"))))
        return bridge
    }

    /// An emergency that found Unit 8 speaking at `start`.
    private func insisting() -> Machine {
        var bridge = ready()
        _ = bridge.handle(.link(.floorTaken(by: other)), at: start)
        _ = bridge.handle(
            .notice(.activeRemoteParticipantChanged(PTParticipant(name: "Unit 8", image: nil))), at: start)
        #expect(
            bridge.handle(.pressed(.accessories, .emergency), at: start)
                == [.beginTransmitting(.handsfreeButton, floor: .unknown)])
        // Told, but neither the key nor the control is used up.
        #expect(bridge.handle(.beginRefused(taken), at: start) == [.report(taken)])
        return bridge
    }

    private func freed(_ bridge: inout Machine, at now: Instant) -> [Machine.Action] {
        #expect(bridge.handle(.link(.floorIdle), at: now) == [.endReception()], "it is still being heard")
        return bridge.handle(.notice(.activeRemoteParticipantChanged(nil)), at: now)
    }

    @Test func `an emergency asks with the highest priority and a press with the lowest`() {
        for (urgent, priority) in [(true, UInt8(255)), (false, 0)] {
            var bridge = ready()
            _ = bridge.handle(.pressed(.accessories, urgent ? .emergency : .normal))
            let begun = DelegateCallback.didBeginTransmitting(channel, source: .handsfreeButton)
            #expect(bridge.handle(.callback(begun)) == [.beginBurst(priority: priority)])
        }
    }

    @Test func `an ordinary press after an emergency is ordinary`() {
        var bridge = ready()
        _ = bridge.handle(.pressed(.accessories, .emergency))
        #expect(bridge.handle(.released(.accessories)) == [.stopTransmitting(.handsfreeButton)])
        _ = bridge.handle(.pressed(.accessories))
        let begun = DelegateCallback.didBeginTransmitting(channel, source: .handsfreeButton)
        #expect(bridge.handle(.callback(begun)) == [.beginBurst(priority: 0)])
    }

    @Test func `an emergency within a burst lets it go on and is urgent when it is denied`() {
        var bridge = ready()
        _ = bridge.handle(.pressed(.accessories))
        let begun = Machine.Event.callback(.didBeginTransmitting(channel, source: .handsfreeButton))
        #expect(bridge.handle(begun) == [.beginBurst(priority: 0)])
        #expect(bridge.handle(.escalated).isEmpty)
        // The relay says no after all: from now on it is the emergency that asks.
        let denied = Machine.Event.notice(.transmissionEnding(.refused(taken)))
        #expect(bridge.handle(denied, at: start) == [.report(taken)])
        #expect(bridge.handle(.link(.floorIdle), at: start + .seconds(1)) == [.beginTransmitting(.handsfreeButton)])
        #expect(bridge.handle(begun) == [.beginBurst(priority: 255)])
    }

    @Test func `an emergency of a control that was used up presses anew`() {
        var bridge = ready()
        #expect(bridge.handle(.escalated) == [.beginTransmitting(.handsfreeButton)])
    }

    @Test func `it begins as soon as the floor is free and nothing is heard any more`() {
        var bridge = insisting()
        #expect(freed(&bridge, at: start + .seconds(3)) == [.beginTransmitting(.handsfreeButton)])
        #expect(bridge.nextDeadline == nil, "it is under way")
        let begun = DelegateCallback.didBeginTransmitting(channel, source: .handsfreeButton)
        #expect(bridge.handle(.callback(begun)) == [.beginBurst(priority: 255)])
        _ = bridge.handle(.link(.floorGranted(BurstID(number: 1), limit: .seconds(60))), at: start + .seconds(3))
        #expect(bridge.handle(.released(.accessories)) == [.stopTransmitting(.handsfreeButton)])
    }

    @Test func `it asks again when another one was faster`() {
        var bridge = insisting()
        _ = freed(&bridge, at: start + .seconds(3))
        #expect(
            bridge.handle(.notice(.transmissionEnding(.refused(taken))), at: start + .seconds(4)).isEmpty, "told once")
        #expect(bridge.nextDeadline == start + .seconds(6))
        #expect(
            bridge.handle(.deadlineReached, at: start + .seconds(6)) == [.beginTransmitting(.handsfreeButton)],
            "nobody says that the floor is free, and nobody is heard")
    }

    @Test func `while somebody is heard it does not ask`() {
        var bridge = insisting()
        for second in 1...10 {
            #expect(bridge.handle(.deadlineReached, at: start + .seconds(second * 2)).isEmpty)
        }
    }

    @Test func `it gives up in the end and needs a fresh press`() {
        var bridge = insisting()
        var (now, actions) = (start, [Machine.Action]())
        while actions.isEmpty, let deadline = bridge.nextDeadline {
            #expect(deadline > now)
            now = deadline
            actions = bridge.handle(.deadlineReached, at: now)
        }
        #expect(now == start + .seconds(30))
        #expect(actions.first == .endedBySystem)
        #expect(bridge.nextDeadline == nil)
        #expect(freed(&bridge, at: now + .seconds(1)).isEmpty)
        #expect(bridge.handle(.released(.accessories)).isEmpty)
    }

    @Test func `letting go ends it and there is nothing to stop`() {
        var bridge = insisting()
        #expect(bridge.handle(.released(.accessories), at: start + .seconds(1)).isEmpty)
        #expect(bridge.nextDeadline == nil)
        #expect(freed(&bridge, at: start + .seconds(2)).isEmpty)
    }

    @Test func `who presses meanwhile is told why`() {
        var bridge = insisting()
        guard case .answer(.caller(":1.7"), let error?)? = bridge.handle(.pressed(.caller(":1.7")), at: start).first
        else {
            Issue.record("not answered")
            return
        }
        #expect(error.code == .transmissionInProgress)
        #expect(freed(&bridge, at: start + .seconds(1)) == [.beginTransmitting(.handsfreeButton)])
    }

    @Test func `it waits for the relay too`() {
        var bridge = Machine()
        let away = PTChannelError(.transmissionNotAllowed, explanation: "connecting")
        _ = bridge.handle(.pressed(.accessories, .emergency), at: start)
        #expect(bridge.handle(.beginRefused(away), at: start).contains(.endedBySystem) == false)
        #expect(
            bridge.handle(.link(.state(.ready(channelName: "Local"))), at: start + .seconds(1))
                == [.setServiceStatus(.ready), .beginTransmitting(.handsfreeButton)])
    }

    @Test func `an ordinary press that is refused needs a fresh one`() {
        var bridge = ready()
        _ = bridge.handle(.pressed(.accessories), at: start)
        #expect(bridge.handle(.beginRefused(taken), at: start) == [.endedBySystem, .report(taken)])
        #expect(bridge.nextDeadline == nil)
    }

    @Test func `what ends everything ends an emergency that waits`() {
        var bridge = insisting()
        #expect(
            bridge.handle(.requestedStop(.userRequest), at: start) == [.stopTransmitting(.userRequest), .endedBySystem])
        #expect(bridge.nextDeadline == nil)
    }
}
