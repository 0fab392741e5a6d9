// The headset and the radio follow each press to its end, whoever ends it.
import Accessories
import BusTestSupport
import Testing
import Vocabulary

@testable import pttd

@Suite struct PressFollowersTests {
    private let source = AccessorySource(accessory: AccessoryID("vest"), control: .ptt)
    private let told = Recorder<String>()

    private func followers(channel: @escaping @Sendable (AccessoryIntent) -> Void = { _ in }) -> PressFollowers {
        PressFollowers(
            began: { [told] in told.record("began \($0)") },
            channel: { [told] intent in
                told.record("asked")
                channel(intent)
            },
            ended: { [told] in told.record("ended") })
    }

    @Test func aPressIsPreparedBeforeTheChannelIsAskedAndEndsAfterIt() {
        let presses = followers()
        presses.wants(.transmitBegan(source, .normal))
        presses.wants(.transmitEscalated(source))
        presses.wants(.transmitEnded(source, .released))
        #expect(told.all == ["began vest/ptt", "asked", "asked", "asked", "ended"])
    }

    @Test func aTransmissionThatTheSystemEndsIsOverThoughNoReleaseIsTold() {
        let presses = followers()
        presses.wants(.transmitBegan(source, .normal))
        presses.endedBySystem()
        #expect(told.all == ["began vest/ptt", "asked", "ended"])
    }

    @Test func aPressThatIsRefusedAtOnceIsOver() {
        let (told, ended) = (told, followers())
        let presses = followers { _ in ended.endedBySystem() }
        presses.wants(.transmitBegan(source, .normal))
        #expect(told.all == ["began vest/ptt", "asked", "ended"])
    }
}
