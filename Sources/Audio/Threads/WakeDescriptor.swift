// An eventfd: how one thread tells another, or an event loop, that there is something to take.
import CLinux
import Glibc
import MonotonicTime

/// An eventfd(2). Signalling is one system call and never blocks; it may be done from any thread.
final class WakeDescriptor: Sendable {
    let descriptor: Int32

    init() throws(AudioFault) {
        descriptor = eventfd(0, Int32(EFD_CLOEXEC | EFD_NONBLOCK))
        guard descriptor >= 0 else { throw AudioFault(.open, errno) }
    }

    deinit { _ = close(descriptor) }

    /// Makes the descriptor readable.
    func signal() {
        var one: UInt64 = 1
        // EAGAIN means 2^64-2 signals are pending: it is readable already.
        _ = write(descriptor, &one, MemoryLayout<UInt64>.size)
    }

    /// Makes the descriptor not readable. To be done before taking what was signalled, so that no signal is lost.
    func clear() {
        var count: UInt64 = 0
        _ = read(descriptor, &count, MemoryLayout<UInt64>.size)
    }

    /// Sleeps until signalled, then clears.
    func wait() { _ = wait(until: nil) }

    /// Sleeps until signalled, then clears; or until `deadline`. Returns whether it is the deadline that has come.
    func wait(until deadline: Instant?) -> Bool {
        while true {
            var milliseconds: Int32 = -1
            if let deadline { milliseconds = Int32(max(0, min(60_000, (deadline - .now).milliseconds.rounded(.up)))) }
            var waited = pollfd(fd: descriptor, events: Int16(POLLIN), revents: 0)
            if poll(&waited, 1, milliseconds) > 0 {
                clear()
                return false
            }
            // A signal to the process, or a deadline that is further away than a minute, is no reason to end.
            if let deadline, deadline <= .now { return true }
        }
    }
}
