// One thread that waits on file descriptors and deadlines, and is the executor of the actors that live on it.
import CLinux
import Glibc
import MonotonicTime
import Synchronization

/// A thread that waits in epoll(7) for file descriptors, deadlines and jobs, and runs what is due, one at a time.
///
/// It is a `SerialExecutor`: an actor whose `unownedExecutor` is an event loop runs on its thread, so a
/// handler called by the loop may enter such an actor by `assumeIsolated`, without a hop. While nothing is due the
/// thread sleeps; it has no tick.
///
/// Order: jobs of actors and work given to `execute` share one queue and run in the order in which they were posted, whichever
/// thread posted them. A turn of the loop runs what was queued when the turn began, then the deadlines that are due, then the
/// descriptors that are ready.
///
/// Nothing on a loop waits for a disk, another program or another thread, unless the loop was made for that (`mayWait`): debug builds
/// report a turn that does (`BlockedTurnWatch`).
///
/// `watch` and `schedule` are called on the loop's own thread only (checked). Their handlers run there too,
/// which is why they need not be `Sendable`.
public final class EventLoop: SerialExecutor, @unchecked Sendable {
    /// What a descriptor is waited for, and what it was found ready for.
    public struct Readiness: OptionSet, Sendable {
        /// The bits, EPOLLIN and EPOLLOUT of epoll_ctl(2) among them.
        public let rawValue: UInt32
        /// A set of the given bits.
        public init(rawValue: UInt32) { self.rawValue = rawValue }
        /// Reading does not block.
        public static let readable = Readiness(rawValue: UInt32(EPOLLIN.rawValue))
        /// Writing does not block.
        public static let writable = Readiness(rawValue: UInt32(EPOLLOUT.rawValue))
        /// The other end hung up. Always reported.
        public static let hangUp = Readiness(rawValue: UInt32(EPOLLHUP.rawValue))
        /// The descriptor is in error. Always reported.
        public static let error = Readiness(rawValue: UInt32(EPOLLERR.rawValue))
    }

    /// A descriptor under watch. Keep it, and `cancel` it before closing the descriptor.
    public final class Watch {
        fileprivate let descriptor: Int32
        fileprivate let identifier: UInt64
        fileprivate let handler: (Readiness) -> Void
        fileprivate weak var loop: EventLoop?

        fileprivate init(descriptor: Int32, identifier: UInt64, loop: EventLoop, handler: @escaping (Readiness) -> Void)
        {
            self.descriptor = descriptor
            self.identifier = identifier
            self.loop = loop
            self.handler = handler
        }

        /// Waits for `interest` from now on; empty: only for errors and hang-up.
        public func update(_ interest: Readiness) {
            loop?.update(self, interest)
        }

        /// Ends the watch. The handler is not called again.
        public func cancel() {
            loop?.remove(self)
            loop = nil
        }
    }

    /// A deadline that has been scheduled.
    public final class Timer {
        fileprivate let deadline: Deadline
        private weak var loop: EventLoop?

        fileprivate init(_ deadline: Deadline, loop: EventLoop) {
            self.deadline = deadline
            self.loop = loop
        }

        /// Whether it is still to come.
        public var isPending: Bool { deadline.handler != nil }

        /// Takes the deadline back; no effect once it has run.
        public func cancel() {
            deadline.handler = nil
            // A loop that has ended runs no deadline any more, and its heap belongs to no thread.
            if let loop, loop.isCurrent { loop.timers.remove(deadline) }
        }
    }

    /// A deadline that its owner moves again and again: to set it allocates nothing.
    public final class Alarm {
        fileprivate let deadline = Deadline()
        fileprivate let handler: () -> Void

        /// One that is not set yet; `handler` is called when its time comes.
        public init(_ handler: @escaping () -> Void) { self.handler = handler }
    }

    /// What other code has given the loop to do.
    private enum Item {
        case job(UnownedJob)
        case work(@Sendable () -> Void)
    }

    private struct Inbox {
        var items: [Item] = []
        var wakePending = false
        var stopping = false
    }

    private static let eventsPerWait = 64

