// A link that bluetoothd knows of and does not tell, as 5.66 does when the link was there before it.
import BusTestSupport
import DBus
import MonotonicTime
import Testing

@testable import BlueZ

@Suite struct SilentLinkTests {
    /// What `Connect` does meanwhile.
    enum Connect: CaseIterable {
        case doesNotAnswer
        case succeedsAtOnce
        case isInProgress
    }

    @Test(arguments: Connect.allCases)
    func `a link that is never signalled is found while the device is being connected`(_ connect: Connect) async throws
    {
        try await withBus { fixture in
            let daemon = try await fixture.connect()
            let path: DBusObjectPath = "/org/bluez/hci0/dev_C4_11_11_11_11_11"
            // Declared as changing without a signal.
            let device = DBusInterface(
                "org.bluez.Device1", methods: [.init("Connect")],
                properties: [
                    .init("Address", .string), .init("Connected", .boolean, changeSignal: .none),
                    .init("ServicesResolved", .boolean, changeSignal: .none),
                ])
            await daemon.exportObjectManager(at: "/")
            try await daemon.export(
                [
                    try DBusExport(
                        DBusInterface("org.bluez.Adapter1", properties: [.init("Powered", .boolean)]),
                        properties: ["Powered": .boolean(true)])
                ], at: "/org/bluez/hci0")
            try await daemon.export(
                [
                    try DBusExport(
                        device,
                        properties: [
                            "Address": .string("C4:11:11:11:11:11"), "Connected": .boolean(false),
                            "ServicesResolved": .boolean(false),
                        ],
                        methods: [
                            "Connect": { _ in
                                switch connect {
                                case .doesNotAnswer: try await Task.sleep(for: .seconds(30))
                                case .succeedsAtOnce: break
                                case .isInProgress: throw DBusErrorReply("org.bluez.Error.InProgress", "In Progress")
                                }
                                return []
                            }
                        ])
                ], at: path)
            try await daemon.requestName("org.bluez")

            let events = Recorder<BlueZEvent>()
            let connection = try await fixture.connect()
            let client = BlueZClient(on: connection, logger: fixture.logger) { events.record($0) }
            try await client.start()
            try await events.wait { $0.contains(.available) }
            let identifier = try #require(await client.devices.first?.identifier)
            try await daemon.setProperties(
                ["Connected": .boolean(true), "ServicesResolved": .boolean(true)], of: "org.bluez.Device1", at: path)
            let connecting = Task { try await client.connect(identifier) }
            let seen = try await events.wait { $0.contains(.servicesResolved(identifier, true)) }
            #expect(seen.contains(.deviceConnected(identifier)))
            connecting.cancel()
            await client.stop()
            await connection.close()
            await daemon.close()
        }
    }
}
