// speech-dispatcher's protocol, and the program as it is.

import FoundationEssentials
import Glibc
import MonotonicTime
import Reactor
import TestSupport
import Testing

@testable import SpokenPrompts

@Suite struct DispatcherDialogueTests {
    /// What speech-dispatcher 0.11 answers to each line.
    private static let answers = [
        "208 OK CLIENT NAME SET", "201 OK LANGUAGE SET", "202 OK PRIORITY SET", "220 OK NOTIFICATION SET",
        "220 OK NOTIFICATION SET", "230 OK RECEIVING DATA", "225-21\r\n225 OK MESSAGE QUEUED",
    ]

    private func bytes(_ text: String) -> [UInt8] { Array(text.utf8) }

    /// Everything that is sent to a server that answers as expected, each part with all before it answered.
    private func sent(_ dialogue: inout DispatcherDialogue) -> [String] {
        var sent = [dialogue.beginning]
        for answer in Self.answers {
            for action in dialogue.received(bytes("\(answer)\r\n")) {
                if case .send(let text) = action { sent.append(text) } else { Issue.record("\(action)") }
            }
        }
        return sent
    }

    @Test func `a text is spoken in its language, and its end is told`() {
        var dialogue = DispatcherDialogue("Pas de connexion", .french)
        let lines = sent(&dialogue)
        #expect(lines.contains("SET self LANGUAGE fr\r\n"))
        #expect(lines.suffix(2) == ["SPEAK\r\n", "Pas de connexion\r\n.\r\n"])
        #expect(dialogue.received(bytes("701-21\r\n701-18\r\n701 BEGIN\r\n")) == [])
        #expect(dialogue.received(bytes("702-21\r\n702-18\r\n702 END\r\n")) == [.heard])
        #expect(dialogue.received(bytes("702 END\r\n")) == [], "once")
    }

    @Test func `a text that others silence is over, too`() {
        var dialogue = DispatcherDialogue("x", .english)
        _ = sent(&dialogue)
        #expect(dialogue.received(bytes("703-21\r\n703-18\r\n703 CANCELED\r\n")) == [.heard])
    }

    @Test func `no text can be taken for a command`() {
        var dialogue = DispatcherDialogue(".", .english)
        #expect(sent(&dialogue).last == "..\r\n.\r\n")
        dialogue = DispatcherDialogue(".net", .english)
        #expect(sent(&dialogue).last == "..net\r\n.\r\n")
    }

    @Test func `answers may come byte by byte`() {
        var dialogue = DispatcherDialogue("x", .english)
        var actions: [DispatcherDialogue.Action] = []
        for byte in bytes((Self.answers + ["702 END"]).joined(separator: "\r\n") + "\r\n") {
            actions += dialogue.received([byte])
        }
        #expect(actions.count == 7)
        #expect(actions.last == .heard)
    }

    @Test func `another answer ends it with its words`() {
        var dialogue = DispatcherDialogue("x", .english)
        #expect(dialogue.received(bytes("208 OK\r\n")) == [.send("SET self LANGUAGE en\r\n")])
        #expect(dialogue.received(bytes("403 ERR\u{1B} PARAMETER\r\n")) == [.failed(answer: "403 ERR  PARAMETER")])
        #expect(dialogue.received(bytes("201 OK\r\n")) == [])
    }

    @Test(arguments: ["hello\r\n", "\r\n", "2\r\n", "20x OK\r\n", "208OK\r\n", "2é8 OK\r\n"])
    func `what is no answer ends it`(line: String) {
        var dialogue = DispatcherDialogue("x", .english)
        guard case .failed? = dialogue.received(bytes(line)).last else {
            Issue.record("\(line) was taken")
            return
        }
    }

    @Test func `what it keeps is bounded`() {
        var dialogue = DispatcherDialogue("x", .english)
        let actions = dialogue.received([UInt8](repeating: 0x32, count: 1_000_000))
        #expect(actions.count == 1)
        dialogue = DispatcherDialogue("x", .english)
        let lines = dialogue.received(bytes(String(repeating: "208-x\r\n", count: 10_000)))
        #expect(lines.count == 1)
    }
}

