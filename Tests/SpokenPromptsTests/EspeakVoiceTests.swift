// espeak-ng as it is, and programs that misbehave in its place.

import FoundationEssentials
import Glibc
import MonotonicTime
import Reactor
import Synchronization
import TestSupport
import Testing

@testable import SpokenPrompts

/// A loop with one voice on it, and what that has told.
final class VoiceUnderTest: @unchecked Sendable {
    let loop: EventLoop
    /// The loop's own.
    private var voice: (any PromptVoice)?
    private let told = Mutex<[PromptOutcome]>([])

    init(_ make: @Sendable @escaping (EventLoop) -> any PromptVoice) async throws {
        loop = try EventLoop(name: "test")
        try await loop.run { [self] in voice = make(loop) }
    }

    var outcomes: [PromptOutcome] { told.withLock { $0 } }

    func say(_ text: String, _ language: PromptLanguage = .english) async throws {
        try await loop.run { [self] in
            voice?.say(text, language) { [self] outcome in told.withLock { $0.append(outcome) } }
        }
    }

    func stop() async throws { try await loop.run { [self] in voice?.stop() } }

    /// What came of the next prompt, within so many seconds.
    func outcome(after count: Int = 0, within limit: Duration = .seconds(10)) async throws -> PromptOutcome? {
        let end = Instant.now + limit
        while outcomes.count <= count, .now < end { try await Task.sleep(for: .milliseconds(2)) }
        return outcomes.count > count ? outcomes[count] : nil
    }

    func finish() async throws {
        try await stop()
        try await loop.run { [self] in voice = nil }
        loop.stop()
    }
}

