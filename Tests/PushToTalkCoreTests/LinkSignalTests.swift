// The tones that tell that the connection is lost and that it is back.
import FoundationEssentials
import MonotonicTime
import Testing
import Vocabulary

@testable import PushToTalkCore

@Suite struct LinkSignalTests {
    private let start = Instant.zero + .seconds(100)

    @Test func `a loss of two seconds is told and its end too`() {
        var link = LinkSignal()
        #expect(link.changed(to: .connecting, at: start) == nil && link.deadline == nil, "it has never been there")
        #expect(link.changed(to: .ready, at: start) == nil)
        #expect(link.changed(to: .unavailable, at: start) == nil)
        #expect(link.deadline == start + .seconds(2))
        // Another reason is no other loss.
        #expect(link.changed(to: .connecting, at: start + .seconds(1)) == nil && link.deadline == start + .seconds(2))
        #expect(link.due(at: start + .milliseconds(1_999)) == nil)
        #expect(link.due(at: start + .seconds(2)) == .linkLost)
        #expect(link.deadline == nil && link.due(at: start + .seconds(9)) == nil)
        #expect(link.changed(to: .connecting, at: start + .seconds(10)) == nil && link.deadline == nil)
        #expect(link.changed(to: .ready, at: start + .seconds(11)) == .linkBack)
        #expect(link.changed(to: .ready, at: start + .seconds(12)) == nil)
    }

    @Test func `a short interruption is not told`() {
        var link = LinkSignal()
        _ = link.changed(to: .ready, at: start)
        _ = link.changed(to: .connecting, at: start)
        #expect(link.changed(to: .ready, at: start + .milliseconds(1_900)) == nil && link.deadline == nil)
    }

    /// The tones of a channel manager in which this happens, one second apart.
    private func tones(media: MediaOwner = .daemon, _ statuses: [PTServiceStatus?]) -> [Tone] {
        var machine = ChannelManagerStateMachine()
        let channel = UUID()
        var options = ChannelManagerStateMachine.JoinOptions()
        options.media = media
        var tones: [Tone] = []
        var now = start
        func handle(_ event: ChannelManagerStateMachine.Event) {
            var events = [event]
            while !events.isEmpty {
                for action in machine.handle(events.removeFirst(), at: now) {
                    switch action {
                    case .activateAudioSession: events.append(.audioSessionActivated)
                    case .deactivateAudioSession: events.append(.audioSessionDeactivated)
                    case .playTone(let tone): tones.append(tone)
                    default: break
                    }
                }
            }
        }
        handle(
            .request(
                .join(
                    channelUUID: channel, PTChannelDescriptor(name: "Crew", image: nil), reason: .developerRequest,
                    status: .connecting, options: options), nil))
        for status in statuses {
            now = now + .seconds(1)
            if let deadline = machine.nextDeadline, deadline <= now { handle(.deadlineReached) }
            if let status { handle(.request(.setServiceStatus(status, channelUUID: channel), nil)) }
        }
        #expect(machine.audioSession == .inactive)
        return tones
    }

    @Test func `a channel manager sounds them`() {
        #expect(
            tones([.connecting, .ready, nil, .unavailable, nil, nil, nil, .connecting, .ready, nil]) == [
                .linkLost, .linkBack,
            ])
        #expect(tones([.ready, .connecting, .ready, .connecting, .ready, nil, nil, nil]).isEmpty)
        #expect(tones([nil, nil, nil, nil, .unavailable, nil, nil, nil]).isEmpty)
    }

    /// It tells its users in its own way.
    @Test func `of a channel whose media a program carries nothing is told`() {
        #expect(tones(media: .application, [.ready, .unavailable, nil, nil, nil, .ready]).isEmpty)
    }
}
