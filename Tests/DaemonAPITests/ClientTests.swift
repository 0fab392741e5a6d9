// The client of the daemon, across the daemon's ends and starts.
import BusTestSupport
import DBus
import DaemonAPI
import FoundationEssentials
import PTTBus
import PushToTalkCore
import Testing

@Suite(.timeLimit(.minutes(5))) struct ClientTests {
    @Test func `a client survives a restart of the daemon`() async throws {
        try await withBus { fixture in
            let first = try await Served(fixture)
            let client = try await Served.client(fixture)
            let events = Recorder<DaemonClient.Event>()
            try await client.watch { events.record($0) }
            _ = try await client.registerApplication()
            await first.close()
            try await events.wait { $0.contains { if case .running(false) = $0 { true } else { false } } }
            #expect(await !client.isRunning)
            #expect(await client.snapshot == DaemonSnapshot())
            do throws(DaemonClientError) {
                try await client.setTransmissionMode(.fullDuplex, Served.uuid)
                Issue.record("answered")
            } catch {
                #expect("\(error)".contains("systemctl --user start pttd"))
            }

            let second = try await Served(fixture)
            try await events.wait { $0.contains { if case .running(true) = $0 { true } else { false } } }
            #expect(try await eventually { await client.snapshot.activeChannel?.properties == Served.channel })
            _ = try await client.registerApplication()
            try await client.setTransmissionMode(.fullDuplex)
            #expect(second.controls.asked.all.count == 2)
            // Still told of changes.
            var channel = Served.channel
            channel.activeRemoteParticipant = "Jane"
            await second.api.update(channel: channel)
            #expect(
                try await eventually {
                    await client.snapshot.activeChannel?.properties.activeRemoteParticipant == "Jane"
                })
            await client.close()
            await second.close()
        }
    }

    @Test func `a daemon that cannot be read when it comes is read again`() async throws {
        try await withBus { fixture in
            let first = try await Served(fixture)
            let client = try await Served.client(fixture)
            let events = Recorder<DaemonClient.Event>()
            try await client.watch { events.record($0) }
            await first.close()
            try await events.wait { $0.contains { if case .running(false) = $0 { true } else { false } } }

            // It has the name, and serves nothing yet.
            let bus = DBusConnection(to: .address(fixture.bus.address), on: fixture.loop, logger: fixture.logger)
            try await bus.connect()
            try await bus.requestName(PTTBus.name)
            try await events.wait { $0.contains { if case .running(true) = $0 { true } else { false } } }
            await #expect(throws: DBusError.self) { try await client.refresh() }

            let controls = Controls(fixture.loop)
            let api = DaemonAPI(bus: bus, controls: controls, logger: fixture.logger)
            try await api.start()
            // Its version never changes: no signal tells it.
            #expect(try await eventually { await !client.snapshot.manager.version.isEmpty })
            await client.close()
            await api.stop()
        }
    }

    @Test func `a daemon that dies and one that is not answered are both told`() async throws {
        try await withBus { fixture in
            let served = try await Served(fixture)
            let events = Recorder<DaemonClient.Event>()
            try await served.client.watch { events.record($0) }
            fixture.bus.stop()
            try await events.wait { $0.contains { if case .running(false) = $0 { true } else { false } } }
            await #expect(throws: DaemonClientError.self) { try await served.client.setTransmissionMode(.fullDuplex) }
            try fixture.bus.start()
            // The daemon comes back to the bus, and so does the client.
            try await events.wait(.seconds(20)) {
                $0.contains { if case .running(true) = $0 { true } else { false } }
            }
            #expect(try await eventually { await served.client.snapshot.activeChannel?.properties == Served.channel })
            try await served.client.beginTransmitting()
            await served.close()
        }
    }

    @Test func `what changes while everything is read is not lost`() async throws {
        try await withBus { fixture in
            let served = try await Served(fixture)
            try await served.client.watch { _ in }
            for round in 0..<200 {
                var channel = Served.channel
                channel.name = "Channel \(round)"
                let reading = Task { try await served.client.refresh() }
                await served.api.update(channel: nil)
                await served.api.update(channel: channel)
                try await reading.value
                let last = channel
                let isSeen = try await eventually {
                    await served.client.snapshot.activeChannel?.properties == last
                }
                try #require(isSeen, "round \(round)")
            }
            await served.close()
        }
    }

    @Test func `a denied bus and a foreign channel are told apart`() {
        let denied = DaemonClientError.bus(
            .remote(name: "org.freedesktop.DBus.Error.AccessDenied", message: "Rejected send message"))
        #expect("\(denied)".contains("adduser"))
        let foreign = PTTBus.foreignChannel(of: "org.example.Radio")
        let error = DaemonClientError.bus(.remote(name: foreign.name, message: foreign.message))
        #expect("\(error)" == foreign.message)
    }

    @Test func `a thousand joins and ten thousand transmissions leave nothing behind`() async throws {
        try await withBus { fixture in
            let served = try await Served(fixture, isBounded: false)
            let program = try await Served.client(fixture)
            _ = try await program.registerApplication()
            try await program.requestBeginTransmitting()
            // The first ones fill caches.
            for _ in 0..<500 {
                try await program.beginTransmitting(Served.uuid)
                try await program.stopTransmitting(Served.uuid)
            }
            let before = (descriptors: openDescriptors(), kibibytes: residentKibibytes())
            let start = ContinuousClock.now
            for _ in 0..<1_000 {
                try await program.joinChannel(Served.uuid, name: "A")
                try await program.leaveChannel(Served.uuid)
            }
            let joined = ContinuousClock.now
            for _ in 0..<10_000 {
                try await program.beginTransmitting(Served.uuid)
                try await program.stopTransmitting(Served.uuid)
            }
            let end = ContinuousClock.now
            print("1,000 joins and leaves in \(joined - start), 10,000 begins and stops in \(end - joined)")
            print("memory: \(before.kibibytes) KiB before, \(residentKibibytes()) KiB after")
            #expect(openDescriptors() <= before.descriptors)
            // The recorder of the test's stand-in grows by about 2,000 values.
            #expect(residentKibibytes() < before.kibibytes + 6 * 1_024)
            await program.close()
            await served.close()
        }
    }
}
