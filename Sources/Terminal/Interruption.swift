// Ctrl-C as news instead of an end, for programs that still have something to say.
import Glibc
import Synchronization

/// The wish of the user or the system that this program ends.
public enum Interruption {
    private static let handler = Mutex<(@Sendable () -> Void)?>(nil)
    private static let writing = Atomic<Int32>(-1)

    /// Calls `handler` once, on a thread of its own, at the first SIGINT, SIGTERM or SIGHUP; the second one ends the program as usual.
    ///
    /// - Returns: Whether it will; false when there is no pipe or thread for it, and the first signal ends the program.
    @discardableResult
    public static func watch(_ handler: @escaping @Sendable () -> Void) -> Bool {
        let isFirst = Self.handler.withLock { old in
            defer { old = handler }
            return old == nil
        }
        guard isFirst else { return true }
        var ends: [Int32] = [0, 0]
        guard pipe(&ends) == 0 else { return false }
        for end in ends { _ = fcntl(end, F_SETFD, FD_CLOEXEC) }
        var thread = pthread_t()
        let reading = UnsafeMutableRawPointer(bitPattern: Int(ends[0]) + 1)
        let result = pthread_create(
            &thread, nil,
            { pointer in
                Interruption.wait(Int32(Int(bitPattern: pointer) - 1))
                return nil
            }, reading)
        guard result == 0 else { return false }
        pthread_detach(thread)
        writing.store(ends[1], ordering: .sequentiallyConsistent)
        // Only what may be called in a handler: an atomic read, write(2) and signal(2).
        for number in [SIGINT, SIGTERM, SIGHUP] {
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

    private static func wait(_ descriptor: Int32) {
        var byte: UInt8 = 0
        while true {
            let count = read(descriptor, &byte, 1)
            if count == 1 { break }
            if count == 0 || errno != EINTR { return }
        }
        handler.withLock { $0 }?()
    }
}
