// The program itself, as a process of its own, and what asks its page.
import Glibc
import RelayHTTP
import RelayProtocol
import Synchronization
import TestSupport
import Testing

@testable import pttrelay

/// `pttrelay run` with a page for the operator; killed at the end.
final class RunningProgram: Sendable {
    let folder: StateFolder
    let process: pid_t
    let pagePort: UInt16
    private let settings: String
    /// Whether its end was waited for: its number may be another process's then.
    private let isOver = Mutex(false)

    /// Starts it, on a state directory of its own unless an earlier one is given, and waits until it is ready.
    init(in earlier: StateFolder? = nil, port: UInt16 = 0, logLevel: String = "info", isAwaited: Bool = true) throws {
        folder = try earlier ?? StateFolder()
        pagePort = try freePort()
        settings =
            "[relay]\nlisten = \"127.0.0.1:\(port)\"\nworkers = 1\n[operator]\nlisten = \"127.0.0.1:\(pagePort)\"\n"
        let file = folder.path + "/pttrelay.toml"
        try Self.write(settings, to: file)
        process = try Self.spawn(
            ["run", "--config", file, "--state", folder.path, "--channel", "Team", "--log-level", logLevel],
            output: folder.path + "/output", errors: folder.path + "/errors")
        let deadline = ContinuousClock.now + .seconds(30)
        while isAwaited, !said.contains("ready\n") {
            try #require(isRunning && ContinuousClock.now < deadline, "it is not ready: \(log)")
            usleep(2_000)
        }
    }

    deinit { end() }

    /// Kills it, and waits until it is gone.
    ///
    /// - Returns: Whether it ran until then.
    @discardableResult
    func end() -> Bool {
        isOver.withLock { isOver in
            guard !isOver else { return false }
            isOver = true
            kill(process, SIGKILL)
            var status: Int32 = 0
            while waitpid(process, &status, 0) < 0, errno == EINTR {}
            return status & 0x7F == SIGKILL
        }
    }

    /// What it has printed.
    var said: String { Self.contents(folder.path + "/output") }

    /// What it has logged.
    var log: String { Self.contents(folder.path + "/errors") }

    /// Whether it runs.
    var isRunning: Bool {
        isOver.withLock { isOver in
            if !isOver { isOver = waitpid(process, nil, WNOHANG) != 0 }
            return !isOver
        }
    }

    /// The processor time that it has used.
    var processorTime: Duration {
        // After the name, which is in parentheses: state is field 3, utime 14, stime 15 (proc(5)), in ticks.
        let fields = Self.contents("/proc/\(process)/stat").split(separator: ")").last?.split(separator: " ") ?? []
        let ticks = fields.count > 12 ? (Int(fields[11]) ?? 0) + (Int(fields[12]) ?? 0) : 0
        return .milliseconds(ticks * 1_000 / sysconf(Int32(_SC_CLK_TCK)))
    }

    /// Lets it open no file any more.
    func exhaust() throws {
        let directory = try #require(opendir("/proc/\(process)/fd"))
        defer { closedir(directory) }
        var used: Set<Int> = []
        while let entry = readdir(directory) {
            let name = withUnsafePointer(to: &entry.pointee.d_name) {
                $0.withMemoryRebound(to: CChar.self, capacity: 256) { String(cString: $0) }
            }
            if let number = Int(name) { used.insert(number) }
        }
        try limit(to: (0...used.count).first { !used.contains($0) } ?? used.count)
    }

    /// Lets it open files again.
    func relieve() throws { try limit(to: 256) }

    private func limit(to count: Int) throws { try limit("nofile=\(count)") }

    /// Lets its files grow to so many bytes; nil: to any size.
    func limitFiles(to byteCount: Int?) throws { try limit("fsize=\(byteCount.map { "\($0)" } ?? "unlimited")") }

    private func limit(_ resource: String) throws {
        // prlimit(2) is not in Swift's view of the C library.
        try #require(system("prlimit --pid \(process) --\(resource):") == 0)
    }

    /// Adds `lines` to the configuration that it was started with.
    func configure(_ lines: String) throws { try Self.write(settings + lines, to: folder.path + "/pttrelay.toml") }

