// Channels nearby by the tray's menu, with all of the daemon behind it but a network.
import BusTestSupport
import DBus
import PTTBus
import Testing

@testable import pttd

@Suite struct NearbyDesktopTests {
    @Test func `New channel here creates a channel called as the machine and joins it, and once`() async throws {
        try await withBus { fixture in
            let directory = try TemporaryDirectory()
            let daemon = try await RunningDaemon(fixture, in: directory) {
                $0.desktop = true
                $0.displayName = "Crane_cab"
            }
            let host = try await fixture.connect()
            @Sendable func menu(_ method: String, _ arguments: [DBusValue]) async throws -> [DBusValue] {
                try await host.call(
                    destination: PTTBus.name, path: "/StatusNotifierItem/Menu", interface: "com.canonical.dbusmenu",
                    method: method, arguments: arguments)
            }
            @Sendable func create() async throws {
                _ = try await menu("Event", [.int32(8), .string("clicked"), .variant(.int32(0)), .uint32(0)])
            }
            /// The channels in the submenu, as a tray shows them.
            @Sendable func lines() async throws -> [String] {
                let layout = try await menu("GetLayout", [.int32(7), .int32(-1), .strings(["label"])])
                let children = layout[1].structureValue?[2].arrayValue ?? []
                return children.dropFirst().compactMap {
                    $0.unwrapped.structureValue?[1].propertiesValue?["label"]?.stringValue
                }
            }
            let client = try await DaemonClient.find(
                on: .address(fixture.bus.address), loop: fixture.loop, logger: fixture.logger)
            @Sendable func active() async throws -> String? {
                try await client.refresh()
                return await client.snapshot.activeChannel?.1.name
            }
            try await create()
            #expect(try await eventually { try await active() == "Crane_cab" })
            _ = try await eventually { try await lines().first?.hasSuffix("joined)") == true }
            #expect(try await lines() == ["Crane__cab (of this machine, joined)"])
            // A second click finds that channel, and makes no other one.
            try await create()
            try await Task.sleep(for: .milliseconds(500))
            try await client.refresh()
            let channels = await client.snapshot.nearby.channels
            #expect(channels.map(\.name) == ["Crane_cab"])
            #expect(channels.first?.isOwn == true && channels.first?.admission == "open")
            #expect(try await active() == "Crane_cab")
            await client.close()
            await host.close()
            await daemon.stop()
        }
    }
}
