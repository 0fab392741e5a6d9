import Bridge
import FoundationEssentials
import MonotonicTime
import PushToTalkCore
import RelayClient
import Testing
import Vocabulary

@Suite struct BridgeStateMachineTests {
    private let channel = UUID()
    private let other = RelayMember(id: "b", name: "Unit 8")
    private let burst = BurstID(number: 1)

    /// A bridge whose button is held and whose burst has begun on a ready link.
    private func transmitting() -> BridgeStateMachine {
        var bridge = BridgeStateMachine()
        _ = bridge.handle(.link(.state(.ready(channelName: "Local"))))
        #expect(bridge.handle(.pressed(.accessories)) == [.beginTransmitting(.handsfreeButton)])
        #expect(bridge.handle(.callback(.didBeginTransmitting(channel, source: .handsfreeButton))) == [.beginBurst])
        #expect(bridge.handle(.burstBegun(burst)) == [])
        return bridge
    }

    @Test func `a press becomes a burst and the release ends it after its tail`() {
        var bridge = transmitting()
        #expect(bridge.handle(.released(.accessories)) == [.stopTransmitting(.handsfreeButton)])
        #expect(bridge.handle(.notice(.transmissionEnding(.stopped(.handsfreeButton)))) == [])
        #expect(bridge.handle(.notice(.transmissionAudioFinished(erased: false))) == [.endBurst])
        // The link's own end of that burst asks for nothing more.
        #expect(bridge.handle(.link(.transmissionEnded(burst, .completed, TransmissionReport()))) == [])
    }

    @Test func `a relay that does not answer the first attempt is named; later attempts say why the last one failed`() {
        var bridge = BridgeStateMachine()
        let begun = Instant.zero + .seconds(5)
        _ = bridge.handle(.link(.state(.connecting)), at: begun)
        #expect(bridge.nextDeadline == begun + .seconds(2))
        #expect(bridge.handle(.deadlineReached, at: begun + .seconds(1)) == [])
        let actions = bridge.handle(.deadlineReached, at: begun + .seconds(2))
        #expect(actions == [.relayUnanswered(bridge.serviceDetail)])
        #expect(bridge.serviceDetail.contains("does not answer") && bridge.nextDeadline == nil)
        let failed = RelayLinkState.unavailable(.lost("no answer to the join"), retryAfter: .seconds(1))
        _ = bridge.handle(.link(.state(failed)), at: begun + .seconds(10))
        _ = bridge.handle(.link(.state(.connecting)), at: begun + .seconds(11))
        #expect(bridge.serviceDetail.contains("no answer to the join") && bridge.nextDeadline == nil)
        _ = bridge.handle(.link(.state(.ready(channelName: "Local"))), at: begun + .seconds(12))
        #expect(bridge.serviceDetail.isEmpty)
    }

