// The program itself, as a process of its own, and what asks its page.
import Glibc
import RelayHTTP
import RelayProtocol
import Synchronization
import Testing

@testable import pttrelay

/// `pttrelay run` with a page for the operator; killed at the end.
final class RunningProgram: Sendable {
    let folder: StateFolder
    let process: pid_t
    let pagePort: UInt16
    private let errors: String

    /// Starts it, and waits until it is ready.
    init() throws {
        folder = try StateFolder()
        let (folder, port) = (folder, try Self.freePort())
        pagePort = port
        errors = folder.path + "/errors"
        try Self.write(
            "[relay]\nlisten = \"127.0.0.1:0\"\nworkers = 1\n[operator]\nlisten = \"127.0.0.1:\(port)\"\n",
            to: folder.path + "/pttrelay.toml")
        var ends: [Int32] = [0, 0]
        try #require(pipe(&ends) == 0)
        var actions = posix_spawn_file_actions_t()
        posix_spawn_file_actions_init(&actions)
        defer { posix_spawn_file_actions_destroy(&actions) }
        posix_spawn_file_actions_adddup2(&actions, ends[1], STDOUT_FILENO)
        posix_spawn_file_actions_addopen(&actions, STDERR_FILENO, errors, O_WRONLY | O_CREAT | O_TRUNC, 0o600)
        for end in ends { posix_spawn_file_actions_addclose(&actions, end) }
        let words = [
            try Self.program(), "run", "--config", folder.path + "/pttrelay.toml", "--state", folder.path, "--channel",
            "Team",
        ]
        var arguments: [UnsafeMutablePointer<CChar>?] = words.map { strdup($0) } + [nil]
        defer { for argument in arguments { free(argument) } }
        var id: pid_t = 0
        let result = posix_spawn(&id, words[0], &actions, nil, &arguments, environ)
        close(ends[1])
        defer { close(ends[0]) }
        try #require(result == 0)
        process = id
        var text = ""
        var buffer = [UInt8](repeating: 0, count: 4_096)
        while !text.contains("ready\n") {
            let count = read(ends[0], &buffer, buffer.count)
            if count < 0, errno == EINTR { continue }
            try #require(count > 0, "it ended: \(log)")
            text += String(decoding: buffer.prefix(count), as: UTF8.self)
        }
    }

    deinit {
        kill(process, SIGKILL)
        while waitpid(process, nil, 0) < 0, errno == EINTR {}
        for name in ["errors", "pttrelay.toml"] { unlink(folder.path + "/" + name) }
    }

    /// What it has logged.
    var log: String { Self.contents(errors) }

    /// Whether it runs.
    var isRunning: Bool { waitpid(process, nil, WNOHANG) == 0 }

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

    private func limit(to count: Int) throws {
        // prlimit(2) is not in Swift's view of the C library.
        try #require(system("prlimit --pid \(process) --nofile=\(count):") == 0)
    }

    private static func contents(_ path: String) -> String {
        let descriptor = open(path, O_RDONLY | O_CLOEXEC)
        guard descriptor >= 0 else { return "" }
        defer { close(descriptor) }
        var buffer = [UInt8](repeating: 0, count: 65_536)
        let count = read(descriptor, &buffer, buffer.count)
        return String(decoding: buffer.prefix(max(0, count)), as: UTF8.self)
    }

    private static func write(_ text: String, to path: String) throws {
        let file = try #require(fopen(path, "w"))
        fputs(text, file)
        fclose(file)
    }

    private static func freePort() throws -> UInt16 {
        let descriptor = socket(AF_INET, Int32(SOCK_STREAM.rawValue), 0)
        defer { close(descriptor) }
        var address = PageRequest.address(port: 0)
        var size = socklen_t(MemoryLayout<sockaddr_in>.size)
        let result = withUnsafeMutablePointer(to: &address) {
            $0.withMemoryRebound(to: sockaddr.self, capacity: 1) {
                bind(descriptor, $0, size) == 0 && getsockname(descriptor, $0, &size) == 0
            }
        }
        try #require(result)
        return UInt16(bigEndian: address.sin_port)
    }

    /// The program, which is built beside the tests.
    private static func program() throws -> String {
        var buffer = [CChar](repeating: 0, count: 4_096)
        let length = max(0, readlink("/proc/self/exe", &buffer, buffer.count))
        let own = String(decoding: buffer.prefix(length).map { UInt8(bitPattern: $0) }, as: UTF8.self)
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
        var patience = timeval(tv_sec: seconds, tv_usec: 0)
        setsockopt(descriptor, SOL_SOCKET, SO_RCVTIMEO, &patience, socklen_t(MemoryLayout<timeval>.size))
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
