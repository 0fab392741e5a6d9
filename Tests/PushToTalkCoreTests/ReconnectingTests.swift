// Begins before the service is ready, by whoever knows that the way to the others may be back in a moment.

import FoundationEssentials
import MonotonicTime
import PushToTalkCore
import Testing
import Vocabulary

private typealias Harness = ChannelManagerHarness

@Suite struct ReconnectingTests {
    private let channel = Harness.channel
    private let lost = PTChannelError(.transmissionNotAllowed, explanation: "the connection to the relay was lost")

    /// The link is lost, and a press records.
    private func talking(_ status: PTServiceStatus = .connecting) -> ChannelManagerHarness {
        var harness = Harness()
        _ = harness.setStatus(status)
        let begun = harness.begin(.handsfreeButton, floor: .reconnecting)
        #expect(begun.actions.callbacks == [.didBeginTransmitting(channel, source: .handsfreeButton)])
        _ = harness.send(.audioSessionActivated)
        #expect(harness.send(.captureBegan).tones == [.microphoneOn])
        return harness
    }

    @Test func `it records at once and goes on when the service is ready`() {
        var harness = talking()
        #expect(harness.setStatus(.ready).actions == [.notice(.serviceStatusChanged(.ready))])
        #expect(harness.machine.isCapturing)
        #expect(harness.stop(.handsfreeButton).actions.contains(.stopCapture(.afterTail)))
    }

    @Test func `what is refused is erased with the deny tone`() {
        var harness = talking(.unavailable)
        let refused = harness.send(.transmissionRefused(lost))
        #expect(refused.transmissionEnd == .refused(lost))
        #expect(refused.contains(.stopCapture(.discarding)) && refused.tones == [.denied])
        #expect(refused.contains(.notice(.transmissionAudioFinished(erased: true))))
        #expect(harness.begin(.handsfreeButton, floor: .idle).answer == .failed(.transmissionNotAllowed))
    }

    @Test func `what was released is told when it was not carried`() {
        var harness = talking()
        _ = harness.stop(.handsfreeButton)
        _ = harness.send(.captureEnded)
        let refused = harness.send(.transmissionRefused(lost))
        #expect(refused.notices.contains(.lastTransmissionNotCarried(lost)))
        // The session may be closing, and is kept for the tone.
        let all = refused + harness.send(.audioSessionActivated)
        #expect(all.tones == [.denied])
    }

    @Test func `a service that is told not ready ends it also when that is no news`() {
        for status in [PTServiceStatus.connecting, .unavailable] {
            var harness = talking(.connecting)
            let told = harness.setStatus(status).actions
            #expect(told.transmissionEnd == .serviceStatus(status))
            #expect(harness.machine.transmission == nil)
            #expect(harness.setStatus(status).actions.isEmpty)
        }
    }

    @Test func `the floor that another has taken meanwhile is waited for`() {
        var harness = talking()
        let queued = harness.send(.floorQueued(position: 1))
        #expect(queued.notices.contains(.waitingForFloor(position: 1)))
        _ = harness.setStatus(.ready)
        #expect(harness.machine.waiting != nil)
        #expect(
            harness.send(.floorGranted).callbacks.contains {
                if case .didBeginTransmitting = $0 { true } else { false }
            })
    }

    @Test func `who is heard still gives way and what else forbids a begin still does`() {
        var harness = Harness()
        _ = harness.setParticipant(Harness.ann)
        _ = harness.setStatus(.connecting)
        #expect(harness.begin(floor: .reconnecting).actions.notices.contains(.activeRemoteParticipantChanged(nil)))
        var listening = Harness(mode: .listenOnly)
        _ = listening.setStatus(.connecting)
        #expect(listening.begin(floor: .reconnecting).answer == .failed(.transmissionNotAllowed))
        var calling = Harness()
        _ = calling.setStatus(.connecting)
        _ = calling.send(.callBegan(Harness.phone))
        #expect(calling.begin(floor: .reconnecting).answer == .failed(.callActive))
    }

    @Test func `a programs own service is not passed by`() {
        var harness = ChannelManagerHarness(joined: false)
        _ = harness.request(
            .join(
                channelUUID: channel, Harness.descriptor, status: .connecting,
                options: .init(media: .application, program: .present)))
        #expect(harness.begin(.userRequest, floor: .reconnecting).answer == .failed(.transmissionNotAllowed))
    }
}