    let name: String
    #if DEBUG
    /// What a `BlockedTurnWatch` looks at; nil: nobody does.
    private let turns: WatchedTurns?
    #endif
    private let epoll: Int32
    private let wakeDescriptor: Int32
    private let inbox = Mutex(Inbox())
    private let thread = Mutex<pthread_t?>(nil)
    // Loop thread only from here on.
    /// By the lower half of their identifiers; the upper half tells those apart that had the same place, one after the other.
    private var watches: [Watch?] = []
    private var freePlaces: [Int] = []
    private var timers = DeadlineHeap()
    private var watchesMade: UInt32 = 0
    private var running = true

    /// A loop whose thread runs from now on.
    ///
    /// - Parameters:
    ///   - name: The thread's name as ps(1) and gdb show it; 15 characters at most are kept.
    ///   - mayWait: Whether its work may wait for a disk or for another program.
    /// - Throws: `SystemError` when the process has no descriptor or thread left.
    public init(name: String, mayWait: Bool = false) throws(SystemError) {
        self.name = name
        #if DEBUG
        turns = mayWait ? nil : BlockedTurnWatch.ofProcess.map { _ in WatchedTurns(of: name) }
        #endif
        epoll = epoll_create1(Int32(EPOLL_CLOEXEC))
        guard epoll >= 0 else { throw SystemError("epoll_create1") }
        wakeDescriptor = eventfd(0, Int32(EFD_CLOEXEC | EFD_NONBLOCK))
        guard wakeDescriptor >= 0 else {
            let error = SystemError("eventfd")
            close(epoll)
            throw error
        }
        var event = epoll_event(events: EPOLLIN.rawValue, data: epoll_data_t(u64: 0))
        epoll_ctl(epoll, EPOLL_CTL_ADD, wakeDescriptor, &event)
        let handle = try startThread(named: name) { [self] in main() }
        thread.withLock { $0 = handle }
    }

    deinit {
        close(wakeDescriptor)
        close(epoll)
    }

    /// Ends the thread once the jobs that are already queued have run; waits for it unless called on it.
    public func stop() {
        inbox.withLock { $0.stopping = true }
        wake()
        guard !isCurrent else { return }
        if let handle = thread.withLock({ $0.take() }) { pthread_join(handle, nil) }
    }

    // MARK: Executor

    /// Whether the caller runs on the loop's thread.
    public var isCurrent: Bool { currentEventLoop() === self }

    /// Queues a job of an actor that lives on this loop (`SerialExecutor`).
    public func enqueue(_ job: consuming ExecutorJob) {
        let job = UnownedJob(job)
        post(.job(job))
    }

    /// Runs `work` on the loop's thread, after all that was posted before it. Callable from any thread.
    public func execute(_ work: @escaping @Sendable () -> Void) {
        post(.work(work))
    }

    /// Traps unless called on the loop's thread (`SerialExecutor`); it is what makes `assumeIsolated` work.
    public func checkIsolated() {
        precondition(isCurrent, "not on event loop '\(name)'")
    }

    /// Whether the caller runs on the loop's thread (`SerialExecutor`).
    public func isIsolatingCurrentContext() -> Bool? { isCurrent }

    private func post(_ item: Item) {
        let mustWake = inbox.withLock { inbox in
            inbox.items.append(item)
            guard !inbox.wakePending else { return false }
            inbox.wakePending = true
            return true
        }
        if mustWake, !isCurrent { wake() }
    }

    private func wake() {
        var one: UInt64 = 1
        _ = write(wakeDescriptor, &one, 8)
    }

    /// Runs `body`, which waits although this loop must not: at the end of a program, say. Called on the loop's thread.
    public func waiting<T>(_ body: () throws -> T) rethrows -> T {
        #if DEBUG
        turns?.pass()
        defer { turns?.begin() }
        #endif
        return try body()
    }

    // MARK: Descriptors

