// A POSIX thread with real-time priority where that is permitted.
import CLinux
import Glibc
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
        let predecessor: AudioThreadEnd?
        let end: AudioThreadEnd
        let started: WakeDescriptor
        let identifier = Atomic<Int32>(0)
        let body: @Sendable () -> Void
        init(
            name: String, predecessor: AudioThreadEnd?, end: AudioThreadEnd, started: WakeDescriptor,
            body: @escaping @Sendable () -> Void
        ) {
            self.name = name
            self.predecessor = predecessor
            self.end = end
            self.started = started
            self.body = body
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
        let start = Start(name: name, predecessor: predecessor, end: end, started: started, body: body)
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
                start.predecessor?.wait()
                start.body()
                start.end.arrive()
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
