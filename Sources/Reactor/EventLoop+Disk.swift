// Work that may wait for a disk, on a loop of its own, so that no other loop waits for it.
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

    /// Returns when all that was posted to this loop before has run, or after `limit`.
    ///
    /// - Parameters:
    ///   - limit: How long a disk that does not answer may delay the caller.
    ///   - clock: The loop that counts the time; not this one, which may hang.
    /// - Returns: Whether all of it has run.
    public func drained(within limit: Duration, countedBy clock: EventLoop) async -> Bool {
        let answer = FirstAnswer<Bool>()
        return await withCheckedContinuation { continuation in
            answer.wait(continuation)
            execute { answer.give(true) }
            clock.execute { clock.schedule(after: limit) { answer.give(false) } }
        }
    }
}

/// The first of several answers to one question; later ones are dropped.
private final class FirstAnswer<T: Sendable>: Sendable {
    private let waiting = Mutex<CheckedContinuation<T, Never>?>(nil)

    func wait(_ continuation: CheckedContinuation<T, Never>) { waiting.withLock { $0 = continuation } }

    func give(_ answer: T) {
        let continuation = waiting.withLock { waiting in
            defer { waiting = nil }
            return waiting
        }
        continuation?.resume(returning: answer)
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
        let isAlone = waiting.withLock { waiting in
            defer { waiting = value }
            return waiting == nil
        }
        guard isAlone else { return }
        disk.execute { [self] in
            let newest = waiting.withLock { waiting in
                defer { waiting = nil }
                return waiting
            }
            if let newest { write(newest) }
        }
    }
}
