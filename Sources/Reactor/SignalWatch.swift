// Signals as events of a loop.
import CLinux
import Glibc

/// Tells of signals on a loop (signalfd(2)), so that they need neither a handler nor a thread that waits for them. Confined to its
/// loop.
public final class SignalWatch: @unchecked Sendable {
    private let descriptor: Int32
    private var watch: EventLoop.Watch?

    /// From now on these signals wait until somebody watches for them, and do not do what they usually do. To be called before the
    /// first thread starts: threads inherit it.
    public static func hold(_ signals: [Int32]) {
        var set = set(of: signals)
        pthread_sigmask(SIG_BLOCK, &set, nil)
    }

    /// Watches for `signals`, which are blocked; signals that arrived earlier are reported, too. A signal that arrives
    /// several times before it is handled is reported once.
    ///
    /// - Parameter handler: Called on the loop with the signal's number.
    /// - Throws: `SystemError` when the process has no descriptor left.
    public init(
        _ signals: [Int32], on loop: EventLoop, _ handler: @escaping (Int32) -> Void
    ) throws(SystemError) {
        var set = Self.set(of: signals)
        descriptor = signalfd(-1, &set, Int32(SFD_CLOEXEC | SFD_NONBLOCK))
        guard descriptor >= 0 else { throw SystemError("signalfd") }
        let descriptor = descriptor
        watch = try loop.watch(descriptor, for: .readable) { _ in
            var information = signalfd_siginfo()
            let size = MemoryLayout.size(ofValue: information)
            while read(descriptor, &information, size) == size { handler(Int32(information.ssi_signo)) }
        }
    }

    /// Tells nothing any more; the signals are still held. Called on the loop.
    public func cancel() {
        watch?.cancel()
        watch = nil
    }

    deinit {
        if descriptor >= 0 { close(descriptor) }
    }

    private static func set(of signals: [Int32]) -> sigset_t {
        var set = sigset_t()
        sigemptyset(&set)
        for signal in signals { sigaddset(&set, signal) }
        return set
    }
}
