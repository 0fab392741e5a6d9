// How loud own speech is, and the place in the queue for the floor, as clients on a real bus see them.
import BusTestSupport
import DBus
import DaemonAPI
import FoundationEssentials
import PTTBus
import PushToTalkCore
import Testing

@Suite(.timeLimit(.minutes(1))) struct TalkPropertyTests {
    @Test func `the interface declares both and they are there from the beginning`() async throws {
        try await withBus { fixture in
            let served = try await Served(fixture)
            let properties = try await fixture.connect().getProperties(
                of: PTTBus.channelInterface, destination: PTTBus.name, path: Served.path)
            #expect(properties["InputLevel"]?.unwrapped == .double(-200))
            #expect(properties["QueuePosition"]?.unwrapped == .uint32(0))
            #expect(ChannelProperties.inputLevelOff == -200)
            await served.close()
        }
    }

    @Test func `a level is signalled alone and once and ends with the named value`() async throws {
        try await withBus { fixture in
            let served = try await Served(fixture)
            let listener = try await fixture.connect()
            let signals = Recorder<[String: DBusValue]>()
            try await listener.addMatch(
                DBusMatchRule(
                    sender: PTTBus.name, interface: "org.freedesktop.DBus.Properties", member: "PropertiesChanged")
            ) { signals.record($0.arguments[1].propertiesValue ?? [:]) }
            for level: Float? in [-96, -23.44, -23.42, nil, nil] {
                await served.api.update(inputLevel: ChannelProperties.inputLevel(level))
            }
            let levels = try await signals.wait(for: 3)
            #expect(
                levels == [-96.0, -23.4, -200].map { ["InputLevel": .double($0)] }, "to a tenth, and only changes")
            // What is told of the rest does not bring an old level back.
            var channel = Served.channel
            channel.queuePosition = 2
            await served.api.update(channel: channel)
            #expect(try await signals.wait(for: 4).last == ["QueuePosition": .uint32(2)])
            await listener.close()
            await served.close()
        }
    }

    @Test func `a client follows both`() async throws {
        try await withBus { fixture in
            let served = try await Served(fixture)
            let events = Recorder<DaemonClient.Event>()
            try await served.client.watch { events.record($0) }
            var channel = Served.channel
            channel.queuePosition = 3
            await served.api.update(channel: channel)
            await served.api.update(inputLevel: -12.5)
            #expect(
                try await eventually {
                    let now = await served.client.snapshot.activeChannel?.properties
                    return now?.queuePosition == 3 && now?.inputLevel == -12.5
                })
            await served.api.update(channel: nil)
            await served.api.update(inputLevel: -1)
            await served.api.update(channel: Served.channel)
            #expect(try await eventually { await served.client.snapshot.activeChannel?.properties == Served.channel })
            await served.close()
        }
    }

    @Test func `what is no level is none`() {
        #expect(ChannelProperties.inputLevel(nil) == ChannelProperties.inputLevelOff)
        #expect(ChannelProperties.inputLevel(.nan) == ChannelProperties.inputLevelOff)
        #expect(ChannelProperties.inputLevel(-.infinity) == ChannelProperties.inputLevelOff)
        for value: DBusValue in [.double(.nan), .double(.infinity), .string("loud"), .int32(-3)] {
            #expect(ChannelProperties(properties: ["InputLevel": value]).inputLevel == ChannelProperties.inputLevelOff)
        }
        for value: DBusValue in [.int32(-1), .string("first"), .uint64(.max)] {
            #expect(ChannelProperties(properties: ["QueuePosition": value]).queuePosition == 0)
        }
    }

    @Test func `a press that nobody answers in time is let go`() async throws {
        try await withBus { fixture in
            let served = try await Served(fixture)
            await served.controls.holdPresses()
            let client = try await DaemonClient.find(
                on: .address(fixture.bus.address), loop: fixture.loop, logger: fixture.logger,
                answerLimit: .milliseconds(200))
            await #expect(throws: DaemonClientError.self) { try await client.beginTransmitting() }
            #expect(try await eventually { await served.controls.presses.count == 1 })
            #expect(try await eventually { await served.controls.holders.isEmpty })
            await served.controls.answerPresses()
            #expect(try await eventually { await served.controls.holders.isEmpty })
            await client.close()
            await served.close()
        }
    }
}
