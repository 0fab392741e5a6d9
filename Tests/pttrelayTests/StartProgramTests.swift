// The program at its start: with pipes, a full disk, other programs in its way, and lost files.
import Cryptography
import Files
import Glibc
import RelayProtocol
import Testing

@testable import pttrelay

@Suite struct StartProgramTests {
    /// How the program ends that is started with these words; SIGTERM ends one that is ready.
    private func start(
        _ words: [String], _ folder: StateFolder, until: String = "ready\n", endsAtError isEndedAtError: Bool = false,
        environment: [String] = []
    ) async throws -> RunningProgram.Outcome {
        let scratch = try StateFolder()
        let id = try RunningProgram.spawn(
            words, output: scratch.path + "/output", errors: scratch.path + "/errors", environment: environment)
        let deadline = ContinuousClock.now + .seconds(20)
        var raw: Int32 = -1
        var isTold = false
        while waitpid(id, &raw, WNOHANG) == 0 {
            let isFailing = isEndedAtError && RunningProgram.contents(scratch.path + "/errors").contains("pttrelay: ")
            if !isTold, isFailing || RunningProgram.contents(scratch.path + "/output").contains(until) {
                isTold = true
                kill(id, SIGTERM)
            }
            if ContinuousClock.now > deadline { kill(id, SIGKILL) }
            try await Task.sleep(for: .milliseconds(5))
        }
        return RunningProgram.Outcome(
            status: raw & 0x7F == 0 ? (raw >> 8) & 0xFF : 128 + (raw & 0x7F),
            output: RunningProgram.contents(scratch.path + "/output"),
            errors: RunningProgram.contents(scratch.path + "/errors"))
    }

    private func run(_ folder: StateFolder, _ more: String...) async throws -> RunningProgram.Outcome {
        let file = folder.path + "/pttrelay.toml"
        if !AtomicFile.exists(file) {
            let text =
                "[relay]\nlisten = \"127.0.0.1:0\"\nworkers = 1\n[operator]\nlisten = \"127.0.0.1:0\"\n[push]\nlisten = \"127.0.0.1:0\"\n"
            try AtomicFile.write(Array(text.utf8), to: file)
        }
        return try await start(["run", "--config", file, "--state", folder.path, "--channel", "Team"] + more, folder)
    }

