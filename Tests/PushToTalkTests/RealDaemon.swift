// The real pttd as a process of a test's own: its bus, its state, and sound in files.
import BusTestSupport
import DBus
import Foundation
import Glibc
import PTTBus
import Testing

@testable import PushToTalk

/// A `pttd` on a private bus.
final class RealDaemon {
    private let fixture: BusFixture
    private let directory: String
    private var process: Process?

    /// Its state directory.
    var state: String { "\(directory)/state" }

    /// A running pttd with `[policy]` and the like from `settings`.
    init(_ fixture: BusFixture, settings: String = "") async throws {
        self.fixture = fixture
        directory = fixture.bus.directory + "/pttd"
        try FileManager.default.createDirectory(atPath: directory, withIntermediateDirectories: true)
        try Self.silence.write(to: URL(fileURLWithPath: directory + "/microphone.wav"))
        try """
        \(settings)
        [daemon]
        name = "Test"
        bus = "\(fixture.bus.address)"
        bluez-bus = "\(fixture.bus.address)"
        state = "\(directory)/state"
        [ui]
        desktop = false
        [audio]
        microphone = "wav:\(directory)/microphone.wav"
        speaker = "wav:\(directory)/speaker.wav"
        """.write(toFile: directory + "/pttd.toml", atomically: true, encoding: .utf8)
        try await start()
    }

    deinit {
        kill()
        try? FileManager.default.removeItem(atPath: directory)
    }

    /// A built program of this package.
    static func program(_ name: String) throws -> URL {
        // The tests are a bundle beside the programs.
        let bundle = CommandLine.arguments.first { $0.hasSuffix(".xctest") } ?? Bundle.main.executablePath ?? ""
        let program = URL(fileURLWithPath: bundle).deletingLastPathComponent().appendingPathComponent(name)
        try #require(FileManager.default.isExecutableFile(atPath: program.path), "\(program.path) is not built")
        return program
    }

    /// Starts it (again), and returns when it is on the bus.
    func start() async throws {
        let process = Process()
        process.executableURL = try Self.program("pttd")
        process.arguments = ["--config", directory + "/pttd.toml", "--log-level", "warning"]
        process.standardOutput = FileHandle.nullDevice
        if ProcessInfo.processInfo.environment["PTTD_TEST_LOG"] == nil {
            process.standardError = FileHandle.nullDevice
        }
        try process.run()
        self.process = process
        let watcher = try await fixture.connect()
        let isThere = try await eventually(.seconds(20)) {
            let isServed = try await watcher.owner(of: PTTBus.name) != nil
            return isServed || !process.isRunning
        }
        try #require(isThere && process.isRunning, "pttd does not run; PTTD_TEST_LOG=1 shows its log")
        await watcher.close()
    }

    /// SIGKILL, and waits for the end.
    func kill() {
        guard let process else { return }
        Glibc.kill(process.processIdentifier, SIGKILL)
        process.waitUntilExit()
        self.process = nil
    }

    /// A second of silence: 16 bits, one channel, 48 kHz.
    private static var silence: Data {
        func bytes(_ value: UInt32, _ count: Int) -> [UInt8] { (0..<count).map { UInt8(value >> (8 * $0) & 0xFF) } }
        let size: UInt32 = 96_000
        var header = Array("RIFF".utf8) + bytes(36 + size, 4) + Array("WAVEfmt ".utf8) + bytes(16, 4)
        header += bytes(1, 2) + bytes(1, 2) + bytes(48_000, 4) + bytes(96_000, 4) + bytes(2, 2) + bytes(16, 2)
        return Data(header + Array("data".utf8) + bytes(size, 4)) + Data(count: Int(size))
    }
}
