import BusTestSupport
import FoundationEssentials
import Glibc
import MonotonicTime
import PTTBus
import PushToTalkCore
import TestSupport
import Testing

@testable import pttd

/// `pttd` as a process, killed at any instant.
@Suite(.timeLimit(.minutes(2))) struct KillTests {
    private let name = "org.example.Talk"

    /// It is back within a second more than twice what this machine takes for a first start.
    @Test func killedDuringATransmissionTheChannelIsBackWithTheNextStart() async throws {
        try await withBus { fixture in
            let directory = try TemporaryDirectory()
            let begun = Instant.now
            var daemon = try DaemonProcess.start(fixture, in: directory)
            let first = try await TestProgram.whenServed(fixture, name: name)
            let start = Instant.now - begun
            let local = try #require(await first.client.active().flatMap { UUID(uuidString: $0.uuid) })
            let uuid = try await first.client.joinChannel(local, name: "Alpha")
            #expect(try await eventually { try await first.client.active()?.serviceStatus == "ready" })
            try await first.client.requestBeginTransmitting(uuid)
            try await first.told.wait { $0.contains { $0.member == "DidActivateAudioSession" } }
            let token = first.token
            await first.client.close()
            daemon.end(SIGKILL)

            let killed = Instant.now
            daemon = try DaemonProcess.start(fixture, in: directory)
            let again = try await TestProgram.whenServed(fixture, name: name)
            let restored = Instant.now
            #expect(again.channel == uuid)
            #expect(again.told.all.first == .callback(.didJoinChannel(uuid, reason: .channelRestoration)))
            #expect(try await eventually { try await again.client.active()?.serviceStatus == "ready" })
            let ready = Instant.now
            print(
                "restored \((restored - killed).nanoseconds / 1_000_000) ms after the start, ready after \((ready - killed).nanoseconds / 1_000_000) ms"
            )
            #expect(restored - killed < start * 2 + .seconds(1))
            #expect(again.token == token)
            #expect(try await again.client.active()?.transmitting == false)
            try await again.client.requestBeginTransmitting(uuid)
            daemon.end(SIGTERM)
        }
    }

    /// Joining, renaming and leaving while the process is killed at random: the next start is on the old or the new channel.
    @Test func killedAtAnyInstantTheOldOrTheNewStateIsThere() async throws {
        var random = SeededGenerator()
        try await withBus { fixture in
            let directory = try TemporaryDirectory()
            let channels = [UUID(), UUID()]
            for _ in 0..<5 {
                let daemon = try DaemonProcess.start(fixture, in: directory)
                let program = try await TestProgram.whenServed(fixture, name: name)
                if let channel = program.channel { #expect(channels.contains(channel)) }
                let span = Duration.milliseconds(Int.random(in: 1..<60, using: &random))
                let killer = Task {
                    try? await Task.sleep(for: span)
                    daemon.end(SIGKILL)
                }
                do {
                    for turn in 0..<1_000 {
                        if turn > 0 || program.channel != nil { try await program.client.leaveChannel() }
                        try await program.client.joinChannel(channels[turn % 2], name: "turn \(turn)")
                        try await program.client.setDescriptor(PTChannelDescriptor(name: "renamed \(turn)", image: nil))
                    }
                } catch is DaemonClientError {
                    // It was killed.
                }
                await killer.value
                await program.client.close()
            }
            let log = try String(contentsOf: URL(filePath: directory.path + "/pttd.log"), encoding: .utf8)
            #expect(!log.contains("set aside"))
        }
    }
}
