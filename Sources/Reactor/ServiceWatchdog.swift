import Glibc
// Reports to systemd that the event loops of this process still run.
import MonotonicTime
import Synchronization

/// Answers the watchdog of systemd (`WatchdogSec=` of systemd.service(5)), which restarts a service whose loops hang.
///
/// Twice in each watchdog interval it asks all loops for a sign of life, and sends `WATCHDOG=1` (sd_notify(3)) when every one of them
/// has answered. A loop that hangs does not answer, so systemd hears nothing and acts. Nothing here waits.
public final class ServiceWatchdog: @unchecked Sendable {
    /// Where systemd listens, and how often it wants to hear of the service.
    public struct Request: Equatable, Sendable {
        /// The address of systemd's datagram socket: a path, or `@` and an abstract name.
        public var socket: String
        /// systemd treats the service as hung after this time without a message.
        public var interval: Duration

        /// A request of `socket` for a message each `interval`.
        public init(socket: String, interval: Duration) {
            self.socket = socket
            self.interval = interval
        }

        /// What systemd has asked of this process by its environment (`NOTIFY_SOCKET`, `WATCHDOG_USEC` and `WATCHDOG_PID`,
        /// sd_watchdog_enabled(3)); nil when it has asked nothing, or asked another process.
        public init?(environment: (String) -> String?, process: Int32) {
            guard let socket = environment("NOTIFY_SOCKET"), let first = socket.utf8.first,
                first == UInt8(ascii: "/") || first == UInt8(ascii: "@"), socket.utf8.count > 1,
                let microseconds = environment("WATCHDOG_USEC").flatMap({ Int64($0) }),
                (1...Int64.max / 1_000).contains(microseconds)
            else { return nil }
            if let pid = environment("WATCHDOG_PID"), Int32(pid) != process { return nil }
            self.init(socket: socket, interval: .microseconds(microseconds))
        }
    }

    private let loops: [EventLoop]
    private let request: Request
    private let descriptor: Int32
    private let address: sockaddr_un
    private let length: socklen_t
    /// Loops that have not answered in this round.
    private let missing = Mutex(0)
    // The first loop's from here on.
    private var timer: EventLoop.Timer?

    /// Begins to answer, on the first of `loops`, for all of them.
    ///
    /// - Returns: nil without loops, or when systemd's socket cannot be used.
    public init?(watching loops: [EventLoop], for request: Request) {
        guard let first = loops.first, let (address, length) = Self.address(of: request.socket) else { return nil }
        descriptor = socket(AF_UNIX, Int32(SOCK_DGRAM.rawValue | SOCK_CLOEXEC.rawValue), 0)
        guard descriptor >= 0 else { return nil }
        self.loops = loops
        self.request = request
        self.address = address
        self.length = length
        first.execute { [weak self] in self?.ask() }
    }

    deinit { close(descriptor) }

    /// What systemd has asked of this process; nil when it has asked nothing.
    public static var request: Request? {
        Request(environment: { getenv($0).map { String(cString: $0) } }, process: getpid())
    }

    /// Asks every loop, and once more after half the interval.
    private func ask() {
        guard let first = loops.first else { return }
        timer = first.schedule(after: request.interval / 2) { [weak self] in self?.ask() }
        let isAsked = missing.withLock { missing in
            // A loop that owes an answer is not asked again, so that no questions pile up.
            guard missing == 0 else { return false }
            missing = loops.count
            return true
        }
        guard isAsked else { return }
        for loop in loops { loop.execute { [weak self] in self?.isAlive() } }
    }

    private func isAlive() {
        let areAll = missing.withLock { missing in
            missing -= 1
            return missing == 0
        }
        if areAll { send("WATCHDOG=1") }
    }

    private func send(_ message: String) {
        var address = address
        withUnsafePointer(to: &address) { pointer in
            pointer.withMemoryRebound(to: sockaddr.self, capacity: 1) { target in
                // A socket whose queue is full belongs to a manager that has other troubles; the next message tells the same.
                _ = sendto(
                    descriptor, message, message.utf8.count, Int32(MSG_DONTWAIT | MSG_NOSIGNAL), target, length)
            }
        }
    }

    private static func address(of path: String) -> (sockaddr_un, socklen_t)? {
        var address = sockaddr_un()
        address.sun_family = sa_family_t(AF_UNIX)
        var bytes = Array(path.utf8)
        if bytes.first == UInt8(ascii: "@") { bytes[0] = 0 }
        let room = MemoryLayout.size(ofValue: address.sun_path)
        guard bytes.count < room else { return nil }
        withUnsafeMutableBytes(of: &address.sun_path) { $0.copyBytes(from: bytes) }
        // An abstract name ends where the length says.
        let isAbstract = bytes.first == 0
        let header = MemoryLayout<sockaddr_un>.offset(of: \.sun_path) ?? 2
        return (address, socklen_t(header + bytes.count + (isAbstract ? 0 : 1)))
    }
}