    /// Starts the program with these words, and with `more` of the form `NAME=VALUE` in its environment; what it says goes to the files.
    static func spawn(_ words: [String], output: String, errors: String, environment more: [String] = []) throws
        -> pid_t
    {
        var actions = posix_spawn_file_actions_t()
        posix_spawn_file_actions_init(&actions)
        defer { posix_spawn_file_actions_destroy(&actions) }
        posix_spawn_file_actions_addopen(&actions, STDIN_FILENO, "/dev/null", O_RDONLY, 0)
        posix_spawn_file_actions_addopen(&actions, STDOUT_FILENO, output, O_WRONLY | O_CREAT | O_TRUNC, 0o600)
        posix_spawn_file_actions_addopen(&actions, STDERR_FILENO, errors, O_WRONLY | O_CREAT | O_TRUNC, 0o600)
        let path = try program()
        var arguments: [UnsafeMutablePointer<CChar>?] = ([path] + words).map { strdup($0) } + [nil]
        defer { for argument in arguments { free(argument) } }
        var inherited: [UnsafeMutablePointer<CChar>?] = []
        var entry = environ
        while let variable = entry.pointee {
            inherited.append(variable)
            entry += 1
        }
        let added: [UnsafeMutablePointer<CChar>?] = more.map { strdup($0) }
        defer { for variable in added { free(variable) } }
        var variables = inherited + added + [nil]
        var id: pid_t = 0
        try #require(posix_spawn(&id, path, &actions, nil, &arguments, &variables) == 0)
        return id
    }

    /// The whole of a file; empty when it cannot be read.
    static func bytes(of path: String) -> [UInt8] {
        let descriptor = open(path, O_RDONLY | O_CLOEXEC)
        guard descriptor >= 0 else { return [] }
        defer { close(descriptor) }
        var bytes: [UInt8] = []
        var buffer = [UInt8](repeating: 0, count: 65_536)
        while true {
            let count = read(descriptor, &buffer, buffer.count)
            guard count > 0 else { return bytes }
            bytes += buffer.prefix(count)
        }
    }

    static func contents(_ path: String) -> String { String(decoding: bytes(of: path), as: UTF8.self) }

    static func write(_ text: String, to path: String) throws {
        let file = try #require(fopen(path, "w"))
        fputs(text, file)
        fclose(file)
    }

    /// The program, which is built beside the tests.
    private static func program() throws -> String {
        var buffer = [CChar](repeating: 0, count: 4_096)
        let length = max(0, readlink("/proc/self/exe", &buffer, buffer.count))
        let own = String(decoding: buffer.prefix(length).map { UInt8(truncatingIfNeeded: $0) }, as: UTF8.self)
        for path in CommandLine.arguments + [own] {
            let folder = path.split(separator: "/", omittingEmptySubsequences: false).dropLast()
            for depth in 0..<min(5, folder.count) {
                let candidate = folder.dropLast(depth).joined(separator: "/") + "/pttrelay"
                var status = stat()
                if access(candidate, X_OK) == 0, stat(candidate, &status) == 0, status.st_mode & S_IFMT == S_IFREG {
                    return candidate
                }
            }
        }
        throw RelayStateError(description: "pttrelay is not built beside the tests")
    }
}

/// A request to an operator's page on this machine: sent at once, answered whenever.
final class PageRequest: Sendable {
    private let descriptor: Int32

    /// Connects and asks for `path`; nil: nobody listens there.
    init?(_ path: String, port: UInt16, authorization: String? = nil) {
        descriptor = socket(AF_INET, Int32(SOCK_STREAM.rawValue) | O_CLOEXEC, 0)
        guard descriptor >= 0 else { return nil }
        var address = Self.address(port: port)
        let result = withUnsafePointer(to: &address) {
            $0.withMemoryRebound(to: sockaddr.self, capacity: 1) {
                connect(descriptor, $0, socklen_t(MemoryLayout<sockaddr_in>.size))
            }
        }
        guard result == 0 else { return nil }
        let fields = authorization.map { "Authorization: Bearer \($0)\r\n" } ?? ""
        let text = Array("GET \(path) HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\(fields)\r\n".utf8)
        _ = send(descriptor, text, text.count, Int32(MSG_NOSIGNAL))
    }

    deinit { if descriptor >= 0 { close(descriptor) } }

    /// The status of the answer; nil: there is none within `seconds`. Blocks.
    func status(within seconds: Int) -> Int? {
        var timeout = timeval(tv_sec: seconds, tv_usec: 0)
        setsockopt(descriptor, SOL_SOCKET, SO_RCVTIMEO, &timeout, socklen_t(MemoryLayout<timeval>.size))
        var buffer = [UInt8](repeating: 0, count: 256)
        let count = recv(descriptor, &buffer, buffer.count, 0)
        guard count > 12 else { return nil }
        return Int(String(decoding: buffer[9..<12], as: UTF8.self))
    }

    static func address(port: UInt16) -> sockaddr_in {
        var address = sockaddr_in()
        address.sin_family = sa_family_t(AF_INET)
        address.sin_port = port.bigEndian
        address.sin_addr.s_addr = UInt32(0x7F00_0001).bigEndian
        return address
    }
}
