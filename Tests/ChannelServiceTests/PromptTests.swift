// Spoken prompts of the channel service: what is said, when, and on a simulated sound system.

import Audio
import FoundationEssentials
import Glibc
import MonotonicTime
import PushToTalkCore
import Reactor
import SpokenPrompts
import Synchronization
import Testing
import Vocabulary

@testable import ChannelService

/// A voice that gives the sound that the test wants, or nothing. Confined to the service's loop.
final class SimulatedVoice: PromptVoice {
    var texts: [String] = []
    var stops = 0
    /// What it answers at once; nil: it is told by the test.
    var outcome: PromptOutcome?
    private var done: ((PromptOutcome) -> Void)?

    init(_ outcome: PromptOutcome? = nil) { self.outcome = outcome }

    func say(_ text: String, _ language: PromptLanguage, _ done: @escaping (PromptOutcome) -> Void) {
        texts.append(text)
        if let outcome { done(outcome) } else { self.done = done }
    }

    func stop() {
        stops += 1
        done = nil
    }

    func answer(_ outcome: PromptOutcome) {
        let done = done
        self.done = nil
        done?(outcome)
    }
}

/// A WAV file in memory, as espeak-ng writes it into a pipe: a sine of 22,050 Hz.
func promptSound(seconds: Double, hertz: Double = 1_000) -> [UInt8] {
    func bytes<T: FixedWidthInteger>(_ value: T) -> [UInt8] { withUnsafeBytes(of: value.littleEndian) { Array($0) } }
    var file = Array("RIFF".utf8) + bytes(UInt32(0x7FFF_F024)) + Array("WAVEfmt ".utf8) + bytes(UInt32(16))
    file += bytes(UInt16(1)) + bytes(UInt16(1)) + bytes(UInt32(22_050)) + bytes(UInt32(44_100))
    file += bytes(UInt16(2)) + bytes(UInt16(16)) + Array("data".utf8) + bytes(UInt32(0x7FFF_F000))
    for index in 0..<Int(seconds * 22_050) {
        file += bytes(Int16(20_000 * sin(2 * .pi * hertz * Double(index) / 22_050)))
    }
    return file
}

extension ServiceUnderTest {
    /// Speaks with a simulated voice, before the channel is joined.
    func startWithPrompts(
        announcesTalker: Bool = false, outcome: PromptOutcome? = nil,
        options: ChannelManagerStateMachine.JoinOptions = .init()
    ) async throws {
        await service.run { service in
            let settings = PromptSettings(
                program: .espeak, language: .english, announcesTalker: announcesTalker)
            service.setPrompts(settings) { _ in SimulatedVoice(outcome) }
        }
        try await start(options: options)
    }

    var texts: [String] { get async { await service.run { $0.simulatedVoice.texts } } }
}

extension ChannelService {
    var simulatedVoice: SimulatedVoice {
        guard let voice = prompts?.voice as? SimulatedVoice else { preconditionFailure("not a simulated voice") }
        return voice
    }
}

