// What the daemon speaks, by espeak-ng.
import BusTestSupport
import FoundationEssentials
import Glibc
import PTTBus
import Reactor
import SpokenPrompts
import Testing

@testable import pttd

@Suite(.timeLimit(.minutes(1))) struct SpokenPromptTests {
    /// Whether anything was written to the speaker's file; it plays no tones.
    private func hasSound(_ directory: TemporaryDirectory) -> Bool {
        let file = (try? Data(contentsOf: URL(filePath: directory.path + "/heard.wav"))) ?? Data()
        return file.dropFirst(44).contains { $0 != 0 }
    }

    @Test(
        .enabled(
            if: ProgramFile.path(of: "espeak-ng") != nil, "espeak-ng is not installed (apt-get install espeak-ng)"),
        arguments: [false, true])
    func `the channel that is joined is named if a voice is set`(isSet: Bool) async throws {
        try await withBus { fixture in
            let directory = try TemporaryDirectory()
            let voice = isSet ? "\nvoice = \"espeak-ng\"\nvoice-language = \"de\"" : ""
            let daemon = try DaemonProcess.start(fixture, in: directory, audio: "tones = false\(voice)")
            let program = try await TestProgram.whenServed(fixture, name: "org.example.Talk")
            #expect(try await eventually { try await program.client.active()?.serviceStatus == "ready" })
            if isSet {
                #expect(try await eventually { hasSound(directory) })
            } else {
                try await Task.sleep(for: .seconds(1))
                #expect(!hasSound(directory))
            }
            await program.client.close()
            daemon.end(SIGTERM)
        }
    }

    @Test func `a missing program is named with its package`() {
        let failure = PromptFailure.missing(.speechDispatcher)
        #expect("\(failure)".contains("install the package speech-dispatcher"))
        #expect("\(failure)".contains("[audio]"))
    }

    @Test func `only a voice that is set can have a problem`() {
        var configuration = Configuration()
        #expect(configuration.promptProblems() == [])
        for program in PromptProgram.allCases {
            configuration.prompts = PromptSettings(program: program, language: .english)
            let isMissing = ProgramFile.path(of: program.rawValue) == nil
            let problems = configuration.promptProblems()
            if isMissing {
                #expect(problems == ["audio.voice: \(PromptFailure.missing(program))"])
            } else {
                #expect(!problems.contains { $0.contains("not installed") })
            }
        }
    }
}
