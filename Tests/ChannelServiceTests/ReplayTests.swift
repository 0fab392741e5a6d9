// The last messages, heard again.

import Audio
import MonotonicTime
import PushToTalkCore
import Synchronization
import TestSupport
import Testing
import Vocabulary

@testable import ChannelService

@Suite struct ReplayMemoryTests {
    private let ann = PTParticipant(name: "Ann", image: nil)
    private let bob = PTParticipant(name: "Bob", image: nil)
    private let now = Instant.zero + .seconds(1_000)

    private func packet(_ number: Int, _ byteCount: Int = 60) -> ReceivedFrame {
        ReceivedFrame(
            sequence: UInt16(truncatingIfNeeded: number), timestamp: UInt32(truncatingIfNeeded: number * 960),
            marker: number == 0, payload: [UInt8](repeating: 1, count: byteCount), receivedAt: now)
    }

    private func message(_ memory: inout ReplayMemory, _ participant: PTParticipant, _ packets: Range<Int>) {
        memory.began(participant)
        for number in packets { memory.append(packet(number)) }
        memory.ended()
    }

    @Test func `the last message comes first and the ones before it in a circle`() {
        var memory = ReplayMemory()
        #expect(memory.next(again: false, at: now) == nil)
        for (index, name) in ["Ann", "Bob", "Cid", "Dan"].enumerated() {
            message(&memory, PTParticipant(name: name, image: nil), index * 100..<index * 100 + 10)
        }
        #expect(memory.count == ReplayMemory.messagesMax)
        let first = memory.next(again: false, at: now)
        #expect(first?.participant.name == "Dan (again)")
        #expect(first?.waitingCount == 10)
        let rest = (0..<3).map { _ in memory.next(again: true, at: now)?.participant.name }
        #expect(rest == ["Cid (again)", "Bob (again)", "Dan (again)"])
        #expect(
            memory.next(again: false, at: now)?.participant.name == "Dan (again)", "a new wish begins with the last")
    }

    @Test func `a replay is neither the message that it was nor the one before`() throws {
        var memory = ReplayMemory()
        message(&memory, ann, 0..<50)
        var seen: [ClosedRange<Int>] = [0...50]
        for _ in 0..<3 {
            let next = memory.next(again: true, at: now)
            var replayed = try #require(next)
            let packets = replayed.takeDue(at: now + .seconds(10))
            #expect(packets.count == 50)
            let numbers = packets.map { Int($0.sequence) }
            #expect(numbers == Array(numbers[0]..<numbers[0] + 50))
            for range in seen { #expect(abs(range.lowerBound - numbers[0]) > 3_000) }
            seen.append(numbers[0]...numbers[49])
            // At the pace of the speech, or the speaker would hurry.
            #expect(packets[49].receivedAt - packets[0].receivedAt == .milliseconds(49 * 20))
            #expect(packets[0].receivedAt == now)
            #expect(replayed.lastSequence == packets.last?.sequence)
        }
    }

    @Test func `a minute is kept and of a longer message its beginning`() {
        var memory = ReplayMemory()
        message(&memory, ann, 0..<1_500)
        message(&memory, bob, 0..<1_000)
        #expect(memory.count == 2)
        message(&memory, ann, 0..<1_400)
        #expect(memory.count == 2, "30 s, 20 s and 28 s are too much")
        memory.began(bob)
        for number in 0..<9_000 { memory.append(packet(number)) }
        #expect(memory.count == 1)
        #expect(memory.duration <= ReplayMemory.durationMax)
        #expect(memory.duration > .seconds(59))
        var replay = memory.next(again: false, at: now)
        #expect(replay?.takeDue(at: now).first?.marker == true)
    }

    @Test func `a minute of short frames is kept`() {
        var memory = ReplayMemory()
        memory.began(ann)
        for number in 0..<8_000 {
            memory.append(
                ReceivedFrame(
                    sequence: UInt16(truncatingIfNeeded: number), timestamp: UInt32(number * 480), marker: number == 0,
                    payload: [UInt8](repeating: 1, count: 40), receivedAt: now))
        }
        #expect(memory.duration > .milliseconds(59_900) && memory.duration <= ReplayMemory.durationMax)
    }

    @Test func `what was asked for again is heard in its place and once`() {
        var memory = ReplayMemory()
        memory.began(ann)
        let late = (3..<8).map { number in
            var late = packet(number)
            late.isRepaired = true
            return late
        }
        for number in 0..<3 { memory.append(packet(number)) }
        for number in 8..<60 { memory.append(packet(number)) }
        for packet in [late[4], late[0], late[0], late[2], late[1], late[3]] { memory.append(packet) }
        memory.append(packet(59))
        memory.ended()
        #expect(memory.duration == .milliseconds(59 * 20))
        #expect(memory.byteCount == 60 * 60)
        var replay = memory.next(again: false, at: now)
        let packets = replay?.takeDue(at: now + .seconds(10)) ?? []
        let first = packets.first?.sequence ?? 0
        #expect(packets.map { $0.sequence &- first } == Array(0..<60))
        #expect(packets.allSatisfy { !$0.isRepaired })
        #expect(packets.map(\.marker) == [true] + [Bool](repeating: false, count: 59))
    }

    @Test func `what a press cut off is heard first from a little before`() {
        var memory = ReplayMemory()
        message(&memory, ann, 0..<500)
        message(&memory, bob, 1_000..<1_500)
        message(&memory, ann, 2_000..<2_100)
        // Bob was heard for five of his ten seconds, and what Ann said then was not heard at all.
        memory.cutOff(UnheardSpeech(heard: .seconds(5), burstsWaiting: 1))
        func next(_ again: Bool) -> (name: String, seconds: Int)? {
            guard var replay = memory.next(again: again, at: now) else { return nil }
            return (replay.participant.name, replay.takeDue(at: now + .seconds(100)).count / 50)
        }
        #expect(next(false).map { "\($0)" } == "(name: \"Bob (again)\", seconds: 7)")
        #expect(next(false).map { "\($0)" } == "(name: \"Ann (again)\", seconds: 2)")
        #expect(
            next(true).map { "\($0)" } == "(name: \"Ann (again)\", seconds: 2)",
            "asked for during it: the last one whole")
        #expect(next(true).map { "\($0)" } == "(name: \"Bob (again)\", seconds: 10)")
        memory.cutOff(UnheardSpeech(heard: .milliseconds(1_500), burstsWaiting: 0))
        #expect(next(false).map { "\($0)" } == "(name: \"Ann (again)\", seconds: 2)", "nearly all of it had been heard")
        memory.cutOff(nil)
        #expect(next(true)?.name == "Bob (again)")
    }

    @Test func `whatever comes stays within the bounds`() {
        var random = SeededGenerator()
        var memory = ReplayMemory()
        for step in 0..<20_000 {
            switch Int.random(in: 0..<200, using: &random) {
            case 0: memory.began(ann)
            case 1: memory.ended()
            case 2: _ = memory.next(again: Bool.random(using: &random), at: now)
            case 3 where step % 7 == 0: memory.erase()
            default:
                memory.append(
                    ReceivedFrame(
                        sequence: .random(in: 0 ... .max, using: &random),
                        timestamp: .random(in: 0 ... .max, using: &random), marker: Bool.random(using: &random),
                        payload: [UInt8](repeating: 0, count: Int.random(in: 0...1_275, using: &random)),
                        receivedAt: now))
            }
            guard memory.count <= ReplayMemory.messagesMax, memory.duration <= ReplayMemory.durationMax,
                memory.byteCount <= ReplayMemory.byteCountMax
            else {
                Issue.record("\(memory.count) messages, \(memory.duration), \(memory.byteCount) bytes at \(step)")
                return
            }
        }
    }
}