/// A speech-dispatcher of the test's own, on a sound server of its own: without one it never tells that a text was heard.
@Suite(.timeLimit(.minutes(2)), .serialized) struct DispatcherVoiceTests {
    static let isInstalled = ["speech-dispatcher", "pulseaudio"].allSatisfy { ProgramFile.path(of: $0) != nil }

    /// Runs `body` with these variables of the environment; nil: without.
    private func with(_ variables: [String: String?], _ body: () async throws -> Void) async throws {
        func set(_ name: String, _ value: String?) {
            if let value { setenv(name, value, 1) } else { unsetenv(name) }
        }
        let before = variables.keys.map { name in (name, getenv(name).map { String(cString: $0) }) }
        for (name, value) in variables { set(name, value) }
        defer { for (name, value) in before { set(name, value) } }
        try await body()
    }

    private func withDispatcher(_ body: (VoiceUnderTest) async throws -> Void) async throws {
        let folder = try TemporaryFolder()
        let variables: [String: String?] = [
            "XDG_RUNTIME_DIR": folder.path, "HOME": folder.path, "XDG_CONFIG_HOME": nil, "SPEECHD_ADDRESS": nil,
            "PULSE_SERVER": "unix:\(folder.path)/sound",
        ]
        try await with(variables) {
            let sound = try SpawnedProgram.start(
                [
                    "pulseaudio", "-n", "--daemonize=no", "--exit-idle-time=-1", "--use-pid-file=no", "--system=false",
                    "-L", "module-native-protocol-unix socket=\(folder.path)/sound auth-anonymous=1",
                    "-L", "module-null-sink sink_name=ear rate=48000",
                ], environment: ["PATH=\(ProgramFile.path)", "HOME=\(folder.path)", "XDG_RUNTIME_DIR=\(folder.path)"])
            let end = Instant.now + .seconds(20)
            while access(folder.path + "/sound", F_OK) != 0, .now < end { try await Task.sleep(for: .milliseconds(20)) }
            let voice = try await VoiceUnderTest { DispatcherVoice(on: $0) }
            try await body(voice)
            try await voice.finish()
            // It says which process it is.
            let file = URL(filePath: folder.path + "/speech-dispatcher/pid/speech-dispatcher.pid")
            let text = (try? String(contentsOf: file, encoding: .utf8)) ?? ""
            if let process = pid_t(text.split(separator: "\n").first ?? "") {
                kill(process, SIGTERM)
                let end = Instant.now + .seconds(5)
                while kill(process, 0) == 0, .now < end { try await Task.sleep(for: .milliseconds(20)) }
            }
            kill(sound, SIGKILL)
            waitpid(sound, nil, 0)
        }
    }

    @Test(
        .enabled(
            if: DispatcherVoiceTests.isInstalled,
            "speech-dispatcher is not installed (apt-get install speech-dispatcher pulseaudio)"))
    func `speech-dispatcher is started and says when a text was heard`() async throws {
        try await withDispatcher { voice in
            try await voice.say("Connected again")
            let first = try await voice.outcome(within: .seconds(20))
            #expect(first == .heard)
            let began = Instant.now
            try await voice.say("Keine Verbindung", .german)
            let second = try await voice.outcome(after: 1, within: .seconds(20))
            #expect(second == .heard)
            print("heard after \((Instant.now - began).milliseconds) ms")
        }
    }

    @Test(
        .enabled(
            if: DispatcherVoiceTests.isInstalled,
            "speech-dispatcher is not installed (apt-get install speech-dispatcher pulseaudio)"))
    func `a text that is not wanted any more tells nothing, and the next one is heard`() async throws {
        try await withDispatcher { voice in
            try await voice.say("one")
            _ = try await voice.outcome(within: .seconds(20))
            // Half a minute of speech, which would be heard before what follows.
            try await voice.say(Array(repeating: "one two three four five six seven", count: 12).joined(separator: " "))
            try await Task.sleep(for: .milliseconds(500))
            try await voice.stop()
            let stopped = Instant.now
            try await voice.say("two")
            #expect(try await voice.outcome(after: 1, within: .seconds(20)) == .heard)
            #expect(voice.outcomes.count == 2)
            #expect(Instant.now - stopped < .seconds(10))
        }
    }

    @Test func `without a session of a user it says which voice to choose`() async throws {
        var outcome: PromptOutcome?
        try await with(["XDG_RUNTIME_DIR": nil, "SPEECHD_ADDRESS": nil]) {
            let voice = try await VoiceUnderTest { DispatcherVoice(on: $0) }
            try await voice.say("x")
            outcome = try await voice.outcome()
            try await voice.finish()
        }
        guard case .failed(let failure)? = outcome else {
            Issue.record("\(String(describing: outcome))")
            return
        }
        #expect("\(failure)".contains("voice = \"espeak-ng\""))
    }
}
