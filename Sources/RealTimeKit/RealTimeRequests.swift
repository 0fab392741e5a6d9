// Which threads wait for a priority: asked for as soon as the bus is there.
import CLinux
import Logging
import Synchronization

/// The priority of a thread.
public enum ThreadPriority: Equatable, Sendable {
    /// SCHED_RR with that priority, 1…99.
    case realTime(Int32)
    /// An ordinary thread with that niceness, -20…-1.
    case high(niceness: Int32)
}

/// Asks rtkit for the threads that could not take their priority themselves. What is refused is said once and left so: the thread
/// then runs as an ordinary one.
public final class RealTimeRequests: Sendable {
    /// Threads that may wait; a daemon has three. Later ones are not asked for.
    static let waitingMax = 16

    /// That of threads that everybody waits for, as sound servers have it by default (nice-level in pulse-daemon.conf(5)).
    static let highNiceness: Int32 = -11

    private struct State {
        var waiting: [(thread: Int32, priority: ThreadPriority)] = []
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

    /// The calling thread runs before ordinary ones from now on: at once where the process may give that, or as soon as rtkit does.
    public func raiseThisThread() {
        let thread = ptt_thread_id()
        guard ptt_raise_priority(thread, Self.highNiceness) != 0 else { return }
        add(thread: thread, priority: .high(niceness: Self.highNiceness))
    }

    /// A thread wants `priority`. From any thread, before the bus is there, too.
    public func add(thread: Int32, priority: ThreadPriority) {
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
        // In one step with the look at what waits: who adds a thread after it asks anew.
        while let next = state.withLock({ state in
            state.isAsking = !state.waiting.isEmpty
            return state.waiting.first
        }) {
            do throws(RealTimeKitError) {
                switch next.priority {
                case .realTime(let priority): try await kit.makeRealTime(thread: next.thread, priority: priority)
                case .high(let niceness): try await kit.makeHighPriority(thread: next.thread, niceness: niceness)
                }
                logger.debug(
                    "priority by rtkit", metadata: ["thread": "\(next.thread)", "priority": "\(next.priority)"])
            } catch .notConnected {
                // The bus may be there at once, and is then asked.
                state.withLock { $0.isAsking = false }
                await askWhenBusIsThere()
                return
            } catch {
                logger.info("\(next.priority.consequence)", metadata: ["why": "\(error)"])
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

extension ThreadPriority {
    /// What it means that a thread has to do without it.
    fileprivate var consequence: String {
        switch self {
        case .realTime: "audio runs without real-time priority; sound may stutter on a busy machine"
        case .high: "buttons and packets are handled with ordinary priority; they may be late on a busy machine"
        }
    }
}
