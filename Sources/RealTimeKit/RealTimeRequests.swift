// Which threads wait for real-time priority: asked for as soon as the bus is there.
import Logging
import Synchronization

/// Asks rtkit for the threads that were started without real-time priority. What is refused is said once and left so: the thread
/// then runs as an ordinary one.
public final class RealTimeRequests: Sendable {
    /// Threads that may wait; a daemon has two. Later ones are not asked for.
    static let waitingMax = 16

    private struct State {
        var waiting: [(thread: Int32, priority: Int32)] = []
        var isAsking = false
        var watchesBus = false
    }

    private let kit: RealTimeKit
    private let logger: Logger
    private let state = Mutex(State())

    /// Requests to the rtkit of `kit`'s bus.
    public init(_ kit: RealTimeKit, logger: Logger) {
        self.kit = kit
        self.logger = logger
    }

    /// Threads that have neither got their priority nor been refused.
    public var waiting: Int { state.withLock { $0.waiting.count } }

    /// A thread wants `priority`. From any thread, before the bus is there, too.
    public func add(thread: Int32, priority: Int32) {
        let isTaken = state.withLock { state in
            guard state.waiting.count < Self.waitingMax else { return false }
            state.waiting.append((thread, priority))
            return true
        }
        guard isTaken else { return }
        Task { await ask() }
    }

    /// Asks for all that wait. Those that the bus cannot be asked about now wait on.
    public func ask() async {
        guard
            state.withLock({ state in
                defer { state.isAsking = true }
                return !state.isAsking
            })
        else { return }
        defer { state.withLock { $0.isAsking = false } }
        while let next = state.withLock({ $0.waiting.first }) {
            do throws(RealTimeKitError) {
                try await kit.makeRealTime(thread: next.thread, priority: next.priority)
                logger.debug("real-time priority by rtkit", metadata: ["thread": "\(next.thread)"])
            } catch .notConnected {
                await askWhenBusIsThere()
                return
            } catch {
                logger.info(
                    "audio runs without real-time priority; sound may stutter on a busy machine",
                    metadata: ["why": "\(error)"])
            }
            state.withLock { $0.waiting.removeAll { $0.thread == next.thread } }
        }
    }

    private func askWhenBusIsThere() async {
        let isNew = state.withLock { state in
            defer { state.watchesBus = true }
            return !state.watchesBus
        }
        guard isNew else { return }
        await kit.whenBusIsThere { [weak self] in
            guard let self else { return }
            Task { await self.ask() }
        }
    }
}
