// Networks by Bluetooth against a fake bluetoothd: used, offered, lost, and refused.
import BusTestSupport
import DBus
import Testing

@testable import BlueZ
@testable import FakeBlueZ

@Suite struct PersonalNetworkTests {
    /// A device that BlueZ knows.
    private func withDevice(_ body: (World) async throws -> Void) async throws {
        try await World.run { world in
            try await world.client.startDiscovery(on: world.adapter)
            try await world.event("deviceAdded") { if case .deviceAdded = $0 { true } else { false } }
            try await world.client.stopDiscovery(on: world.adapter)
            try await body(world)
        }
    }

    private func error(_ body: () async throws(BlueZError) -> Void) async -> BlueZError.Kind? {
        do throws(BlueZError) { try await body() } catch { return error.kind }
        return nil
    }

    @Test func `the network of a device is used and left`() async throws {
        try await withDevice { world in
            #expect(
                await error { () async throws(BlueZError) in _ = try await world.client.connectNetwork(world.device) }
                    == .notSupported)
            try await world.fake.offerNetwork("B")
            #expect(try await world.client.connectNetwork(world.device) == "bnep0")
            // Once more is no error, and names the same interface.
            #expect(try await world.client.connectNetwork(world.device) == "bnep0")
            try await world.client.disconnectNetwork(world.device)
            try await world.client.disconnectNetwork(world.device)
            #expect(await world.fake.networks["B"]?.client == nil)
        }
    }

    @Test func `a network that ends is told`() async throws {
        try await withDevice { world in
            try await world.fake.offerNetwork("B")
            _ = try await world.client.connectNetwork(world.device)
            await world.fake.endNetwork("B")
            try await world.event("network gone") { $0 == .networkDisconnected(world.device) }
        }
    }

    @Test func `an interface's name that is none is refused`() async throws {
        try await withDevice { world in
            try await world.fake.offerNetwork("B")
            for name in ["", "../../etc", "sixteen-letters!"] {
                await world.fake.rename("B", name)
                #expect(
                    await error { () async throws(BlueZError) in
                        _ = try await world.client.connectNetwork(world.device)
                    } == .malformedAnswer, "\(name)")
                await world.fake.endNetwork("B")
            }
        }
    }

    @Test func `a network is offered until it is withdrawn or the client leaves`() async throws {
        try await withDevice { world in
            try await world.client.offerNetwork(over: "pttd-pan", on: world.adapter)
            try await world.client.offerNetwork(over: "pttd-pan", on: world.adapter)
            #expect(await world.fake.offeredNetwork?.bridge == "pttd-pan")
            await world.client.withdrawNetwork(from: world.adapter)
            await world.client.withdrawNetwork(from: world.adapter)
            #expect(await world.fake.offeredNetwork == nil)
            try await world.client.offerNetwork(over: "pttd-pan", on: world.adapter)
            await world.connection.close()
            #expect(try await eventually { await world.fake.offeredNetwork == nil })
        }
    }
}
