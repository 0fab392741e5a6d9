// A program whose tasks run on an event loop, in the place of Swift's global executor, and what it needs no more when it has started.
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

    /// Runs `body` on a new loop that replaces Swift's global executor (see `becomeGlobalExecutor`), and blocks the
    /// caller, a program's main thread, until `body` returns. Call it once, before the first task, and not from an
    /// `async` main, which already uses libdispatch.
    ///
    /// - Parameter name: The name of the loop's thread.
    /// - Throws: `SystemError` when there is no thread for it; what `body` throws.
    public static func runProgram<T: Sendable>(
        named name: String, _ body: @escaping @Sendable (EventLoop) async throws -> T
    ) throws -> T {
        let loop = try EventLoop(name: name)
        loop.becomeGlobalExecutor()
        let result = BlockingResult<Result<T, any Error>>()
        Task {
            do {
                result.fulfil(.success(try await body(loop)))
            } catch {
                result.fulfil(.failure(error))
            }
        }
        return try result.wait().get()
    }
}

/// The memory of this process.
public enum ProgramMemory {
    /// Takes what only the start has used of code and constants out of the process. What is used again comes back, from the page
    /// cache as a rule.
    public static func giveBackCode() { _ = ptt_give_back_code() }

    /// The delay after which a program that has said that it is ready has nothing to start any more.
    public static let startsWithin: Duration = .seconds(2)
}
