// The methods of org.pttd.Channel1 and JoinChannel, as a client calls them.
import BusTestSupport
import DBus
import DaemonAPI
import FoundationEssentials
import PTTBus
import PushToTalkCore
import Testing

@Suite(.timeLimit(.minutes(1))) struct ChannelMethodTests {
    @Test func `every request reaches the daemon with its values`() async throws {
        try await withBus { fixture in
            let served = try await Served(fixture)
            let (client, uuid) = (served.client, Served.uuid)
            let me = BusCaller(busName: try #require(await client.uniqueName))
            let image = try #require(PTImage(data: pngBytes))
            let icon = try #require(PTImage(named: "user-available"))
            try await client.setDescriptor(PTChannelDescriptor(name: "Dispatch", image: image))
            try await client.setServiceStatus(.unavailable, uuid)
            try await client.setTransmissionMode(.listenOnly)
            try await client.setActiveRemoteParticipant(PTParticipant(name: "Jane", image: icon), uuid)
            try await client.setActiveRemoteParticipant(nil)
            try await client.setAccessoryButtonEventsEnabled(false)
            try await client.reportPushToTalkMessage(#"{"activeSpeaker": "Jane", "n": [1, null, {"a": true}]}"#)
            try await client.requestBeginTransmitting()
            try await client.requestStopTransmitting()
            try await client.leaveChannel()
            try await client.leaveChannel(uuid)
            #expect(
                served.controls.asked.all == [
                    .descriptor(uuid, PTChannelDescriptor(name: "Dispatch", image: image)),
                    .status(uuid, .unavailable), .mode(uuid, .listenOnly),
                    .participant(uuid, PTParticipant(name: "Jane", image: icon)), .participant(uuid, nil),
                    .buttons(uuid, false), .push(uuid, #"{"activeSpeaker": "Jane", "n": [1, null, {"a": true}]}"#),
                    .begin(uuid, me), .stop(uuid, me), .leave(uuid, me), .leave(uuid, me),
                ])
            await served.close()
        }
    }

    @Test func `a join tells everything and answers with the channel`() async throws {
        try await withBus { fixture in
            let served = try await Served(fixture)
            let me = BusCaller(busName: try #require(await served.client.uniqueName))
            let other = UUID()
            #expect(
                try await served.client.joinChannel(
                    other, name: "Family", image: PTImage(named: "user-home"), link: "ptt://somewhere", media: .pttd)
                    == other)
            #expect(try await served.client.joinChannel(nil, name: "", link: "ptt://elsewhere") == Served.uuid)
            #expect(
                served.controls.asked.all == [
                    .join(
                        JoinRequest(
                            channel: other,
                            descriptor: PTChannelDescriptor(name: "Family", image: PTImage(named: "user-home")),
                            link: "ptt://somewhere", media: .pttd, caller: me)),
                    .join(
                        JoinRequest(
                            channel: nil, descriptor: PTChannelDescriptor(name: "", image: nil),
                            link: "ptt://elsewhere", caller: me)),
                ])
            await served.close()
        }
    }

    @Test func `what the relay keeps is listed and replayed by everybody`() async throws {
        try await withBus { fixture in
            let served = try await Served(fixture)
            await served.joined(by: "com.example.Talk")
            try await served.client.refresh()
            #expect(try await served.client.keptMessages() == Controls.kept)
            try await served.client.replayKept("b")
            guard case .kept(let channel, let caller) = served.controls.asked.all.first else {
                Issue.record("\(served.controls.asked.all)")
                return
            }
            #expect(channel == Served.uuid)
            #expect(served.controls.asked.all == [.kept(channel, caller), .replayKept("b", channel, caller)])
            for wrong in ["", String(repeating: "a", count: KeptMessage.idBytes + 1), "a\u{7}"] {
                await #expect(throws: DaemonClientError.self) { try await served.client.replayKept(wrong) }
            }
            #expect(served.controls.asked.all.count == 2)
            await served.controls.refuse(PTChannelError(.transmissionNotFound, explanation: "nothing is kept"))
            let error = await #expect(throws: DaemonClientError.self) { try await served.client.keptMessages() }
            #expect(error?.channelError?.code == .transmissionNotFound)
            await served.close()
        }
    }

    @Test func `channels are changed and messages replayed by everybody`() async throws {
        try await withBus { fixture in
            let served = try await Served(fixture)
            await served.joined(by: "com.example.Talk")
            await served.api.update(channels: ["Team", "Workshop"])
            try await served.client.refresh()
            #expect(await served.client.snapshot.manager.channels == ["Team", "Workshop"])
            #expect(try await served.client.changeChannel("up") == Served.uuid)
            try await served.client.changeChannel("down")
            try await served.client.changeChannel("Workshop")
            try await served.client.replayLast()
            let asked = served.controls.asked.all
            guard case .change(_, let caller) = asked.first else {
                Issue.record("\(asked)")
                return
            }
            #expect(
                asked == [
                    .change(.up, caller), .change(.down, caller), .change(.name("Workshop"), caller),
                    .replay(Served.uuid, caller),
                ])
            await #expect(throws: DaemonClientError.self, "an empty name names no channel") {
                try await served.client.changeChannel("")
            }
            #expect(served.controls.asked.all.count == 4)
            await served.close()
        }
    }

    @Test func `the image is a property of the channel`() async throws {
        try await withBus { fixture in
            let served = try await Served(fixture)
            var channel = Served.channel
            for image in [PTImage(data: pngBytes), PTImage(named: "user-available"), nil] {
                channel.image = image
                await served.api.update(channel: channel)
                try await served.client.refresh()
                #expect(await served.client.snapshot.activeChannel?.properties.image == image)
                #expect(await served.client.snapshot.activeChannel?.properties == channel)
            }
            await served.close()
        }
    }

    @Test func `only what changed is signalled`() async throws {
        try await withBus { fixture in
            let served = try await Served(fixture)
            let listener = try await fixture.connect()
            let signals = Recorder<[String: DBusValue]>()
            try await listener.addMatch(
                DBusMatchRule(
                    sender: PTTBus.name, interface: "org.freedesktop.DBus.Properties", member: "PropertiesChanged")
            ) { signals.record($0.arguments[1].propertiesValue ?? [:]) }
            var channel = Served.channel
            channel.image = PTImage(data: pngBytes)
            await served.api.update(channel: channel)
            await served.api.update(channel: channel)
            channel.transmissionMode = "fullDuplex"
            await served.api.update(channel: channel)
            await served.api.update(call: "Linphone: a call")
            await served.api.update(call: "Linphone: a call")
            #expect(
                try await signals.wait(for: 3) == [
                    ["ImageData": .bytes(pngBytes)], ["TransmissionMode": .string("fullDuplex")],
                    ["Call": .string("Linphone: a call")],
                ])
            try await served.client.refresh()
            #expect(await served.client.snapshot.manager.call == "Linphone: a call")
            await listener.close()
            await served.close()
        }
    }

    @Test(arguments: PTChannelError.Code.allCases)
    func `a refused request comes back as the channel error`(_ code: PTChannelError.Code) async throws {
        try await withBus { fixture in
            let served = try await Served(fixture)
            let refusal = PTChannelError(code, explanation: "words for \(code)")
            await served.controls.refuse(refusal)
            let client = served.client
            let requests: [@Sendable () async throws -> Void] = [
                { _ = try await client.joinChannel(UUID(), name: "Other") },
                { try await client.leaveChannel() },
                { try await client.requestBeginTransmitting() },
                { try await client.requestStopTransmitting() },
                { try await client.setTransmissionMode(.fullDuplex) },
                { try await client.setActiveRemoteParticipant(nil) },
                { try await client.reportPushToTalkMessage("{}") },
            ]
            for request in requests {
                do {
                    try await request()
                    Issue.record("not refused")
                } catch let error as DaemonClientError {
                    #expect(error.channelError == refusal)
                    #expect("\(error)" == "words for \(code)")
                }
            }
            await served.close()
        }
    }

    @Test func `a programs channel is changed by that program only`() async throws {
        try await withBus { fixture in
            let served = try await Served(fixture)
            let client = served.client
            await served.joined(by: "org.example.Radio")
            let requests: [@Sendable () async throws -> Void] = [
                { try await client.setDescriptor(PTChannelDescriptor(name: "Mine", image: nil)) },
                { try await client.setServiceStatus(.ready) },
                { try await client.setTransmissionMode(.fullDuplex) },
                { try await client.setActiveRemoteParticipant(PTParticipant(name: "Me", image: nil)) },
                { try await client.setActiveRemoteParticipant(nil) },
                { try await client.setAccessoryButtonEventsEnabled(false) },
                { try await client.reportPushToTalkMessage("{}") },
                { try await client.requestBeginTransmitting() },
                { try await client.requestStopTransmitting() },
            ]
            for request in requests {
                let error = await errorOf(request)
                #expect(error?.name == "org.freedesktop.DBus.Error.AccessDenied")
                #expect(error?.message.contains("org.example.Radio") == true)
            }
            #expect(served.controls.asked.all.isEmpty)
            // Talking and leaving are everybody's.
            try await client.beginTransmitting()
            try await client.stopTransmitting()
            try await client.leaveChannel()
            #expect(served.controls.asked.all.count == 1)
            // The same by its unique name, for a program that has no other.
            await served.joined(by: try #require(await client.uniqueName))
            try await client.setTransmissionMode(.fullDuplex)
            #expect(served.controls.asked.all.last == .mode(Served.uuid, .fullDuplex))
            await served.close()
        }
    }

    @Test func `a transmission by request ends when its caller leaves the bus`() async throws {
        try await withBus { fixture in
            let served = try await Served(fixture)
            let other = try await Served.client(fixture)
            let caller = BusCaller(busName: try #require(await other.uniqueName))
            try await other.requestBeginTransmitting()
            await other.close()
            #expect(try await served.controls.asked.wait(for: 2).last == .requesterLeft(caller))

            let third = try await Served.client(fixture)
            let thirdCaller = BusCaller(busName: try #require(await third.uniqueName))
            try await third.requestBeginTransmitting()
            try await third.requestStopTransmitting()
            await third.close()
            // A refused one leaves nothing to end, either.
            let fourth = try await Served.client(fixture)
            await served.controls.refuse(PTChannelError(.transmissionInProgress))
            await #expect(throws: DaemonClientError.self) { try await fourth.requestBeginTransmitting() }
            await fourth.close()
            _ = try await served.client.inhibitors()
            #expect(!served.controls.asked.all.contains(.requesterLeft(thirdCaller)))
            #expect(served.controls.asked.all.count == 5)
            await served.close()
        }
    }

    @Test func `a press and its release stay in order`() async throws {
        try await withBus { fixture in
            let served = try await Served(fixture, isBounded: false)
            for round in 1...50 {
                let quick = try await fixture.connect()
                // Both sent before either is answered.
                for method in ["BeginTransmitting", "StopTransmitting"] {
                    try await quick.send(
                        destination: PTTBus.name, path: Served.path, interface: PTTBus.channelInterface,
                        method: method)
                }
                let isPressed = try await eventually { await served.controls.presses.count == round }
                #expect(isPressed)
                // Whoever lets go first would hold for ever after.
                _ = try await quick.call(
                    destination: PTTBus.name, path: "/org/pttd", interface: PTTBus.managerInterface,
                    method: "ListInhibitors")
                let isReleased = try await eventually { await served.controls.holders.isEmpty }
                try #require(isReleased, "round \(round)")
                await quick.close()
            }
            await served.close()
        }
    }

    @Test func `a channel that is not active is not found`() async throws {
        try await withBus { fixture in
            let served = try await Served(fixture)
            let client = served.client
            do throws(DaemonClientError) {
                try await client.setTransmissionMode(.fullDuplex, UUID())
                Issue.record("found")
            } catch {
                #expect(error.channelError?.code == .channelNotFound)
            }
            await served.api.update(channel: nil)
            try await client.refresh()
            do throws(DaemonClientError) {
                try await client.setTransmissionMode(.fullDuplex)
                Issue.record("found")
            } catch {
                #expect(error.channelError?.code == .channelNotFound)
            }
            await served.close()
        }
    }
}