@Suite struct ReplayTests {
    private let ann = PTParticipant(name: "Ann", image: nil)
    private let again = PTParticipant(name: "Ann (again)", image: nil)
    private let channel = ServiceUnderTest.channel

    /// A service that has heard Ann say two packets.
    private func heard(mode: PTTransmissionMode = .halfDuplex) async throws -> ServiceUnderTest {
        let under = try ServiceUnderTest()
        try await under.start(mode: mode)
        await under.service.run { [ann] service in
            service.burstBegan(ann)
            service.received(packet(1))
            service.received(packet(2))
            service.burstEnded(lastSequence: 2)
            service.simulatedAudio.handler?(.played(voice: 0))
            service.simulatedAudio.commands = []
        }
        return under
    }

    private func refusal(_ under: ServiceUnderTest) async -> PTChannelError.Code? {
        do throws(PTChannelError) {
            try await under.service.replayLast(channelUUID: channel)
            return nil
        } catch {
            return error.code
        }
    }

    @Test func `a message is heard again with its speaker shown`() async throws {
        let under = try await heard()
        try await under.service.replayLast(channelUUID: channel)
        #expect(await under.service.snapshot.activeRemoteParticipant == again)
        let commands = await under.service.run { $0.simulatedAudio.commands }
        let packets = commands.filter { if case .packet = $0 { true } else { false } }
        #expect(packets.count == 2)
        #expect(Set(packets).isDisjoint(with: [.packet(1), .packet(2)]))
        guard case .endReception(let last)? = commands.last else {
            Issue.record("\(commands)")
            return
        }
        #expect(packets.last == .packet(last))
        await under.service.run { $0.simulatedAudio.handler?(.played(voice: 0)) }
        let after = await under.service.snapshot
        #expect(after.activeRemoteParticipant == nil)
        #expect(after.audioSession == .inactive)
        #expect(after.statistics.replays == 1)
        await under.finish()
    }

    @Test func `without a message the deny tone sounds`() async throws {
        let under = try ServiceUnderTest()
        try await under.start()
        #expect(await refusal(under) == .transmissionNotFound)
        #expect(await under.service.run { $0.simulatedAudio.commands }.contains(.tone(.denied)))
        await under.finish()
    }

