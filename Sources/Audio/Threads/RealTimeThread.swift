// Threads with real-time priority where that is permitted: their end, how they are woken, and memory that is never paged out.
import CLinux
import Glibc
import MonotonicTime
import Synchronization

/// A thread of the audio path as who gives out real-time priorities (rtkit) needs to know it.
public struct RealTimeThreadInfo: Equatable, Sendable {
    /// The kernel's id of the thread (gettid(2)), within this process.
    public let identifier: Int32
    /// Whether it has run with real-time priority from its start, by RLIMIT_RTPRIO.
    public let isRealTime: Bool
    /// The priority that it has or wants, under SCHED_FIFO or SCHED_RR.
    public let priority: Int32
}

/// The threads of this module that could not take real-time priority themselves.
public enum AudioThreads {
    private static let handler = Mutex<(@Sendable (RealTimeThreadInfo) -> Void)?>(nil)

    /// Has `handler` called for every thread that is started without real-time priority from now on, by who starts it.
    public static func whenOrdinary(_ handler: (@Sendable (RealTimeThreadInfo) -> Void)?) {
        self.handler.withLock { $0 = handler }
    }

    static func started(_ thread: RealTimeThreadInfo) {
        guard !thread.isRealTime, let handler = handler.withLock({ $0 }) else { return }
        handler(thread)
    }
}

/// A thread that runs a body to its end, under SCHED_FIFO when the process may (sched(7), RLIMIT_RTPRIO).
final class RealTimeThread: @unchecked Sendable {
    /// Above ordinary tasks, below the kernel's threaded interrupts (50).
    private static let priority: Int32 = 10
    /// libopus keeps its scratch on the stack; sound-server plug-ins need some of their own.
    private static let stackSize = 1 << 20

    private final class Start {
        let name: String
        let started: WakeDescriptor
        let identifier = Atomic<Int32>(0)
        let body: @Sendable () -> Void
        init(_ name: String, _ started: WakeDescriptor, _ body: @escaping @Sendable () -> Void) {
            (self.name, self.started, self.body) = (name, started, body)
        }
    }

    /// When the body has returned. Nobody joins the thread.
    let end = AudioThreadEnd()
    /// Why the thread has no real-time priority: an errno, 0 when it has.
    let priorityError: Int32
    private let identifier: Int32

    /// Starts a thread.
    ///
    /// - Parameters:
    ///   - name: 15 characters at most are shown by ps(1).
    ///   - predecessor: The thread that may hold the device still. The body begins after its end, or after `AudioThreadEnd.limit`.
    init(
        name: String, after predecessor: AudioThreadEnd? = nil, body: @escaping @Sendable () -> Void
    ) throws(AudioFault) {
        let started = try WakeDescriptor()
        let start = Start(name, started) { [end] in
            predecessor?.wait()
            body()
            end.arrive()
        }
        var thread = pthread_t()
        var attributes = pthread_attr_t()
        pthread_attr_init(&attributes)
        defer { pthread_attr_destroy(&attributes) }
        pthread_attr_setdetachstate(&attributes, Int32(PTHREAD_CREATE_DETACHED))
        pthread_attr_setstacksize(&attributes, Self.stackSize)
        let argument = Unmanaged.passRetained(start)
        let result = pthread_create(
            &thread, &attributes,
            { argument in
                guard let argument else { return nil }
                let start = Unmanaged<Start>.fromOpaque(argument).takeRetainedValue()
                ptt_set_thread_name(start.name)
                ptt_unblock_real_time_signal()
                start.identifier.store(ptt_thread_id(), ordering: .releasing)
                start.started.signal()
                start.body()
                return nil
            }, argument.toOpaque())
        guard result == 0 else {
            argument.release()
            throw AudioFault(.open, result)
        }
        started.wait()
        identifier = start.identifier.load(ordering: .acquiring)
        var parameter = sched_param()
        parameter.sched_priority = Self.priority
        priorityError = pthread_setschedparam(thread, SCHED_FIFO, &parameter)
        AudioThreads.started(information)
    }

    var information: RealTimeThreadInfo {
        RealTimeThreadInfo(identifier: identifier, isRealTime: priorityError == 0, priority: Self.priority)
    }
}

/// Tells when a microphone's or a speaker's thread has closed its device and ended.
///
/// A driver or a sound server may keep the thread for as long as it wants, so no event loop waits for it.
public final class AudioThreadEnd: Sendable {
    /// How long the end takes at most when driver and server answer.
    public static let limit = Duration.seconds(3)

    private struct State {
        var hasArrived = false
        var handlers: [@Sendable () -> Void] = []
    }

    private let state = Mutex(State())

    init() {}

    /// Has `handler` called once, when the thread has ended: at once if it has, else by the thread.
    public func then(_ handler: @escaping @Sendable () -> Void) {
        let hasArrived = state.withLock { state in
            if !state.hasArrived { state.handlers.append(handler) }
            return state.hasArrived
        }
        if hasArrived { handler() }
    }

    /// Waits for the end; for threads that may wait, such as a program's main thread.
    ///
    /// - Returns: Whether the thread has ended within `limit`.
    @discardableResult
    public func wait() -> Bool {
        // Without a descriptor left nothing can be waited for; whoever needs the device finds it busy and tries again.
        guard let arrived = try? WakeDescriptor() else { return false }
        then { arrived.signal() }
        return !arrived.wait(until: .now + Self.limit)
    }

    func arrive() {
        let handlers = state.withLock { state in
            state.hasArrived = true
            defer { state.handlers = [] }
            return state.handlers
        }
        for handler in handlers { handler() }
    }
}

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

/// Locks the buffers that the real-time threads touch. Each is locked for its life; freed memory is unlocked by the kernel when
/// the allocator gives it back, and is else only memory that stays resident.
public enum LockedMemory {
    /// Keeps `count` bytes resident. Without permission nothing happens.
    static func lock(_ start: UnsafeRawPointer, _ count: Int) { _ = mlock(start, count) }

    /// Locks all that the process has and will have, each page when it is first touched.
    ///
    /// Only without a limit: under one, the allocation that exceeds it would fail.
    /// - Returns: 0, or why not: an errno.
    public static func lockAll() -> Int32 { ptt_lock_all_memory() }
}
