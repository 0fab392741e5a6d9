// Several who talk at once on the voices of one speaker; and one after the other, as everywhere else.

import Audio
import MonotonicTime
import PushToTalkCore
import Synchronization
import TestSupport
import Testing
import Vocabulary

@testable import ChannelService

@Suite struct ListeningStateMachineTests {
    typealias Action = ReceptionAction
    let ann = PTParticipant(name: "Ann", image: nil)
    let bob = PTParticipant(name: "Bob", image: nil)
    let cleo = PTParticipant(name: "Cleo", image: nil)
    let now = Instant.zero
    let first = TalkBurst(number: 1)
    let second = TalkBurst(number: 2)
    let third = TalkBurst(number: 3)

    private func packet(_ sequence: UInt16) -> ReceivedFrame {
        ReceivedFrame(
            sequence: sequence, timestamp: UInt32(sequence) * 960, marker: false, payload: [0xF8], receivedAt: now)
    }

    /// Ann and Bob talk.
    private func both() -> ListeningStateMachine {
        var listening = ListeningStateMachine()
        #expect(listening.handle(.began(ann, first), at: now) == [.setParticipant(ann)])
        #expect(listening.handle(.packet(packet(1), first), at: now) == [.play(packet(1), voice: 0)])
        #expect(listening.handle(.began(bob, second), at: now) == [], "the channel manager knows of one")
        #expect(listening.handle(.packet(packet(500), second), at: now) == [.play(packet(500), voice: 1)])
        return listening
    }

