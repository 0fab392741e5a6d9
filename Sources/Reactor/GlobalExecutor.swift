// An event loop in the place of Swift's global executor.
import CLinux
import Synchronization

extension EventLoop {
    private static let global = Mutex<EventLoop?>(nil)
    private typealias Hook = @convention(thin) (UnownedJob, UnsafeMutableRawPointer) -> Void

    /// Has this loop run, from now on and for as long as the process lives, what is not isolated to any actor.
    ///
    /// Swift's own global executor on Linux is a worker pool of libdispatch, which wakes up once a second to count its workers as soon as
    /// it exists: a daemon that must cost nothing while idle cannot have it. Call it before the first task; `Task.sleep`
    /// would still start libdispatch.
    public func becomeGlobalExecutor() {
        Self.global.withLock { $0 = self }
        let hook: Hook = { job, _ in EventLoop.global.withLock { $0 }?.enqueue(ExecutorJob(job)) }
        ptt_set_global_executor(unsafeBitCast(hook, to: UnsafeMutableRawPointer.self))
    }
}
