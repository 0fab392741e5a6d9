// The machine's own devices as reports: what the kernel, udev and BlueZ say becomes what the rules are told.
import BlueZ
import BusTestSupport
import DBus
import MonotonicTime
import Testing

@testable import Accessories
@testable import FakeBlueZ
@testable import LinuxInput

@Suite struct LocalInputHostTests {
    private func run(
        registersMediaPlayer: Bool,
        _ body: (LocalInputHost, FakeBlueZ, Recorder<String>) async throws -> Void
    ) async throws {
        try await withBus { fixture in
            let fake = FakeBlueZ(
                on: .address(fixture.bus.address), loop: fixture.loop, logger: fixture.logger, peripherals: [])
            try await fake.start()
            let connection = try await fixture.connect()
            let host = LocalInputHost(
                registersMediaPlayer: registersMediaPlayer, systemBus: connection, logger: fixture.logger)
            let reports = Recorder<String>()
            await host.start { reports.record(Self.words($0)) }
            var failure: (any Error)?
            do { try await body(host, fake, reports) } catch { failure = error }
            await host.stop()
            await fake.stop()
            await connection.close()
            if let failure { throw failure }
        }
    }

    private static func words(_ report: LocalDeviceReport) -> String {
        switch report {
        case .added(let facts): "added \(facts.id) \(facts.name) \(facts.keys.sorted())"
        case .key(let id, let code, let isDown, let time):
            "\(id) \(code) \(isDown ? "down" : "up")\(time > .now ? " in the future" : "")"
        case .bytes(let id, let bytes, _): "\(id) \(bytes)"
        case .removed(let id): "removed \(id)"
        case .problem(let id, let problem): "problem of \(id): \(problem ?? "none")"
        }
    }

    @Test func `a key of a headset is a press and at once its release`() async throws {
        try await run(registersMediaPlayer: true) { _, fake, reports in
            try await reports.wait(for: 1)
            for key in ["Play", "Pause", "PlayPause", "Stop", "Next", "Previous"] {
                #expect(await fake.pressMediaKey(key))
            }
            let codes = [200, 201, 164, 166, 163, 165]
            let all = try await reports.wait(for: 13)
            #expect(all.first == "added media-player Media player (AVRCP) [163, 164, 165, 166, 200, 201]")
            #expect(Array(all.dropFirst()) == codes.flatMap { ["media-player \($0) down", "media-player \($0) up"] })
            await fake.stop()
            try await reports.wait { $0.last == "removed media-player" }
            try await fake.start()
            try await reports.wait(for: 15)
            #expect(reports.all.suffix(2).first == "removed media-player")
            #expect(reports.all.last?.hasPrefix("added media-player") == true)
        }
    }

    @Test func `no media player is registered unless it is asked for, and none is left behind`() async throws {
        try await run(registersMediaPlayer: false) { host, fake, reports in
            // Whatever it would do it would have begun before `start` returns.
            #expect(await fake.playerStatuses.isEmpty)
            #expect(await !fake.pressMediaKey("Play"))
            await host.stop()
            #expect(reports.all.allSatisfy { !$0.contains("media-player") })
        }
        try await run(registersMediaPlayer: true) { host, fake, reports in
            try await reports.wait(for: 1)
            #expect(await fake.playerStatuses.count == 1)
            await host.stop()
            #expect(await fake.playerStatuses.isEmpty)
        }
    }

    @Test func `what is known of a device is handed on`() {
        var rule = InputDeviceRule(profileID: "key-hold", accessoryName: "left-seat", isGrabbed: true)
        let remote = LocalDeviceFacts(
            InputDevice(
                node: "/dev/input/event7", name: "Remote", bus: 5, vendor: 0x1234, product: 0x5678,
                unique: "c4:11:22:33:44:55", keys: [183], properties: ["ID_BUS": "bluetooth"], rule: rule))
        #expect(
            remote
                == LocalDeviceFacts(
                    id: LocalDeviceID("/dev/input/event7"), name: "Remote", address: "C4:11:22:33:44:55",
                    device: InputDeviceID(vendor: 0x1234, product: 0x5678), accessoryName: "left-seat",
                    profileID: "key-hold", properties: ["ID_BUS": "bluetooth"], keys: [183], isSerialPort: false))
        rule.line = SerialLine(.cts)
        let line = LocalDeviceFacts(
            InputDevice(node: "/dev/ttyUSB0", kind: .serialLine, name: "FT232R", keys: [SerialLine.key], rule: rule))
        #expect(line.keys == [183] && !line.isSerialPort && line.device == nil && line.address == nil)
        let port = LocalDeviceFacts(InputDevice(node: "/dev/ttyUSB0", kind: .serialPort, name: "CH340"))
        #expect(port.isSerialPort && port.keys.isEmpty)
    }
}
