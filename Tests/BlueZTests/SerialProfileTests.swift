// The serial profile against a fake bluetoothd: connections handed over, refused, and made again after everything that goes.
import BusTestSupport
import DBus
import Glibc
import MonotonicTime
import Testing

@testable import BlueZ
@testable import FakeBlueZ

/// What the profile was told, and how it answers.
private final class SerialRecord: Sendable {
    let events = Recorder<SerialProfileEvent>()

    func register(_ world: World, accepts: Bool = true) async throws {
        let events = events
        try await world.client.registerSerialProfile { event in
            events.record(event)
            return accepts
        }
    }

    var descriptors: [DBusDescriptor] {
        events.all.compactMap { if case .connected(_, let descriptor) = $0 { descriptor } else { nil } }
    }
}

@Suite struct SerialProfileTests {
    /// A headset that BlueZ knows.
    private func withHeadset(_ body: (World, SerialRecord) async throws -> Void) async throws {
        try await World.run(profile: "aina-v1") { world in
            try await world.client.startDiscovery(on: world.adapter)
            try await world.event("deviceAdded") { if case .deviceAdded = $0 { true } else { false } }
            try await world.client.stopDiscovery(on: world.adapter)
            let record = SerialRecord()
            try await body(world, record)
        }
    }

    @Test func `a connection is handed over while the attempt is pending, and carries bytes both ways`() async throws {
        try await withHeadset { world, record in
            try await record.register(world)
            try await world.client.connectSerial(world.device)
            let descriptor = try #require(record.descriptors.first)
            #expect(await world.fake.sendSerial("B", Array("+PTT=P".utf8)))
            var buffer = [UInt8](repeating: 0, count: 16)
            #expect(read(descriptor.number, &buffer, buffer.count) == 6)
            #expect(write(descriptor.number, [1], 1) == 1)
            #expect(try await eventually { await world.fake.receivedSerial("B") == [1] })
        }
    }

    @Test func `it is registered as a client that connects nothing by itself and wants bonds and trust`() async throws {
        try await withHeadset { world, record in
            try await record.register(world)
            let options = try #require(await world.fake.serialClient?.options)
            #expect(options["Role"] == .string("client"))
            #expect(options["AutoConnect"] == .boolean(false))
            #expect(options["RequireAuthentication"] == .boolean(true))
            #expect(options["RequireAuthorization"] == .boolean(true))
        }
    }

    @Test func `a refused connection fails the attempt and is hung up`() async throws {
        try await withHeadset { world, record in
            try await record.register(world, accepts: false)
            let error = await #expect(throws: BlueZError.self) { try await world.client.connectSerial(world.device) }
            #expect(error?.kind == .unreachable)
            #expect(await !world.fake.hasSerial("B"))
        }
    }

    @Test func `a missing record is told, and the next attempt works`() async throws {
        try await withHeadset { world, record in
            try await record.register(world)
            await world.fake.setMissingRecords(1, of: "B")
            let error = await #expect(throws: BlueZError.self) { try await world.client.connectSerial(world.device) }
            #expect(error?.kind == .notSupported)
            try await world.client.connectSerial(world.device)
            #expect(record.descriptors.count == 1)
        }
    }

    @Test func `a device that connects by itself is offered, and only bluetoothd may offer`() async throws {
        try await withHeadset { world, record in
            try await record.register(world)
            #expect(await world.fake.dialSerial("B"))
            #expect(record.descriptors.count == 1)
            let stranger = try await world.fixture.connect()
            var pair: [Int32] = [0, 0]
            #expect(socketpair(AF_UNIX, Int32(SOCK_STREAM.rawValue), 0, &pair) == 0)
            for member in ["NewConnection", "RequestDisconnection", "Release"] {
                var arguments: [DBusValue] = []
                if member != "Release" { arguments.append(.objectPath(world.device.path)) }
                if member == "NewConnection" {
                    arguments += [.unixDescriptor(try DBusDescriptor(duplicating: pair[1])), .properties([:])]
                }
                let error = await #expect(throws: DBusError.self, "\(member)") {
                    try await stranger.call(
                        destination: try #require(await world.connection.uniqueName), path: "/pttd/bluez/serial",
                        interface: "org.bluez.Profile1", method: member, arguments: arguments)
                }
                #expect(error?.remoteName == "org.freedesktop.DBus.Error.AccessDenied")
            }
            #expect(record.events.all.count == 1)
            close(pair[0])
            close(pair[1])
            await stranger.close()
        }
    }

    @Test func `disconnecting asks the profile, and a port that is not connected is no error`() async throws {
        try await withHeadset { world, record in
            try await record.register(world)
            try await world.client.disconnectProfile(world.device, BlueZClient.serialPort)
            try await world.client.connectSerial(world.device)
            try await world.client.disconnectProfile(world.device, BlueZClient.serialPort)
            #expect(await !world.fake.hasSerial("B"))
            guard case .disconnectionRequested(let device)? = record.events.all.last else {
                Issue.record("not asked: \(record.events.all)")
                return
            }
            #expect(device == world.device)
        }
    }

    @Test func `a restarted bluetoothd and one that let go have the profile registered again`() async throws {
        try await withHeadset { world, record in
            try await record.register(world)
            await world.fake.stop()
            try await world.fake.start()
            #expect(try await eventually { await world.fake.serialClient != nil })
            await world.fake.releaseProfile()
            #expect(await world.fake.serialClient == nil)
            #expect(try await eventually { await world.fake.serialClient != nil })
        }
    }

    @Test func `a refused registration is told and made later`() async throws {
        try await withHeadset { world, record in
            await world.fake.refuseRegistrations(1)
            await #expect(throws: BlueZError.self) { try await record.register(world) }
            let early = await #expect(throws: BlueZError.self) { try await world.client.connectSerial(world.device) }
            #expect(early?.kind == .notReady)
            let isRegistered = try await eventually { await world.fake.serialClient != nil }
            #expect(isRegistered)
            let connects = try await eventually { (try? await world.client.connectSerial(world.device)) != nil }
            #expect(connects)
        }
    }

    @Test func `a stopped client takes the profile back`() async throws {
        try await withHeadset { world, record in
            try await record.register(world)
            await world.client.stop()
            #expect(await world.fake.serialClient == nil)
        }
    }

    @Test(arguments: [
        ("org.bluez.Error.NotAvailable", "br-connection-profile-unavailable", BlueZError.Kind.notSupported),
        ("org.bluez.Error.ProfileUnavailable", "", .notSupported),
        ("org.bluez.Error.Failed", "br-connection-page-timeout", .unreachable),
        ("org.bluez.Error.Failed", "br-connection-key-missing", .authenticationFailed),
        ("org.bluez.Error.Failed", "br-connection-busy", .inProgress),
        ("org.bluez.Error.AlreadyConnected", "", .alreadyDone), ("org.bluez.Error.NotAvailable", "", .notReady),
    ]) func `what bluetoothd says of serial ports has a kind`(name: String, message: String, kind: BlueZError.Kind) {
        #expect(BlueZError.kind(name: name, message: message) == kind)
    }
}