    @Test func `a denied floor refuses the transmission and needs a fresh press`() {
        var bridge = transmitting()
        _ = bridge.handle(.link(.floorTaken(by: other)))
        let actions = bridge.handle(.link(.transmissionEnded(burst, .denied(.taken), TransmissionReport())))
        guard case .transmissionRefused(let error)? = actions.first else {
            Issue.record("not refused: \(actions)")
            return
        }
        #expect(error.code == .transmissionInProgress)
        #expect(error.explanation.contains("Unit 8"))
        #expect(
            bridge.handle(.notice(.transmissionEnding(.refused(error)))) == [.endedBySystem, .report(error)])
        #expect(bridge.handle(.notice(.transmissionAudioFinished(erased: true))) == [.abortBurst])
        // The accessories were told, and report the next fresh press only.
        #expect(
            bridge.handle(.pressed(.accessories)) == [.beginTransmitting(.handsfreeButton, floor: .unknown)])
    }

    @Test func `a denial after the release is still heard`() {
        var bridge = transmitting()
        _ = bridge.handle(.released(.accessories))
        _ = bridge.handle(.notice(.transmissionEnding(.stopped(.handsfreeButton))))
        _ = bridge.handle(.notice(.transmissionAudioFinished(erased: false)))
        let denial = BridgeStateMachine.Event.link(.transmissionEnded(burst, .denied(.taken), TransmissionReport()))
        guard case .transmissionRefused? = bridge.handle(denial).first else {
            Issue.record("not refused")
            return
        }
        // Told once, and never once a newer burst is running.
        #expect(bridge.handle(denial) == [])
        _ = bridge.handle(.pressed(.accessories))
        _ = bridge.handle(.callback(.didBeginTransmitting(channel, source: .handsfreeButton)))
        #expect(bridge.handle(denial) == [])
    }

    @Test func `an end of an earlier burst does not touch the running one`() {
        var bridge = transmitting()
        let earlier = BurstID(number: 99)
        #expect(bridge.handle(.link(.transmissionEnded(earlier, .linkUnavailable, TransmissionReport()))) == [])
    }

    @Test func `a refused begin while the relay is away says why`() {
        var bridge = BridgeStateMachine()
        let away = RelayLinkState.unavailable(.unreachable("192.0.2.1:4433"), retryAfter: .seconds(1))
        #expect(bridge.handle(.link(.state(away))) == [.setServiceStatus(.unavailable)])
        let why = bridge.serviceDetail
        #expect(bridge.handle(.link(.state(.connecting))) == [.setServiceStatus(.connecting)])
        #expect(bridge.serviceDetail == "connecting to the relay; the last try: \(why)")
        #expect(bridge.handle(.link(.state(away))) == [.setServiceStatus(.unavailable)])
        _ = bridge.handle(.pressed(.caller(":1.7")))
        let actions = bridge.handle(.beginRefused(PTChannelError(.transmissionNotAllowed)))
        #expect(actions.first == .endedBySystem)
        guard case .report(let error)? = actions.last else {
            Issue.record("not reported: \(actions)")
            return
        }
        #expect(error.code == .transmissionNotAllowed)
        #expect(error.explanation.contains("192.0.2.1:4433"))
    }

    @Test func `a remote burst is one reception from the taken floor to its end`() {
        var bridge = BridgeStateMachine()
        let frame = ReceivedFrame(sequence: 1, timestamp: 960, marker: true, payload: [1], receivedAt: .zero)
        let participant = PTParticipant(name: "Unit 8", image: nil)
        #expect(bridge.handle(.link(.floorTaken(by: other))) == [.beginReception(participant)])
        #expect(bridge.handle(.link(.burstBegan(other))) == [])
        #expect(bridge.handle(.link(.frame(frame))) == [.play(frame)])
        // Idle comes before the last packets may have: the link says when the burst is over.
        #expect(bridge.handle(.link(.floorIdle)) == [])
        #expect(bridge.handle(.link(.burstEnded(other, .completed, ReceptionReport()))) == [.endReception()])
        #expect(bridge.handle(.link(.burstEnded(other, .completed, ReceptionReport()))) == [])
    }

    @Test func `a floor that was taken and never used is not heard forever`() {
        var bridge = BridgeStateMachine()
        _ = bridge.handle(.link(.floorTaken(by: other)))
        #expect(bridge.handle(.link(.floorIdle)) == [.endReception()])
    }

    @Test func `a burst may outlive the connection it began on`() {
        var bridge = transmitting()
        #expect(bridge.handle(.link(.state(.unavailable(.lost("restarted"), retryAfter: .milliseconds(250))))) == [])
        #expect(bridge.handle(.link(.state(.ready(channelName: "Local")))) == [.setServiceStatus(.ready)])
        #expect(bridge.handle(.link(.transmissionEnded(burst, .completed, TransmissionReport()))) == [])
    }

    @Test func `a burst that the lost link ends is refused before the service is away`() {
        var bridge = transmitting()
        #expect(bridge.handle(.link(.state(.connecting))) == [])
        let actions = bridge.handle(.link(.transmissionEnded(burst, .linkUnavailable, TransmissionReport())))
        guard case .transmissionRefused? = actions.first, actions.count == 2 else {
            Issue.record("\(actions)")
            return
        }
        #expect(actions.last == .setServiceStatus(.connecting))
    }

    @Test func `a press that does not count is answered with why`() {
        var bridge = transmitting()
        // Another holder talks already: that is success.
        #expect(bridge.handle(.pressed(.caller(":1.7"))) == [.answer(.caller(":1.7"), nil)])
        _ = bridge.handle(.notice(.transmissionEnding(.talkTimeLimit)))
        guard case .answer(_, let error?)? = bridge.handle(.pressed(.caller(":1.7"))).first else {
            Issue.record("a press that was used up counted")
            return
        }
        #expect(error.code == .transmissionNotFound)
    }

    @Test func `a lost link ends what is heard`() {
        var bridge = BridgeStateMachine()
        _ = bridge.handle(.link(.state(.ready(channelName: "Local"))))
        _ = bridge.handle(.link(.burstBegan(other)))
        #expect(bridge.handle(.link(.state(.connecting))) == [.setServiceStatus(.connecting), .endReception()])
    }

    @Test func `a second speaker ends the first ones reception`() {
        var bridge = BridgeStateMachine()
        _ = bridge.handle(.link(.burstBegan(other)))
        let third = RelayMember(id: "c", name: "Unit 9")
        #expect(
            bridge.handle(.link(.floorTaken(by: third)))
                == [.endReception(), .beginReception(PTParticipant(name: "Unit 9", image: nil))])
    }
}
