import BusTestSupport
import FoundationEssentials
import Glibc
import MonotonicTime
import PTTBus
import PushToTalkCore
import Testing

@testable import pttd

/// Joins and transmissions by the hundred, or by the thousand with `PTTD_TEST_CYCLES="1000 10000"`, leave nothing behind.
@Suite(.timeLimit(.minutes(10))) struct EnduranceTests {
    private var cycles: (joins: Int, begins: Int) {
        let given = getenv("PTTD_TEST_CYCLES").map { String(cString: $0).split(separator: " ").compactMap { Int($0) } }
        guard let given, given.count == 2 else { return (40, 200) }
        return (given[0], given[1])
    }

    /// What a process holds.
    private struct Holdings {
        let descriptors: Int
        let kilobytes: Int

        init(of process: pid_t) throws {
            descriptors = try FileManager.default.contentsOfDirectory(atPath: "/proc/\(process)/fd").count
            let status = try String(contentsOf: URL(filePath: "/proc/\(process)/status"), encoding: .utf8)
            let line = try #require(status.split(separator: "\n").first { $0.hasPrefix("VmRSS:") })
            kilobytes = try #require(line.split(separator: " ").compactMap { Int($0) }.first)
        }
    }

    @Test func joinsAndTransmissionsLeaveNothingBehind() async throws {
        try await withBus { fixture in
            let directory = try TemporaryDirectory()
            let daemon = try DaemonProcess.start(fixture, in: directory, audio: "tones = false")
            let program = try await TestProgram.whenServed(fixture, name: "org.example.Talk")
            let (joins, begins) = cycles
            // The first ones fill caches.
            try await join(program, times: joins / 4)
            try await transmit(program, times: begins / 4)
            let before = try Holdings(of: daemon.identifier)
            let start = Instant.now
            try await join(program, times: joins)
            let joined = Instant.now
            try await transmit(program, times: begins)
            let end = Instant.now
            let after = try Holdings(of: daemon.identifier)
            let rates = [(joins, joined - start), (begins, end - joined)].map { count, span in
                Int64(count) * 1_000_000_000 / span.nanoseconds
            }
            print(
                "\(joins) join/leave at \(rates[0]) a second, \(begins) begin/stop at \(rates[1]) a second; "
                    + "descriptors \(before.descriptors) → \(after.descriptors), memory \(before.kilobytes) → \(after.kilobytes) kB"
            )
            // What is being closed is closed a moment later.
            #expect(try await eventually { try Holdings(of: daemon.identifier).descriptors <= before.descriptors })
            #expect(after.kilobytes - before.kilobytes < 4_096)
            daemon.end(SIGTERM)
        }
    }

    private func join(_ program: TestProgram, times: Int) async throws {
        for _ in 0..<times {
            let uuid = try await program.client.joinChannel(UUID(), name: "Alpha")
            try await program.client.leaveChannel(uuid)
        }
        try await settle(program)
    }

    private func transmit(_ program: TestProgram, times: Int) async throws {
        let uuid = try await program.client.joinChannel(UUID(), name: "Alpha")
        try await program.told.wait { $0.last?.member == "ReceivedEphemeralPushToken" }
        for turn in 1...times {
            try await program.client.requestBeginTransmitting(uuid)
            try await program.client.requestStopTransmitting(uuid)
            // A program that does not read its callbacks counts as gone.
            if turn.isMultiple(of: 8) {
                try await program.told.wait { $0.count { $0.member == "DidEndTransmitting" } == 8 }
                program.told.clear()
            }
        }
        try await program.client.leaveChannel(uuid)
        try await settle(program)
    }

    /// Waits until the program has been told everything.
    private func settle(_ program: TestProgram) async throws {
        try await program.told.wait(.seconds(60)) { $0.last?.member == "DidLeaveChannel" }
        program.told.clear()
    }
}
