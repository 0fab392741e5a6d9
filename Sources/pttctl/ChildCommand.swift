// Runs a command in the foreground as a shell does, and waits for its end.
import Glibc
import Reactor
import Synchronization
import Terminal

/// The command of `pttctl inhibit`.
enum ChildCommand {
    /// The process that signals are passed on to; 0 while there is none.
    private static let process = Atomic<Int32>(0)
    /// The signal that is still to be passed on; 0: none.
    private static let waiting = Atomic<Int32>(0)

    /// Runs the command with this process's terminal, environment and folder.
    ///
    /// A Ctrl-C reaches the command from the terminal, and this process ends only when the command does. A termination
    /// signal to this process alone is passed on.
    /// - Returns: Its exit status, as a shell reports it.
    static func run(_ command: [String], on loop: EventLoop) async -> Int32 {
        var attributes = posix_spawnattr_t()
        posix_spawnattr_init(&attributes)
        defer { posix_spawnattr_destroy(&attributes) }
        var ignored = sigset_t()
        sigemptyset(&ignored)
        for number in [SIGINT, SIGQUIT] {
            sigaddset(&ignored, number)
            signal(number, SIG_IGN)
        }
        // What is ignored here is not to be ignored there.
        posix_spawnattr_setsigdefault(&attributes, &ignored)
        posix_spawnattr_setflags(&attributes, Int16(POSIX_SPAWN_SETSIGDEF))
        for number in [SIGTERM, SIGHUP] { signal(number) { Self.passOn($0) } }

        var texts: [UnsafeMutablePointer<CChar>?] = command.map { strdup($0) } + [nil]
        defer { for text in texts { free(text) } }
        var identifier: pid_t = 0
        let result = posix_spawnp(&identifier, command[0], nil, &attributes, &texts, environ)
        guard result == 0 else {
            let why =
                switch result {
                case ENOENT: "there is no such program; give its full path, or install it"
                case EACCES: "it may not be executed; make it executable (chmod +x)"
                default: "it did not start: \(String(cString: strerror(result)))"
                }
            Console.complain("pttctl: \(command[0]): \(why)")
            return result == ENOENT ? 127 : 126
        }
        process.store(identifier, ordering: .sequentiallyConsistent)
        passOnWaiting()
        let raw = await end(of: identifier, on: loop)
        process.store(0, ordering: .sequentiallyConsistent)
        return raw & 0x7F == 0 ? (raw >> 8) & 0xFF : 128 + (raw & 0x7F)
    }

    private static func passOn(_ number: Int32) {
        waiting.store(number, ordering: .sequentiallyConsistent)
        passOnWaiting()
    }

    /// A signal that comes before the process does waits for it.
    private static func passOnWaiting() {
        let identifier = process.load(ordering: .sequentiallyConsistent)
        guard identifier > 0 else { return }
        let number = waiting.exchange(0, ordering: .sequentiallyConsistent)
        if number > 0 { kill(identifier, number) }
    }

    /// The status that waitpid(2) tells, when the process has ended.
    private static func end(of identifier: pid_t, on loop: EventLoop) async -> Int32 {
        await withCheckedContinuation { continuation in
            loop.execute {
                var watch: ProcessWatch?
                let ended = {
                    watch = nil
                    continuation.resume()
                }
                watch = try? ProcessWatch(identifier, on: loop, ended)
                if watch == nil { ended() }
            }
        }
        // A process that cannot be watched is waited for here.
        var raw: Int32 = 0
        while waitpid(identifier, &raw, 0) < 0, errno == EINTR {}
        return raw
    }
}