    /// Calls `handler` whenever `descriptor` is ready (level-triggered).
    ///
    /// - Parameters:
    ///   - descriptor: It stays the caller's, who closes it after cancelling the watch.
    ///   - interest: What to wait for; errors and hang-up are always reported.
    /// - Throws: `SystemError` when epoll refuses the descriptor (a regular file, say).
    public func watch(
        _ descriptor: Int32, for interest: Readiness, _ handler: @escaping (Readiness) -> Void
    ) throws(SystemError) -> Watch {
        checkIsolated()
        // Never 0, which is the wake-up's.
        watchesMade = watchesMade == .max ? 1 : watchesMade + 1
        let place = freePlaces.popLast() ?? watches.count
        if place == watches.count { watches.append(nil) }
        let watch = Watch(
            descriptor: descriptor, identifier: UInt64(watchesMade) << 32 | UInt64(place), loop: self, handler: handler)
        var event = epoll_event(events: interest.rawValue, data: epoll_data_t(u64: watch.identifier))
        guard epoll_ctl(epoll, EPOLL_CTL_ADD, descriptor, &event) == 0 else {
            let error = SystemError("epoll_ctl")
            freePlaces.append(place)
            throw error
        }
        watches[place] = watch
        return watch
    }

    private func update(_ watch: Watch, _ interest: Readiness) {
        checkIsolated()
        var event = epoll_event(events: interest.rawValue, data: epoll_data_t(u64: watch.identifier))
        epoll_ctl(epoll, EPOLL_CTL_MOD, watch.descriptor, &event)
    }

    private func remove(_ watch: Watch) {
        checkIsolated()
        guard self.watch(watch.identifier) != nil else { return }
        let place = Self.place(of: watch.identifier)
        watches[place] = nil
        freePlaces.append(place)
        epoll_ctl(epoll, EPOLL_CTL_DEL, watch.descriptor, nil)
    }

    private static func place(of identifier: UInt64) -> Int { Int(identifier & 0xFFFF_FFFF) }

    private func watch(_ identifier: UInt64) -> Watch? {
        let place = Self.place(of: identifier)
        guard place < watches.count, let watch = watches[place], watch.identifier == identifier else { return nil }
        return watch
    }

    // MARK: Deadlines

    /// Calls `handler` once, at `deadline` or as soon after it as the loop is free. Deadlines in the past run on
    /// the next turn; equal ones run in the order they were scheduled.
    @discardableResult
    public func schedule(at deadline: Instant, _ handler: @escaping () -> Void) -> Timer {
        checkIsolated()
        let timer = Timer(Deadline(handler: handler), loop: self)
        timers.schedule(timer.deadline, at: deadline)
        return timer
    }

    /// Calls `handler` once, after `delay`.
    @discardableResult
    public func schedule(after delay: Duration, _ handler: @escaping () -> Void) -> Timer {
        schedule(at: .now + delay, handler)
    }

    /// Has `alarm` ring once, at `instant` or as soon after it as the loop is free, instead of when it was to ring before; nil: not at
    /// all. An alarm is one loop's.
    public func set(_ alarm: Alarm, at instant: Instant?) {
        checkIsolated()
        if let instant {
            alarm.deadline.handler = alarm.handler
            timers.schedule(alarm.deadline, at: instant)
        } else {
            alarm.deadline.handler = nil
            timers.remove(alarm.deadline)
        }
    }

    /// Deadlines that are still to come. On the loop's thread only.
    var scheduledCount: Int {
        checkIsolated()
        return timers.count
    }

    // MARK: The thread

    private func main() {
        setCurrentEventLoop(self)
        #if DEBUG
        if let turns { BlockedTurnWatch.ofProcess?.watch(turns) }
        defer { turns?.end() }
        #endif
        let events = UnsafeMutablePointer<epoll_event>.allocate(capacity: Self.eventsPerWait)
        defer { events.deallocate() }
        while running {
            let more = runItems()
            runTimers()
            if !running { break }
            wait(events, blocking: !more)
        }
        setCurrentEventLoop(nil)
    }

    /// Runs what was queued when called, not what that queues in turn, so descriptors get their turn too.
    private func runItems() -> Bool {
        let items = inbox.withLock { inbox -> [Item] in
            inbox.wakePending = false
            guard !inbox.items.isEmpty else {
                if inbox.stopping { running = false }
                return []
            }
            return exchange(&inbox.items, with: [])
        }
        guard !items.isEmpty else { return false }
        for item in items {
            switch item {
            case .job(let job): job.runSynchronously(on: asUnownedSerialExecutor())
            case .work(let work): work()
            }
        }
        return inbox.withLock { inbox in
            let idle = inbox.items.isEmpty
            if inbox.stopping && idle { running = false }
            return !idle || inbox.stopping
        }
    }

