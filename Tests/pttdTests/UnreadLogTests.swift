import BusTestSupport
import DBus
import FakeBlueZ
import FoundationEssentials
import Glibc
import PTTBus
import PushToTalkCore
import Testing

@testable import pttd

/// A daemon whose standard error nobody reads.
@Suite(.timeLimit(.minutes(2))) struct UnreadLogTests {
    /// A daemon whose log is a pipe that is full at once: one page, and a reader that never comes.
    private func withUnreadLog(
        settings: String = "", _ body: (BusFixture) async throws -> Void
    ) async throws {
        try await withBus { fixture in
            let directory = try TemporaryDirectory()
            let pipe = directory.path + "/log"
            try #require(mkfifo(pipe, 0o600) == 0)
            let reader = open(pipe, O_RDWR | O_CLOEXEC)
            try #require(reader >= 0)
            defer { close(reader) }
            _ = fcntl(reader, 1_031, 4_096)
            let daemon = try DaemonProcess.start(
                fixture, in: directory, audio: settings, log: pipe, options: ["--log-level", "trace"])
            try await body(fixture)
            // It ends although its last lines find no reader.
            daemon.end(SIGTERM)
        }
    }

    @Test func aLogThatNobodyReadsStopsNeitherTheReleaseNorTheStatus() async throws {
        try await withUnreadLog { fixture in
            let program = try await TestProgram.whenServed(fixture, name: "org.example.Talk")
            for _ in 0..<20 {
                let uuid = try await program.client.joinChannel(UUID(), name: "Alpha")
                try await program.client.requestBeginTransmitting(uuid)
                try await program.client.requestStopTransmitting(uuid)
                try await program.client.leaveChannel(uuid)
                try await program.told.wait { $0.last?.member == "DidLeaveChannel" }
                program.told.clear()
            }
            #expect(try await eventually { try await program.client.active()?.transmitting != true })
            await program.client.close()
        }
    }

    @Test func `a button that is held while nobody reads the log begins and ends transmissions`() async throws {
        let accessory = "[accessory.button]\naddress = \"C4:00:00:00:00:00\"\nprofile = \"aina-v2\""
        try await withUnreadLog(settings: accessory) { fixture in
            let bluez = FakeBlueZ(
                on: .address(fixture.bus.address), loop: fixture.loop, logger: fixture.logger,
                peripherals: [try #require(Peripheral("one=aina-v2", index: 0))])
            try await bluez.start()
            let program = try await TestProgram.whenServed(fixture, name: "org.example.Talk")
            try await program.client.joinChannel(UUID(), name: "Alpha")
            #expect(try await eventually { try await program.client.active()?.serviceStatus == "ready" })
            #expect(
                try await eventually {
                    try await program.client.refresh()
                    return await program.client.snapshot.accessories.values.contains { $0.ready }
                })
            // Enough lines for the pipe many times over.
            for _ in 0..<20 {
                _ = await bluez.perform("one press")
                #expect(try await eventually { try await program.client.active()?.transmitting == true })
                _ = await bluez.perform("one release")
                #expect(try await eventually { try await program.client.active()?.transmitting == false })
            }
            await program.client.close()
            await bluez.stop()
        }
    }
}
