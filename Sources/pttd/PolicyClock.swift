// The wall clock for the hours of `[policy]`. It is read when they may begin or end, and never without hours.
import Bridge
import Glibc
import MonotonicTime
import Reactor

/// Tells when the hours of a policy begin and end.
actor PolicyClock {
    /// The longest wait between two looks: the wall clock may be set, or the machine may have slept.
    static let lookLimit = Duration.seconds(600)

    nonisolated let loop: EventLoop
    nonisolated var unownedExecutor: UnownedSerialExecutor { loop.asUnownedSerialExecutor() }
    private let policy: JoinPolicy
    private let time: @Sendable () -> TimeOfDay
    private var handler: (@Sendable (Bool) -> Void)?
    /// Whether the hours allow push to talk.
    private(set) var isOpen: Bool
    private var timer: EventLoop.Timer?

    /// A time of the day.
    struct TimeOfDay {
        var minute: Int
        var second: Int

        /// The machine's local time.
        static var now: TimeOfDay {
            var seconds = Glibc.time(nil)
            var parts = tm()
            localtime_r(&seconds, &parts)
            return TimeOfDay(minute: Int(parts.tm_hour) * 60 + Int(parts.tm_min), second: Int(parts.tm_sec))
        }
    }

    init(_ policy: JoinPolicy, loop: EventLoop, time: @escaping @Sendable () -> TimeOfDay = { .now }) {
        self.policy = policy
        self.loop = loop
        self.time = time
        isOpen = policy.isOpen(atMinute: time().minute)
    }

    /// Calls `handler` on the loop at every change from now on.
    func start(_ handler: @escaping @Sendable (Bool) -> Void) {
        self.handler = handler
        look()
    }

    /// Whether anything is going to wake the loop for it.
    var isWaiting: Bool { timer?.isPending ?? false }

    func stop() {
        timer?.cancel()
        handler = nil
    }

    /// Looks at the clock; also when the machine has slept.
    func look() {
        let now = time()
        timer?.cancel()
        timer = policy.minutesUntilChange(atMinute: now.minute).map { minutes in
            let wait = min(.seconds(minutes * 60 - now.second), Self.lookLimit)
            return loop.schedule(after: wait) { [weak self] in self?.assumeIsolated { $0.look() } }
        }
        let isOpen = policy.isOpen(atMinute: now.minute)
        guard isOpen != self.isOpen else { return }
        self.isOpen = isOpen
        handler?(isOpen)
    }
}
