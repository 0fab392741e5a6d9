// Runs work on a loop while another thread waits for the result.
import Glibc

extension EventLoop {
    /// Runs `body` on the loop's thread and blocks the caller until it is done; for set-up and the end of loops that belong to the
    /// caller. The loop must be running, and must never wait for the caller's thread in its turn.
    public func runAndWait<T: Sendable>(_ body: @escaping @Sendable () -> T) -> T {
        if isCurrent { return body() }
        let result = BlockingResult<T>()
        execute { result.fulfil(body()) }
        return result.wait()
    }
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
