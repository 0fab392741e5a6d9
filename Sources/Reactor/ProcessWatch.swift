// Child processes: reports their end as an event of the loop, and closes descriptors that they must not inherit.
import CLinux
import Glibc

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

/// Makes posix_spawn(3) close every descriptor from `first` on, so that the new program does not inherit this one's.
///
/// - Throws: `SystemError` when there is no memory for it.
public func addClosing(
    from first: Int32, to actions: inout posix_spawn_file_actions_t
) throws(SystemError) {
    let code = withUnsafeMutablePointer(to: &actions) { ptt_spawn_close_from($0, first) }
    guard code == 0 else { throw SystemError("posix_spawn_file_actions_addclosefrom_np", code: code) }
}