    @Test(.timeLimit(.minutes(3)))
    func `a pipe in place of any file blocks nothing: the program starts, or says what is wrong`() async throws {
        let folder = try StateFolder()
        #expect(try await run(folder).status == 0)
        let required = ["identity.pem", "relay.sqlite", "pttrelay.toml"]
        for name in required + [
            "transport.key", "operator.token", "api.token", "connections", "push-server.pem", "control",
        ] {
            let path = folder.path + "/" + name
            let kept = folder.path + "/kept"
            let isThere = rename(path, kept) == 0
            #expect(mkfifo(path, 0o600) == 0)
            let outcome = try await run(folder)
            #expect(outcome.status == (required.contains(name) ? 78 : 0), "\(name): \(outcome)")
            if required.contains(name) {
                #expect(outcome.errors.contains(path) && outcome.errors.contains("a pipe"), "\(outcome.errors)")
            }
            unlink(path)
            if isThere { #expect(rename(kept, path) == 0) }
        }
        #expect(try await run(folder).status == 0)
    }

    @Test(.timeLimit(.minutes(1)))
    func `records that were emptied or deleted stop a start with what to do, and begin-anew helps`() async throws {
        let folder = try StateFolder()
        #expect(try await run(folder).status == 0)
        for command in [": > relay.sqlite", "rm -f relay.sqlite*"] {
            #expect(system("cd \(folder.path) && \(command)") == 0)
            let outcome = try await run(folder)
            #expect(outcome.status == 78 && !outcome.output.contains("ptt://"), "\(outcome)")
            #expect(outcome.errors.contains("relay.sqlite is missing or empty"), "\(outcome)")
        }
        let anew = try await start(["begin-anew", "records", "--state", folder.path], folder)
        #expect(anew.status == 0 && anew.output.contains("has empty records"), "\(anew)")
        let outcome = try await run(folder)
        #expect(outcome.status == 0 && outcome.output.contains("ptt://"), "\(outcome)")
    }

    @Test(.timeLimit(.minutes(1)))
    func `records that are deleted while the relay runs let nobody in whom the next start would not know`() async throws
    {
        let program = try RunningProgram()
        let link = try program.standing
        let known = try await Device("Ada", link)
        try await known.isReady()
        for suffix in ["", "-wal", "-shm"] { unlink(program.folder.path + "/relay.sqlite" + suffix) }
        let stranger = try await Device("Bob", link)
        let deadline = ContinuousClock.now + .seconds(20)
        while !program.log.contains("was removed or replaced while the relay ran"), ContinuousClock.now < deadline {
            try await Task.sleep(for: .milliseconds(20))
        }
        #expect(program.log.contains("was removed or replaced while the relay ran"), "\(program.log)")
        #expect(!program.log.contains("member=\(stranger.id) name=Bob"), "\(program.log)")
        #expect(program.isRunning)
    }

    @Test(.timeLimit(.minutes(1)))
    func `a second relay on the same state says who has it, and disturbs nothing`() async throws {
        let program = try RunningProgram()
        let outcome = try await run(program.folder)
        #expect(outcome.status == 1, "\(outcome)")
        #expect(outcome.errors.contains("another process (\(program.process)) uses it"), "\(outcome)")
        #expect(try await program.command(["channels"]).status == 0)
    }

    @Test(.timeLimit(.minutes(1)))
    func `under a supervisor a start that may work later ends after a pause that grows, and is cut short by a signal`()
        async throws
    {
        let program = try RunningProgram()
        let runtime = try StateFolder()
        let environment = ["RUNTIME_DIRECTORY=\(runtime.path)"]
        let words = ["run", "--listen", "127.0.0.1:0", "--state", program.folder.path, "--channel", "Team"]
        let begun = ContinuousClock.now
        #expect(try await start(words, program.folder, environment: environment).status == 1)
        #expect(ContinuousClock.now - begun >= .seconds(2), "no supervisor starts it hotly")
        #expect(runtime.names.contains("failed-starts"))
        // After many failures it would be half a minute.
        try AtomicFile.write(Array("9".utf8), to: runtime.path + "/failed-starts")
        let outcome = try await start(words, program.folder, endsAtError: true, environment: environment)
        #expect(outcome.status == 1 && outcome.errors.contains("another process"), "\(outcome)")
        // What a person has to mend is none of them.
        let broken = try StateFolder()
        #expect(mkfifo(broken.path + "/identity.pem", 0o600) == 0)
        let wrong = try await start(
            ["run", "--listen", "127.0.0.1:0", "--state", broken.path], broken, environment: environment)
        #expect(wrong.status == 78, "\(wrong)")
        #expect(RunningProgram.contents(runtime.path + "/failed-starts") == "6")
        program.end()
        #expect(try await start(words, program.folder, environment: environment).status == 0)
        #expect(!runtime.names.contains("failed-starts"))
    }

    @Test(.timeLimit(.minutes(1)))
    func `a page or an endpoint for pushes whose port is taken waits for it, while members talk`() async throws {
        let taken = socket(AF_INET, Int32(SOCK_STREAM.rawValue), 0)
        defer { close(taken) }
        var address = PageRequest.address(port: 0)
        var size = socklen_t(MemoryLayout<sockaddr_in>.size)
        let isListening = withUnsafeMutablePointer(to: &address) {
            $0.withMemoryRebound(to: sockaddr.self, capacity: 1) {
                bind(taken, $0, size) == 0 && listen(taken, 1) == 0 && getsockname(taken, $0, &size) == 0
            }
        }
        try #require(isListening)
        let port = UInt16(bigEndian: address.sin_port)
        let folder = try StateFolder()
        let text = "[relay]\nlisten = \"127.0.0.1:0\"\nworkers = 1\n[operator]\nlisten = \"127.0.0.1:\(port)\"\n"
        try AtomicFile.write(Array(text.utf8), to: folder.path + "/pttrelay.toml")
        let outcome = try await run(folder)
        #expect(outcome.status == 0 && outcome.output.contains("ready"), "\(outcome)")
        #expect(outcome.errors.contains("Address already in use"), "\(outcome)")
        #expect(!outcome.errors.contains("descriptor:") && !outcome.errors.contains("CancellationError"), "\(outcome)")
    }

    @Test(.timeLimit(.minutes(1)))
    func `an address that the machine does not have yet is listened on`() async throws {
        let folder = try StateFolder()
        let text = "[relay]\nlisten = \"192.0.2.77:0\"\nworkers = 2\n"
        try AtomicFile.write(Array(text.utf8), to: folder.path + "/pttrelay.toml")
        let outcome = try await run(folder)
        #expect(outcome.status == 0 && outcome.errors.contains("does not have the address yet"), "\(outcome)")
    }

    @Test(.timeLimit(.minutes(1)))
    func `a full disk does not stop a restart that has nothing to write`() async throws {
        // Only root can mount.
        guard geteuid() == 0 else { return }
        let folder = try StateFolder()
        guard system("mount -t tmpfs -o size=2m none \(folder.path) 2>/dev/null") == 0 else { return }
        defer { _ = system("umount -l \(folder.path)") }
        #expect(try await run(folder).status == 0)
        for isKilled in [false, true] {
            unlink(folder.path + "/filler")
            if isKilled { try RunningProgram(in: folder).end() }
            _ = system("head -c 4M /dev/zero > \(folder.path)/filler 2>/dev/null")
            let outcome = try await run(folder)
            #expect(outcome.status == 0 && outcome.output.contains("ready\n"), "killed before: \(isKilled): \(outcome)")
        }
        // What has to be written is waited for.
        let outcome = try await run(folder, "--channel", "Yard")
        #expect(outcome.status == 1 && outcome.errors.contains("the disk is full"), "\(outcome)")
    }

    @Test(.timeLimit(.minutes(1)))
    func `a limit of the size of files does not end the program`() async throws {
        let relay = try RunningProgram()
        try relay.limitFiles(to: 1)
        let written = relay.log.utf8.count
        // A reload is logged.
        kill(relay.process, SIGHUP)
        try await Task.sleep(for: .milliseconds(500))
        #expect(relay.isRunning && relay.log.utf8.count == written)
        try relay.limitFiles(to: nil)
        kill(relay.process, SIGHUP)
        let deadline = ContinuousClock.now + .seconds(10)
        while relay.log.utf8.count == written {
            try #require(relay.isRunning && ContinuousClock.now < deadline, "nothing is logged any more")
            try await Task.sleep(for: .milliseconds(10))
        }
    }

    @Test(.timeLimit(.minutes(1)))
    func `without a command, or with a wrong one, the program fails and shows its commands`() async throws {
        let folder = try StateFolder()
        for words in [[], ["ron"]] {
            let outcome = try await start(words, folder)
            #expect(outcome.status == 64, "\(outcome)")
            #expect(words.isEmpty ? outcome.errors.contains("name a command") : outcome.errors.contains("ron"))
        }
        let help = try await start(["--help"], folder)
        #expect(help.status == 0 && help.output.contains("begin-anew"))
    }
}
