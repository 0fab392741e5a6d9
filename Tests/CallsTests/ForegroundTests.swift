// Who is in the foreground, as a logind of the test's tells it on a real bus.
import BusTestSupport
import DBus
import MonotonicTime
import Testing

@testable import Calls

@Suite struct ForegroundTests {
    @Test
    func `without logind everybody is in the foreground, and logind is not asked for`() async throws {
        try await withBus { fixture in
            let monitor = ForegroundMonitor(on: try await fixture.connect(), logger: fixture.logger)
            #expect(await monitor.isForeground(processIdentifier: 1, userIdentifier: 0), "not started")
            try await monitor.start()
            #expect(await monitor.isForeground(processIdentifier: 1, userIdentifier: 0))
        }
    }

    @Test
    func `a program is in the foreground while its session is active, and the answer is remembered until it changes`()
        async throws
    {
        try await withBus { fixture in
            let logind = try await FakeLogind(fixture)
            let monitor = try await fixture.foregroundMonitor()
            #expect(await monitor.isForeground(processIdentifier: 100, userIdentifier: 1000))
            #expect(try await eventually { await !monitor.isForeground(processIdentifier: 200, userIdentifier: 1001) })
            let asked = logind.calls.all.count
            #expect(await monitor.isForeground(processIdentifier: 100, userIdentifier: 1000))
            #expect(logind.calls.all.dropFirst(asked) == ["GetSessionByPID"], "the session is known")

            // The user switch: one session goes to the back, the other comes to the front.
            try await logind.activate("1", false)
            try await logind.activate("2", true)
            #expect(
                try await eventually {
                    let first = await monitor.isForeground(processIdentifier: 100, userIdentifier: 1000)
                    let second = await monitor.isForeground(processIdentifier: 200, userIdentifier: 1001)
                    return !first && second
                })
        }
    }

    @Test
    func `a program outside any session goes by its user's; a service by nobody's`() async throws {
        try await withBus { fixture in
            let logind = try await FakeLogind(fixture)
            let monitor = try await fixture.foregroundMonitor()
            let outside: UInt32 = 999
            #expect(await monitor.isForeground(processIdentifier: outside, userIdentifier: 1000))
            // Whoever is not told of in time is in the foreground, too.
            #expect(
                try await eventually { await !monitor.isForeground(processIdentifier: outside, userIdentifier: 1001) })
            #expect(await monitor.isForeground(processIdentifier: outside, userIdentifier: 0), "not logged in")
            try await logind.connection.setProperties(
                ["State": .string("lingering")], of: "org.freedesktop.login1.User",
                at: "/org/freedesktop/login1/user/_1001")
            #expect(await monitor.isForeground(processIdentifier: outside, userIdentifier: 1001), "no session at all")
        }
    }

    @Test
    func `a logind that does not answer, or answers nonsense, keeps nobody longer than the time limit`() async throws {
        try await withBus { fixture in
            let logind = try await FakeLogind(fixture)
            let monitor = try await fixture.foregroundMonitor()
            let began = Instant.now
            #expect(await monitor.isForeground(processIdentifier: FakeLogind.silent, userIdentifier: 1001))
            let took = Instant.now - began
            #expect(took >= ForegroundMonitor.timeLimit && took < .seconds(2))
            #expect(await monitor.isForeground(processIdentifier: FakeLogind.nonsense, userIdentifier: 1001))
            #expect(await monitor.isForeground(processIdentifier: FakeLogind.broken, userIdentifier: 1001))
            _ = logind
        }
    }

    @Test
    func `a session that ended, and a logind that started anew, are asked about again`() async throws {
        try await withBus { fixture in
            let logind = try await FakeLogind(fixture)
            let monitor = try await fixture.foregroundMonitor()
            #expect(try await eventually { await !monitor.isForeground(processIdentifier: 200, userIdentifier: 1001) })
            // Without a signal, as a program that was killed would leave it.
            await logind.connection.close()
            #expect(try await eventually { await monitor.isForeground(processIdentifier: 200, userIdentifier: 1001) })
            let next = try await FakeLogind(fixture)
            #expect(try await eventually { await !monitor.isForeground(processIdentifier: 200, userIdentifier: 1001) })
            try await next.remove("2")
            // What was remembered of it is gone; its object, too, and who is in no session is in the foreground.
            #expect(try await eventually { await monitor.isForeground(processIdentifier: 200, userIdentifier: 1001) })
        }
    }
}

