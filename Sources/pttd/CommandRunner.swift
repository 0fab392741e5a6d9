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
            "\(program) was not found; give its full path: pttd has its own PATH (\(CommandRunner.path))"
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
    /// How often it is looked whether a killed process has ended.
    private static let reapInterval = Duration.milliseconds(100)
    /// Where programs without a slash in their name are looked for.
    static let path = "/usr/local/bin:/usr/bin:/bin"
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
            kill(-process, SIGKILL)
            reap(process)
            throw .notStarted(program: program, code: error.code)
        }
        logger.info("command started", metadata: ["source": "\(source)", "program": "\(program)", "pid": "\(process)"])
    }

    /// Kills what runs; the daemon ends.
    func stop() {
        for entry in running.values {
            entry.watch.cancel()
            entry.timer.cancel()
            kill(-entry.process, SIGKILL)
            reap(entry.process)
        }
        running = [:]
    }

    // MARK: Start and end

    private func start(_ words: [String], for source: AccessorySource) throws(CommandError) -> pid_t {
        var files = posix_spawn_file_actions_t()
        var attributes = posix_spawnattr_t()
        posix_spawn_file_actions_init(&files)
        posix_spawnattr_init(&attributes)
        defer {
            posix_spawn_file_actions_destroy(&files)
            posix_spawnattr_destroy(&attributes)
        }
        posix_spawn_file_actions_addopen(&files, STDIN_FILENO, "/dev/null", O_RDONLY, 0)
        // The journal, under systemd.
        posix_spawn_file_actions_adddup2(&files, STDERR_FILENO, STDOUT_FILENO)
        do throws(SystemError) {
            try addClosing(from: STDERR_FILENO + 1, to: &files)
        } catch {
            throw .notStarted(program: words[0], code: error.code)
        }
        // This daemon blocks signals that end programs, and ignores SIGPIPE.
        var none = sigset_t()
        sigemptyset(&none)
        posix_spawnattr_setsigmask(&attributes, &none)
        var all = sigset_t()
        sigfillset(&all)
        posix_spawnattr_setsigdefault(&attributes, &all)
        // A group of its own, which is killed as a whole.
        posix_spawnattr_setpgroup(&attributes, 0)
        posix_spawnattr_setflags(
            &attributes, Int16(POSIX_SPAWN_SETSIGMASK | POSIX_SPAWN_SETSIGDEF | POSIX_SPAWN_SETPGROUP))

        let arguments = Self.vector(words)
        let environment = Self.vector(Self.environment(for: source))
        defer { for text in arguments + environment { free(text) } }
        var process = pid_t()
        let code = posix_spawn(&process, Self.file(words[0]), &files, &attributes, arguments, environment)
        guard code == 0 else { throw .notStarted(program: words[0], code: code) }
        return process
    }

    private func ended(_ source: AccessorySource) {
        guard let entry = running.removeValue(forKey: source) else { return }
        entry.timer.cancel()
        var status: Int32 = 0
        // Its watch tells of its end, so this does not wait.
        waitpid(entry.process, &status, WNOHANG)
        let how = status & 0x7F == 0 ? "status \(status >> 8 & 0xFF)" : "signal \(status & 0x7F)"
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

    /// Reaps a killed process, now or a moment later: one that waits in the kernel for a disk dies when the disk answers.
    private func reap(_ process: pid_t) {
        var status: Int32 = 0
        guard waitpid(process, &status, WNOHANG) == 0 else { return }
        loop.schedule(after: Self.reapInterval) { [weak self] in self?.assumeIsolated { $0.reap(process) } }
    }

    private static func file(_ program: String) -> String {
        guard !program.contains("/") else { return program }
        let files = path.split(separator: ":").map { "\($0)/\(program)" }
        return files.first { access($0, X_OK) == 0 } ?? files.last ?? program
    }

    private static func environment(for source: AccessorySource) -> [String] {
        let own = inherited.compactMap { name in getenv(name).map { "\(name)=\(String(cString: $0))" } }
        return own + [
            "PATH=\(path)", "PTTD_ACCESSORY=\(source.accessory)", "PTTD_CONTROL=\(source.control.rawValue)",
        ]
    }

    private static func vector(_ texts: [String]) -> [UnsafeMutablePointer<CChar>?] { texts.map { strdup($0) } + [nil] }
}
