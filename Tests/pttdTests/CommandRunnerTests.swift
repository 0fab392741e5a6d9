// Programs that controls run: real processes.
import Accessories
import BusTestSupport
import FoundationEssentials
import Glibc
import Logging
import MonotonicTime
import Reactor
import Testing

@testable import pttd

@Suite(.timeLimit(.minutes(1))) struct CommandRunnerTests {
    private let vest = AccessorySource(accessory: AccessoryID("vest"), control: .soft1)
    private let lamp = AccessorySource(accessory: AccessoryID("lamp"), control: .soft2)

    private func withRunner(
        limit: Duration = .seconds(30), _ body: (CommandRunner, TemporaryDirectory) async throws -> Void
    ) async throws {
        let loop = try EventLoop(name: "test")
        var logger = Logger(label: "test")
        logger.logLevel = .critical
        let runner = CommandRunner(loop: loop, logger: logger, limit: limit)
        try await body(runner, try TemporaryDirectory())
        await runner.stop()
        loop.stop()
    }

    private func ended(_ runner: CommandRunner) async throws -> Bool {
        try await eventually { await runner.count == 0 }
    }

    private func text(_ path: String) throws -> String { try String(contentsOf: URL(filePath: path), encoding: .utf8) }

    @Test func aCommandGetsItsArgumentsAsTheyAreAndACleanEnvironment() async throws {
        try await withRunner { runner, directory in
            setenv("PTTD_TEST_SECRET", "x", 1)
            defer { unsetenv("PTTD_TEST_SECRET") }
            let file = directory.path + "/out"
            let script =
                "printf '%s\\n' \"$1\" >$0; env >>$0; ls /proc/self/fd | wc -l >>$0; cat /proc/self/status >>$0"
            try await runner.run(["sh", "-c", script, file, "a b; $(reboot) *"], for: vest)
            #expect(try await ended(runner))
            let lines = try text(file).split(separator: "\n").map(String.init)
            #expect(lines.first == "a b; $(reboot) *", "no shell has read it")
            #expect(lines.contains("PTTD_ACCESSORY=vest"))
            #expect(lines.contains("PTTD_CONTROL=soft1"))
            #expect(lines.contains("PATH=\(ProgramFile.path)"))
            #expect(!lines.contains { $0.hasPrefix("PTTD_TEST_SECRET") })
            // Three, and the folder that ls reads.
            #expect(lines.contains("4"), "descriptors of this process were handed on")
            #expect(lines.contains { $0.hasPrefix("SigBlk:") && $0.hasSuffix("0000000000000000") })
        }
    }

    @Test func oneAtATimeForEachControl() async throws {
        try await withRunner { runner, directory in
            try await runner.run(["sleep", "20"], for: vest)
            await #expect(throws: CommandError.running(program: "sleep")) {
                try await runner.run(["touch", directory.path + "/second"], for: vest)
            }
            try await runner.run(["touch", directory.path + "/other"], for: lamp)
            #expect(try await eventually { access(directory.path + "/other", F_OK) == 0 })
            #expect(access(directory.path + "/second", F_OK) != 0)
            #expect(try await eventually { await runner.count == 1 })
        }
    }

    @Test func aCommandThatTakesTooLongIsKilledWithAllThatItStarted() async throws {
        // It has to have started something by then.
        try await withRunner(limit: .seconds(3)) { runner, directory in
            let file = directory.path + "/child"
            try await runner.run(["sh", "-c", "sleep 20 & echo $! >\(file); wait"], for: vest)
            #expect(try await ended(runner))
            let child = try #require(pid_t(try text(file).trimmingCharacters()))
            #expect(try await eventually { kill(child, 0) != 0 || isZombie(child) })
            // The control works again.
            try await runner.run(["true"], for: vest)
            #expect(try await ended(runner))
        }
    }

    @Test func whatCannotBeStartedSaysWhy() async throws {
        try await withRunner { runner, directory in
            let file = directory.path + "/plain"
            try Data("no program".utf8).write(to: URL(filePath: file))
            await #expect(throws: CommandError.notStarted(program: "/nowhere/x", code: ENOENT)) {
                try await runner.run(["/nowhere/x"], for: vest)
            }
            await #expect(throws: CommandError.notStarted(program: "no-such-program", code: ENOENT)) {
                try await runner.run(["no-such-program"], for: vest)
            }
            await #expect(throws: CommandError.notStarted(program: file, code: EACCES)) {
                try await runner.run([file], for: vest)
            }
            #expect("\(CommandError.notStarted(program: file, code: EACCES))".contains("chmod"))
            #expect(await runner.count == 0)
        }
    }

    @Test func theyAreBoundedAndEndWithTheDaemon() async throws {
        try await withRunner { runner, _ in
            for number in 0..<CommandRunner.commandsMax {
                let source = AccessorySource(accessory: AccessoryID("\(number)"), control: .call)
                try await runner.run(["sleep", "20"], for: source)
            }
            await #expect(throws: CommandError.tooMany) { try await runner.run(["true"], for: vest) }
            await runner.stop()
            #expect(await runner.count == 0)
        }
    }
}

private func isZombie(_ process: pid_t) -> Bool {
    let status = try? String(contentsOf: URL(filePath: "/proc/\(process)/status"), encoding: .utf8)
    return status?.contains("State:\tZ") ?? true
}

extension String {
    fileprivate func trimmingCharacters() -> String { String(filter { !$0.isWhitespace }) }
}
