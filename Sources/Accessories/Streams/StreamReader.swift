// One open stream: reads bytes as they come, a bounded number at a turn of the loop, and tells when it has ended.
import DBus
import Glibc
import MonotonicTime
import Reactor

/// A connected socket on the loop. Used on the loop only.
final class StreamReader {
    /// Bytes told at once.
    static let reportMax = 512
    /// Reports in one turn of the loop; what is left waits in the kernel, whose buffer is bounded.
    static let reportsPerTurn = 4
    /// The longest start command; what a profile may say is no longer.
    static let writeMax = 512

    private let descriptor: DBusDescriptor
    private var watch: EventLoop.Watch?

    /// Takes the descriptor over. Nothing is read before `start`.
    /// - Throws: When it cannot be made non-blocking.
    init(_ descriptor: DBusDescriptor) throws(SystemError) {
        self.descriptor = descriptor
        let flags = fcntl(descriptor.number, F_GETFL)
        guard flags >= 0, fcntl(descriptor.number, F_SETFL, flags | O_NONBLOCK) >= 0 else {
            throw SystemError("fcntl(O_NONBLOCK)")
        }
    }

    deinit { close() }

    /// Reads from now on.
    ///
    /// - Parameters:
    ///   - bytes: Called with what was read, and when.
    ///   - ended: Called once, when nothing more will come. Not after `close`.
    /// - Throws: When the descriptor cannot be waited for.
    func start(
        on loop: EventLoop, bytes: @escaping ([UInt8], Instant) -> Void, ended: @escaping () -> Void
    ) throws(SystemError) {
        watch = try loop.watch(descriptor.number, for: .readable) { [weak self] _ in
            guard let self, !self.read(bytes) else { return }
            self.close()
            ended()
        }
    }

    /// Whether more may come.
    private func read(_ report: ([UInt8], Instant) -> Void) -> Bool {
        for _ in 0..<Self.reportsPerTurn {
            // Closed by what the last report led to.
            guard watch != nil else { return true }
            var count = 0
            let bytes = [UInt8](unsafeUninitializedCapacity: Self.reportMax) { buffer, initialized in
                repeat {
                    count = recv(descriptor.number, buffer.baseAddress, Self.reportMax, 0)
                } while count < 0 && errno == EINTR
                initialized = max(0, count)
            }
            if count < 0 { return errno == EAGAIN }
            guard count > 0 else { return false }
            report(bytes, .now)
        }
        return true
    }

    /// Writes a few bytes at once.
    /// - Throws: When the other end is gone, or does not take them.
    func write(_ bytes: [UInt8]) throws(SystemError) {
        guard bytes.count <= Self.writeMax else { throw SystemError("send", code: EMSGSIZE) }
        var count = 0
        repeat {
            count = bytes.withUnsafeBytes { send(descriptor.number, $0.baseAddress, $0.count, Int32(MSG_NOSIGNAL)) }
        } while count < 0 && errno == EINTR
        guard count >= 0 else { throw SystemError("send") }
        guard count == bytes.count else { throw SystemError("send", code: EAGAIN) }
    }

    /// Hangs up: bluetoothd keeps a descriptor of its own, so that closing ours alone would not.
    func close() {
        watch?.cancel()
        watch = nil
        shutdown(descriptor.number, Int32(SHUT_RDWR))
    }
}
