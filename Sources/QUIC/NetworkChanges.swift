// The kernel's news about this machine's interfaces, addresses and routes.
import CGnuTLS
import CLinux
import CNgtcp2
import Glibc
import Reactor

/// Tells when an interface, an address or a route of this machine has changed (rtnetlink(7)). Nothing polls: it sleeps
/// while nothing changes.
///
/// What has changed is not told: ask for what matters, `NetworkRoute.toward` say. Used on its loop only, and lives until `cancel`.
public final class NetworkChanges {
    private static let bufferLength = 16_384
    /// Messages taken in one turn; what is left comes with the next one.
    private static let messagesPerTurn = 64

    private let descriptor: Int32
    private var watch: EventLoop.Watch?

    /// Calls `handler` on `loop` after each flurry of changes that the kernel has told of, until `cancel`.
    ///
    /// - Throws: `SystemError` where the kernel or a sandbox does not allow netlink sockets.
    public init(on loop: EventLoop, _ handler: @escaping () -> Void) throws(SystemError) {
        loop.checkIsolated()
        descriptor = ptt_open_network_changes()
        guard descriptor >= 0 else { throw SystemError("opening a netlink socket") }
        let descriptor = descriptor
        do {
            watch = try loop.watch(descriptor, for: .readable) { [self] _ in
                if watch != nil, Self.drain(descriptor) { handler() }
            }
        } catch {
            close(descriptor)
            throw error
        }
    }

    /// Nothing is told after it.
    public func cancel() {
        guard let watch else { return }
        self.watch = nil
        watch.cancel()
        close(descriptor)
    }

    /// Takes what has come; whether it was anything.
    private static func drain(_ descriptor: Int32) -> Bool {
        withUnsafeTemporaryAllocation(byteCount: bufferLength, alignment: 16) { buffer in
            var isNews = false
            for _ in 0..<messagesPerTurn {
                let count = recv(descriptor, buffer.baseAddress, buffer.count, Int32(MSG_TRUNC))
                if count > 0 {
                    isNews = true
                } else if count < 0, errno == ENOBUFS {
                    // More has changed than the socket could hold: that is news, too.
                    isNews = true
                } else if count >= 0 || errno != EINTR {
                    break
                }
            }
            return isNews
        }
    }
}
