import Accessories
import Bridge
import FoundationEssentials
import PushToTalkCore
import RelayClient
import Testing
import Vocabulary

/// A press that finds somebody speaking: refused, waiting for the floor, or at once when they are only heard still.
@Suite struct WaitingBridgeTests {
    private let channel = UUID()
    private let other = RelayMember(id: "b", name: "Unit 8")
    private let burst = BurstID(number: 1)
    private var begun: BridgeStateMachine.Event { .callback(.didBeginTransmitting(channel, source: .handsfreeButton)) }
    private var granted: BridgeStateMachine.Event { .link(.floorGranted(burst, limit: .seconds(60))) }

    private func ready(hasQueue: Bool = true) -> BridgeStateMachine {
        var bridge = BridgeStateMachine()
        _ = bridge.handle(.link(.state(.ready(channelName: "Local"))))
        _ = bridge.handle(.link(.floorQueueOffered(hasQueue)))
        return bridge
    }

    /// Unit 8 speaks, and a press waits.
    private func waiting() -> BridgeStateMachine {
        var bridge = ready()
        _ = bridge.handle(.link(.floorTaken(by: other)))
        #expect(
            bridge.handle(.pressed(.accessories)) == [.beginTransmitting(.handsfreeButton, floor: .queueable)])
        #expect(bridge.handle(.notice(.waitingForFloor(position: nil))) == [.beginBurst])
        #expect(bridge.handle(.burstBegun(burst)).isEmpty)
        return bridge
    }

    @Test func `the floor decides not who is heard`() {
        for (hasQueue, taken) in [(true, FloorOutlook.queueable), (false, .unknown)] {
            var bridge = ready(hasQueue: hasQueue)
            _ = bridge.handle(.link(.floorTaken(by: other)))
            _ = bridge.handle(.notice(.activeRemoteParticipantChanged(PTParticipant(name: "Unit 8", image: nil))))
            #expect(bridge.handle(.pressed(.accessories)) == [.beginTransmitting(.handsfreeButton, floor: taken)])
            _ = bridge.handle(.released(.accessories))
            _ = bridge.handle(.link(.floorIdle))
            #expect(bridge.handle(.pressed(.accessories)) == [.beginTransmitting(.handsfreeButton, floor: .idle)])
        }
    }

    @Test func `the burst that waited is the one that is spoken`() {
        var bridge = waiting()
        #expect(bridge.handle(.link(.floorQueued(burst, position: 2))) == [.floorQueued(position: 2)])
        #expect(bridge.handle(.notice(.waitingForFloor(position: 2))).isEmpty)
        #expect(bridge.handle(granted) == [.floorGranted])
        #expect(bridge.handle(begun).isEmpty, "no second burst")
        _ = bridge.handle(.released(.accessories))
        #expect(bridge.handle(.notice(.transmissionAudioFinished(erased: false))) == [.endBurst])
    }

    @Test func `letting go while waiting gives the wish back`() {
        var bridge = waiting()
        #expect(bridge.handle(.released(.accessories)) == [.stopTransmitting(.handsfreeButton)])
        #expect(bridge.handle(.notice(.waitingEnded(.stopped(.handsfreeButton)))) == [.abortBurst])
        #expect(bridge.handle(.link(.transmissionEnded(burst, .aborted, TransmissionReport()))).isEmpty)
    }

    @Test func `who lost to another press goes on waiting with the same burst`() {
        var bridge = ready()
        _ = bridge.handle(.pressed(.accessories))
        #expect(bridge.handle(begun) == [.beginBurst])
        _ = bridge.handle(.burstBegun(burst))
        #expect(bridge.handle(.link(.floorQueued(burst, position: 1))) == [.floorQueued(position: 1)])
        #expect(bridge.handle(.notice(.transmissionEnding(.queued))).isEmpty, "the key is held on")
        #expect(bridge.handle(.notice(.transmissionAudioFinished(erased: true))).isEmpty, "the burst goes on")
        #expect(bridge.handle(.notice(.waitingForFloor(position: 1))).isEmpty)
        #expect(bridge.handle(granted) == [.floorGranted])
    }

    @Test func `an emergency asks anew before the others unless the floor is held`() {
        var bridge = waiting()
        #expect(bridge.handle(.escalated) == [.abortBurst, .beginBurst(priority: 255)])
        var holding = waiting()
        _ = holding.handle(granted)
        #expect(holding.handle(.escalated).isEmpty)
    }

    @Test func `an emergency asks anew also where the floor was held at an earlier relay`() {
        var bridge = waiting()
        _ = bridge.handle(granted)
        _ = bridge.handle(begun)
        #expect(bridge.handle(.link(.floorQueued(burst, position: 1))) == [.floorQueued(position: 1)])
        _ = bridge.handle(.notice(.transmissionEnding(.queued)))
        #expect(bridge.handle(.escalated) == [.abortBurst, .beginBurst(priority: 255)])
    }

    @Test func `a link that ends the burst ends the waiting`() {
        var bridge = waiting()
        let ended = BridgeStateMachine.Event.link(.transmissionEnded(burst, .linkUnavailable, TransmissionReport()))
        guard case .transmissionRefused(let error)? = bridge.handle(ended).first else {
            Issue.record("not told")
            return
        }
        #expect(
            bridge.handle(.notice(.waitingEnded(.refused(error)))) == [.abortBurst, .endedBySystem, .report(error)])
    }

    @Test func `what listeners miss reaches the encoder`() {
        var bridge = ready()
        #expect(bridge.handle(.link(.listenerLoss(percent: 12))) == [.setExpectedLoss(percent: 12)])
        _ = bridge.handle(.link(.state(.connecting)))
        #expect(
            bridge.handle(.link(.state(.ready(channelName: "Local")))) == [
                .setExpectedLoss(percent: 0), .setServiceStatus(.ready),
            ], "a new connection is no worse than any")
    }
}
