// Priority for threads of a process that may not give it itself, from rtkit-daemon, asked for as soon as the bus is there.
import CLinux
import DBus
import Glibc
import Logging
import Synchronization

/// Why a thread was given no priority.
public enum RealTimeKitError: Error, Equatable, Sendable, CustomStringConvertible {
    /// Nobody on the bus gives out priorities.
    case notThere
    /// The bus is not there (yet).
    case notConnected
    /// rtkit gives out lower priorities only.
    case priorityTooHigh(wanted: Int32, most: Int32)
    /// The limit that rtkit wants (RLIMIT_RTTIME) could not be set; `code` is an errno.
    case limit(code: Int32)
    /// It refused, or did not answer.
    case refused(String)

    /// What happened and what to do.
    public var description: String {
        switch self {
        case .notThere:
            "rtkit is not running; install it (package rtkit), or allow priorities by LimitRTPRIO= and LimitNICE= (systemd) or limits.d(5)"
        case .notConnected: "not connected to the system bus, where rtkit is"
        case .priorityTooHigh(let wanted, let most): "rtkit gives real-time priorities up to \(most), not \(wanted)"
        case .limit(let code): "cannot set RLIMIT_RTTIME: \(String(cString: strerror(code)))"
        case .refused(let reason): "rtkit refused the priority: \(reason)"
        }
    }
}

/// rtkit-daemon on a system bus. It starts by itself with the first question (D-Bus activation).
public struct RealTimeKit: Sendable {
    /// The name on the bus; interface and path follow from it (rtkit's README, "D-Bus interface").
    static let name = "org.freedesktop.RealtimeKit1"
    static let path: DBusObjectPath = "/org/freedesktop/RealtimeKit1"
    /// The processor time without a pause that a real-time thread gets where rtkit does not say: its own default.
    private static let timeMaxDefault: Int64 = 200_000

    private let bus: DBusConnection

    /// The daemon on `bus`, which is to be a connection to the system bus.
    public init(on bus: DBusConnection) { self.bus = bus }

    /// Gives a thread of this process SCHED_RR at `priority`.
    ///
    /// The whole process gets RLIMIT_RTTIME, as rtkit demands: one of its real-time threads that computed for longer than 200 ms
    /// without a pause would end it. One that has come three quarters there becomes an ordinary thread instead, for good.
    /// - Parameters:
    ///   - thread: Its id by gettid(2).
    ///   - priority: 1…99; rtkit gives up to 20, unless it is told otherwise.
    public func makeRealTime(thread: Int32, priority: Int32) async throws(RealTimeKitError) {
        guard thread > 0, priority > 0 else { throw .refused("thread \(thread) with priority \(priority) is none") }
        let most = try await property("MaxRealtimePriority") ?? Int64(priority)
        guard Int64(priority) <= most else {
            throw .priorityTooHigh(wanted: priority, most: Int32(clamping: most))
        }
        let time = try await property("RTTimeUSecMax") ?? Self.timeMaxDefault
        let code = ptt_limit_real_time(max(1_000, time))
        guard code == 0 else { throw .limit(code: code) }
        try await ask("MakeThreadRealtimeWithPID", thread, .uint32(UInt32(priority)))
    }

    /// Gives a thread of this process a niceness below 0.
    ///
    /// - Parameters:
    ///   - thread: Its id by gettid(2).
    ///   - niceness: -20…-1; rtkit gives down to -15, unless it is told otherwise.
    public func makeHighPriority(thread: Int32, niceness: Int32) async throws(RealTimeKitError) {
        guard thread > 0, niceness < 0 else { throw .refused("thread \(thread) with niceness \(niceness) is none") }
        try await ask("MakeThreadHighPriorityWithPID", thread, .int32(niceness))
    }

    private func ask(_ method: String, _ thread: Int32, _ argument: DBusValue) async throws(RealTimeKitError) {
        do throws(DBusError) {
            try await bus.call(
                destination: Self.name, path: Self.path, interface: Self.name, method: method,
                arguments: [.uint64(UInt64(getpid())), .uint64(UInt64(thread)), argument])
        } catch { throw Self.problem(error) }
    }

    /// Has `handler` called whenever the bus is there (again), for as long as the connection lives; now, too, if it is.
    func whenBusIsThere(_ handler: @escaping @Sendable () -> Void) async {
        // The bus owns its own name for as long as it can be reached. Nothing else is wanted of the watch.
        _ = try? await bus.watchName("org.freedesktop.DBus") { if $0 != nil { handler() } }
    }

    /// A number that rtkit tells; nil when it tells it as none.
    private func property(_ property: String) async throws(RealTimeKitError) -> Int64? {
        do throws(DBusError) {
            let value = try await bus.getProperty(property, of: Self.name, destination: Self.name, path: Self.path)
            return value.integerValue
        } catch { throw Self.problem(error) }
    }

    private static func problem(_ error: DBusError) -> RealTimeKitError {
        if case .disconnected = error { return .notConnected }
        return switch error.remoteName {
        case "org.freedesktop.DBus.Error.ServiceUnknown"?, "org.freedesktop.DBus.Error.NameHasNoOwner"?: .notThere
        default: .refused("\(error)")
        }
    }
}

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
