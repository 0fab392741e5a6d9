// Work that is done on a loop for somebody elsewhere, who waits for what comes of it: for a disk on a loop of its own, say.
import Glibc
import MonotonicTime
import Synchronization

extension EventLoop {
    /// Runs `body` on this loop, after all that was posted to it before, and returns what comes of it.
    ///
    /// The caller's thread does not wait; `body` may, when this loop is there for that.
    public func perform<T: Sendable, Failure: Error>(
        _ body: @escaping @Sendable () throws(Failure) -> T
    ) async throws(Failure) -> T {
        let result: Result<T, Failure> = await withCheckedContinuation { continuation in
            execute {
                do throws(Failure) { continuation.resume(returning: .success(try body())) } catch {
                    continuation.resume(returning: .failure(error))
                }
            }
        }
        return try result.get()
    }

    /// The same for work that may fail in any way; for set-up and tests.
    public func run<T: Sendable>(_ body: @escaping @Sendable () throws -> T) async throws -> T {
        try await perform(body)
    }

    /// Runs `body` on the loop's thread and blocks the caller until it is done; for set-up and the end of loops that belong to the
    /// caller. The loop must be running, and must never wait for the caller's thread in its turn.
    public func runAndWait<T: Sendable>(_ body: @escaping @Sendable () -> T) -> T {
        if isCurrent { return body() }
        let result = BlockingResult<T>()
        execute { result.fulfil(body()) }
        return result.wait()
    }

    /// Returns when all that was posted to this loop before has run, or after `limit`.
    ///
    /// - Parameters:
    ///   - limit: How long a disk that does not answer may delay the caller.
    ///   - clock: The loop that counts the time; not this one, which may hang.
    /// - Returns: Whether all of it has run.
    public func drained(within limit: Duration, countedBy clock: EventLoop) async -> Bool {
        await withCheckedContinuation { continuation in
            let answer = FirstAnswer(to: continuation)
            execute { answer.give(true) }
            clock.execute { clock.schedule(after: limit) { answer.give(false) } }
        }
    }
}

/// The first of several answers to one question; later ones are dropped.
private final class FirstAnswer<T: Sendable>: Sendable {
    private let waiting: Mutex<CheckedContinuation<T, Never>?>

    init(to continuation: CheckedContinuation<T, Never>) { waiting = Mutex(continuation) }

    func give(_ answer: T) { waiting.withLock { $0.take() }?.resume(returning: answer) }
}

/// A result that one thread waits for and another thread provides.
final class BlockingResult<T: Sendable>: @unchecked Sendable {
    private let semaphore = UnsafeMutablePointer<sem_t>.allocate(capacity: 1)
    /// Written before the semaphore is raised, and read after it.
    private var value: T?

    init() { sem_init(semaphore, 0, 0) }

    deinit {
        sem_destroy(semaphore)
        semaphore.deallocate()
    }

    func fulfil(_ value: T) {
        self.value = value
        sem_post(semaphore)
    }

    func wait() -> T {
        while sem_wait(semaphore) != 0 {}
        guard let value else { preconditionFailure("the semaphore is raised once there is a value") }
        return value
    }
}

/// Writes the newest value to one place, on a loop that may wait for the disk.
///
/// At most one value waits: a newer one takes its place. So a slow disk delays nobody, and what waits for it does not grow.
public final class LatestValueWriter<Value: Sendable>: Sendable {
    private let disk: EventLoop
    private let write: @Sendable (Value) -> Void
    private let waiting = Mutex<Value?>(nil)

    /// A writer on the loop `disk`.
    ///
    /// - Parameter write: Called on `disk` for each value that was not replaced before its turn came.
    public init(on disk: EventLoop, _ write: @escaping @Sendable (Value) -> Void) {
        self.disk = disk
        self.write = write
    }

    /// Has `value` written, in place of one that waits still. From any thread; returns at once.
    public func put(_ value: Value) {
        guard waiting.withLock({ exchange(&$0, with: value) }) == nil else { return }
        disk.execute { [self] in
            if let newest = waiting.withLock({ $0.take() }) { write(newest) }
        }
    }
}