@Suite(.timeLimit(.minutes(1)), .serialized) struct EspeakVoiceTests {
    static let isInstalled = ProgramFile.path(of: "espeak-ng") != nil

    private func withVoice(
        _ script: String? = nil, limit: Duration = EspeakVoice.limit,
        _ body: (VoiceUnderTest, TemporaryFolder) async throws -> Void
    ) async throws {
        let folder = try TemporaryFolder()
        var program = PromptProgram.espeak.rawValue
        if let script {
            program = folder.path + "/voice"
            try Data("#!/bin/sh\n\(script)\n".utf8).write(to: URL(filePath: program))
            chmod(program, 0o755)
        }
        let voice = try await VoiceUnderTest { [program] in EspeakVoice(on: $0, program: program, limit: limit) }
        try await body(voice, folder)
        try await voice.finish()
    }

    private func text(_ path: String) -> String {
        (try? String(contentsOf: URL(filePath: path), encoding: .utf8)) ?? ""
    }

    /// The samples of a WAV file of 22,050 Hz and 16 bits whose sizes are not known.
    private func samples(_ bytes: [UInt8]) throws -> [Int16] {
        try #require(bytes.count > 44 && bytes.starts(with: Array("RIFF".utf8)))
        #expect(Array(bytes[22..<24]) == [1, 0], "mono")
        #expect(Array(bytes[24..<28]) == [0x22, 0x56, 0, 0], "22,050 Hz")
        #expect(Array(bytes[34..<36]) == [16, 0])
        return stride(from: 44, to: bytes.count - 1, by: 2).map {
            Int16(bitPattern: UInt16(bytes[$0]) | UInt16(bytes[$0 + 1]) << 8)
        }
    }

    @Test(
        .enabled(if: EspeakVoiceTests.isInstalled, "espeak-ng is not installed (apt-get install espeak-ng)"),
        arguments: PromptLanguage.allCases)
    func `espeak-ng speaks all prompts of a language`(language: PromptLanguage) async throws {
        try await withVoice { voice, _ in
            let prompts: [SpokenPrompt] = [
                .channel("Team 3"), .connectionLost, .connectedAgain, .batteryLow("vest"), .talked("Ann"),
            ]
            for (index, prompt) in prompts.enumerated() {
                try await voice.say(try #require(prompt.text(in: language)), language)
                guard case .sound(let bytes)? = try await voice.outcome(after: index) else {
                    Issue.record("\(prompt): \(String(describing: voice.outcomes.last))")
                    continue
                }
                let samples = try samples(bytes)
                let seconds = Double(samples.count) / 22_050
                #expect((0.3...4).contains(seconds), "\(prompt) takes \(seconds) s")
                #expect(samples.contains { abs(Int($0)) > 3_000 }, "\(prompt) is silent")
            }
        }
    }

    @Test(.enabled(if: EspeakVoiceTests.isInstalled, "espeak-ng is not installed (apt-get install espeak-ng)"))
    func `a longer text takes longer, and languages sound differently`() async throws {
        try await withVoice { voice, _ in
            var sounds: [[UInt8]] = []
            for (index, (text, language)) in [
                ("one", PromptLanguage.english), ("one two three four five six", .english), ("one", .german),
            ].enumerated() {
                try await voice.say(text, language)
                guard case .sound(let bytes)? = try await voice.outcome(after: index) else { continue }
                sounds.append(bytes)
            }
            try #require(sounds.count == 3)
            #expect(sounds[1].count > 2 * sounds[0].count)
            #expect(sounds[2] != sounds[0])
        }
    }

    @Test func `the text is no argument, and nothing of the daemon is handed on`() async throws {
        setenv("PTTD_TEST_SECRET", "x", 1)
        defer { unsetenv("PTTD_TEST_SECRET") }
        let script =
            "cat >\"$0.in\"; printf '%s\\n' \"$@\" >\"$0.arguments\"; env >\"$0.env\"; ls /proc/self/fd >\"$0.fd\""
        try await withVoice(script) { voice, folder in
            try await voice.say("-w /tmp/x --help $(id)", .korean)
            #expect(try await voice.outcome() == .sound([]))
            let file = folder.path + "/voice"
            #expect(text(file + ".in") == "-w /tmp/x --help $(id)\n")
            #expect(text(file + ".arguments") == "-b\n1\n-v\nko\n--stdin\n--stdout\n")
            #expect(!text(file + ".env").contains("PTTD_TEST_SECRET"))
            #expect(text(file + ".env").contains("PULSE_SERVER=unix:/dev/null\n"), "no sound server is started for it")
            // Three, and the folder that ls reads.
            #expect(text(file + ".fd").split(separator: "\n").count == 4)
        }
    }

    @Test func `output comes in parts, and the end of the program and of its output in any order`() async throws {
        try await withVoice("printf RI; sleep 0.1; printf FF; exec >&-; sleep 0.1") { voice, _ in
            try await voice.say("x")
            #expect(try await voice.outcome() == .sound(Array("RIFF".utf8)))
        }
        try await withVoice("(sleep 0.2; printf FF) & printf RI") { voice, _ in
            try await voice.say("x")
            #expect(try await voice.outcome() == .sound(Array("RIFF".utf8)))
        }
    }

    @Test func `a program that fails says how`() async throws {
        try await withVoice("printf RIFF; exit 3") { voice, _ in
            try await voice.say("x")
            #expect(try await voice.outcome() == .failed(.ended(.espeak, status: 3)))
        }
        try await withVoice("kill -SEGV $$") { voice, _ in
            try await voice.say("x")
            #expect(try await voice.outcome() == .failed(.ended(.espeak, status: -SIGSEGV)))
        }
        let voice = try await VoiceUnderTest { EspeakVoice(on: $0, program: "/nowhere/espeak-ng") }
        try await voice.say("x")
        #expect(try await voice.outcome() == .failed(.missing(.espeak)))
        try await voice.finish()
    }

    @Test func `a program that hangs is killed with all that it has started`() async throws {
        // It has to have started something by then.
        try await withVoice("echo $$ >\"$0.pid\"; sleep 30 & wait", limit: .seconds(3)) { voice, folder in
            let began = Instant.now
            try await voice.say("x")
            #expect(try await voice.outcome() == .failed(.tooSlow(.espeak)))
            #expect(Instant.now - began < .seconds(20))
            try await expectNobody(in: folder)
        }
    }

    @Test func `a program that never stops writing is killed`() async throws {
        try await withVoice("echo $$ >\"$0.pid\"; exec cat /dev/zero", limit: .seconds(20)) { voice, folder in
            try await voice.say("x")
            #expect(try await voice.outcome() == .failed(.tooMuch(.espeak)))
            try await expectNobody(in: folder)
        }
    }

    @Test func `what is not wanted any more is killed, and tells nothing`() async throws {
        try await withVoice("echo $$ >\"$0.pid\"; sleep 30") { voice, folder in
            try await voice.say("x")
            let end = Instant.now + .seconds(5)
            while text(folder.path + "/voice.pid").isEmpty, .now < end { try await Task.sleep(for: .milliseconds(5)) }
            try await voice.stop()
            try await expectNobody(in: folder)
            #expect(voice.outcomes.isEmpty)
        }
    }

    /// The process group of the script has ended, and was reaped.
    private func expectNobody(in folder: TemporaryFolder) async throws {
        let process = try #require(pid_t(text(folder.path + "/voice.pid").split(separator: "\n").first ?? ""))
        let end = Instant.now + .seconds(5)
        while kill(-process, 0) == 0, .now < end { try await Task.sleep(for: .milliseconds(5)) }
        #expect(kill(-process, 0) == -1)
    }
}
