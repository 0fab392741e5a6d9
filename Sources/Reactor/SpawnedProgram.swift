// Starts programs, without a shell and without anything of this one's that they need not have, and reports their end.
import CLinux
import Glibc

/// Where programs without a slash in their name are looked for.
public enum ProgramFile {
    /// The folders, as in `PATH`.
    public static let path = "/usr/local/bin:/usr/bin:/bin"

    /// The file of a program that may be executed; nil: there is none.
    public static func path(of program: String) -> String? {
        if program.contains("/") { return access(program, X_OK) == 0 ? program : nil }
        return candidates(program).first { access($0, X_OK) == 0 }
    }

    /// The file to start: one that is not there gives the error of the last folder.
    static func toStart(_ program: String) -> String {
        program.contains("/") ? program : path(of: program) ?? candidates(program).last ?? program
    }

    private static func candidates(_ program: String) -> [String] {
        path.split(separator: ":").map { "\($0)/\(program)" }
    }
}

/// A program that this one has started.
public enum SpawnedProgram {
    /// How often it is looked whether a killed process has ended.
    private static let reapInterval = Duration.milliseconds(100)

    /// Starts a program as the leader of a process group of its own, with all signals as they are for a new program and without the
    /// capabilities that this one was given.
    ///
    /// - Parameters:
    ///   - words: The program and its arguments; not empty.
    ///   - environment: All of its environment, as `NAME=value`.
    ///   - input: Its standard input; nil: nothing.
    ///   - output: Its standard output, and what it writes to standard error is dropped; nil: both go where this program's errors go.
    /// - Returns: The process, which has to be waited for.
    /// - Throws: `SystemError`.
    public static func start(
        _ words: [String], environment: [String], input: Int32? = nil, output: Int32? = nil
    ) throws(SystemError) -> Int32 {
        var files = posix_spawn_file_actions_t()
        var attributes = posix_spawnattr_t()
        posix_spawn_file_actions_init(&files)
        posix_spawnattr_init(&attributes)
        defer {
            posix_spawn_file_actions_destroy(&files)
            posix_spawnattr_destroy(&attributes)
        }
        if let input {
            posix_spawn_file_actions_adddup2(&files, input, STDIN_FILENO)
        } else {
            posix_spawn_file_actions_addopen(&files, STDIN_FILENO, "/dev/null", O_RDONLY, 0)
        }
        if let output {
            posix_spawn_file_actions_adddup2(&files, output, STDOUT_FILENO)
            posix_spawn_file_actions_addopen(&files, STDERR_FILENO, "/dev/null", O_WRONLY, 0)
        } else {
            // The journal, under systemd.
            posix_spawn_file_actions_adddup2(&files, STDERR_FILENO, STDOUT_FILENO)
        }
        let closing = ptt_spawn_close_from(&files, STDERR_FILENO + 1)
        guard closing == 0 else { throw SystemError("posix_spawn_file_actions_addclosefrom_np", code: closing) }
        // This program may block signals that end programs, and ignore SIGPIPE.
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

        // The right to send Bluetooth commands, say (AmbientCapabilities= of the system service).
        ptt_clear_ambient_capabilities()
        let arguments = vector(words)
        let variables = vector(environment)
        defer { for text in arguments + variables { free(text) } }
        var process = pid_t()
        let code = posix_spawn(
            &process, ProgramFile.toStart(words.first ?? ""), &files, &attributes, arguments, variables)
        guard code == 0 else { throw SystemError("posix_spawn", code: code) }
        return process
    }

    /// Kills a process and its group, and reaps it now or a moment later: one that waits in the kernel for a disk dies when the disk
    /// answers. On the loop.
    public static func kill(_ process: Int32, on loop: EventLoop) {
        _ = Glibc.kill(-process, SIGKILL)
        reap(process, on: loop)
    }

    private static func reap(_ process: Int32, on loop: EventLoop) {
        var status: Int32 = 0
        guard waitpid(process, &status, WNOHANG) == 0 else { return }
        loop.schedule(after: reapInterval) { [weak loop] in
            if let loop { reap(process, on: loop) }
        }
    }

    /// How a process ended that has ended, and is reaped by this: its exit status, or the negative number of a signal.
    public static func end(of process: Int32) -> Int32 {
        var status: Int32 = 0
        waitpid(process, &status, WNOHANG)
        return status & 0x7F == 0 ? status >> 8 & 0xFF : -(status & 0x7F)
    }

    private static func vector(_ texts: [String]) -> [UnsafeMutablePointer<CChar>?] { texts.map { strdup($0) } + [nil] }
}

/// Tells once when a child process ends. Confined to its loop.
public final class ProcessWatch {
    private let descriptor: Int32
    private var watch: EventLoop.Watch?

    /// Watches the child `process` of this one; it has to be waited for (waitpid(2)) when it has ended.
    ///
    /// - Parameter handler: Called on the loop, once.
    /// - Throws: `SystemError`: there is no such child, or this process has too many descriptors.
    public init(_ process: Int32, on loop: EventLoop, _ handler: @escaping () -> Void) throws(SystemError) {
        descriptor = ptt_pidfd_open(process)
        guard descriptor >= 0 else { throw SystemError("pidfd_open") }
        watch = try loop.watch(descriptor, for: .readable) { [weak self] _ in
            self?.cancel()
            handler()
        }
    }

    /// Tells nothing any more.
    public func cancel() {
        watch?.cancel()
        watch = nil
    }

    deinit {
        watch?.cancel()
        if descriptor >= 0 { close(descriptor) }
    }
}
