// The real `pttd` as a process of its own, to be killed and started again.
import BusTestSupport
import FoundationEssentials
import Glibc
import Synchronization
import Testing

/// A running `pttd`; it is killed with the object.
final class DaemonProcess: Sendable {
    let identifier: pid_t
    private let isOver = Mutex(false)
    private let ended = Mutex<Int32>(0)

    /// How it ended, in the form of waitpid(2).
    var lastStatus: Int32 { ended.withLock { $0 } }

    /// Starts the `pttd` beside the running tests; what it logs goes to `log`.
    ///
    /// - Parameter environment: Its variables that differ from those of the tests.
    init(_ arguments: [String], log: String, environment: [String: String] = [:]) throws {
        let program = try #require(Self.program, "pttd is not beside the tests; build all of the package")
        var actions = posix_spawn_file_actions_t()
        posix_spawn_file_actions_init(&actions)
        defer { posix_spawn_file_actions_destroy(&actions) }
        posix_spawn_file_actions_addopen(&actions, 0, "/dev/null", O_RDONLY, 0)
        posix_spawn_file_actions_addopen(&actions, 1, log, O_WRONLY | O_CREAT | O_APPEND, 0o600)
        posix_spawn_file_actions_adddup2(&actions, 1, 2)
        var vector: [UnsafeMutablePointer<CChar>?] = ([program] + arguments).map { strdup($0) } + [nil]
        let variables = ProcessInfo.processInfo.environment.merging(environment) { $1 }
        var settings: [UnsafeMutablePointer<CChar>?] = variables.map { strdup("\($0)=\($1)") } + [nil]
        defer { for text in vector + settings { free(text) } }
        var started: pid_t = 0
        try #require(posix_spawn(&started, program, &actions, nil, &vector, &settings) == 0)
        identifier = started
    }

    deinit { end(SIGKILL) }

    /// A `pttd` on the test's bus, with files for sound and its state and log in `directory`.
    ///
    /// - Parameters:
    ///   - speaker: Another one than a file.
    ///   - audio: More settings of sound.
    static func start(
        _ fixture: BusFixture, in directory: TemporaryDirectory, speaker: String? = nil, audio: String = "",
        log: String? = nil, options: [String] = []
    ) throws -> DaemonProcess {
        let configuration = """
            [daemon]
            bus = "\(fixture.bus.address)"
            bluez-bus = "\(fixture.bus.address)"
            [audio]
            microphone = "wav:\(try directory.silence())"
            speaker = "\(speaker ?? "wav:\(directory.path)/heard.wav")"
            \(audio)
            """
        try Data(configuration.utf8).write(to: URL(filePath: directory.path + "/pttd.toml"))
        return try DaemonProcess(
            ["--config", directory.path + "/pttd.toml", "--state", directory.path] + options,
            log: log ?? directory.path + "/pttd.log")
    }

    /// Sends the signal and waits for the end.
    func end(_ signal: Int32) {
        guard
            isOver.withLock({ isOver in
                defer { isOver = true }
                return !isOver
            })
        else { return }
        kill(identifier, signal)
        var status: Int32 = 0
        waitpid(identifier, &status, 0)
        ended.withLock { $0 = status }
    }

    /// `swift test` may run the tests from a helper program; their folder is then in the arguments.
    private static var program: String? {
        var path = [CChar](repeating: 0, count: 4_096)
        _ = readlink("/proc/self/exe", &path, path.count - 1)
        let own = String(decoding: path.prefix { $0 != 0 }.map { UInt8(truncatingIfNeeded: $0) }, as: UTF8.self)
        for var folder in CommandLine.arguments + [own] {
            while let slash = folder.lastIndex(of: "/") {
                folder = String(folder[..<slash])
                if access(folder + "/pttd", X_OK) == 0 { return folder + "/pttd" }
            }
        }
        return nil
    }
}
