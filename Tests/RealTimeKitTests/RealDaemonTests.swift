// The real rtkit-daemon on a private bus: threads get their priority, and one that computes for too long loses it and nothing else.
import BusTestSupport
import CLinux
import DBus
import Glibc
import Synchronization
import Testing

@testable import RealTimeKit

/// Debian's rtkit, as its service file starts it: it drops its privileges and its root, and keeps CAP_SYS_NICE. Two things differ.
/// It has no canary, which takes everybody's priority away when the machine is too busy for its own ordinary thread, as a machine
/// under test may be. And polkit's part is played by the test, for polkitd knows sessions only of a system with logind.
@Suite(
    .serialized,
    .enabled(if: isPossible, "needs root, rtkit, and a kernel that lets root's threads be real-time ones"))
struct RealDaemonTests {
    /// The daemon on a bus where polkit says `isAllowed` to everything.
    private func withDaemon(
        isAllowed: Bool, asked action: String = "acquire-real-time", _ body: (RealTimeKit) async throws -> Void
    ) async throws {
        try await withBus { fixture in
            let polkit = try await fixture.connect()
            let answer = DBusValue.structure([
                .boolean(isAllowed), .boolean(false), .dictionary(key: .string, value: .string, [:]),
            ])
            let interface = DBusInterface(
                "org.freedesktop.PolicyKit1.Authority",
                methods: [
                    .init(
                        "CheckAuthorization",
                        in: [
                            .init("subject", .structure([.string, .dictionary(key: .string, value: .variant)])),
                            .init("action", .string), .init("details", .dictionary(key: .string, value: .string)),
                            .init("flags", .uint32), .init("cancellation", .string),
                        ], out: [.init("result", answer.type)])
                ])
            let asked = Mutex<[DBusValue]>([])
            try await polkit.export(
                [
                    try DBusExport(
                        interface,
                        methods: [
                            "CheckAuthorization": { call throws(DBusErrorReply) in
                                asked.withLock { $0.append(call.arguments[1]) }
                                return [answer]
                            }
                        ])
                ], at: "/org/freedesktop/PolicyKit1/Authority")
            try await polkit.requestName("org.freedesktop.PolicyKit1")
            // Not with --stderr: it limits its own files to nothing.
            let daemon = try ChildProcess(
                [program, "--no-canary"], environment: ["DBUS_SYSTEM_BUS_ADDRESS": fixture.bus.address],
                package: "rtkit")
            let bus = try await fixture.connect()
            try #require(
                try await eventually { try await bus.owner(of: RealTimeKit.name) != nil }, "\(daemon.errors)")
            try await body(RealTimeKit(on: bus))
            #expect(asked.withLock { $0 } == [.string("org.freedesktop.RealtimeKit1.\(action)")])
            await bus.close()
            await polkit.close()
            // SIGTERM it does not hear while it waits for the bus.
            daemon.signal(SIGKILL)
            _ = try await daemon.end()
        }
    }

    @Test func `a thread gets its priority and one that computes for too long becomes an ordinary one`() async throws {
        let thread = Sleeper()
        defer { thread.end() }
        #expect(thread.policy == SCHED_OTHER)
        try await withDaemon(isAllowed: true) { kit in
            try await kit.makeRealTime(thread: thread.identifier, priority: 10)
            #expect(thread.policy == SCHED_RR && thread.priority == 10)
        }
        // Without the signal's handler the kernel would end this process here.
        thread.compute()
        #expect(try await eventually(.seconds(30)) { thread.policy == SCHED_OTHER })
    }

    @Test func `a thread gets its niceness`() async throws {
        let thread = Sleeper()
        defer { thread.end() }
        #expect(thread.niceness == 0)
        try await withDaemon(isAllowed: true, asked: "acquire-high-priority") { kit in
            try await kit.makeHighPriority(thread: thread.identifier, niceness: -11)
        }
        #expect(thread.niceness == -11 && thread.policy == SCHED_OTHER)
    }

    @Test func `what polkit refuses is told and the thread stays ordinary`() async throws {
        let thread = Sleeper()
        defer { thread.end() }
        try await withDaemon(isAllowed: false) { kit in
            await #expect {
                try await kit.makeRealTime(thread: thread.identifier, priority: 10)
            } throws: { error in
                guard case .refused? = error as? RealTimeKitError else { return false }
                return true
            }
        }
        #expect(thread.policy == SCHED_OTHER)
    }
}

private let program = "/usr/libexec/rtkit-daemon"

private let isPossible: Bool = {
    guard geteuid() == 0, access(program, X_OK) == 0 else { return false }
    // Some containers give no real-time runtime to their control group.
    let thread = Sleeper()
    defer { thread.end() }
    var parameter = sched_param()
    parameter.sched_priority = 1
    return sched_setscheduler(thread.identifier, SCHED_RR, &parameter) == 0
}()

/// A thread that sleeps, or computes for as long as it has real-time priority.
private final class Sleeper: Sendable {
    private final class Shared: Sendable {
        let identifier = Atomic<Int32>(0)
        let computes = Atomic<Bool>(false)
        let isOver = Atomic<Bool>(false)
    }

    private let shared = Shared()
    private let thread: pthread_t

    init() {
        var made = pthread_t()
        pthread_create(
            &made, nil,
            { argument in
                guard let argument else { return nil }
                let shared = Unmanaged<Shared>.fromOpaque(argument).takeRetainedValue()
                // As the threads of sound do.
                ptt_unblock_real_time_signal()
                shared.identifier.store(ptt_thread_id(), ordering: .releasing)
                while !shared.isOver.load(ordering: .acquiring) {
                    let isComputing = shared.computes.load(ordering: .acquiring)
                    if !isComputing || sched_getscheduler(0) & 0xFF == SCHED_OTHER { usleep(1_000) }
                }
                return nil
            }, Unmanaged.passRetained(shared).toOpaque())
        thread = made
        while shared.identifier.load(ordering: .acquiring) == 0 { usleep(1_000) }
    }

    var identifier: Int32 { shared.identifier.load(ordering: .acquiring) }
    /// Without the flag that rtkit adds.
    var policy: Int32 { sched_getscheduler(identifier) & 0xFF }
    var priority: Int32 {
        var parameter = sched_param()
        return sched_getparam(identifier, &parameter) == 0 ? parameter.sched_priority : -1
    }

    var niceness: Int32 { getpriority(__priority_which_t(PRIO_PROCESS.rawValue), id_t(identifier)) }

    func compute() { shared.computes.store(true, ordering: .releasing) }

    func end() {
        shared.isOver.store(true, ordering: .releasing)
        pthread_join(thread, nil)
    }
}
