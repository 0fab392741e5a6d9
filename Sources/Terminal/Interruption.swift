// Ctrl-C as an event instead of a termination, for programs that still have output.
import Glibc
import Synchronization

/// The wish of the user or the system that this program ends.
public enum Interruption {
    private struct State {
        var handler: (@Sendable () -> Void)?
        var hasThread = false
    }

    private static let state = Mutex(State())
    private static let writing = Atomic<Int32>(-1)
    private static let signals = [SIGINT, SIGTERM, SIGHUP]

    /// Calls `handler` in place of the one before, on a thread of its own, at the next SIGINT, SIGTERM or SIGHUP. A second one of
    /// the same kind ends the program as usual.
    ///
    /// - Returns: Whether it will; false when there is no pipe or thread for it, and a signal ends the program.
    @discardableResult
    public static func watch(_ handler: @escaping @Sendable () -> Void) -> Bool {
        let isReady = state.withLock { state in
            if !state.hasThread { state.hasThread = startThread() }
            if state.hasThread { state.handler = handler }
            return state.hasThread
        }
        guard isReady else { return false }
        // Only what may be called in a handler: an atomic read, write(2) and signal(2).
        for number in signals {
            signal(number) { number in
                let before = errno
                var byte = UInt8(1)
                _ = Glibc.write(Interruption.writing.load(ordering: .sequentiallyConsistent), &byte, 1)
                signal(number, SIG_DFL)
                errno = before
            }
        }
        return true
    }

    /// A signal ends the program again.
    public static func unwatch() {
        for number in signals { signal(number, SIG_DFL) }
        state.withLock { $0.handler = nil }
    }

    private static func startThread() -> Bool {
        var ends: [Int32] = [0, 0]
        guard pipe(&ends) == 0 else { return false }
        for end in ends { _ = fcntl(end, F_SETFD, FD_CLOEXEC) }
        var thread = pthread_t()
        let result = pthread_create(
            &thread, nil,
            { pointer in
                // One more than the descriptor: no null pointer.
                Interruption.wait(Int32(Int(bitPattern: pointer) - 1))
                return nil
            }, UnsafeMutableRawPointer(bitPattern: Int(ends[0]) + 1))
        guard result == 0 else {
            for end in ends { close(end) }
            return false
        }
        pthread_detach(thread)
        writing.store(ends[1], ordering: .sequentiallyConsistent)
        return true
    }

    private static func wait(_ descriptor: Int32) {
        var byte: UInt8 = 0
        while true {
            let count = read(descriptor, &byte, 1)
            if count == 1 { state.withLock { $0.handler }?() } else if count == 0 || errno != EINTR { return }
        }
    }
}
