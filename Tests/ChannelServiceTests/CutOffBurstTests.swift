// What becomes of others' speech that an own press has cut off, or that begins beside the last words said here.

import Audio
import MonotonicTime
import PushToTalkCore
import Testing
import Vocabulary

@testable import ChannelService

@Suite struct CutOffBurstTests {
    private let ann = PTParticipant(name: "Ann", image: nil)
    private let bob = PTParticipant(name: "Bob", image: nil)
    private let now = Instant.zero
    private let first = TalkBurst(number: 1)

    private func packet(_ sequence: UInt16) -> ReceivedFrame {
        ReceivedFrame(
            sequence: sequence, timestamp: UInt32(sequence) * 960, marker: sequence == 1, payload: [0xF8],
            receivedAt: now)
    }

    private func heard(_ under: ServiceUnderTest) async -> [UInt16] {
        await under.service.run { $0.simulatedAudio.commands }
            .compactMap { if case .packet(let sequence) = $0 { sequence } else { nil } }
    }

    /// The outlook was that the relay would give the floor (cut-in, a higher priority), and it does not.
    @Test func `a press that the relay denies leaves the rest of the other one to be heard`() async throws {
        let under = try ServiceUnderTest()
        try await under.start()
        let packets = (1...200 as ClosedRange<UInt16>).map { packet($0) }
        await under.service.run { [ann] service in
            service.burstBegan(ann)
            for packet in packets[..<80] { service.received(packet) }
            service.request(
                .beginTransmitting(channelUUID: ServiceUnderTest.channel, source: .userRequest, floor: .idle))
            for packet in packets[80..<90] { service.received(packet) }
        }
        #expect(await under.service.snapshot.remoteParticipants == [])
        await under.service.run { service in
            service.transmissionRefused(PTChannelError(.transmissionNotAllowed))
            for packet in packets[90...] { service.received(packet) }
        }
        #expect(await under.service.snapshot.activeRemoteParticipant == ann)
        #expect(await heard(under) == Array(1...80) + Array(91...200))
        // What was missed is heard with the rest of it, on request.
        await under.service.run { service in
            service.burstEnded(lastSequence: 200)
            service.simulatedAudio.handler?(.played(voice: 0))
        }
        let kept = await under.service.run { $0.replays.next(again: false, at: .zero)?.waitingCount }
        #expect(kept == 200)
        await under.finish()
    }

    @Test func `what was cut off is heard on behind the last words said here unless it has ended`() {
        for endsMeanwhile in [false, true] {
            var listening = ListeningStateMachine()
            _ = listening.handle(.began(ann, nil), at: now)
            _ = listening.handle(.packet(packet(1), nil), at: now)
            #expect(listening.handle(.cleared, at: now) == [.dropPlayback(voice: 0)])
            #expect(listening.handle(.transmissionEnded, at: now) == [], "the relay may grant it yet")
            if endsMeanwhile { _ = listening.handle(.ended(lastSequence: 1, nil), at: now) }
            let expected: [ReceptionAction] = endsMeanwhile ? [] : [.setParticipant(ann)]
            #expect(listening.handle(.ownSpeechComplete, at: now) == expected)
            // Once is enough.
            _ = listening.handle(.ended(lastSequence: 1, nil), at: now)
            #expect(listening.handle(.ownSpeechComplete, at: now) == [])
        }
    }

    @Test func `who takes the floor in its place is heard and not the one that was cut off`() {
        var listening = ListeningStateMachine()
        _ = listening.handle(.began(ann, nil), at: now)
        _ = listening.handle(.cleared, at: now)
        #expect(listening.handle(.began(bob, nil), at: now) == [.setParticipant(bob)])
        _ = listening.handle(.refused, at: now)
        _ = listening.handle(.packet(packet(1), nil), at: now)
        #expect(listening.handle(.transmissionEnded, at: now) == [.setParticipant(bob)])
        #expect(listening.handle(.ownSpeechComplete, at: now) == [])
        #expect(listening.participants == [bob])
    }

    @Test func `who begins beside the last words said here is heard behind them`() async throws {
        let under = try ServiceUnderTest()
        try await under.start()
        try await under.begin()
        try await under.stop()
        let packets = [packet(1), packet(2), packet(3)]
        await under.service.run { [ann, first] service in
            service.burstBegan(ann, first)
            service.received(packets[0], first)
            service.simulatedAudio.handler?(.frame(frame(0, last: true)))
        }
        #expect(await under.service.snapshot.activeRemoteParticipant == nil)
        #expect(under.frames.count == 1, "the last words go out")
        await under.service.run { [first] service in
            service.received(packets[1], first)
            service.simulatedAudio.handler?(.captureEnded)
            service.received(packets[2], first)
        }
        #expect(await under.service.snapshot.activeRemoteParticipant == ann)
        let wasHeard = await eventually { await heard(under) == [1, 2, 3] }
        #expect(wasHeard)
        let commands = await under.service.run { $0.simulatedAudio.commands }
        #expect(commands.contains(.stopCapture(.afterTail)) && !commands.contains(.stopCapture(.immediately)))
        await under.finish()
    }

    @Test func `on a device that hears while it talks they are heard together`() async throws {
        let under = try ServiceUnderTest()
        try await under.start(mode: .fullDuplex)
        try await under.begin()
        try await under.stop()
        let said = packet(1)
        await under.service.run { [ann, first] service in
            service.burstBegan(ann, first)
            service.received(said, first)
        }
        #expect(await heard(under) == [1])
        let commands = await under.service.run { $0.simulatedAudio.commands }
        #expect(!commands.contains(.stopCapture(.immediately)))
        await under.finish()
    }

    /// Where one talks at a time, who talks has been given the floor: this device's last words are not to record it.
    @Test func `one at a time who begins is heard at once`() async throws {
        let under = try ServiceUnderTest()
        try await under.start()
        try await under.begin()
        try await under.stop()
        let said = packet(1)
        await under.service.run { [ann] service in
            service.burstBegan(ann)
            service.received(said)
        }
        #expect(await heard(under) == [1])
        let commands = await under.service.run { $0.simulatedAudio.commands }
        #expect(commands.contains(.stopCapture(.immediately)))
        await under.finish()
    }
}
