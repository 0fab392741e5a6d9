// The real `pttd` at its start: damaged files, pipes, and another one on the same state.
import BusTestSupport
import DBus
import Files
import FoundationEssentials
import Glibc
import Testing

@testable import pttd

@Suite(.timeLimit(.minutes(3))) struct StartTests {
    private func log(_ directory: TemporaryDirectory) -> String {
        let bytes = try? RegularFile.read(directory.path + "/pttd.log", byteCountMax: 1 << 24)
        return String(decoding: bytes ?? [], as: UTF8.self)
    }

    private func isReady(_ directory: TemporaryDirectory) async throws -> Bool {
        try await eventually { log(directory).contains("pttd is ready") }
    }

    @Test func `a damaged key is set aside with what follows from it, and the daemon runs`() async throws {
        try await withBus { fixture in
            let directory = try TemporaryDirectory()
            try AtomicFile.write([1, 2, 3], to: directory.path + "/identity.pem")
            let daemon = try DaemonProcess.start(fixture, in: directory)
            #expect(try await isReady(directory))
            #expect(log(directory).contains("identity.pem.damaged-1"))
            #expect(log(directory).contains("relays treat this device as a new one"))
            #expect(daemon.status(after: SIGTERM) == 0)
        }
    }

    @Test(arguments: [
        "identity.pem", "accessories.toml", "channel", "chosen-channel", "resumption", "profiles.d/x.toml",
        "nearby-channels", "headsets",
    ])
    func `a pipe in place of a file of its state keeps it neither from starting nor from ending`(name: String)
        async throws
    {
        try await withBus { fixture in
            let directory = try TemporaryDirectory()
            #expect(mkdir(directory.path + "/profiles.d", 0o700) == 0)
            #expect(mkfifo(directory.path + "/" + name, 0o600) == 0)
            let daemon = try DaemonProcess.start(fixture, in: directory)
            #expect(try await isReady(directory), "\(log(directory))")
            // Which of several channels was chosen is not asked where there is one.
            if name != "chosen-channel" { #expect(log(directory).contains(name), "it is told") }
            #expect(daemon.status(after: SIGTERM) == 0)
        }
    }

    @Test func `a pipe in place of the configuration is a mistake, which is told`() throws {
        let directory = try TemporaryDirectory()
        let path = directory.path + "/pttd.toml"
        #expect(mkfifo(path, 0o600) == 0)
        let daemon = try DaemonProcess(["--config", path], log: directory.path + "/pttd.log")
        #expect(daemon.status() == 78)
        #expect(log(directory).contains("\(path): cannot be read: it is a pipe"), "\(log(directory))")
    }

    @Test(.enabled(if: getuid() != 0, "root's daemon has no configuration of a user's own"))
    func `a link in place of the user's configuration to a file that is not there may pass`() throws {
        let directory = try TemporaryDirectory()
        #expect(mkdir(directory.path + "/pttd", 0o700) == 0)
        let path = directory.path + "/pttd/pttd.toml"
        #expect(symlink(directory.path + "/disk/pttd.toml", path) == 0)
        let daemon = try DaemonProcess(
            ["--check-configuration"], log: directory.path + "/pttd.log",
            environment: ["XDG_CONFIG_HOME": directory.path])
        #expect(daemon.status() == 1)
        #expect(
            log(directory).contains("\(path): cannot be read: it is a symbolic link to a missing file"),
            "\(log(directory))")
    }

    @Test func `a check names a microphone that is not there`() throws {
        let directory = try TemporaryDirectory()
        let path = directory.path + "/pttd.toml"
        try AtomicFile.write(Array("[audio]\nmicrophone = \"hw:99\"\n".utf8), to: path)
        let daemon = try DaemonProcess(
            ["--check", "--config", path, "--state", directory.path], log: directory.path + "/pttd.log")
        #expect(daemon.status() == 78)
        #expect(log(directory).contains("audio.microphone: "), "\(log(directory))")
    }

    @Test func `both buses have one connection where they are one bus, and it owns the name that the policy protects`()
        async throws
    {
        try await withBus { fixture in
            let directory = try TemporaryDirectory()
            let daemon = try DaemonProcess.start(fixture, in: directory, audio: "[nearby]\nbluetooth = false")
            #expect(try await isReady(directory))
            let bus = try await fixture.connect()
            func ask(_ member: String, _ name: String? = nil) async throws -> DBusValue? {
                try await bus.call(
                    destination: "org.freedesktop.DBus", path: "/org/freedesktop/DBus",
                    interface: "org.freedesktop.DBus", method: member, arguments: name.map { [.string($0)] } ?? []
                ).first
            }
            var own: [String] = []
            for case .string(let name) in try await ask("ListNames")?.arrayValue ?? [] where name.hasPrefix(":") {
                if case .uint32(UInt32(daemon.identifier))? = try await ask("GetConnectionUnixProcessID", name) {
                    own.append(name)
                }
            }
            #expect(own.count == 1, "\(own)")
            #expect(try await ask("GetNameOwner", "org.pttd") == own.first.map { .string($0) })
            await bus.close()
            #expect(daemon.status(after: SIGTERM) == 0)
        }
    }

    @Test func `a second daemon on the same state says who has it, takes its time to end, and disturbs nothing`()
        async throws
    {
        try await withBus { fixture in
            let directory = try TemporaryDirectory()
            let first = try DaemonProcess.start(fixture, in: directory)
            #expect(try await isReady(directory))
            let begun = ContinuousClock.now
            let second = try DaemonProcess(
                ["--config", directory.path + "/pttd.toml", "--state", directory.path],
                log: directory.path + "/pttd.log")
            #expect(second.status() == 1)
            #expect(ContinuousClock.now - begun > .seconds(2), "no supervisor starts it hotly")
            #expect(log(directory).contains("another process (\(first.identifier)) uses it"), "\(log(directory))")
            #expect(first.status(after: SIGTERM) == 0)
        }
    }

    @Test func `what a person has to mend ends for good, and what may pass after a pause`() {
        #expect(!StartFailure.mayPass(FileError("read", "/x", .noPermission)))
        #expect(StartFailure.mayPass(FileError("write", "/x", .diskFull)))
        #expect(StartFailure.status(FileError("read", "/x", .missing)) == StartFailure.mistake)
    }
}

extension DaemonProcess {
    /// Its exit status, once it has ended, or 128 and the signal that ended it; with `signal`, that is sent first.
    func status(after signal: Int32? = nil) -> Int32 {
        end(signal ?? 0)
        let raw = lastStatus
        return raw & 0x7F == 0 ? (raw >> 8) & 0xFF : 128 + (raw & 0x7F)
    }
}
