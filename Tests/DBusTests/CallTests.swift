// Calls: answers, errors, time-outs, cancellation, and what strangers send.
import BusTestSupport
import DBus
import MonotonicTime
import Reactor
import Testing

private let interface = DBusInterface(
    "org.example.Test",
    methods: [
        .init("Echo", in: [.init("value", .variant)], out: [.init("value", .variant)]),
        .init("Fail", in: [.init("how", .string)]), .init("Hang"), .init("WhoAmI", out: [.init("name", .string)]),
        .init("WrongAnswer", out: [.init("number", .int32)]),
    ])

private struct Plain: Error {}

private func serve(_ connection: DBusConnection) async throws -> String {
    let export = try DBusExport(
        interface,
        methods: [
            "Echo": { $0.arguments },
            "Fail": { call in
                switch try call.arguments.argument(0, as: String.self) {
                case "named": throw DBusErrorReply("org.example.Error.Named", "told you so")
                case "badly named": throw DBusErrorReply("not a name", "told you so")
                case "plain": throw Plain()
                default: throw DBusError.remote(name: "org.example.Error.Passed", message: "on")
                }
            },
            "Hang": { _ in
                try await Task.sleep(for: .seconds(3))
                return []
            },
            "WhoAmI": { [.string($0.sender)] },
            "WrongAnswer": { _ in [.string("no number")] },
        ])
    try await connection.export([export], at: "/test")
    return try #require(await connection.uniqueName)
}

@Suite struct CallTests {
    @Test func `a call gets its answer and the handler knows the caller`() async throws {
        try await withBus { fixture in
            let server = try await fixture.connect()
            let client = try await fixture.connect()
            let name = try await serve(server)
            let answer = try await client.call(
                destination: name, path: "/test", interface: "org.example.Test", method: "Echo",
                arguments: [.variant(.string("x"))])
            #expect(answer == [.variant(.string("x"))])
            let who = try await client.call(
                destination: name, path: "/test", interface: "org.example.Test", method: "WhoAmI")
            let own = await client.uniqueName
            #expect(try who.argument(0, as: String.self) == own)
            #expect(try await client.userIdentifier(of: name) == server.userIdentifier(of: ":1.0"))
            await server.close()
            await client.close()
        }
    }

