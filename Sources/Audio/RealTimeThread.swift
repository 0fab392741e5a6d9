// A POSIX thread with real-time priority where that is permitted.
import CLinux

#if canImport(Glibc)
import Glibc
#else
import Musl
#endif

/// A thread that runs a body to its end, under SCHED_FIFO when the process may (sched(7), RLIMIT_RTPRIO).
final class RealTimeThread: @unchecked Sendable {
    /// Above ordinary tasks, below the kernel's threaded interrupts (50).
    private static let priority: Int32 = 10
    /// libopus keeps its scratch on the stack; sound-server plug-ins need some of their own.
    private static let stackSize = 1 << 20

    private final class Start {
        let name: String
        let body: @Sendable () -> Void
        init(name: String, body: @escaping @Sendable () -> Void) {
            self.name = name
            self.body = body
        }
    }

    private var thread = pthread_t()
    /// Why the thread has no real-time priority: an errno, 0 when it has.
    let priorityError: Int32

    /// Starts a thread. - Parameter name: 15 characters at most are shown by ps(1).
    init(name: String, body: @escaping @Sendable () -> Void) throws(AudioFault) {
        let start = Start(name: name, body: body)
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
                start.body()
                return nil
            }, argument.toOpaque())
        guard result == 0 else {
            argument.release()
            throw AudioFault(.open, result)
        }
        var parameter = sched_param()
        parameter.sched_priority = Self.priority
        priorityError = pthread_setschedparam(thread, SCHED_FIFO, &parameter)
    }

    /// Waits for the body's end. To be called once.
    func join() { pthread_join(thread, nil) }
}
