// A POSIX thread with real-time priority where that is permitted.
import CLinux
import Synchronization

#if canImport(Glibc)
import Glibc
#else
import Musl
#endif

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
        let finished: WakeDescriptor
        let started: WakeDescriptor
        let identifier = Atomic<Int32>(0)
        let body: @Sendable () -> Void
        init(
            name: String, started: WakeDescriptor, finished: WakeDescriptor, body: @escaping @Sendable () -> Void
        ) {
            self.name = name
            self.started = started
            self.finished = finished
            self.body = body
        }
    }

    /// How long a driver or a server may keep the thread at its end.
    private static let joinMaxMilliseconds: Int32 = 3_000

    private var thread = pthread_t()
    private let finished: WakeDescriptor
    /// Why the thread has no real-time priority: an errno, 0 when it has.
    let priorityError: Int32
    private let identifier: Int32

    /// Starts a thread. - Parameter name: 15 characters at most are shown by ps(1).
    init(name: String, body: @escaping @Sendable () -> Void) throws(AudioFault) {
        finished = try WakeDescriptor()
        let started = try WakeDescriptor()
        let start = Start(name: name, started: started, finished: finished, body: body)
        var attributes = pthread_attr_t()
        pthread_attr_init(&attributes)
        defer { pthread_attr_destroy(&attributes) }
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
                start.finished.signal()
                return nil
            }, argument.toOpaque())
        guard result == 0 else {
            argument.release()
            throw AudioFault(.open, result)
        }
        // A signal ends the wait, too.
        repeat { started.wait() } while start.identifier.load(ordering: .acquiring) == 0
        identifier = start.identifier.load(ordering: .acquiring)
        var parameter = sched_param()
        parameter.sched_priority = Self.priority
        priorityError = pthread_setschedparam(thread, SCHED_FIFO, &parameter)
        AudioThreads.started(information)
    }

    var information: RealTimeThreadInfo {
        RealTimeThreadInfo(identifier: identifier, isRealTime: priorityError == 0, priority: Self.priority)
    }

    /// Waits for the body's end. To be called once.
    ///
    /// - Returns: `false` when it did not end: the thread is then left to itself, blocked inside a driver or a library.
    func join() -> Bool {
        var waited = pollfd(fd: finished.descriptor, events: Int16(POLLIN), revents: 0)
        guard poll(&waited, 1, Self.joinMaxMilliseconds) > 0 else {
            pthread_detach(thread)
            return false
        }
        pthread_join(thread, nil)
        return true
    }
}
