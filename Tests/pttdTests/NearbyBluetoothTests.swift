// Networks by Bluetooth, as they are asked for.
import BusTestSupport
import DBus
import Nearby
import Testing

@testable import pttd

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
}
