// Several who talk at once, between link and channel manager; and an own burst beside theirs.
import Accessories
import Bridge
import ChannelService
import FoundationEssentials
import MonotonicTime
import PushToTalkCore
import RelayClient
import Testing
import Vocabulary

@Suite struct FullDuplexBridgeTests {
    private let ann = RelayMember(id: "a", name: "Ann")
    private let bob = RelayMember(id: "b", name: "Bob")

    private func participant(_ member: RelayMember) -> PTParticipant { PTParticipant(name: member.name, image: nil) }

    private func frame(_ member: RelayMember?, _ sequence: UInt16) -> ReceivedFrame {
        ReceivedFrame(
            sequence: sequence, timestamp: 0, marker: false, payload: [1], receivedAt: .zero, talker: member)
    }

    private func shared() -> BridgeStateMachine {
        var bridge = BridgeStateMachine()
        _ = bridge.handle(.link(.state(.ready(channelName: "Yard"))))
        #expect(bridge.handle(.link(.talkersAllowed(4))) == [])
        return bridge
    }

    /// The number of the burst that begins with these actions.
    private func begun(_ actions: [BridgeStateMachine.Action]) throws -> TalkBurst {
        let burst = actions.lazy.compactMap { action -> TalkBurst? in
            if case .beginReception(_, let burst) = action { burst } else { nil }
        }.first
        return try #require(burst)
    }

    @Test func `who talks beside others is heard beside them each as a burst of their own`() throws {
        var bridge = shared()
        let first = try begun(bridge.handle(.link(.floorTaken(by: ann))))
        #expect(bridge.handle(.link(.burstBegan(ann))) == [])
        let actions = bridge.handle(.link(.floorTaken(by: bob)))
        let second = try begun(actions)
        #expect(actions == [.beginReception(participant(bob), second)] && second != first)
        for sequence in UInt16(0)..<5 {
            #expect(bridge.handle(.link(.frame(frame(ann, sequence)))) == [.play(frame(ann, sequence), of: first)])
            #expect(bridge.handle(.link(.frame(frame(bob, sequence)))) == [.play(frame(bob, sequence), of: second)])
        }
        // Her floor is free; what is on its way is waited for.
        #expect(bridge.handle(.link(.floorReleased(by: ann))) == [])
        #expect(bridge.handle(.link(.burstEnded(ann, .completed, ReceptionReport()))) == [.endReception(first)])
        #expect(bridge.handle(.link(.frame(frame(bob, 5)))) == [.play(frame(bob, 5), of: second)])
        #expect(bridge.handle(.link(.floorIdle)) == [])
        #expect(bridge.handle(.link(.burstEnded(bob, .completed, ReceptionReport()))) == [.endReception(second)])
        // The next burst is another one.
        let third = try begun(bridge.handle(.link(.floorTaken(by: ann))))
        #expect(third != first && third != second)
    }

    @Test func `a floor that is not used ends without those beside it`() throws {
        var bridge = shared()
        let first = try begun(bridge.handle(.link(.floorTaken(by: ann))))
        let second = try begun(bridge.handle(.link(.floorTaken(by: bob))))
        _ = bridge.handle(.link(.frame(frame(bob, 0))))
        #expect(bridge.handle(.link(.floorReleased(by: ann))) == [.endReception(first)])
        #expect(bridge.handle(.link(.frame(frame(ann, 9)))) == [], "nobody is shown who said it")
        #expect(bridge.handle(.link(.state(.connecting))).contains(.endReception(second)), "a lost link ends them all")
    }

    @Test func `no more are heard than may talk and where one may the next ends the other`() throws {
        var bridge = shared()
        let members = (0..<6).map { RelayMember(id: "\($0)", name: "Unit \($0)") }
        var heard: [TalkBurst?] = []
        for member in members {
            for action in bridge.handle(.link(.floorTaken(by: member))) {
                switch action {
                case .beginReception(_, let burst): heard.append(burst)
                case .endReception(let burst): heard.removeAll { $0 == burst }
                default: Issue.record("\(action)")
                }
            }
            #expect(heard.count <= 4)
        }
        // The channel's rules are others from now on.
        #expect(bridge.handle(.link(.talkersAllowed(1))) == [])
        let actions = bridge.handle(.link(.burstBegan(ann)))
        #expect(actions.count == 5 && actions.last == .beginReception(participant(ann)))
    }

    @Test func `what is said here goes on while others talk`() {
        var bridge = shared()
        _ = bridge.handle(.link(.floorOutlook(.idle, emergency: .idle)))
        _ = bridge.handle(.link(.floorTaken(by: ann)))
        // Somebody talks, and the floor is open all the same.
        #expect(
            bridge.handle(.pressed(.caller(":1.7"))) == [.beginTransmitting(.userRequest, floor: .idle)])
        _ = bridge.handle(.callback(.didBeginTransmitting(UUID(), source: .userRequest)))
        let own = BurstID(number: 1)
        _ = bridge.handle(.burstBegun(own))
        _ = bridge.handle(.link(.floorGranted(own, limit: .seconds(60))))
        for event in [RelayLinkEvent.floorTaken(by: bob), .frame(frame(bob, 0)), .floorReleased(by: ann)] {
            let actions = bridge.handle(.link(event))
            let touchesOwn = actions.contains { action in
                switch action {
                case .beginReception, .play, .endReception: false
                default: true
                }
            }
            #expect(!touchesOwn, "\(event): \(actions)")
        }
        #expect(bridge.handle(.link(.transmissionEnded(own, .completed, TransmissionReport()))) == [])
    }

    @Test func `an emergency begins as soon as the floor is open to it whoever talks`() {
        var bridge = shared()
        _ = bridge.handle(.link(.floorOutlook(.unknown, emergency: .unknown)))
        _ = bridge.handle(.link(.floorTaken(by: ann)))
        _ = bridge.handle(.link(.floorTaken(by: bob)))
        _ = bridge.handle(.pressed(.accessories, .emergency))
        _ = bridge.handle(.beginRefused(PTChannelError(.transmissionInProgress)))
        _ = bridge.handle(.link(.floorOutlook(.idle, emergency: .idle)))
        #expect(
            bridge.handle(.link(.floorReleased(by: ann))) == [
                .endReception(TalkBurst(number: 1)), .beginTransmitting(.handsfreeButton, floor: .idle),
            ])
    }
}
