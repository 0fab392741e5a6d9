import BusTestSupport
import FoundationEssentials
import Glibc
import PTTBus
import PushToTalkCore
import Testing

@testable import pttd

/// A daemon whose standard error nobody reads.
@Suite(.timeLimit(.minutes(2))) struct UnreadLogTests {
    @Test func aLogThatNobodyReadsStopsNeitherTheReleaseNorTheStatus() async throws {
        try await withBus { fixture in
            let directory = try TemporaryDirectory()
            let pipe = directory.path + "/log"
            try #require(mkfifo(pipe, 0o600) == 0)
            let reader = open(pipe, O_RDWR | O_CLOEXEC)
            try #require(reader >= 0)
            defer { close(reader) }
            // One page is full at once, and the rest of what is logged waits for a reader that never comes.
            _ = fcntl(reader, 1_031, 4_096)
            let daemon = try DaemonProcess.start(fixture, in: directory, log: pipe, options: ["--log-level", "trace"])
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
            // It ends although its last lines find no reader.
            daemon.end(SIGTERM)
        }
    }
}
