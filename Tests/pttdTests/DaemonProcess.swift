// The real `pttd` as a process of its own, to be killed and started again.
import Glibc
import Synchronization
import Testing

/// A running `pttd`; it is killed with the object.
final class DaemonProcess: Sendable {
    private let identifier: pid_t
    private let isOver = Mutex(false)

    /// Starts the `pttd` beside the running tests; what it logs goes to `log`.
    init(_ arguments: [String], log: String) throws {
        let program = try #require(Self.program, "pttd is not beside the tests; build all of the package")
        var actions = posix_spawn_file_actions_t()
        posix_spawn_file_actions_init(&actions)
        defer { posix_spawn_file_actions_destroy(&actions) }
        posix_spawn_file_actions_addopen(&actions, 0, "/dev/null", O_RDONLY, 0)
        posix_spawn_file_actions_addopen(&actions, 1, log, O_WRONLY | O_CREAT | O_APPEND, 0o600)
        posix_spawn_file_actions_adddup2(&actions, 1, 2)
        var vector: [UnsafeMutablePointer<CChar>?] = ([program] + arguments).map { strdup($0) } + [nil]
        defer { for text in vector { free(text) } }
        var started: pid_t = 0
        try #require(posix_spawn(&started, program, &actions, nil, &vector, environ) == 0)
        identifier = started
    }

    deinit { end(SIGKILL) }

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
    }

    /// `swift test` may run the tests from a helper program; their folder is then in the arguments.
    private static var program: String? {
        var path = [CChar](repeating: 0, count: 4_096)
        _ = readlink("/proc/self/exe", &path, path.count - 1)
        let own = String(decoding: path.prefix { $0 != 0 }.map { UInt8(bitPattern: $0) }, as: UTF8.self)
        for var folder in CommandLine.arguments + [own] {
            while let slash = folder.lastIndex(of: "/") {
                folder = String(folder[..<slash])
                if access(folder + "/pttd", X_OK) == 0 { return folder + "/pttd" }
            }
        }
        return nil
    }
}
