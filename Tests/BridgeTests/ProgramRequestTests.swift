import Bridge
import FoundationEssentials
import PushToTalkCore
import RelayClient
import Testing
import Vocabulary

/// What the program behind a channel asks of its bridge.
@Suite struct ProgramRequestTests {
    private let channel = UUID()

    /// A bridge without a link on which `source` is transmitting.
    private func transmitting(_ press: BridgeStateMachine.Event, _ source: PTChannelTransmitRequestSource)
        -> BridgeStateMachine
    {
        var bridge = BridgeStateMachine(hasLink: false)
        #expect(bridge.handle(press) == [.beginTransmitting(source, floor: .unknown)])
        _ = bridge.handle(.callback(.didBeginTransmitting(channel, source: source)))
        return bridge
    }

    @Test func `a program begins and stops`() {
        var bridge = transmitting(.requestedBegin(program: ":1.5"), .developerRequest)
        #expect(
            bridge.handle(.requestedStop(.developerRequest)) == [.stopTransmitting(.developerRequest), .endedBySystem])
        #expect(bridge.handle(.notice(.transmissionEnding(.stopped(.developerRequest)))) == [])
        #expect(
            bridge.handle(.requestedBegin(program: ":1.5")) == [.beginTransmitting(.developerRequest, floor: .unknown)])
    }

    @Test func `a program does not join a transmission of others`() {
        var bridge = transmitting(.pressed(.accessories), .handsfreeButton)
        #expect(bridge.handle(.requestedBegin(program: ":1.5")) == [.refuseBegin(.program(":1.5"))])
        // And did not become a holder by it.
        #expect(bridge.handle(.released(.accessories)) == [.stopTransmitting(.handsfreeButton)])
    }

    @Test func `a begin that was granted after all has a holder`() {
        var bridge = transmitting(.pressed(.accessories), .handsfreeButton)
        _ = bridge.handle(.requestedBegin(program: ":1.5"))
        _ = bridge.handle(.notice(.transmissionEnding(.talkTimeLimit)))
        #expect(bridge.handle(.beganAfterAll(.program(":1.5"))) == [])
        #expect(bridge.handle(.released(.program(":1.5"))) == [.stopTransmitting(.developerRequest)])
    }

    @Test func `its stop ends whoever talks and their keys are used up`() {
        var bridge = transmitting(.pressed(.caller(":1.7")), .userRequest)
        _ = bridge.handle(.pressed(.accessories))
        #expect(
            bridge.handle(.requestedStop(.developerRequest)) == [.stopTransmitting(.developerRequest), .endedBySystem])
        #expect(bridge.handle(.released(.caller(":1.7"))) == [])
        #expect(bridge.handle(.pressed(.accessories)) == [.beginTransmitting(.handsfreeButton, floor: .unknown)])
    }

    @Test func `a button keeps a programs transmission alive`() {
        var bridge = transmitting(.requestedBegin(program: ":1.5"), .developerRequest)
        #expect(bridge.handle(.pressed(.accessories)) == [.answer(.accessories, nil)])
        #expect(bridge.handle(.released(.program(":1.5"))) == [])
        #expect(bridge.handle(.released(.accessories)) == [.stopTransmitting(.handsfreeButton)])
    }

    @Test func `what the limit ended a program may begin again at once`() {
        var bridge = transmitting(.requestedBegin(program: ":1.5"), .developerRequest)
        _ = bridge.handle(.notice(.transmissionEnding(.talkTimeLimit)))
        #expect(
            bridge.handle(.requestedBegin(program: ":1.5")) == [.beginTransmitting(.developerRequest, floor: .unknown)])
    }

    @Test func `a click on the desktop is the users request`() {
        var bridge = transmitting(.pressed(.userInterface), .userRequest)
        _ = bridge.handle(.notice(.transmissionEnding(.talkTimeLimit)))
        #expect(bridge.handle(.pressed(.userInterface)) == [.beginTransmitting(.userRequest, floor: .unknown)])
    }

    @Test func `without a link only the programs word counts`() {
        var bridge = BridgeStateMachine(hasLink: false)
        #expect(bridge.serviceStatus == .ready)
        #expect(bridge.handle(.programStatus(.connecting)) == [.setServiceStatus(.connecting)])
        #expect(!bridge.serviceDetail.isEmpty)
        #expect(bridge.handle(.programStatus(.ready)) == [.setServiceStatus(.ready)])
        #expect(bridge.serviceDetail.isEmpty)
    }

    @Test func `with a link the worse of the two counts`() {
        var bridge = BridgeStateMachine()
        #expect(bridge.serviceStatus == .connecting)
        #expect(bridge.handle(.programStatus(.unavailable)) == [.setServiceStatus(.unavailable)])
        #expect(bridge.handle(.link(.state(.ready(channelName: "x")))) == [.setServiceStatus(.unavailable)])
        #expect(bridge.handle(.programStatus(.ready)) == [.setServiceStatus(.ready)])
        #expect(bridge.handle(.link(.state(.connecting))) == [.setServiceStatus(.connecting)])
        #expect(bridge.handle(.programStatus(.ready)).isEmpty, "no news")
        #expect(bridge.handle(.programStatus(.unavailable)) == [.setServiceStatus(.unavailable)])
        #expect(bridge.handle(.programStatus(.ready)) == [.setServiceStatus(.connecting)])
    }
}
