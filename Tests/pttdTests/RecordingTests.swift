// Talk bursts kept as files by a running daemon.
import BusTestSupport
import FoundationEssentials
import Glibc
import PTTBus
import Testing

@testable import pttd

@Suite(.timeLimit(.minutes(2))) struct RecordingTests {
    private func start(_ fixture: BusFixture, in directory: TemporaryDirectory) throws -> DaemonProcess {
        try DaemonProcess.start(
            fixture, in: directory,
            audio: "tones = false\n[recordings]\nfolder = \"talk\"\nown = true\nkeep-days = 1\n")
    }

    /// The recordings, whole or not.
    private func names(_ directory: TemporaryDirectory) -> [String] {
        let all = (try? FileManager.default.contentsOfDirectory(atPath: directory.path + "/talk")) ?? []
        return all.filter { $0 != ".clock" }
    }

    @Test func whatWasSaidIsThereAfterAReleaseAndAfterAKill() async throws {
        try await withBus { fixture in
            let directory = try TemporaryDirectory()
            var daemon = try start(fixture, in: directory)
            let first = try await TestProgram.whenServed(fixture, name: "org.example.Talk")
            #expect(try await eventually { try await first.client.active()?.serviceStatus == "ready" })
            try await first.client.beginTransmitting()
            #expect(try await eventually { names(directory).contains { $0.hasSuffix(".opus.part") } })
            #expect(!names(directory).contains { $0.hasSuffix(".opus") })
            try await first.client.stopTransmitting()
            #expect(try await eventually { names(directory).contains { $0.hasSuffix(".opus") } })

            try await first.client.beginTransmitting()
            // Head and tags are small; what is more is sound.
            #expect(
                try await eventually {
                    names(directory).contains {
                        let file = try? Data(contentsOf: URL(filePath: directory.path + "/talk/" + $0))
                        return $0.hasSuffix(".opus.part") && file?.count ?? 0 > 1_000
                    }
                })
            await first.client.close()
            daemon.end(SIGKILL)
            #expect(names(directory).filter { $0.hasSuffix(".opus") }.count == 1, "only what is whole is seen")

            daemon = try start(fixture, in: directory)
            #expect(
                try await eventually {
                    let now = names(directory)
                    return now.count == 2 && now.allSatisfy { $0.hasSuffix(".opus") }
                })
            daemon.end(SIGTERM)
        }
    }
}
