import Accessories
import Bridge
import FoundationEssentials
import PushToTalkCore
import RelayClient
import Testing
import Vocabulary

/// A press on a floor that is taken, and that the relay would give all the same: shared, or taken from who has it.
@Suite struct FloorOutlookTests {
    private let other = RelayMember(id: "b", name: "Unit 8")

    private typealias Outlook = (normal: FloorOutlook, emergency: FloorOutlook)

    private func talking(_ outlook: Outlook?) -> BridgeStateMachine {
        var bridge = BridgeStateMachine()
        _ = bridge.handle(.link(.state(.ready(channelName: "Local"))))
        _ = bridge.handle(.link(.floorQueueOffered(false)))
        _ = bridge.handle(.link(.floorTaken(by: other)))
        if let (normal, emergency) = outlook { _ = bridge.handle(.link(.floorOutlook(normal, emergency: emergency))) }
        return bridge
    }

    @Test func `a floor that is open is begun on at once`() {
        for (outlook, urgency, floor) in [
            (nil, TransmitUrgency.emergency, FloorOutlook.unknown),
            ((.unknown, .idle), .emergency, .idle), ((.unknown, .idle), .normal, .unknown),
            ((.queueable, .idle), .normal, .queueable), ((.idle, .idle), .normal, .idle),
            ((.unknown, .unknown), .emergency, .unknown),
        ] as [(Outlook?, TransmitUrgency, FloorOutlook)] {
            var bridge = talking(outlook)
            #expect(
                bridge.handle(.pressed(.accessories, urgency)) == [.beginTransmitting(.handsfreeButton, floor: floor)])
        }
    }

    @Test func `who may only listen is refused by the channel manager whoever talks or not`() {
        for isTaken in [false, true] {
            for urgency in [TransmitUrgency.normal, .emergency] {
                var bridge = talking((.listenOnly, .listenOnly))
                if !isTaken { _ = bridge.handle(.link(.floorIdle)) }
                #expect(
                    bridge.handle(.pressed(.accessories, urgency)) == [
                        .beginTransmitting(.handsfreeButton, floor: .listenOnly)
                    ])
            }
        }
    }

    @Test func `another relay that says nothing is not taken for the one before`() {
        var bridge = talking((.idle, .idle))
        _ = bridge.handle(.link(.floorQueueOffered(false)))
        #expect(bridge.handle(.pressed(.accessories)) == [.beginTransmitting(.handsfreeButton, floor: .unknown)])
    }

    @Test func `why the floor is refused or gone is told in words`() {
        let channel = UUID()
        let burst = BurstID(number: 1)
        for (end, words) in [
            (.denied(.listenOnly), "only listen"), (.denied(.queueFull), "the queue for the floor is full"),
            (.denied(.tooSoon(retryAfter: .seconds(3))), "3.0 seconds"),
            (.revoked(.preempted("Ann has an emergency")), "Ann has an emergency"),
            (.revoked(.notPermitted), "only listen"), (.revoked(.other("the sound is late")), "the sound is late"),
            (.revoked(.other("")), "the relay gives no reason"),
        ] as [(TransmissionEnd, String)] {
            var bridge = talking(nil)
            _ = bridge.handle(.link(.floorIdle))
            _ = bridge.handle(.pressed(.accessories))
            _ = bridge.handle(.callback(.didBeginTransmitting(channel, source: .handsfreeButton)))
            _ = bridge.handle(.burstBegun(burst))
            let errors = bridge.handle(.link(.transmissionEnded(burst, end, TransmissionReport()))).compactMap {
                switch $0 {
                case .transmissionRefused(let error), .transmissionRevoked(let error): error
                default: nil
                }
            }
            #expect(errors.map(\.code) == [.transmissionNotAllowed])
            #expect(errors.first?.explanation.contains(words) == true, "\(errors)")
        }
    }
}
