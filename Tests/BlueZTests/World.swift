// A private bus with a fake bluetoothd and a client, for the tests of the client.
import BusTestSupport
import DBus
import Logging
import MonotonicTime
import Reactor
import Testing

@testable import BlueZ
@testable import FakeBlueZ

/// One button "B" on a bus of its own, and a client that records its events.
final class World: Sendable {
    let fixture: BusFixture
    let fake: FakeBlueZ
    let connection: DBusConnection
    let client: BlueZClient
    let events = Recorder<BlueZEvent>()
    let adapter = AdapterIdentifier(path: "/org/bluez/hci0")!
    let device = DeviceIdentifier(path: "/org/bluez/hci0/dev_C4_11_11_11_11_11")!
    let service: BluetoothUUID

    private init(_ fixture: BusFixture, _ profile: String, _ configuration: FakeBlueZ.Configuration) throws {
        self.fixture = fixture
        let profile = try #require(PeripheralProfile.named(profile))
        service = try #require(BluetoothUUID(profile.service))
        fake = FakeBlueZ(
            on: .address(fixture.bus.address), loop: fixture.loop, logger: fixture.logger,
            peripherals: [Peripheral(name: "B", profile: profile, address: "C4:11:11:11:11:11")],
            configuration: configuration)
        connection = DBusConnection(to: .address(fixture.bus.address), on: fixture.loop, logger: fixture.logger)
        let events = events
        client = BlueZClient(on: connection, logger: fixture.logger) { events.record($0) }
    }

    static func run(
        profile: String = "aina-v2", configuration: FakeBlueZ.Configuration? = nil, startsDaemon: Bool = true,
        _ body: (World) async throws -> Void
    ) async throws {
        var usual = FakeBlueZ.Configuration()
        usual.linkDelay = .milliseconds(2)
        usual.resolveDelay = .milliseconds(20)
        usual.connectTimeout = .milliseconds(500)
        try await withBus { fixture in
            let world = try World(fixture, profile, configuration ?? usual)
            try await world.connection.connect()
            if startsDaemon { try await world.fake.start() }
            try await world.client.start()
            var failure: (any Error)?
            do { try await body(world) } catch { failure = error }
            await world.client.stop()
            await world.fake.stop()
            await world.connection.close()
            if let failure { throw failure }
        }
    }

    /// Waits for an event that fits, among all so far.
    @discardableResult
    func event(_ what: String = "", _ fits: @Sendable (BlueZEvent) -> Bool) async throws -> BlueZEvent {
        let all = try await events.wait(.seconds(5)) { $0.contains(where: fits) }
        let found = all.last(where: fits)
        return try #require(found, "no event \(what) in \(all)")
    }

    func event(_ event: BlueZEvent) async throws { try await self.event("\(event)") { $0 == event } }

    /// Finds, connects and subscribes to the button; returns its characteristic.
    func connectButton(trusted: Bool = true) async throws -> CharacteristicIdentifier {
        try await client.startDiscovery(on: adapter)
        try await event("deviceAdded") { if case .deviceAdded = $0 { true } else { false } }
        try await client.stopDiscovery(on: adapter)
        try await client.connect(device)
        if trusted { try await client.setTrusted(true, device) }
        let added = try await event("characteristicAdded") { if case .characteristicAdded = $0 { true } else { false } }
        guard case .characteristicAdded(let characteristic) = added else { throw CancellationError() }
        try await client.startNotify(characteristic.identifier)
        return characteristic.identifier
    }

    /// The values reported so far.
    var values: [[UInt8]] {
        events.all.compactMap { if case .valueChanged(_, let value, _) = $0 { value } else { nil } }
    }

    func waitForValues(_ wanted: [[UInt8]], _ location: SourceLocation = #_sourceLocation) async throws {
        try await events.wait(.seconds(5)) { _ in self.values.count >= wanted.count }
        #expect(values == wanted, sourceLocation: location)
    }
}
