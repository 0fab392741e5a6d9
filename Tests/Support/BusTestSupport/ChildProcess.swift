// A program that a test runs: its input a pipe, what it says in files of its own.
import Glibc
import MonotonicTime
import Synchronization

/// A running program. It is killed, and its files go, with the object.
public final class ChildProcess: Sendable {
    /// Why it does not run.
    public struct Failure: Error, CustomStringConvertible {
        /// The words.
        public let description: String

        /// For the reader.
        public init(description: String) { self.description = description }
    }

    /// Its process id.
    public let processIdentifier: pid_t
    private let directory: String
    private let input: Mutex<Int32>
    private let status = Mutex<Int32?>(nil)

    /// Starts `arguments[0]`, found as a shell finds it, with this test's environment changed by `environment`.
    ///
    /// - Parameter package: The Debian package that has the program, for the error.
    public init(_ arguments: [String], environment: [String: String] = [:], package: String? = nil) throws {
        var template = Array("/tmp/pttd-child-XXXXXX".utf8CString)
        guard mkdtemp(&template) != nil else { throw Failure(description: "mkdtemp: \(errno)") }
        directory = String(decoding: template.dropLast().map { UInt8(truncatingIfNeeded: $0) }, as: UTF8.self)
        var pipeEnds: [Int32] = [0, 0]
        guard pipe(&pipeEnds) == 0 else { throw Failure(description: "pipe: \(errno)") }
        for end in pipeEnds { _ = fcntl(end, F_SETFD, FD_CLOEXEC) }
        var actions = posix_spawn_file_actions_t()
        posix_spawn_file_actions_init(&actions)
        defer { posix_spawn_file_actions_destroy(&actions) }
        posix_spawn_file_actions_adddup2(&actions, pipeEnds[0], 0)
        posix_spawn_file_actions_addopen(&actions, 1, directory + "/out", O_WRONLY | O_CREAT, 0o600)
        posix_spawn_file_actions_addopen(&actions, 2, directory + "/err", O_WRONLY | O_CREAT, 0o600)
        var variables: [String: String] = [:]
        var entry = environ
        while let text = entry.pointee.map({ String(cString: $0) }) {
            let parts = text.split(separator: "=", maxSplits: 1, omittingEmptySubsequences: false)
            variables[String(parts[0])] = parts.count > 1 ? String(parts[1]) : ""
            entry += 1
        }
        variables.merge(environment) { _, new in new }
        var vector: [UnsafeMutablePointer<CChar>?] = arguments.map { strdup($0) } + [nil]
        var block: [UnsafeMutablePointer<CChar>?] = variables.map { strdup("\($0)=\($1)") } + [nil]
        defer { for string in vector + block { free(string) } }
        var identifier: pid_t = 0
        let result = posix_spawnp(&identifier, arguments[0], &actions, nil, &vector, &block)
        close(pipeEnds[0])
        processIdentifier = identifier
        input = Mutex(pipeEnds[1])
        guard result == 0 else {
            status.withLock { $0 = result }
            let advice = package.map { "; install the package \($0), as 'make test-deps' does" } ?? ""
            throw Failure(description: "\(arguments[0]): \(String(cString: strerror(result)))\(advice)")
        }
    }

    deinit {
        closeInput()
        if status.withLock({ $0 }) == nil {
            kill(processIdentifier, SIGKILL)
            var ignored: Int32 = 0
            waitpid(processIdentifier, &ignored, 0)
        }
        for name in ["out", "err"] { unlink("\(directory)/\(name)") }
        rmdir(directory)
    }

    /// What it wrote to standard output so far.
    public var output: String { contents("out") }
    /// What it wrote to standard error so far.
    public var errors: String { contents("err") }

    private func contents(_ name: String) -> String {
        let descriptor = open("\(directory)/\(name)", O_RDONLY | O_CLOEXEC)
        guard descriptor >= 0 else { return "" }
        defer { close(descriptor) }
        var bytes: [UInt8] = []
        var buffer = [UInt8](repeating: 0, count: 65_536)
        while true {
            let count = read(descriptor, &buffer, buffer.count)
            guard count > 0 else { break }
            bytes += buffer.prefix(count)
        }
        return String(decoding: bytes, as: UTF8.self)
    }

    /// Gives it a line on standard input.
    public func say(_ line: String) {
        let bytes = Array((line + "\n").utf8)
        _ = input.withLock { Glibc.write($0, bytes, bytes.count) }
    }

    /// Ends its standard input.
    public func closeInput() {
        input.withLock {
            if $0 >= 0 { close($0) }
            $0 = -1
        }
    }

    /// Sends it a signal.
    public func signal(_ number: Int32) {
        if status.withLock({ $0 }) == nil { kill(processIdentifier, number) }
    }

    /// Waits for its end: the exit status, or 128 and the signal that ended it, as a shell tells it; nil after `timeout`.
    public func end(within timeout: Duration = .seconds(20)) async throws -> Int32? {
        let deadline = Instant.now + timeout
        while true {
            if let known = status.withLock({ $0 }) { return known }
            var raw: Int32 = 0
            if waitpid(processIdentifier, &raw, WNOHANG) == processIdentifier {
                let code = raw & 0x7F == 0 ? (raw >> 8) & 0xFF : 128 + (raw & 0x7F)
                status.withLock { $0 = code }
                return code
            }
            guard Instant.now < deadline else { return nil }
            try await Task.sleep(for: .milliseconds(2))
        }
    }
}