@Suite(.timeLimit(.minutes(1))) struct PromptTests {
    private let channel = ServiceUnderTest.channel
    private let ann = PTParticipant(name: "Ann", image: nil)

    private func settle() async throws { try await Task.sleep(for: .milliseconds(700)) }

    @Test func `the name of the channel is said when it is joined, and played`() async throws {
        let test = try ServiceUnderTest()
        try await test.startWithPrompts()
        #expect(await eventually { await test.texts == ["Crew"] })
        await test.service.run { $0.simulatedVoice.answer(.sound(promptSound(seconds: 1))) }
        let commands = await test.service.run { $0.simulatedAudio.commands }
        #expect(commands.contains(.prompt(1)))
        #expect(!commands.contains(.activate), "a prompt takes no audio session")
        await test.finish()
    }

    @Test func `without settings nothing is said`() async throws {
        let test = try ServiceUnderTest()
        try await test.start()
        await test.service.say(.batteryLow("vest"))
        try await settle()
        let commands = await test.service.run { $0.simulatedAudio.commands }
        #expect(commands == [.prepared(.daemon)])
        await test.finish()
    }

    @Test func `the connection's tones come first, and then the words`() async throws {
        var rules = ChannelManagerStateMachine.Configuration()
        rules.talkTimeLimit = nil
        let test = try ServiceUnderTest(rules: rules)
        try await test.startWithPrompts(outcome: .heard)
        #expect(await eventually { await test.texts == ["Crew"] })
        try await test.service.perform(.setServiceStatus(.connecting, channelUUID: channel))
        #expect(await eventually { await test.texts == ["Crew", "No connection"] })
        let tones = await test.service.run { service in
            service.simulatedAudio.commands.contains(.tone(.linkLost))
        }
        #expect(tones)
        try await test.service.perform(.setServiceStatus(.ready, channelUUID: channel))
        #expect(await eventually { await test.texts == ["Crew", "No connection", "Connected again"] })
        await test.finish()
    }

    @Test func `a press cuts a prompt off before anything else, and nothing is said while it lasts`() async throws {
        let test = try ServiceUnderTest()
        try await test.startWithPrompts(outcome: .sound(promptSound(seconds: 5)))
        #expect(await eventually { await test.service.run { $0.simulatedAudio.commands.contains(.prompt(1)) } })
        try await test.begin()
        let commands = await test.service.run { $0.simulatedAudio.commands }
        #expect(commands.contains(.stopPrompt))
        await test.service.say(.batteryLow("vest"))
        try await settle()
        #expect(await test.texts == ["Crew"])
        try await test.stop()
        await test.service.run { $0.simulatedAudio.handler?(.captureEnded) }
        #expect(await eventually { await test.texts == ["Crew", "The battery of vest is low"] })
        await test.finish()
    }

    @Test func `speech that arrives cuts a prompt off while its program still runs`() async throws {
        let test = try ServiceUnderTest()
        try await test.startWithPrompts()
        #expect(await eventually { await test.texts == ["Crew"] })
        await test.service.burstBegan(ann)
        let (stops, prompts) = await test.service.run { service in
            service.simulatedVoice.answer(.sound(promptSound(seconds: 1)))
            return (
                service.simulatedVoice.stops,
                service.simulatedAudio.commands.count { if case .prompt = $0 { true } else { false } }
            )
        }
        #expect(stops > 0)
        #expect(prompts == 0, "what comes too late is not played")
        await test.finish()
    }

    @Test(arguments: [false, true]) func `who talked is named afterwards if that is wanted`(isWanted: Bool) async throws
    {
        let test = try ServiceUnderTest()
        try await test.startWithPrompts(announcesTalker: isWanted, outcome: .heard)
        #expect(await eventually { await test.texts == ["Crew"] })
        await test.service.burstBegan(ann)
        await test.service.received(packet(1))
        try await settle()
        #expect(await test.texts == ["Crew"], "not while they talk")
        await test.service.burstEnded(lastSequence: 1)
        await test.service.run { $0.simulatedAudio.handler?(.played(voice: 0)) }
        if isWanted {
            #expect(await eventually { await test.texts == ["Crew", "That was Ann"] })
        } else {
            try await settle()
            #expect(await test.texts == ["Crew"])
        }
        await test.finish()
    }

    @Test func `on a channel whose media are a program's nothing is said`() async throws {
        let test = try ServiceUnderTest()
        var options = ChannelManagerStateMachine.JoinOptions()
        options.media = .application
        try await test.startWithPrompts(outcome: .heard, options: options)
        await test.service.say(.batteryLow("vest"))
        try await settle()
        #expect(await test.texts == [])
        await test.finish()
    }

    @Test func `during a call nothing is said`() async throws {
        let test = try ServiceUnderTest()
        try await test.startWithPrompts(outcome: .heard)
        #expect(await eventually { await test.texts == ["Crew"] })
        await test.service.setCallActive(holder: "modem", description: "a call")
        await test.service.say(.batteryLow("vest"))
        try await settle()
        #expect(await test.texts == ["Crew"])
        await test.service.setCallActive(holder: "modem", description: nil)
        #expect(await eventually { await test.texts == ["Crew", "The battery of vest is low"] })
        await test.finish()
    }

    @Test(arguments: [
        PromptOutcome.failed(.missing(.espeak)), .sound([1, 2, 3]), .sound(promptSound(seconds: 0)),
        .sound(promptSound(seconds: 16)),
    ])
    func `a voice that does not work keeps nothing from going on`(outcome: PromptOutcome) async throws {
        let test = try ServiceUnderTest()
        try await test.startWithPrompts(outcome: outcome)
        #expect(await eventually { await test.texts == ["Crew"] })
        await test.service.say(.batteryLow("vest"))
        #expect(await eventually { await test.texts == ["Crew", "The battery of vest is low"] })
        let commands = await test.service.run { $0.simulatedAudio.commands }
        #expect(!commands.contains(.prompt(1)))
        try await test.begin()
        await test.finish()
    }

    @Test func `the next prompt waits until the sound of the one before has ended`() async throws {
        let test = try ServiceUnderTest()
        try await test.startWithPrompts(outcome: .sound(promptSound(seconds: 2)))
        #expect(await eventually { await test.texts == ["Crew"] })
        await test.service.say(.batteryLow("vest"))
        try await settle()
        #expect(await test.texts == ["Crew"])
        await test.service.run { $0.simulatedAudio.handler?(.promptEnded(number: 1)) }
        #expect(await eventually { await test.texts == ["Crew", "The battery of vest is low"] })
        await test.finish()
    }

    @Test func `the end of the service is the end of its prompts`() async throws {
        let test = try ServiceUnderTest()
        try await test.startWithPrompts()
        #expect(await eventually { await test.texts == ["Crew"] })
        let before = await test.service.run { $0.simulatedVoice.stops }
        await test.service.shutdown()
        #expect(await test.service.run { $0.simulatedVoice.stops } > before)
        await test.finish()
    }
}
