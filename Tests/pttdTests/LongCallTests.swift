import BusTestSupport
import DBus
import FoundationEssentials
import Glibc
import PTTBus
import Testing

@testable import pttd

/// The real `pttd`, and a call that is longer than any that it takes.
@Suite(.timeLimit(.minutes(2))) struct LongCallTests {
    @Test func `a join with an image of 5 MB is refused, and pttd stays who it is and transmits`() async throws {
        try await withBus { fixture in
            let directory = try TemporaryDirectory()
            let daemon = try DaemonProcess.start(fixture, in: directory)
            let program = try await TestProgram.whenServed(fixture, name: "org.example.Talk")
            let uuid = try await program.client.joinChannel(UUID(), name: "Alpha")
            #expect(try await eventually { try await program.client.active()?.serviceStatus == "ready" })
            try await program.client.requestBeginTransmitting(uuid)
            #expect(try await eventually { try await program.client.active()?.transmitting == true })

            let caller = try await fixture.connect()
            func owner() async throws -> DBusValue? {
                try await caller.call(
                    destination: "org.freedesktop.DBus", path: "/org/freedesktop/DBus",
                    interface: "org.freedesktop.DBus", method: "GetNameOwner", arguments: [.string(PTTBus.name)]
                ).first
            }
            let before = try await owner()
            let other = try RawPeer(fixture.bus.address)
            for _ in 0..<3 {
                let join = try RawPeer.call(
                    PTTBus.name, "JoinChannel", path: "/org/pttd", interface: PTTBus.managerInterface)
                RawPeer.append("", to: join)
                RawPeer.append("Alpha", to: join)
                RawPeer.append(property: "Image", bytes: 5_000_000, to: join)
                #expect(other.errorName(join) == "org.freedesktop.DBus.Error.LimitsExceeded")
            }
            #expect(try await owner() == before, "the bus has never dropped it")
            #expect(try await program.client.active()?.transmitting == true)
            try await program.client.requestStopTransmitting(uuid)
            #expect(try await eventually { try await program.client.active()?.transmitting == false })
            let log = try String(contentsOf: URL(filePath: directory.path + "/pttd.log"), encoding: .utf8)
            #expect(log.contains("sender=:1.") && log.contains("bytes=50000"), "\(log)")
            await program.client.close()
            await caller.close()
            #expect(daemon.status(after: SIGTERM) == 0)
        }
    }
}
