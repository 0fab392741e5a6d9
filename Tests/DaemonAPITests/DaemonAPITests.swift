// Objects, properties and the talk key on a real bus.
import BusTestSupport
import DBus
import DaemonAPI
import Logging
import PTTBus
import PushToTalkCore
import Reactor
import Testing
import Version

@Suite(.timeLimit(.minutes(1))) struct DaemonAPITests {
    @Test func `a client reads what the daemon says`() async throws {
        try await withBus { fixture in
            let served = try await Served(fixture)
            let snapshot = await served.client.snapshot
            #expect(snapshot.activeChannel?.properties == Served.channel)
            #expect(Array(snapshot.accessories.values) == [Served.accessory])
            #expect(snapshot.manager.version == Version.number)
            await served.close()
        }
    }

    @Test func `a client is told what changes`() async throws {
        try await withBus { fixture in
            let served = try await Served(fixture)
            let (events, feed) = AsyncStream.makeStream(
                of: DaemonClient.Event.self, bufferingPolicy: .bufferingOldest(64))
            try await served.client.watch { feed.yield($0) }
            var channel = Served.channel
            channel.transmitting = true
            channel.transmitSource = "handsfreeButton"
            await served.api.update(channel: channel)
            await served.api.transmissionFailed(PTChannelError(.callActive, explanation: "a call is active"))
            await served.api.update(accessories: [])
            var seen: [DaemonClient.Event] = []
            for await event in events {
                seen.append(event)
                if seen.count == 3 { break }
            }
            guard case .changed(let before, let after) = seen[0],
                case .transmissionFailed(_, let code, let message) = seen[1], case .changed(_, let last) = seen[2]
            else {
                Issue.record("\(seen)")
                return
            }
            #expect(before.activeChannel?.properties.transmitting == false)
            #expect(after.activeChannel?.properties == channel)
            #expect(code == PTChannelError.Code.callActive.rawValue)
            #expect(message == "a call is active")
            #expect(last.accessories.isEmpty)
            await served.close()
        }
    }

    @Test func `a caller holds the talk key until it lets go`() async throws {
        try await withBus { fixture in
            let served = try await Served(fixture)
            try await served.client.beginTransmitting()
            #expect(await served.controls.holders.count == 1)
            try await served.client.stopTransmitting()
            #expect(await served.controls.holders.isEmpty)
            await #expect(throws: DaemonClientError.self) { try await served.client.stopTransmitting() }
            await served.close()
        }
    }

    @Test func `a caller that leaves the bus lets go`() async throws {
        try await withBus { fixture in
            let served = try await Served(fixture)
            let other = try await DaemonClient.find(
                on: .address(fixture.bus.address), loop: fixture.loop, logger: fixture.logger)
            try await other.beginTransmitting()
            try await served.client.beginTransmitting()
            await other.close()
            while await served.controls.holders.count != 1 { try await Task.sleep(for: .milliseconds(5)) }
            await served.client.close()
            while await !served.controls.holders.isEmpty { try await Task.sleep(for: .milliseconds(5)) }
            await served.api.stop()
        }
    }

    @Test func `a caller that is gone before its press never holds`() async throws {
        try await withBus { fixture in
            let served = try await Served(fixture)
            let path = try DBusObjectPath(PTTBus.channelPath(Served.channel.uuid))
            for _ in 0..<50 {
                let hasty = try await fixture.connect()
                let call = Task {
                    try? await hasty.call(
                        destination: PTTBus.name, path: path, interface: PTTBus.channelInterface,
                        method: "BeginTransmitting")
                }
                // Handed to the bus, and gone at once.
                try await Task.sleep(for: .microseconds(Int.random(in: 0...2_000)))
                await hasty.close()
                _ = await call.value
            }
            #expect(try await eventually { await served.controls.holders.isEmpty })
            await served.close()
        }
    }

    @Test func `the name is taken when the bus comes later`() async throws {
        try await withBus { fixture in
            fixture.bus.stop()
            let controls = Controls(fixture.loop)
            let bus = DBusConnection(to: .address(fixture.bus.address), on: fixture.loop, logger: fixture.logger)
            let api = DaemonAPI(bus: bus, controls: controls, logger: fixture.logger)
            await #expect(throws: DBusError.self) { try await api.start() }
            try fixture.bus.start()
            let client = try await fixture.connect()
            #expect(try await eventually(.seconds(20)) { try await client.owner(of: PTTBus.name) != nil })
            await client.close()
            await api.stop()
        }
    }

    @Test(arguments: PTChannelError.Code.allCases)
    func `a refusal has its own error name and words`(_ code: PTChannelError.Code) async throws {
        try await withBus { fixture in
            let served = try await Served(fixture)
            await served.controls.refuse(PTChannelError(code, explanation: "words for \(code)"))
            do {
                try await served.client.beginTransmitting()
                Issue.record("not refused")
            } catch {
                guard case .bus(.remote(let name, let message)) = error as? DaemonClientError else {
                    Issue.record("\(error)")
                    return
                }
                #expect(name == "org.pttd.Error." + "\(code)".prefix(1).uppercased() + "\(code)".dropFirst())
                #expect(message == "words for \(code)")
            }
            #expect(await served.controls.holders.isEmpty, "a press that was answered with an error is over")
            await served.close()
        }
    }

    @Test func `a second daemon on the bus is refused the name`() async throws {
        try await withBus { fixture in
            let served = try await Served(fixture)
            let bus = DBusConnection(to: .address(fixture.bus.address), on: fixture.loop, logger: fixture.logger)
            let second = DaemonAPI(bus: bus, controls: served.controls, logger: fixture.logger)
            await #expect(throws: DBusError.nameTaken(PTTBus.name)) { try await second.start() }
            await bus.close()
            await served.close()
        }
    }

    @Test func `without a daemon the client says how to start it`() async throws {
        try await withBus { fixture in
            do {
                _ = try await DaemonClient.find(
                    on: .address(fixture.bus.address), loop: fixture.loop, logger: fixture.logger)
                Issue.record("found")
            } catch {
                #expect("\(error)".contains("systemctl --user start pttd"))
            }
        }
    }

    @Test func `calls with wrong arguments change nothing`() async throws {
        try await withBus { fixture in
            let served = try await Served(fixture)
            let stranger = try await fixture.connect()
            let path = try DBusObjectPath(PTTBus.channelPath(Served.channel.uuid))
            await #expect(throws: DBusError.self) {
                _ = try await stranger.call(
                    destination: PTTBus.name, path: path, interface: PTTBus.channelInterface,
                    method: "BeginTransmitting", arguments: [.string("now"), .int32(-1)])
            }
            await #expect(throws: DBusError.self) {
                try await stranger.setProperty(
                    "Transmitting", .boolean(true), of: PTTBus.channelInterface, destination: PTTBus.name, path: path)
            }
            #expect(await served.controls.holders.isEmpty)
            #expect(await served.client.snapshot.activeChannel?.properties == Served.channel)
            await stranger.close()
            await served.close()
        }
    }
}
