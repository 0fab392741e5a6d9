import BusTestSupport
import DBus
import Testing

@testable import pttd

@Suite struct SleepMonitorTests {
    @Test func sleepAndWakingAreToldByLogindOnly() async throws {
        try await withBus { fixture in
            let logind = try await fixture.connect()
            try await logind.requestName("org.freedesktop.login1")
            let stranger = try await fixture.connect()
            let bus = try await fixture.connect()
            let told = Recorder<Bool>()
            try await SleepMonitor.follow(bus) { told.record($0) }
            for (sender, arguments) in [
                (stranger, [DBusValue.boolean(true)]), (logind, []), (logind, [.string("true")]),
                (logind, [.boolean(true)]), (logind, [.boolean(false)]),
            ] {
                try await sender.emitSignal(
                    "PrepareForSleep", of: "org.freedesktop.login1.Manager", at: "/org/freedesktop/login1", arguments)
            }
            #expect(try await told.wait(for: 2) == [true, false])
            for connection in [logind, stranger, bus] { await connection.close() }
        }
    }
}
