// The end of a child process, as an event of the loop.
import CLinux

#if canImport(Glibc)
import Glibc
#else
import Musl
#endif

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
