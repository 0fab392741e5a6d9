import Accessories
import Bridge
import FoundationEssentials
import PushToTalkCore
import RelayClient
import Testing
import Vocabulary

/// A press while the link is lost and may come back: it begins at once, and the link says what becomes of it.
@Suite struct PressWithoutLinkTests {
    private let channel = UUID()
    private let burst = BurstID(number: 1)
    private let away = RelayLinkState.unavailable(.lost("restarted"), retryAfter: .milliseconds(250))
    private let ready = RelayLinkState.ready(channelName: "Local")

    /// A bridge whose link was ready and is lost, and whose button is held since.
    private func pressed() -> BridgeStateMachine {
        var bridge = BridgeStateMachine()
        _ = bridge.handle(.link(.state(ready)))
        #expect(bridge.handle(.link(.state(away))) == [.setServiceStatus(.unavailable)])
        #expect(
            bridge.handle(.pressed(.accessories)) == [.beginTransmitting(.handsfreeButton, floor: .reconnecting)])
        #expect(bridge.handle(.callback(.didBeginTransmitting(channel, source: .handsfreeButton))) == [.beginBurst])
        #expect(bridge.handle(.burstBegun(burst)) == [])
        return bridge
    }

    @Test func `the service is ready with the link and the burst goes on`() {
        var bridge = pressed()
        #expect(bridge.handle(.link(.state(.connecting))) == [], "no news while the burst decides")
        #expect(bridge.handle(.link(.state(ready))) == [.setServiceStatus(.ready)])
        #expect(bridge.handle(.link(.floorGranted(burst, limit: .seconds(60)))) == [])
        _ = bridge.handle(.released(.accessories))
        #expect(bridge.handle(.notice(.transmissionAudioFinished(erased: false))) == [.endBurst])
        #expect(bridge.handle(.link(.transmissionEnded(burst, .completed, TransmissionReport()))) == [])
    }

    @Test func `a link that does not come refuses it with why and needs a fresh press`() {
        var bridge = pressed()
        let actions = bridge.handle(.link(.transmissionEnded(burst, .linkUnavailable, TransmissionReport())))
        guard case .transmissionRefused(let error)? = actions.first, actions.count == 1 else {
            Issue.record("\(actions)")
            return
        }
        #expect(error.code == .transmissionNotAllowed)
        #expect(error.explanation.contains("restarted"))
        #expect(bridge.handle(.notice(.transmissionEnding(.refused(error)))) == [.endedBySystem, .report(error)])
        #expect(bridge.handle(.notice(.transmissionAudioFinished(erased: true))) == [.abortBurst])
        #expect(bridge.serviceStatus == .unavailable)
    }

    @Test func `what the link became meanwhile is told with the end of the burst`() {
        var bridge = pressed()
        _ = bridge.handle(.link(.state(.connecting)))
        let actions = bridge.handle(.link(.transmissionEnded(burst, .linkUnavailable, TransmissionReport())))
        #expect(actions.last == .setServiceStatus(.connecting))
        // Released before, and pressed again: the link is still on its way.
        #expect(
            bridge.handle(.pressed(.userInterface)) == [.answer(.userInterface, nil)], "the button is still held")
        _ = bridge.handle(.released(.accessories))
        _ = bridge.handle(.released(.userInterface))
        #expect(
            bridge.handle(.pressed(.accessories)) == [.beginTransmitting(.handsfreeButton, floor: .reconnecting)])
    }

    @Test func `a relay that has refused the member is not waited for`() {
        for error in [RelayLinkError.invitationRefused("revoked"), .full("channel"), .wrongRelayKey, .replaced] {
            var bridge = BridgeStateMachine()
            _ = bridge.handle(.link(.state(ready)))
            _ = bridge.handle(.link(.state(.unavailable(error, retryAfter: .seconds(30)))))
            #expect(bridge.handle(.pressed(.accessories)) == [.beginTransmitting(.handsfreeButton)], "and is refused")
        }
    }

    @Test func `a program that is not ready is not passed by`() {
        var bridge = BridgeStateMachine()
        _ = bridge.handle(.programStatus(.unavailable))
        #expect(bridge.handle(.pressed(.accessories)) == [.beginTransmitting(.handsfreeButton)])
        var pressed = pressed()
        #expect(pressed.handle(.programStatus(.ready)).isEmpty, "no news, and nothing that ends the press")
        #expect(pressed.handle(.programStatus(.connecting)) == [.setServiceStatus(.unavailable)])
    }

    @Test func `an emergency goes on when the link has not come in time`() {
        var bridge = BridgeStateMachine()
        _ = bridge.handle(.link(.state(ready)))
        _ = bridge.handle(.link(.state(away)))
        _ = bridge.handle(.pressed(.accessories, .emergency))
        _ = bridge.handle(.callback(.didBeginTransmitting(channel, source: .handsfreeButton)))
        _ = bridge.handle(.burstBegun(burst))
        let ended = bridge.handle(.link(.transmissionEnded(burst, .linkUnavailable, TransmissionReport())))
        guard case .transmissionRefused(let error)? = ended.first else {
            Issue.record("\(ended)")
            return
        }
        #expect(bridge.handle(.notice(.transmissionEnding(.refused(error)))) == [.report(error)], "it is held on")
        #expect(
            bridge.handle(.link(.state(ready))) == [.setServiceStatus(.ready), .beginTransmitting(.handsfreeButton)])
    }

    @Test(arguments: [TalkKey.Holder.program(":1.9"), .caller(":1.7"), .userInterface])
    func `whoever held with an emergency that waits does not hold it when its control comes up`(other: TalkKey.Holder) {
        var bridge = BridgeStateMachine()
        _ = bridge.handle(.link(.state(ready)))
        _ = bridge.handle(.link(.state(away)))
        if case .program(let name) = other {
            _ = bridge.handle(.requestedBegin(program: name))
        } else {
            _ = bridge.handle(.pressed(other))
        }
        _ = bridge.handle(.callback(.didBeginTransmitting(channel, source: .userRequest)))
        _ = bridge.handle(.burstBegun(burst))
        _ = bridge.handle(.pressed(.accessories, .emergency))
        let ended = bridge.handle(.link(.transmissionEnded(burst, .linkUnavailable, TransmissionReport())))
        guard case .transmissionRefused(let error)? = ended.first else {
            Issue.record("\(ended)")
            return
        }
        #expect(bridge.handle(.notice(.transmissionEnding(.refused(error)))) == [.report(error)])
        #expect(bridge.handle(.released(.accessories)) == [], "what never began has no end")
        #expect(bridge.handle(.link(.state(ready))) == [.setServiceStatus(.ready)])
        // What was held all the time is used up; a fresh press counts.
        _ = bridge.handle(.released(other))
        guard case .beginTransmitting? = bridge.handle(.pressed(other)).first else {
            Issue.record("a fresh press begins nothing")
            return
        }
    }
}
