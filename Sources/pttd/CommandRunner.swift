// Runs the programs that accessories' controls start, in a user's own daemon.
import Accessories
import Glibc
import Logging
import MonotonicTime
import Reactor

/// Why a command was not run.
enum CommandError: Error, Equatable, CustomStringConvertible {
    /// The previous command of the same control is still running.
    case running(program: String)
    /// Too many commands of all controls are running.
    case tooMany
    /// It could not be started (errno).
    case notStarted(program: String, code: Int32)

    /// What is wrong and what to do.
    var description: String {
        switch self {
        case .running(let program):
            "the command of the previous press, \(program), is still running; wait for it to end"
        case .tooMany:
            "\(CommandRunner.commandsMax) commands are running already, which is the limit; wait until one ends"
        case .notStarted(let program, ENOENT):
            "\(program) was not found; give its full path: pttd has its own PATH (\(ProgramFile.path))"
        case .notStarted(let program, EACCES): "\(program) may not be executed; make it executable (chmod +x)"
        case .notStarted(let program, let code): "\(program) did not start: \(String(cString: strerror(code)))"
        }
    }
}

/// Runs the commands that controls are bound to. A command runs without a shell, at most one at a time per control. Its
/// environment has what a program of the user's session needs and nothing else of this daemon's. Its output goes where
/// this daemon's goes.
actor CommandRunner {
    /// How long a command may run. Then it is killed together with all its child processes.
    static let limit = Duration.seconds(30)
    /// Commands of all controls at the same time.
    static let commandsMax = 8
    /// Variables that a command inherits from this daemon, in addition to `PATH`, `PTTD_ACCESSORY` and `PTTD_CONTROL`.
    static let inherited = [
        "HOME", "USER", "LOGNAME", "SHELL", "LANG", "LANGUAGE", "LC_ALL", "LC_CTYPE", "LC_MESSAGES", "TZ",
        "XDG_RUNTIME_DIR",
        "XDG_SESSION_TYPE", "XDG_CURRENT_DESKTOP", "DBUS_SESSION_BUS_ADDRESS", "DISPLAY", "WAYLAND_DISPLAY",
        "XAUTHORITY",
    ]

    private struct Running {
        let process: pid_t
        let program: String
        let watch: ProcessWatch
        let timer: EventLoop.Timer
    }

    nonisolated let loop: EventLoop
    nonisolated var unownedExecutor: UnownedSerialExecutor { loop.asUnownedSerialExecutor() }
    private let logger: Logger
    private let limit: Duration
    private var running: [AccessorySource: Running] = [:]

    /// - Parameter limit: How long a command may run.
    init(loop: EventLoop, logger: Logger, limit: Duration = CommandRunner.limit) {
        self.loop = loop
        self.logger = logger
        self.limit = limit
    }

    /// How many run.
    var count: Int { running.count }

    /// Starts a command; returns at once.
    ///
    /// - Parameter words: The program and its arguments; not empty.
    func run(_ words: [String], for source: AccessorySource) throws(CommandError) {
        guard let program = words.first else { return }
        if let earlier = running[source] { throw .running(program: earlier.program) }
        guard running.count < Self.commandsMax else { throw .tooMany }
        let process = try start(words, for: source)
        do throws(SystemError) {
            let watch = try ProcessWatch(process, on: loop) { [weak self] in self?.assumeIsolated { $0.ended(source) } }
            let timer = loop.schedule(after: limit) { [weak self] in self?.assumeIsolated { $0.tooLong(source) } }
            running[source] = Running(process: process, program: program, watch: watch, timer: timer)
        } catch {
            SpawnedProgram.kill(process, on: loop)
            throw .notStarted(program: program, code: error.code)
        }
        logger.info("command started", metadata: ["source": "\(source)", "program": "\(program)", "pid": "\(process)"])
    }

    /// Kills what runs; the daemon ends.
    func stop() {
        for entry in running.values {
            entry.watch.cancel()
            entry.timer.cancel()
            SpawnedProgram.kill(entry.process, on: loop)
        }
        running = [:]
    }

    // MARK: Start and end

    private func start(_ words: [String], for source: AccessorySource) throws(CommandError) -> Int32 {
        do throws(SystemError) {
            return try SpawnedProgram.start(words, environment: Self.environment(for: source))
        } catch {
            throw .notStarted(program: words[0], code: error.code)
        }
    }

    private func ended(_ source: AccessorySource) {
        guard let entry = running.removeValue(forKey: source) else { return }
        entry.timer.cancel()
        let status = SpawnedProgram.end(of: entry.process)
        let how = status < 0 ? "signal \(-status)" : "status \(status)"
        logger.log(
            level: status == 0 ? .info : .warning, "command ended",
            metadata: ["source": "\(source)", "program": "\(entry.program)", "with": "\(how)"])
    }

    private func tooLong(_ source: AccessorySource) {
        guard let entry = running[source] else { return }
        logger.warning(
            "command killed after \(limit); run longer work as a service (systemd-run --user)",
            metadata: ["source": "\(source)", "program": "\(entry.program)"])
        // `ended` follows.
        kill(-entry.process, SIGKILL)
    }

    private static func environment(for source: AccessorySource) -> [String] {
        let own = inherited.compactMap { name in getenv(name).map { "\(name)=\(String(cString: $0))" } }
        return own + [
            "PATH=\(ProgramFile.path)", "PTTD_ACCESSORY=\(source.accessory)", "PTTD_CONTROL=\(source.control.rawValue)",
        ]
    }
}
