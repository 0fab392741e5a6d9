// What this machine offers and advertises, against a fake bluetoothd.
import BusTestSupport
import DBus
import MonotonicTime
import Synchronization
import Testing

@testable import BlueZ
@testable import FakeBlueZ

@Suite struct LocalServiceTests {
    private static let uuid: BluetoothUUID = "5d0f1c2e-7a43-4b8e-9c61-2f9e5b7d8a10"
    private static let first: BluetoothUUID = "5d0f1c2e-7a43-4b8e-9c61-2f9e5b7d8a11"
    private static let second: BluetoothUUID = "5d0f1c2e-7a43-4b8e-9c61-2f9e5b7d8a12"
    private static let service = LocalService(uuid, characteristics: [first, second])
    private static let value = (0..<600).map { UInt8($0 & 0xFF) }

    private func offer(_ world: World, released: @escaping @Sendable () -> Void = {}) async throws {
        try await world.client.offer(
            Self.service, advertising: LocalAdvertisement(services: [Self.uuid], manufacturerData: [0xFFFF: [1, 2]]),
            on: world.adapter, read: { index in index == 0 ? [7] : Self.value }, released: released)
    }

    private func start(_ world: World) async throws {
        try await world.event("bluetoothd is on the bus") { $0 == .available }
    }

    @Test func `a service is read, in parts as well, and its advertisement names it`() async throws {
        try await World.run { world in
            try await start(world)
            try await offer(world)
            let advertised = await world.fake.advertisements.first?.properties
            #expect(advertised?["Type"]?.stringValue == "peripheral")
            #expect(advertised?["ServiceUUIDs"]?.get([String].self) == [Self.uuid.rawValue])
            #expect(advertised?["Discoverable"]?.boolValue == true)
            #expect(try await world.fake.readOffered(Self.first.rawValue) == [7])
            // No attribute is longer than 512 bytes.
            let whole = Array(Self.value.prefix(512))
            #expect(try await world.fake.readOffered(Self.second.rawValue) == whole)
            #expect(try await world.fake.readOffered(Self.second.rawValue, offset: 500) == Array(whole[500...]))
            #expect(try await world.fake.readOffered(Self.second.rawValue, offset: 512) == [])
            await #expect(throws: DBusError.self) {
                try await world.fake.readOffered(Self.second.rawValue, offset: 513)
            }
        }
    }

    @Test func `what is withdrawn is gone, and can be offered again`() async throws {
        try await World.run { world in
            try await start(world)
            try await offer(world)
            await world.client.withdraw(from: world.adapter)
            #expect(await world.fake.advertisements.isEmpty)
            await #expect(throws: (any Error).self) { try await world.fake.readOffered(Self.first.rawValue) }
            try await offer(world)
            // Offering anew takes the place of what was offered before.
            try await offer(world)
            #expect(await world.fake.advertisements.count == 1)
        }
    }

    @Test func `an adapter that advertises enough refuses, and nothing is left behind`() async throws {
        try await World.run { world in
            try await start(world)
            await world.fake.fillAdvertisements()
            let error = await #expect(throws: BlueZError.self) { try await offer(world) }
            #expect(error?.kind == .notPermitted)
            await #expect(throws: (any Error).self) { try await world.fake.readOffered(Self.first.rawValue) }
        }
    }

    @Test func `an advertisement that bluetoothd ends is told`() async throws {
        try await World.run { world in
            try await start(world)
            let count = Mutex(0)
            try await offer(world) { count.withLock { $0 += 1 } }
            try await world.fake.releaseAdvertisements()
            for _ in 0..<200 where count.withLock({ $0 }) == 0 { try await Task.sleep(for: .milliseconds(10)) }
            #expect(count.withLock { $0 } == 1)
        }
    }
}

extension FakeBlueZ {
    /// Others advertise all that the controller has room for.
    fileprivate func fillAdvertisements() {
        while advertisements.count < Self.advertisementsMaximum {
            advertisements.append(FakeAdvertisement(sender: ":9.\(advertisements.count)", path: "/", properties: [:]))
        }
    }
}