    @Test func `a handler's error arrives by its name`() async throws {
        try await withBus { fixture in
            let server = try await fixture.connect()
            let client = try await fixture.connect()
            let name = try await serve(server)
            func fail(_ how: String) async -> DBusError? {
                await failure {
                    try await client.call(
                        destination: name, path: "/test", interface: "org.example.Test", method: "Fail",
                        arguments: [.string(how)])
                }
            }
            #expect(await fail("named") == .remote(name: "org.example.Error.Named", message: "told you so"))
            #expect(
                await fail("badly named") == .remote(name: "org.freedesktop.DBus.Error.Failed", message: "told you so"))
            #expect(await fail("plain")?.remoteName == "org.freedesktop.DBus.Error.Failed")
            #expect(await fail("passed") == .remote(name: "org.example.Error.Passed", message: "on"))
            await server.close()
            await client.close()
        }
    }

    @Test(
        arguments: [
            ("/test", "org.example.Test", "Echo", [DBusValue.int32(1)], "InvalidArgs"),
            ("/test", "org.example.Test", "Echo", [], "InvalidArgs"),
            ("/test", "org.example.Test", "Nothing", [], "UnknownMethod"),
            ("/test", "org.example.Other", "Echo", [], "UnknownInterface"),
            ("/other", "org.example.Test", "Echo", [], "UnknownObject"),
            ("/test", "org.example.Test", "WrongAnswer", [], "Failed"),
            ("/test", "org.freedesktop.DBus.Properties", "Get", [.int32(1)], "InvalidArgs"),
            (
                "/test", "org.freedesktop.DBus.Properties", "Get", [.string("org.example.Test"), .string("P")],
                "UnknownProperty"
            ),
            ("/test", "org.freedesktop.DBus.Properties", "GetAll", [.string("x\ny")], "UnknownInterface"),
        ] as [(DBusObjectPath, String, String, [DBusValue], String)])
    func `a wrong call is answered with the standard error`(
        path: DBusObjectPath, interface: String, method: String, arguments: [DBusValue], error: String
    ) async throws {
        try await withBus { fixture in
            let server = try await fixture.connect()
            let client = try await fixture.connect()
            let name = try await serve(server)
            let failure = await failure {
                try await client.call(
                    destination: name, path: path, interface: interface, method: method, arguments: arguments)
            }
            #expect(failure?.remoteName == "org.freedesktop.DBus.Error." + error)
            await server.close()
            await client.close()
        }
    }

    @Test func `a call that is not answered in time fails and the late answer is dropped`() async throws {
        try await withBus { fixture in
            let server = try await fixture.connect()
            let client = try await fixture.connect()
            let name = try await serve(server)
            let start = Instant.now
            await #expect(throws: DBusError.timedOut("org.example.Test.Hang of \(name)")) {
                try await client.call(
                    destination: name, path: "/test", interface: "org.example.Test", method: "Hang",
                    timeout: .milliseconds(100))
            }
            #expect(Instant.now - start < .seconds(2))
            let answer = try await client.call(
                destination: name, path: "/test", interface: "org.example.Test", method: "Echo",
                arguments: [.variant(.byte(1))])
            #expect(answer == [.variant(.byte(1))])
            await server.close()
            await client.close()
        }
    }

    @Test func `a cancelled call ends at once`() async throws {
        try await withBus { fixture in
            let server = try await fixture.connect()
            let client = try await fixture.connect()
            let name = try await serve(server)
            let task = Task {
                await failure {
                    try await client.call(
                        destination: name, path: "/test", interface: "org.example.Test", method: "Hang")
                }
            }
            try await Task.sleep(for: .milliseconds(50))
            let start = Instant.now
            task.cancel()
            #expect(await task.value == .cancelled)
            #expect(Instant.now - start < .seconds(1))
            let early = Task {
                withUnsafeCurrentTask { $0?.cancel() }
                return await failure {
                    try await client.call(
                        destination: name, path: "/test", interface: "org.example.Test", method: "Hang")
                }
            }
            #expect(await early.value == .cancelled)
            await server.close()
            await client.close()
        }
    }

    @Test func `a call to nobody fails with the bus's words`() async throws {
        try await withBus { fixture in
            let client = try await fixture.connect()
            let failure = await failure {
                try await client.call(destination: "org.example.Nobody", path: "/", interface: "a.b", method: "C")
            }
            #expect(failure?.remoteName == "org.freedesktop.DBus.Error.ServiceUnknown")
            await client.close()
        }
    }

    @Test func `too many calls at once are refused, not queued without end, and one caller leaves room for another`()
        async throws
    {
        try await withBus { fixture in
            let server = try await fixture.connect()
            let client = try await fixture.connect()
            let other = try await fixture.connect()
            let name = try await serve(server)
            await withTaskGroup(of: DBusError?.self) { group in
                for _ in 0..<(DBusLimits.runningHandlersPerCaller + 10) {
                    group.addTask {
                        await failure {
                            try await client.call(
                                destination: name, path: "/test", interface: "org.example.Test", method: "Hang",
                                timeout: .seconds(1))
                        }
                    }
                }
                var refused = 0
                for await error in group
                where error?.remoteName == "org.freedesktop.DBus.Error.LimitsExceeded" {
                    if refused == 0 {
                        let answer = await failure {
                            try await other.call(
                                destination: name, path: "/test", interface: "org.example.Test", method: "WhoAmI")
                        }
                        #expect(answer == nil)
                    }
                    refused += 1
                }
                #expect(refused == 10)
            }
            await other.close()
            await server.close()
            await client.close()
        }
    }

    @Test func `a loop with nothing to do does not wake up`() async throws {
        try await withBus { fixture in
            let connection = try await fixture.connect()
            let other = try await fixture.connect()
            try await connection.addMatch(DBusMatchRule(interface: "org.example.Any")) { _ in }
            _ = try await connection.watchName("org.example.Name") { _ in }
            _ = try await serve(other)
            let thread = try await fixture.loop.run { threadPath() }
            try await Task.sleep(for: .milliseconds(100))
            let before = try contextSwitches(thread)
            try await Task.sleep(for: .seconds(2))
            #expect(try contextSwitches(thread) == before)
            await connection.close()
            await other.close()
        }
    }
}
