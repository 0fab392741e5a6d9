// What the actors of a cluster have in common: each lives on a loop, and others wait for it.
import Reactor

/// An actor that lives on a loop which may not wait.
protocol LoopActor: Actor {
    nonisolated var loop: EventLoop { get }
}

extension LoopActor {
    /// Does what may wait on `other`, and goes on here.
    func inBackground<T: Sendable>(
        _ other: EventLoop, _ body: @escaping @Sendable () throws -> T,
        then: @escaping @Sendable (isolated Self, Result<T, any Error>) -> Void
    ) {
        other.execute { [weak self, loop] in
            let result = Result { try body() }
            loop.execute { [weak self] in self?.assumeIsolated { then($0, result) } }
        }
    }

    /// Does it later, unless this actor is gone then.
    @discardableResult
    func again(after delay: Duration, _ body: @escaping @Sendable (isolated Self) -> Void) -> EventLoop.Timer {
        loop.schedule(after: delay) { [weak self] in self?.assumeIsolated { body($0) } }
    }
}
