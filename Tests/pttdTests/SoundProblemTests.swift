// The real `pttd` with a speaker that is not there: whoever asks is not told that all is well.
import BusTestSupport
import DBus
import FoundationEssentials
import Glibc
import PTTBus
import Testing

@testable import pttd

@Suite(.timeLimit(.minutes(1))) struct SoundProblemTests {
    @Test func `a speaker that cannot be opened is told once something was to be heard`() async throws {
        try await withBus { fixture in
            let directory = try TemporaryDirectory()
            let daemon = try DaemonProcess.start(fixture, in: directory, speaker: "hw:99")
            #expect(
                try await eventually {
                    let client = try? await DaemonClient.find(
                        on: .address(fixture.bus.address), loop: fixture.loop, logger: fixture.logger)
                    await client?.close()
                    return client != nil
                })
            let client = try await DaemonClient.find(
                on: .address(fixture.bus.address), loop: fixture.loop, logger: fixture.logger)
            #expect(try await eventually { try await client.active()?.serviceStatus == "ready" })
            // The tone that says that the microphone is open.
            try await client.beginTransmitting()
            #expect(
                try await eventually {
                    try await client.refresh()
                    return await client.snapshot.manager.speakerProblem.contains("hw:99")
                })
            #expect(try await client.active()?.serviceStatusDetail.contains("hw:99") == true)
            #expect(try await client.active()?.transmitting == true, "speaking works")
            try await client.stopTransmitting()
            await client.close()
            #expect(daemon.status(after: SIGTERM) == 0)
        }
    }
}