extension BusFixture {
    fileprivate func foregroundMonitor() async throws -> ForegroundMonitor {
        let monitor = ForegroundMonitor(on: try await connect(), logger: logger)
        try await monitor.start()
        return monitor
    }
}

/// What of logind counts here: two users, one session each; session 1 is active.
private struct FakeLogind {
    /// Processes about which it says nothing, says something else, and fails.
    static let silent: UInt32 = 7, nonsense: UInt32 = 8, broken: UInt32 = 9

    let connection: DBusConnection
    let calls = Recorder<String>()

    init(_ fixture: BusFixture) async throws {
        connection = try await fixture.connect()
        let calls = self.calls
        let manager = DBusInterface(
            "org.freedesktop.login1.Manager",
            methods: [
                .init("GetSessionByPID", in: [.init("pid", .uint32)], out: [.init("session", .objectPath)]),
                .init("GetUser", in: [.init("uid", .uint32)], out: [.init("user", .objectPath)]),
            ], signals: [.init("SessionRemoved", [.init("id", .string), .init("path", .objectPath)])])
        try await connection.export(
            [
                DBusExport(
                    manager,
                    methods: [
                        "GetSessionByPID": { call in
                            calls.record("GetSessionByPID")
                            switch try call.arguments.argument(0, as: UInt32.self) {
                            case 100: return [.objectPath("/org/freedesktop/login1/session/_31")]
                            case 200: return [.objectPath("/org/freedesktop/login1/session/_32")]
                            case Self.silent:
                                try await Task.sleep(for: .seconds(1))
                                return [.objectPath("/")]
                            case Self.nonsense: return [.objectPath("/nowhere")]
                            case Self.broken: throw DBusErrorReply.failed("broken")
                            default:
                                throw DBusErrorReply("org.freedesktop.login1.NoSessionForPID", "no session")
                            }
                        },
                        "GetUser": { call in
                            calls.record("GetUser")
                            let user: UInt32 = try call.arguments.argument(0)
                            guard user >= 1000 else {
                                throw DBusErrorReply("org.freedesktop.login1.NoSuchUser", "not logged in")
                            }
                            return [.objectPath(try DBusObjectPath("/org/freedesktop/login1/user/_\(user)"))]
                        },
                    ])
            ], at: "/org/freedesktop/login1")
        let session = DBusInterface("org.freedesktop.login1.Session", properties: [.init("Active", .boolean)])
        for (identifier, active) in [("1", true), ("2", false)] {
            try await connection.export(
                [DBusExport(session, properties: ["Active": .boolean(active)])], at: Self.path(identifier))
        }
        let user = DBusInterface("org.freedesktop.login1.User", properties: [.init("State", .string)])
        for (number, state) in [("1000", "active"), ("1001", "online")] {
            try await connection.export(
                [DBusExport(user, properties: ["State": .string(state)])],
                at: DBusObjectPath("/org/freedesktop/login1/user/_\(number)"))
        }
        try await connection.requestName("org.freedesktop.login1")
    }

    private static func path(_ session: String) -> DBusObjectPath {
        session == "1" ? "/org/freedesktop/login1/session/_31" : "/org/freedesktop/login1/session/_32"
    }

    func activate(_ session: String, _ active: Bool) async throws {
        try await connection.setProperties(
            ["Active": .boolean(active)], of: "org.freedesktop.login1.Session", at: Self.path(session))
    }

    func remove(_ session: String) async throws {
        try await connection.emitSignal(
            "SessionRemoved", of: "org.freedesktop.login1.Manager", at: "/org/freedesktop/login1",
            [.string(session), .objectPath(Self.path(session))])
        await connection.unexport(at: Self.path(session))
    }
}
