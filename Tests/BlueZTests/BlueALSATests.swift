// BlueALSA's commands, and why there are none.
import BusTestSupport
import DBus
import Glibc
import Testing

@testable import BlueZ
@testable import FakeBlueZ

@Suite struct BlueALSATests {
    private let device = DeviceIdentifier(path: "/org/bluez/hci0/dev_C4_11_11_11_11_11")!

    private func withService(
        profiles: [String]? = nil, hasHeadset: Bool = true,
        _ body: (FakeBlueALSA, DBusConnection) async throws -> Void
    ) async throws {
        try await withBus { fixture in
            let service = FakeBlueALSA(
                on: .address(fixture.bus.address), loop: fixture.loop, logger: fixture.logger,
                headset: BlueALSA.path(of: device))
            try await service.start(profiles: profiles, hasHeadset: hasHeadset)
            let connection = try await fixture.connect()
            try await body(service, connection)
            await service.stop()
            await connection.close()
        }
    }

    private func error(_ connection: DBusConnection) async -> BlueALSAError? {
        await #expect(throws: BlueALSAError.self) { try await BlueALSA.openCommands(of: device, on: connection) }
    }

    @Test func `commands come one by one`() async throws {
        #expect(BlueALSA.path(of: device) == "/org/bluealsa/hci0/dev_C4_11_11_11_11_11/rfcomm")
        try await withService { service, connection in
            let descriptor = try await BlueALSA.openCommands(of: device, on: connection)
            for command in ["AT+XEVENT=TALK,1\r", "AT+XEVENT=TALK,0\r"] { #expect(await service.command(command)) }
            var buffer = [UInt8](repeating: 0, count: 512)
            #expect(read(descriptor.number, &buffer, buffer.count) == 17)
            #expect(read(descriptor.number, &buffer, buffer.count) == 17)
        }
    }

    @Test func `another program that has them is told`() async throws {
        try await withService { _, connection in
            let descriptor = try await BlueALSA.openCommands(of: device, on: connection)
            #expect(await error(connection) == .busy)
            withExtendedLifetime(descriptor) {}
        }
    }

    @Test func `no service, no headset and no hands-free profile each say what to do`() async throws {
        try await withBus { fixture in
            let connection = try await fixture.connect()
            #expect(await error(connection) == .notRunning)
            await connection.close()
        }
        try await withService(hasHeadset: false) { _, connection in
            #expect(await error(connection) == .noHeadset)
        }
        try await withService(profiles: ["HFP-AG"], hasHeadset: false) { _, connection in
            #expect(await error(connection) == .noHeadset)
        }
        try await withService(profiles: ["A2DP-source"], hasHeadset: false) { _, connection in
            #expect(await error(connection) == .withoutHandsFree)
        }
        #expect(BlueALSAError.notRunning.description.contains("bluez-alsa-utils"))
        #expect(BlueALSAError.noHeadset.description.contains("bluez5.hfphsp-backend"))
        #expect(BlueALSAError.notAllowed.description.contains("group audio"))
    }

    @Test func `an answer that is no descriptor is an error`() async throws {
        try await withBus { fixture in
            let service = try await fixture.connect()
            let interface = DBusInterface("org.bluealsa.RFCOMM1", methods: [.init("Open", out: [.init("fd", .string)])])
            let export = try DBusExport(interface, methods: ["Open": { _ in [.string("7")] }])
            try await service.export([export], at: BlueALSA.path(of: device))
            try await service.requestName("org.bluealsa")
            let connection = try await fixture.connect()
            guard case .failed? = await error(connection) else {
                Issue.record("taken")
                return
            }
            await service.close()
            await connection.close()
        }
    }
}
