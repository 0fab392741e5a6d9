// Reports changes of this machine's interfaces, addresses and routes, and its waking from sleep.
import CGnuTLS
import CLinux
import CNgtcp2
import Glibc
import Reactor

/// Reports when an interface, an address or a route of this machine has changed (rtnetlink(7)), and when the machine
/// has woken up. It does not poll.
///
/// It does not report what has changed: query it, for example with `NetworkRoute.toward`. It lives until `cancel`, and
/// is `Sendable` only so that actors on its loop can hold it: all use is on that loop.
public final class NetworkChanges: @unchecked Sendable {
    /// The kinds of events.
    public enum News: Sendable, Equatable {
        /// Interfaces, addresses or routes have changed.
        case changed
        /// The machine slept.
        case woke
    }

    private static let bufferLength = 16_384
    /// Messages taken in one turn; what is left comes with the next one.
    private static let messagesPerTurn = 64
    /// Sleep that is shorter is none: the clocks are not read in one instant.
    private static let shortestSleep: Int64 = 500_000_000

    private let netlink: Int32
    private let clock: Int32
    private var watches: [EventLoop.Watch] = []
    private var slept = asleepSinceStart()

    /// Calls `handler` on `loop` after each series of changes, until `cancel`.
    ///
    /// - Throws: `SystemError` where the kernel or a sandbox does not allow netlink sockets.
    public init(on loop: EventLoop, _ handler: @escaping (News) -> Void) throws(SystemError) {
        loop.checkIsolated()
        netlink = ptt_open_network_changes()
        guard netlink >= 0 else { throw SystemError("opening a netlink socket") }
        clock = timerfd_create(CLOCK_REALTIME, Int32(TFD_NONBLOCK) | Int32(TFD_CLOEXEC))
        guard clock >= 0 else {
            let error = SystemError("timerfd_create")
            close(netlink)
            throw error
        }
        do {
            watches.append(
                try loop.watch(netlink, for: .readable) { [self] _ in
                    if !watches.isEmpty, drain() { handler(.changed) }
                })
            armClock()
            watches.append(
                try loop.watch(clock, for: .readable) { [self] _ in
                    if !watches.isEmpty, hasSlept() { handler(.woke) }
                })
        } catch {
            end()
            throw error
        }
    }

    /// Stops. No event follows.
    public func cancel() {
        if !watches.isEmpty { end() }
    }

    private func end() {
        for watch in watches { watch.cancel() }
        watches = []
        close(netlink)
        close(clock)
    }

    /// Takes what has come; whether it was anything.
    private func drain() -> Bool {
        withUnsafeTemporaryAllocation(byteCount: Self.bufferLength, alignment: 16) { buffer in
            var isNews = false
            for _ in 0..<Self.messagesPerTurn {
                let count = recv(netlink, buffer.baseAddress, buffer.count, Int32(MSG_TRUNC))
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

    // MARK: Sleep

    /// The wall clock jumps when the machine wakes up, and when somebody sets it: the kernel cancels the timer then
    /// (timerfd_create(2), TFD_TIMER_CANCEL_ON_SET).
    private func armClock() {
        var never = itimerspec()
        never.it_value.tv_sec = Int.max
        timerfd_settime(clock, Int32(TFD_TIMER_ABSTIME) | Int32(TFD_TIMER_CANCEL_ON_SET), &never, nil)
    }

    private func hasSlept() -> Bool {
        var expirations: UInt64 = 0
        _ = read(clock, &expirations, MemoryLayout<UInt64>.size)
        armClock()
        let before = slept
        slept = Self.asleepSinceStart()
        return slept - before >= Self.shortestSleep
    }

    /// Nanoseconds that the machine slept since it was started.
    private static func asleepSinceStart() -> Int64 {
        func now(_ clock: clockid_t) -> Int64 {
            var time = timespec()
            clock_gettime(clock, &time)
            return Int64(time.tv_sec) * 1_000_000_000 + Int64(time.tv_nsec)
        }
        return now(CLOCK_BOOTTIME) - now(CLOCK_MONOTONIC)
    }
}
