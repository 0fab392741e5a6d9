// What a client expects of the floor is what the relay would say.
import MonotonicTime
import RelayProtocol
import TestSupport
import Testing
import Vocabulary

@testable import RelayClient
@testable import RelayServer

@Suite struct FloorViewTests {
    private func welcome(_ rules: FloorRules, priority: UInt8 = 0) -> ServerMessage.Welcome {
        var welcome = ServerMessage.Welcome(
            ssrc: SSRC(rawValue: 99), downlinkKey: TrailerKey(), mediaKey: nil, channelName: DisplayName("Yard")!,
            members: [], floor: nil, memberID: MemberID(bytes: [UInt8](repeating: 1, count: 16))!, talkTimeLimit: nil)
        welcome.floorMode = [.fullDuplex: .fullDuplex, .cutIn: .cutIn][rules.mode] ?? .halfDuplex
        welcome.preemptionStep = rules.preemptionStep ?? 0
        welcome.floorPriority = priority
        return welcome
    }

    private func taken(_ ssrc: UInt32, _ priority: UInt8) -> ServerMessage.FloorTaken {
        .init(
            talker: MemberID(bytes: [UInt8](repeating: 2, count: 16))!, ssrc: SSRC(rawValue: ssrc), keyID: 1,
            priority: priority)
    }

    @Test func `a relay that does not say what it does leaves everything open`() {
        var old = welcome(FloorRules())
        old.floorMode = .unspecified
        var view = FloorView(old)
        view.taken(taken(1, 0))
        #expect(view.outlook == nil && view.talkersMaximum == 1)
    }

    @Test func `who may only listen finds no floor, not even in an emergency`() {
        var listener = welcome(FloorRules())
        listener.isListenOnly = true
        let outlook = FloorView(listener).outlook
        #expect(outlook?.normal == .listenOnly && outlook?.emergency == .listenOnly)
    }

    @Test func `the view agrees with the floor's rules whoever talks and whoever asks`() {
        let seed = SeededGenerator.seed()
        var random = SeededGenerator(seed: seed)
        var agreed = [0, 0]
        for _ in 0..<5_000 {
            let rules = FloorRules(
                mode: FloorRules.Mode.allCases.randomElement(using: &random)!,
                preemptionStep: [nil, 1, 10, 255].randomElement(using: &random)!)
            let mine = [UInt8(0), 5, 20, 254].randomElement(using: &random)!
            var view = FloorView(welcome(rules, priority: mine))
            var floor = FloorControlStateMachine(rules: rules)
            for ssrc in 1...UInt32.random(in: 1...5, using: &random) {
                let priority = [UInt8(0), 4, 9, 20, 254, 255].randomElement(using: &random)!
                let request = FloorRequest(
                    ssrc: SSRC(rawValue: ssrc), requestID: .first, keyID: 1, priority: priority)
                guard floor.holders.count < rules.talkersMaximum else { break }
                _ = floor.handle(.request(request), at: .zero)
                view.taken(taken(ssrc, priority))
                if random.chance(20) {
                    _ = floor.handle(.left(ssrc: request.ssrc), at: .zero)
                    view.idle(request.ssrc)
                }
            }
            for (asked, expected) in [
                (mine, view.outlook?.normal), (UInt8(255), view.outlook?.emergency),
            ] {
                var copy = floor
                let request = FloorRequest(
                    ssrc: SSRC(rawValue: 99), requestID: .first, keyID: 2, priority: asked)
                let isRefused = copy.handle(.request(request), at: .zero).contains {
                    if case .deny(request, _) = $0 { true } else { false }
                }
                #expect((expected == .idle) == !isRefused, "\(rules) \(floor.holders) \(asked); seed \(seed)")
                agreed[isRefused ? 0 : 1] += 1
            }
        }
        #expect(agreed.min()! > 200)
    }

    @Test func `the causes on the wire have a meaning each`() {
        let denials: [(FloorDenyCause, FloorDenial)] = [
            (.anotherClientHasPermission, .taken), (.receiveOnly, .listenOnly), (.queueFull, .queueFull),
            (.retryAfterNotExpired, .tooSoon(retryAfter: .seconds(3))), (.noResources, .refused("words")),
        ]
        for (cause, meaning) in denials {
            let denial = ServerMessage.FloorDeny(
                requestID: .first, cause: cause, phrase: "words", retryAfter: .seconds(3))
            #expect(FloorDenial(denial) == meaning)
        }
        let revocations: [(FloorRevokeCause, FloorRevocation)] = [
            (.mediaBurstTooLong, .talkTimeLimit), (.preempted, .preempted("words")), (.noPermission, .notPermitted),
            (.other, .other("words")),
        ]
        for (cause, meaning) in revocations {
            #expect(FloorRevocation(.init(requestID: .first, cause: cause, phrase: "words")) == meaning)
        }
    }
}
