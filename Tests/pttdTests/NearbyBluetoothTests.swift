// Networks by Bluetooth, as they are asked for, and the links that reads of records leave alone.
import BlueZ
import BusTestSupport
import DBus
import Nearby
import Testing

@testable import FakeBlueZ
@testable import pttd

extension FakeBlueZ {
    /// A device is paired that is not known to a client yet.
    fileprivate func bond(_ name: String) { records[name]?.isPaired = true }

    fileprivate func isLinked(_ name: String) -> Bool { peripherals[name]?.isLinked == true }
}

@Suite(.timeLimit(.minutes(1))) struct NearbyBluetoothTests {
    @Test func `without Bluetooth a network is refused, and nobody waits for it`() async throws {
        try await withBus { fixture in
            let bluetooth = NearbyBluetooth(
                bus: .address(fixture.bus.address), settings: NearbySettings(), loop: fixture.loop,
                logger: fixture.logger, handler: { _ in }, problem: { _ in }, network: { _ in })
            let accessPoint = try #require(BluetoothAccessPoint("00:11:22:33:44:55"))
            // The second one finds it known that there is none.
            for _ in 0..<2 {
                await #expect(throws: BluetoothNetworkError.noRadio) { try await bluetooth.network(to: accessPoint) }
            }
            await bluetooth.stop()
        }
    }

    /// Whose the link to a machine is while its record is read.
    enum Link: CaseIterable {
        case ofTheRead
        case ofSomebodyElse
        case ofTheNetwork
    }

    @Test(arguments: Link.allCases) func `a press ends the link of a read and no other one`(link: Link) async throws {
        try await withBus { fixture in
            var configuration = FakeBlueZ.Configuration()
            // The read waits for the services until the press.
            configuration.resolveDelay = .seconds(3_600)
            configuration.temporaryTimeout = .seconds(3_600)
            configuration.hearingPause = .milliseconds(100)
            let profile = PeripheralProfile(
                "host", BluetoothSignal.service, try #require(BluetoothSignal.pages.first), flags: ["read"])
            let fake = FakeBlueZ(
                on: .address(fixture.bus.address), loop: fixture.loop, logger: fixture.logger,
                peripherals: [Peripheral(name: "B", profile: profile, address: "00:AA:01:00:00:0C")],
                configuration: configuration)
            await fake.bond("B")
            try await fake.start()
            let bluetooth = NearbyBluetooth(
                bus: .address(fixture.bus.address), settings: NearbySettings(), loop: fixture.loop,
                logger: fixture.logger, handler: { _ in }, problem: { _ in }, network: { _ in })
            await bluetooth.browse(true)
            try #require(try await eventually { await bluetooth.reads.count == 1 })
            // What else uses a link to the machine comes between two reads.
            await bluetooth.held(true)
            try #require(try await eventually { await bluetooth.reads.isEmpty })
            let client = try #require(await bluetooth.client)
            let adapter = try #require(await bluetooth.adapter)
            try await client.stopDiscovery(on: adapter)
            switch link {
            case .ofTheRead: break
            case .ofSomebodyElse:
                try await fake.connect("B")
                try #require(try await eventually { await client.devices.first?.isConnected == true })
            case .ofTheNetwork:
                try await fake.offerNetwork("B")
                await bluetooth.keepNetwork(to: try #require(BluetoothAccessPoint("00:AA:01:00:00:0C")))
                try #require(try await eventually { await bluetooth.networkInterface != nil })
            }
            await bluetooth.held(false)
            try #require(
                try await eventually {
                    let isLinked = await fake.isLinked("B")
                    return await bluetooth.reads.count == 1 && isLinked
                })
            await bluetooth.held(true)
            try #require(try await eventually { await bluetooth.reads.isEmpty })
            // bluetoothd has carried out all that it was asked before.
            try await client.stopDiscovery(on: adapter)
            #expect(await fake.isLinked("B") == (link != .ofTheRead))
            await bluetooth.stop()
            await fake.stop()
        }
    }
}