    @Test func `who talks beside others is heard at once and the longest is told`() {
        var listening = both()
        #expect(listening.participants == [ann, bob])
        #expect(
            listening.handle(.ended(lastSequence: 1, first), at: now) == [.endPlayback(lastSequence: 1, voice: 0)])
        #expect(listening.handle(.packet(packet(501), second), at: now) == [.play(packet(501), voice: 1)])
        #expect(listening.handle(.played(voice: 0), at: now) == [.setParticipant(bob)])
        #expect(listening.participants == [bob])
        // Who comes now is beside Bob, and he is still the one who is told of.
        #expect(listening.handle(.began(cleo, third), at: now) == [])
        #expect(listening.handle(.packet(packet(9), third), at: now) == [.play(packet(9), voice: 0)])
        _ = listening.handle(.ended(lastSequence: 9, third), at: now)
        #expect(listening.handle(.played(voice: 0), at: now) == [])
        _ = listening.handle(.ended(lastSequence: 501, second), at: now)
        #expect(listening.handle(.played(voice: 1), at: now) == [.setParticipant(nil)])
        #expect(listening.nextDeadline == nil && listening.packetsDropped == 0)
    }

    @Test func `packets of a burst that is not known are dropped`() {
        var listening = both()
        #expect(listening.handle(.packet(packet(3), third), at: now) == [])
        #expect(listening.packetsDropped == 1)
        #expect(listening.handle(.ended(lastSequence: nil, third), at: now) == [])
    }

    @Test func `who talks again is heard after their own last words`() {
        var listening = both()
        _ = listening.handle(.ended(lastSequence: 1, first), at: now)
        #expect(listening.handle(.began(ann, third), at: now) == [])
        #expect(listening.handle(.packet(packet(900), third), at: now) == [])
        #expect(
            listening.handle(.played(voice: 0), at: now)
                == [.setParticipant(bob), .play(packet(900), voice: 0)], "Bob is the longest now")
    }

    @Test func `who goes on over another relay is heard after their own last words, whoever came between`() {
        let fourth = TalkBurst(number: 4)
        var listening = ListeningStateMachine()
        _ = listening.handle(.began(ann, first), at: now)
        _ = listening.handle(.refused, at: now)
        _ = listening.handle(.packet(packet(1), first), at: now)
        // The relay is lost. Bob talks at the next one, and Ann goes on there.
        _ = listening.handle(.ended(lastSequence: nil, first), at: now)
        _ = listening.handle(.began(bob, second), at: now)
        _ = listening.handle(.packet(packet(500), second), at: now)
        _ = listening.handle(.began(ann, third), at: now)
        for sequence in [2, 3] as [UInt16] { _ = listening.handle(.packet(packet(sequence), third), at: now) }
        _ = listening.handle(.packet(packet(501), second), at: now)
        _ = listening.handle(.ended(lastSequence: 501, second), at: now)
        #expect(listening.handle(.packet(packet(9), fourth), at: now) == [] && listening.packetsDropped == 1)
        _ = listening.handle(.transmissionEnded, at: now)
        #expect(listening.handle(.ownSpeechComplete, at: now) == [.setParticipant(ann)])
        var played: [UInt16] = []
        func note(_ actions: [Action]) {
            for case .play(let packet, voice: 0) in actions { played.append(packet.sequence) }
        }
        note(listening.handle(.deadlineReached, at: now))
        for _ in 0..<3 { note(listening.handle(.played(voice: 0), at: now)) }
        #expect(played == [1, 500, 501, 2, 3])
        // It still comes, and is heard at once now.
        note(listening.handle(.packet(packet(4), third), at: now))
        #expect(played.last == 4 && listening.participants == [ann])
        // What a press cuts off goes on after it.
        _ = listening.handle(.cleared, at: now)
        #expect(listening.handle(.ownSpeechComplete, at: now) == [.setParticipant(ann)])
    }

    @Test func `what comes behind an own transmission is heard after it`() {
        var listening = ListeningStateMachine()
        for (participant, burst) in [(ann, first), (bob, second)] {
            #expect(listening.handle(.began(participant, burst), at: now) == [.setParticipant(participant)])
            #expect(listening.handle(.refused, at: now) == [])
            #expect(listening.handle(.packet(packet(1), burst), at: now) == [])
        }
        // Said after Ann, so it is heard after her.
        _ = listening.handle(.ended(lastSequence: 1, first), at: now)
        #expect(listening.handle(.began(cleo, third), at: now) == [])
        _ = listening.handle(.packet(packet(7), third), at: now)
        _ = listening.handle(.ended(lastSequence: 7, third), at: now)
        #expect(listening.participants.isEmpty)
        #expect(listening.handle(.transmissionEnded, at: now) == [], "this device's last words come first")
        #expect(listening.handle(.ownSpeechComplete, at: now) == [.setParticipant(ann)])
        let played = listening.handle(.deadlineReached, at: now)
        #expect(played.contains(.play(packet(1), voice: 0)) && played.contains(.play(packet(1), voice: 1)))
        #expect(!played.contains(.play(packet(7), voice: 0)))
        #expect(listening.handle(.played(voice: 0), at: now).contains(.play(packet(7), voice: 0)))
    }

    @Test func `a press cuts them off and who goes on is heard again after it`() {
        var listening = both()
        _ = listening.handle(.ended(lastSequence: 1, first), at: now)
        #expect(
            listening.handle(.cleared, at: now) == [.dropPlayback(voice: 0), .dropPlayback(voice: 1)])
        #expect(listening.handle(.packet(packet(501), second), at: now) == [])
        #expect(listening.packetsDropped == 1, "nobody hears it while this device transmits")
        #expect(listening.handle(.transmissionEnded, at: now) == [])
        #expect(listening.handle(.ownSpeechComplete, at: now) == [.setParticipant(bob)])
        #expect(listening.handle(.packet(packet(502), second), at: now) == [.play(packet(502), voice: 0)])
        // Cut off again, and the channel is left: nobody comes back.
        _ = listening.handle(.cleared, at: now)
        _ = listening.handle(.left, at: now)
        #expect(listening.handle(.ownSpeechComplete, at: now) == [])
        #expect(listening.nextDeadline == nil)
    }

    @Test func `what a press cut off is known by its burst`() {
        let listening = both()
        let speech = listening.unheard(at: now + .seconds(3))
        #expect(speech.map(\.burst) == [first, second] && speech.allSatisfy { $0.heard == .seconds(3) })
        var memory = ReplayMemory()
        memory.began(ann, first)
        memory.began(bob, second)
        for sequence in 0..<300 as Range<UInt16> {
            memory.append(packet(sequence), first)
            memory.append(packet(sequence), second)
        }
        #expect(memory.count == 2, "each is a message of their own")
        for each in speech { memory.cutOff(each) }
        let names = (0..<2).compactMap { _ in memory.next(again: false, at: now)?.participant.name }
        #expect(names == ["Ann (again)", "Bob (again)"])
    }

    @Test func `a replay gives way to whoever speaks`() {
        var listening = ListeningStateMachine()
        var memory = ReplayMemory()
        memory.began(ann)
        for sequence in 0..<50 as Range<UInt16> { memory.append(packet(sequence)) }
        _ = listening.handle(.replay(memory.next(again: false, at: now)!), at: now)
        #expect(listening.isReplaying)
        #expect(
            listening.handle(.began(bob, first), at: now) == [.dropPlayback(voice: 0), .setParticipant(bob)])
        #expect(!listening.isReplaying && !listening.canReplay)
        #expect(listening.handle(.packet(packet(1), first), at: now) == [.play(packet(1), voice: 0)])
        #expect(listening.handle(.replay(memory.next(again: false, at: now)!), at: now) == [])
    }

    @Test func `four are heard at once and a fifth after one who has ended`() {
        var listening = ListeningStateMachine()
        for number in 1...4 as ClosedRange<UInt32> {
            let burst = TalkBurst(number: number)
            _ = listening.handle(.began(PTParticipant(name: "\(number)", image: nil), burst), at: now)
            #expect(
                listening.handle(.packet(packet(1), burst), at: now) == [.play(packet(1), voice: Int(number) - 1)])
        }
        _ = listening.handle(.ended(lastSequence: 1, third), at: now)
        let fifth = TalkBurst(number: 5)
        #expect(listening.handle(.began(cleo, fifth), at: now) == [])
        #expect(listening.handle(.packet(packet(80), fifth), at: now) == [])
        #expect(listening.handle(.played(voice: 2), at: now) == [.play(packet(80), voice: 2)])
    }

    /// Where one talks at a time, everything is as one reception has it, on the first voice.
    @Test func `one at a time is as it was`() {
        var random = SeededGenerator()
        for _ in 0..<100 {
            var listening = ListeningStateMachine()
            var reception = ReceptionStateMachine()
            var time = now
            var memory = ReplayMemory()
            memory.began(ann)
            for sequence in 0..<100 as Range<UInt16> { memory.append(packet(sequence)) }
            for step in 0..<200 as Range<UInt16> {
                time = time + .milliseconds(Int.random(in: 0...200, using: &random))
                let who = [ann, bob, cleo][Int.random(in: 0..<3, using: &random)]
                let event: ReceptionEvent =
                    switch Int.random(in: 0..<20, using: &random) {
                    case 0...1: .began(who)
                    case 2...3: .ended(lastSequence: nil)
                    case 4...5: .played()
                    case 6: .refused
                    case 7: .transmissionEnded
                    case 8: .cleared
                    case 9: .replay(memory.next(again: false, at: time)!)
                    case 10: .replayStopped
                    case 11...12: .deadlineReached
                    default: .packet(packet(step))
                    }
                let expected = reception.handle(event, at: time)
                #expect(listening.handle(event, at: time) == expected, "\(event)")
                #expect(listening.nextDeadline == reception.nextDeadline)
                #expect(listening.canReplay == reception.canReplay)
                #expect(listening.packetsDropped == reception.packetsDropped)
            }
        }
    }

    @Test func `in full duplex several are heard while this device transmits`() async throws {
        let under = try ServiceUnderTest()
        try await under.start(mode: .fullDuplex)
        let passed = Mutex<[SpeechEvent]>([])
        await under.service.setSpeechHandler { event in passed.withLock { $0.append(event) } }
        try await under.begin()
        let said = packet(1)
        await under.service.run { [ann, bob, first, second] service in
            service.burstBegan(ann, first)
            service.burstBegan(bob, second)
            service.received(said, first)
            service.received(said, second)
            service.simulatedAudio.handler?(.frame(frame(0)))
        }
        let snapshot = await under.service.snapshot
        #expect(snapshot.activeRemoteParticipant == ann && snapshot.remoteParticipants == [ann, bob])
        #expect(snapshot.transmission != nil && snapshot.isCapturing)
        #expect(under.frames.count == 1, "what is said here goes out")
        #expect(under.events.contains(.remoteParticipantsChanged([ann, bob])))
        await under.service.run { [first, second] service in
            service.burstEnded(lastSequence: 1, first)
            service.simulatedAudio.handler?(.played(voice: 0))
            service.burstEnded(lastSequence: 1, second)
        }
        #expect(await under.service.snapshot.activeRemoteParticipant == bob)
        await under.service.run { $0.simulatedAudio.handler?(.played(voice: 1)) }
        #expect(await under.service.snapshot.activeRemoteParticipant == nil)
        #expect(await under.service.snapshot.transmission != nil)
        let commands = await under.service.run { $0.simulatedAudio.commands }
        #expect(commands.contains(.packet(1)) && commands.contains(.packetBeside(1, voice: 1)))
        #expect(!commands.contains { if case .stopCapture = $0 { true } else { false } })
        let name = await under.service.snapshot.channel?.descriptor.name ?? ""
        #expect(
            passed.withLock { $0 } == [
                .began(ann, channel: name, first), .began(bob, channel: name, second), .packet(said, first),
                .packet(said, second), .ownFrame(frame(0), channel: name), .ended(first), .ended(second),
            ])
        await under.finish()
    }

    @Test func `in half duplex who goes on is heard again behind the last words said here`() async throws {
        let under = try ServiceUnderTest()
        try await under.start()
        let packets = (1...4 as ClosedRange<UInt16>).map { packet($0) }
        await under.service.run { [ann, first] service in
            service.burstBegan(ann, first)
            service.received(packets[0], first)
            service.request(
                .beginTransmitting(channelUUID: ServiceUnderTest.channel, source: .userRequest, floor: .idle))
            service.received(packets[1], first)
        }
        #expect(await under.service.snapshot.remoteParticipants == [])
        try await under.stop()
        await under.service.run { [first] in $0.received(packets[2], first) }
        #expect(await under.service.snapshot.activeRemoteParticipant == nil, "the last words are being recorded")
        await under.service.run { [first] service in
            service.simulatedAudio.handler?(.captureEnded)
            service.received(packets[3], first)
        }
        #expect(await under.service.snapshot.activeRemoteParticipant == ann)
        let commands = await under.service.run { $0.simulatedAudio.commands }
        let heard = commands.compactMap { if case .packet(let sequence) = $0 { sequence } else { nil } }
        #expect(heard == [1, 4] && commands.contains(.dropReception))
        #expect(commands.contains(.stopCapture(.afterTail)) && !commands.contains(.stopCapture(.immediately)))
        await under.finish()
    }
}
