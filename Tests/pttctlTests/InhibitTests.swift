// pttctl inhibit: the lock is held exactly while the command runs, whatever ends it.
import BusTestSupport
import DBus
import Glibc
import PTTBus
import Testing

@testable import pttctl

@Suite struct InhibitTests {
    @Test
    func `the lock is held while the command runs, listed meanwhile, and gone when it ends`() async throws {
        try await withBus { fixture in
            let daemon = try await ScriptedDaemon.start(fixture)
            let process = try Program.start(
                fixture,
                ["inhibit", "--who", "Linphone", "--why", "talks to Anna", "sh", "-c", "echo up; read line; exit 7"])
            #expect(try await eventually { process.output == "up\n" })
            let held = Inhibitor(
                what: "call", who: "Linphone", why: "talks to Anna", processID: UInt32(process.processIdentifier))
            #expect(daemon.inhibitors.all == [[held]], "before the command runs")
            let list = try await Program.run(fixture, "inhibit", "--list")
            #expect(
                list == Outcome(status: 0, output: "Linphone  talks to Anna  (process \(process.processIdentifier))\n"))
            #expect(try await Program.run(fixture, "inhibit", "--list", "--json").json([Inhibitor].self) == [held])
            process.say("end")
            #expect(try await process.end() == 7)
            #expect(try await daemon.inhibitors.wait(for: 2) == [[held], []])
            #expect(try await Program.run(fixture, "inhibit", "--list").output == "No locks are held.\n")
        }
    }

    @Test(arguments: [
        (["true"], 0), (["sh", "-c", "exit 3"], 3), (["sh", "-c", "kill -9 $$"], 137), (["/etc/passwd"], 126),
        (["no-such-command"], 127), (["--", "sh", "-c", "exit 4"], 4),
    ])
    func `the exit status is the command's, as a shell tells it`(command: [String], expected: Int) async throws {
        try await withBus { fixture in
            let daemon = try await ScriptedDaemon.start(fixture)
            let process = try Program.start(fixture, ["inhibit"] + command)
            #expect(try await process.end().map { Int($0) } == expected, "\(process.errors)")
            #expect(try await daemon.inhibitors.wait { $0.last == [] }.count == 2, "taken and released")
        }
    }

    @Test
    func `options behind the command are the command's`() async throws {
        try await withBus { fixture in
            let daemon = try await ScriptedDaemon.start(fixture)
            defer { withExtendedLifetime(daemon) {} }
            let outcome = try await Program.run(
                fixture, "inhibit", "--who=A", "echo", "--who", "B", "--", "--list", "--bus", "x")
            #expect(outcome == Outcome(status: 0, output: "--who B -- --list --bus x\n"))
        }
    }

    @Test
    func `a request to end is passed on to the command, and a Ctrl-C is the command's to take`() async throws {
        try await withBus { fixture in
            let daemon = try await ScriptedDaemon.start(fixture)
            let process = try Program.start(
                fixture,
                ["inhibit", "sh", "-c", "trap 'echo asked; exit 5' TERM; echo up; while :; do sleep 0.01; done"])
            #expect(try await eventually { process.output == "up\n" })
            process.signal(SIGINT)
            process.signal(SIGTERM)
            #expect(try await process.end() == 5)
            #expect(process.output == "up\nasked\n")
            #expect(try await daemon.inhibitors.wait { $0.last == [] }.last == [])
        }
    }

    @Test
    func `pttctl killed: the lock is gone, though the command goes on`() async throws {
        try await withBus { fixture in
            let daemon = try await ScriptedDaemon.start(fixture)
            let process = try Program.start(fixture, ["inhibit", "sh", "-c", "echo up; read line; echo on"])
            #expect(try await eventually { process.output == "up\n" })
            process.signal(SIGKILL)
            #expect(try await daemon.inhibitors.wait { $0.last == [] }.last == [])
            process.say("")
            #expect(try await eventually { process.output == "up\non\n" }, "no lock is left in the command")
        }
    }

    @Test
    func `a daemon that was started again is told of the lock again`() async throws {
        try await withBus { fixture in
            let first = try await ScriptedDaemon.start(fixture)
            let process = try Program.start(fixture, ["inhibit", "sh", "-c", "echo up; read line"])
            #expect(try await eventually { process.output == "up\n" })
            await first.stop()
            let second = try await ScriptedDaemon.start(fixture)
            #expect(try await second.inhibitors.wait(for: 1).first?.map(\.who) == ["sh"])
            process.closeInput()
            #expect(try await process.end() == 1)
            #expect(try await second.inhibitors.wait { $0.last == [] }.last == [])
        }
    }

    @Test
    func `a full table of locks is told in words, and the command does not run`() async throws {
        try await withBus { fixture in
            let daemon = try await ScriptedDaemon.start(fixture)
            var held: [(DaemonClient, DBusDescriptor)] = []
            for _ in 0..<PTTBusLimits.locks / PTTBusLimits.locksPerCaller {
                let client = try await DaemonClient.find(
                    on: .address(fixture.bus.address), loop: fixture.loop, logger: fixture.logger)
                for _ in 0..<PTTBusLimits.locksPerCaller {
                    held.append((client, try await client.inhibit(who: "A", why: "")))
                }
            }
            #expect(daemon.inhibitors.all.last?.count == PTTBusLimits.locks)
            let outcome = try await Program.run(fixture, "inhibit", "echo", "ran")
            #expect(outcome == Outcome(status: 1, errors: "pttctl: \(PTTBusLimits.locks) locks are held; close one\n"))
            for (client, _) in held { await client.close() }
        }
    }

    @Test(arguments: [
        (["inhibit", "ls", "-l"], ["inhibit", "--", "ls", "-l"]),
        (
            ["--bus", "system", "inhibit", "--who", "x", "ls"],
            ["--bus", "system", "inhibit", "--who", "x", "--", "ls"]
        ),
        (["inhibit", "--who=x", "--list"], ["inhibit", "--who=x", "--list"]),
        (["inhibit", "--", "ls", "a"], ["inhibit", "--", "ls", "a"]),
        (["join", "inhibit", "x"], ["join", "inhibit", "x"]), (["help", "inhibit"], ["help", "inhibit"]),
        (["inhibit", "--who"], ["inhibit", "--who"]), ([], []),
    ])
    func `the command's part of a command line is found`(arguments: [String], expected: [String]) {
        #expect(Inhibit.separated(arguments) == expected)
    }

    @Test
    func `an option of pttctl behind the command is not given to the command unsaid`() {
        #expect(Inhibit.misplacedOption(["inhibit", "sleep", "9", "--bus", "session"]) == "--bus")
        #expect(Inhibit.misplacedOption(["--bus", "system", "inhibit", "sleep", "--why=x"]) == "--why")
        #expect(Inhibit.misplacedOption(["inhibit", "--bus", "session", "sleep", "9"]) == nil)
        #expect(Inhibit.misplacedOption(["inhibit", "--", "program", "--bus", "session"]) == nil)
        #expect(Inhibit.misplacedOption(["join", "x", "--bus", "session"]) == nil)
        #expect(Inhibit.misplacedOption(["inhibit", "--list", "--bus", "session"]) == nil)
    }
}
