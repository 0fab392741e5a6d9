// The system's Bluetooth as the rules command it, against a bluetoothd with several adapters.
import BlueZ
import BusTestSupport
import DBus
import Testing

@testable import Accessories

@Suite struct BlueZHostTests {
    @Test func anAdapterThatDoesNotStopScanningDoesNotKeepTheOthersScanning() async throws {
        try await withBus { fixture in
            let bluez = try await fixture.connect()
            let stopped = Recorder<Int>()
            await bluez.exportObjectManager(at: "/")
            for number in 0..<3 {
                try await bluez.export([adapter(number, stopped)], at: DBusObjectPath("/org/bluez/hci\(number)"))
            }
            try await bluez.requestName("org.bluez")
            let host = BlueZHost(on: try await fixture.connect(), logger: fixture.logger)
            let reports = Recorder<BluetoothReport>()
            try await host.start { reports.record($0) }
            try await reports.wait { $0.contains { if case .radio(.on) = $0 { true } else { false } } }

            let failure = await host.perform(.stopDiscovery)
            #expect(stopped.all == [0, 1, 2])
            guard case .other(let words)? = failure else {
                Issue.record("the first adapter's failure is not told: \(String(describing: failure))")
                return
            }
            #expect(words.contains("adapter 0"))
            await host.stop()
        }
    }

    private func adapter(_ number: Int, _ stopped: Recorder<Int>) throws -> DBusExport {
        let interface = DBusInterface(
            "org.bluez.Adapter1", methods: [.init("StopDiscovery")],
            properties: [.init("Address", .string), .init("Powered", .boolean)])
        return try DBusExport(
            interface,
            properties: ["Address": .string("00:AA:01:00:00:0\(number)"), "Powered": .boolean(true)],
            methods: [
                "StopDiscovery": { _ in
                    stopped.record(number)
                    if number < 2 { throw DBusErrorReply("org.bluez.Error.Failed", "adapter \(number) is stuck") }
                    return []
                }
            ])
    }
}