    @Test func `a press stops it and is granted at once`() async throws {
        let under = try await heard()
        try await under.service.replayLast(channelUUID: channel)
        try await under.begin(.handsfreeButton)
        let snapshot = await under.service.snapshot
        #expect(snapshot.transmission != nil)
        #expect(snapshot.activeRemoteParticipant == nil)
        let commands = await under.service.run { $0.simulatedAudio.commands }
        #expect(commands.contains(.dropReception))
        #expect(!commands.contains(.tone(.denied)))
        #expect(await refusal(under) == .transmissionInProgress, "who transmits hears nothing again")
        await under.finish()
    }

    @Test func `what a press drops of a message is kept for the replay`() async throws {
        let under = try ServiceUnderTest()
        try await under.start()
        await under.service.run { [ann] service in
            service.burstBegan(ann)
            for number in 0..<400 { service.received(packet(UInt16(number))) }
            // The floor is free before it has been played out: the speaker is told to drop the rest.
            service.burstEnded(lastSequence: 399)
            service.receive(.cleared)
            service.simulatedAudio.commands = []
        }
        try await under.service.replayLast(channelUUID: channel)
        let heard = await under.service.run { service in
            service.replays.next(again: false, at: .now)?.waitingCount
        }
        #expect(heard == 400, "the rest was asked for once; now it is the whole")
        await under.finish()
    }

    @Test func `speech passes whoever keeps it`() async throws {
        let under = try ServiceUnderTest()
        try await under.start()
        let passed = Mutex<[SpeechEvent]>([])
        await under.service.setSpeechHandler { event in passed.withLock { $0.append(event) } }
        let said = packet(1)
        await under.service.run { [ann] service in
            service.burstBegan(ann)
            service.received(said)
            service.burstEnded(lastSequence: 1)
        }
        let name = await under.service.snapshot.channel?.descriptor.name ?? ""
        #expect(passed.withLock { $0 } == [.began(ann, channel: name), .packet(said), .ended()])
        await under.finish()
    }

    @Test func `who speaks now is heard instead`() async throws {
        let under = try await heard()
        try await under.service.replayLast(channelUUID: channel)
        let bob = PTParticipant(name: "Bob", image: nil)
        await under.service.run { service in
            service.burstBegan(bob)
            service.received(packet(900))
        }
        #expect(await under.service.snapshot.activeRemoteParticipant == bob)
        let commands = await under.service.run { $0.simulatedAudio.commands }
        let (dropped, played) = (commands.lastIndex(of: .dropReception), commands.lastIndex(of: .packet(900)))
        #expect(try #require(dropped) < (try #require(played)))
        #expect(await refusal(under) == .transmissionInProgress)
        #expect(await under.service.snapshot.activeRemoteParticipant == bob, "the refusal changes nothing")
        await under.finish()
    }

    @Test func `a call ends it and a channel that is left forgets everything`() async throws {
        let under = try await heard()
        try await under.service.replayLast(channelUUID: channel)
        await under.service.setCallActive(holder: "lock", description: "a call")
        #expect(await under.service.snapshot.activeRemoteParticipant == nil)
        #expect(await refusal(under) == .callActive)
        await under.service.setCallActive(holder: "lock", description: nil)
        try await under.service.perform(.leave(channelUUID: channel))
        #expect(await refusal(under) == .channelNotFound)
        try await under.service.join(channelUUID: channel, descriptor: ServiceUnderTest.descriptor)
        #expect(await refusal(under) == .transmissionNotFound)
        await under.finish()
    }

    @Test func `a message that came behind ones own speech is heard after it and once more`() async throws {
        let under = try ServiceUnderTest()
        try await under.start()
        try await under.begin()
        await under.service.run { [ann] service in
            service.burstBegan(ann)
            service.received(packet(1))
            service.burstEnded(lastSequence: 1)
        }
        try await under.stop()
        await under.service.run { $0.simulatedAudio.handler?(.captureEnded) }
        #expect(await under.service.snapshot.activeRemoteParticipant == ann)
        #expect(await refusal(under) == .transmissionInProgress)
        await under.service.run { service in
            service.receive(.deadlineReached)
            service.simulatedAudio.handler?(.played(voice: 0))
        }
        #expect(await under.service.snapshot.activeRemoteParticipant == nil)
        try await under.service.replayLast(channelUUID: channel)
        #expect(await under.service.snapshot.activeRemoteParticipant == again)
        await under.finish()
    }

    @Test func `the talk time limit is the channels`() async throws {
        let under = try ServiceUnderTest()
        try await under.start(options: .init(talkTimeLimit: .milliseconds(50)))
        try await under.begin(.handsfreeButton)
        #expect(await under.waitFor { $0 == .notice(.transmissionEnding(.talkTimeLimit)) })
        await under.finish()
    }

    @Test func `a tone of a control sounds without a channel and over speech`() async throws {
        let under = try ServiceUnderTest()
        await under.service.signal(.channel(position: 7))
        #expect(await under.service.run { $0.simulatedAudio.commands }.contains(.tone(.channel(position: 7))))
        try await under.start()
        await under.service.run { [ann] service in
            service.burstBegan(ann)
            service.simulatedAudio.commands = []
            service.signal(.denied)
        }
        #expect(await under.service.run { $0.simulatedAudio.commands } == [.tone(.denied)])
        await under.finish()
    }
}