    private func runTimers() {
        guard let next = timers.next else { return }
        let now = Instant.now
        guard next <= now else { return }
        // Only what was due on entry: a handler that schedules for "now" must not keep descriptors waiting.
        var due: [Deadline] = []
        while let deadline = timers.popDue(at: now) { due.append(deadline) }
        for deadline in due {
            // An earlier handler may have cancelled it.
            guard let handler = deadline.handler else { continue }
            deadline.handler = nil
            handler()
        }
    }

    private func wait(_ events: UnsafeMutablePointer<epoll_event>, blocking: Bool) {
        // A timer handler may have queued items on this very thread, without a wake.
        let blocking = blocking && inbox.withLock { $0.items.isEmpty && !$0.stopping }
        #if DEBUG
        turns?.pass()
        #endif
        let count: Int32
        if !blocking {
            count = epoll_wait(epoll, events, Int32(Self.eventsPerWait), 0)
        } else if let deadline = timers.next {
            let remaining = max(0, (deadline - .now).nanoseconds)
            var timeout = timespec(tv_sec: Int(remaining / 1_000_000_000), tv_nsec: Int(remaining % 1_000_000_000))
            count = epoll_pwait2(epoll, events, Int32(Self.eventsPerWait), &timeout, nil)
        } else {
            count = epoll_wait(epoll, events, Int32(Self.eventsPerWait), -1)
        }
        #if DEBUG
        turns?.begin()
        #endif
        guard count > 0 else { return }
        for index in 0..<Int(count) {
            let event = events[index]
            if event.data.u64 == 0 {
                var value: UInt64 = 0
                _ = read(wakeDescriptor, &value, 8)
            } else if let watch = watch(event.data.u64) {
                // Looked up at each turn: an earlier handler may have cancelled it.
                watch.handler(Readiness(rawValue: event.events))
            }
        }
    }
}

/// A system call that failed.
public struct SystemError: Error, Equatable, CustomStringConvertible {
    /// The call, by its name in section 2 or 3 of the manual.
    public let call: String
    /// The errno value.
    public let code: Int32

    /// The failure of `call` with `code`, by default the current `errno`.
    public init(_ call: String, code: Int32 = errno) {
        self.call = call
        self.code = code
    }

    /// The call and the system's words for the error.
    public var description: String { "\(call): \(String(cString: strerror(code)))" }
}

/// Starts a thread of that name that does `work` and ends.
///
/// - Returns: The thread, which has to be joined or detached.
func startThread(named name: String, _ work: @escaping () -> Void) throws(SystemError) -> pthread_t {
    var thread = pthread_t()
    let start = Unmanaged.passRetained(ThreadStart(name: name, work: work))
    let code = pthread_create(
        &thread, nil,
        { argument in
            if let argument { Unmanaged<ThreadStart>.fromOpaque(argument).takeRetainedValue().run() }
            return nil
        }, start.toOpaque())
    guard code == 0 else {
        start.release()
        throw SystemError("pthread_create", code: code)
    }
    return thread
}

/// What a thread begins with.
private final class ThreadStart {
    private let name: String
    private let work: () -> Void

    init(name: String, work: @escaping () -> Void) { (self.name, self.work) = (name, work) }

    func run() {
        ptt_set_thread_name(String(name.prefix(15)))
        work()
    }
}

private let currentLoopKey: pthread_key_t = {
    var key = pthread_key_t()
    pthread_key_create(&key, nil)
    return key
}()

private func currentEventLoop() -> EventLoop? {
    guard let pointer = pthread_getspecific(currentLoopKey) else { return nil }
    return Unmanaged<EventLoop>.fromOpaque(pointer).takeUnretainedValue()
}

private func setCurrentEventLoop(_ loop: EventLoop?) {
    pthread_setspecific(currentLoopKey, loop.map { UnsafeRawPointer(Unmanaged.passUnretained($0).toOpaque()) })
}
