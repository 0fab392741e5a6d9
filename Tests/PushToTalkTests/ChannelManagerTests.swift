// The library against a pttd that does what a test says.
import BusTestSupport
import DBus
import Foundation
import PTTBus
import PushToTalkCore
import Synchronization
import Testing

@testable import PushToTalk

@Suite(.timeLimit(.minutes(1)), .serialized) struct ChannelManagerTests {
    static let channel = UUID(uuidString: "7B0C5F4E-2D0B-4C55-A3F1-9A2B5D2F0C11")!
    static let descriptor = PTChannelDescriptor(name: "Site", image: PTImage(named: "audio-radio"))

    @Test(.shows("order.launch")) func `a manager is delivered after the restoration of its channel`() async throws {
        try await withBus { fixture in
            let daemon = try await ScriptedDaemon(fixture, restoring: Self.channel)
            let app = RecordingApp()
            let manager = try await fixture.manager(app, name: "org.example.Radio")
            #expect(app.told.all == ["didJoinChannel(channelRestoration)"])
            #expect(manager.activeChannelUUID == Self.channel)
            #expect(daemon.calls.all == ["RegisterApplication(org.example.Radio, /org/pttd/application, [])"])
            manager.link.stop()
        }
    }

    @Test func `a channel that is only in the answer is restored too`() async throws {
        try await withBus { fixture in
            let daemon = try await ScriptedDaemon(fixture)
            await daemon.answer("RegisterApplication") { _ in
                [.properties(["ActiveChannel": .string(Self.channel.busText)])]
            }
            let app = RecordingApp()
            let manager = try await fixture.manager(app)
            #expect(app.told.all == ["didJoinChannel(channelRestoration)"])
            #expect(manager.activeChannelUUID == Self.channel)
            manager.link.stop()
        }
    }

    @Test func `requests reach the daemon in order with their arguments`() async throws {
        try await withBus { fixture in
            let daemon = try await ScriptedDaemon(fixture)
            let app = RecordingApp()
            let manager = try await fixture.manager(app)
            manager.requestJoinChannel(channelUUID: Self.channel, descriptor: Self.descriptor)
            #expect(try await app.hears("didJoinChannel(developerRequest)"))
            // In asynchronous code the forms that wait are taken.
            func setWithoutWaiting(_ participant: PTParticipant?) {
                manager.setActiveRemoteParticipant(participant, channelUUID: Self.channel)
            }
            manager.requestBeginTransmitting(channelUUID: Self.channel)
            manager.stopTransmitting(channelUUID: Self.channel)
            setWithoutWaiting(PTParticipant(name: "Ada", image: nil))
            setWithoutWaiting(nil)
            try await manager.setServiceStatus(.connecting, channelUUID: Self.channel)
            try await manager.setTransmissionMode(.listenOnly, channelUUID: Self.channel)
            try await manager.setAccessoryButtonEventsEnabled(false, channelUUID: Self.channel)
            try await manager.setChannelDescriptor(Self.descriptor, channelUUID: Self.channel)
            manager.leaveChannel(channelUUID: Self.channel)
            #expect(
                try await daemon.calls.wait(for: 11).dropFirst() == [
                    "JoinChannel(\(Self.channel.busText), Site, [Image: audio-radio, Media: application])",
                    "RequestBeginTransmitting()", "RequestStopTransmitting()", "SetActiveRemoteParticipant(Ada, [])",
                    "ClearActiveRemoteParticipant()", "SetServiceStatus(connecting)",
                    "SetTransmissionMode(listenOnly)", "SetAccessoryButtonEventsEnabled(false)",
                    "SetDescriptor(Site, [Image: audio-radio])", "LeaveChannel(\(Self.channel.busText))",
                ])
            manager.link.stop()
        }
    }

    @Test(
        .shows("PTChannelError.told", "appNotForeground", "screenTimeRestriction"),
        arguments: PTChannelError.Code.allCases)
    func `every error of a channel keeps its code`(_ code: PTChannelError.Code) async throws {
        try await withBus { fixture in
            let daemon = try await ScriptedDaemon(fixture, restoring: Self.channel)
            try await daemon.showChannel(Self.channel)
            let app = RecordingApp()
            let manager = try await fixture.manager(app)
            for method in [
                "JoinChannel", "LeaveChannel", "RequestBeginTransmitting", "RequestStopTransmitting",
                "SetServiceStatus",
            ] { await daemon.refuse(method, code) }
            manager.requestJoinChannel(channelUUID: Self.channel, descriptor: Self.descriptor)
            manager.requestBeginTransmitting(channelUUID: Self.channel)
            manager.stopTransmitting(channelUUID: Self.channel)
            manager.leaveChannel(channelUUID: Self.channel)
            let error = await #expect(throws: PTChannelError.self) {
                try await manager.setServiceStatus(.ready, channelUUID: Self.channel)
            }
            #expect(error?.code == code)
            #expect((error as (any Error)? as NSError?)?.code == code.rawValue)
            #expect(
                try await Set(app.told.wait(for: 5).dropFirst()) == [
                    "failedToJoinChannel(\(code))", "failedToBeginTransmitting(\(code))",
                    "failedToStopTransmitting(\(code))", "failedToLeaveChannel(\(code))",
                ])
            manager.link.stop()
        }
    }

    @Test func `a failure that is answered and called back is told once`() async throws {
        try await withBus { fixture in
            let daemon = try await ScriptedDaemon(fixture, restoring: Self.channel)
            try await daemon.showChannel(Self.channel)
            let app = RecordingApp()
            let manager = try await fixture.manager(app)
            let failure: [DBusValue] = [.string(Self.channel.busText), .int32(3), .string("a call")]
            await daemon.answer("RequestBeginTransmitting") { [weak daemon] _ in
                try await daemon?.tell("FailedToBeginTransmitting", failure)
                throw PTTBus.reply(PTChannelError(.callActive))
            }
            manager.requestBeginTransmitting(channelUUID: Self.channel)
            #expect(try await app.hears("failedToBeginTransmitting(callActive)"))
            // The other way round.
            await daemon.refuse("RequestBeginTransmitting", .callActive)
            manager.requestBeginTransmitting(channelUUID: Self.channel)
            #expect(try await app.hears("failedToBeginTransmitting(callActive)", times: 2))
            try await daemon.tell("FailedToBeginTransmitting", failure)
            // A press of the user's that failed is news.
            try await daemon.tell("FailedToBeginTransmitting", failure)
            #expect(try await app.hears("failedToBeginTransmitting(callActive)", times: 3))
            #expect(app.told.all.count == 4)
            manager.link.stop()
        }
    }

    @Test func `what an app asks for while it answers a push goes out before the answer`() async throws {
        try await withBus { fixture in
            let daemon = try await ScriptedDaemon(fixture, restoring: Self.channel)
            try await daemon.showChannel(Self.channel)
            let app = RecordingApp()
            let manager = try await fixture.manager(app)
            app.push.withLock {
                $0 = { manager, payload in
                    manager.stopTransmitting(channelUUID: Self.channel)
                    return .activeRemoteParticipant(
                        PTParticipant(name: payload["activeSpeaker"] as? String ?? "", image: PTImage(named: "face")))
                }
            }
            for round in 1...50 {
                let answer = try await daemon.tell(
                    "IncomingPush", [.string(Self.channel.busText), .string(#"{"activeSpeaker": "Ada", "n": 1}"#)])
                #expect(try await daemon.calls.wait(for: round + 1).count == round + 1)
                let result = try #require(answer.first?.propertiesValue)
                #expect(result["Action"]?.stringValue == "activeRemoteParticipant")
                #expect(result["Name"]?.stringValue == "Ada")
                #expect(result["Image"]?.stringValue == "face")
            }
            await #expect(throws: DBusError.self) {
                try await daemon.tell("IncomingPush", [.string(Self.channel.busText), .string("[1]")])
            }
            manager.link.stop()
        }
    }

    @Test func `only the daemon may call the delegate`() async throws {
        try await withBus { fixture in
            let daemon = try await ScriptedDaemon(fixture)
            let app = RecordingApp()
            let manager = try await fixture.manager(app, name: "org.example.Radio")
            let stranger = try await fixture.connect()
            let error = await #expect(throws: DBusError.self) {
                try await stranger.call(
                    destination: "org.example.Radio", path: "/org/pttd/application",
                    interface: PTTBus.delegateInterface, method: "DidJoinChannel",
                    arguments: [.string(Self.channel.busText), .int32(0)])
            }
            #expect(error?.remoteName == "org.freedesktop.DBus.Error.AccessDenied")
            #expect(app.told.all.isEmpty)
            await stranger.close()
            manager.link.stop()
            await daemon.die()
        }
    }

    @Test func `calls out of order or without meaning reach nobody`() async throws {
        try await withBus { fixture in
            let daemon = try await ScriptedDaemon(fixture)
            let app = RecordingApp()
            let manager = try await fixture.manager(app)
            let uuid = DBusValue.string(Self.channel.busText)
            for (method, arguments) in [
                ("DidBeginTransmitting", [uuid, .int32(1)]), ("DidEndTransmitting", [uuid, .int32(1)]),
                ("DidDeactivateAudioSession", []), ("DidLeaveChannel", [uuid, .int32(0)]),
                ("DidJoinChannel", [.string("no uuid"), .int32(0)]), ("DidJoinChannel", [uuid, .int32(99)]),
                ("DidActivateAudioSession", [.properties([:])]),
                ("AudioSessionChanged", [.string("dance"), .properties([:])]),
            ] {
                await #expect(throws: DBusError.self) { try await daemon.tell(method, arguments) }
            }
            #expect(app.told.all.isEmpty)
            #expect(manager.activeChannelUUID == nil)
            manager.link.stop()
        }
    }

    @Test(.shows("session")) func `the audio session tells its route and its interruptions`() async throws {
        try await withBus { fixture in
            let daemon = try await ScriptedDaemon(fixture, restoring: Self.channel)
            let manager = try await fixture.manager(RecordingApp())
            var routes = manager.audioSession.routeChanges.makeAsyncIterator()
            var interruptions = manager.audioSession.interruptions.makeAsyncIterator()
            let headset: [String: DBusValue] = [
                "InputDevice": .string("plughw:Headset"), "OutputDevice": .string("plughw:Headset"),
                "SampleRate": .uint32(16_000),
            ]
            try await daemon.tell("DidActivateAudioSession", [.properties(headset)])
            let expected = PTAudioSession.Route(
                inputDevice: "plughw:Headset", outputDevice: "plughw:Headset", sampleRate: 16_000)
            #expect(await routes.next() == expected)
            #expect(manager.audioSession.isActive)
            #expect(manager.audioSession.currentRoute == expected)
            try await daemon.tell(
                "AudioSessionChanged", [.string("routeChanged"), .properties(["OutputDevice": .string("default")])])
            #expect(await routes.next()?.outputDevice == "default")
            try await daemon.tell(
                "AudioSessionChanged", [.string("interruptionBegan"), .properties(["Reason": .string("a call")])])
            #expect(manager.audioSession.isInterrupted)
            try await daemon.tell("AudioSessionChanged", [.string("interruptionEnded"), .properties([:])])
            #expect(await interruptions.next() == .began(reason: "a call"))
            #expect(await interruptions.next() == .ended(reason: ""))
            #expect(!manager.audioSession.isInterrupted)
            manager.link.stop()
        }
    }

    @Test(.shows("order.restorationDelegate", "restorationDelegate"))
    func `the restoration delegate says how a channel is shown`() async throws {
        try await withBus { fixture in
            let daemon = try await ScriptedDaemon(
                fixture,
                answers: [
                    "RegisterApplication": { _ in [.properties(["ActiveChannel": .string(Self.channel.busText)])] }
                ])
            let app = RecordingApp()
            let manager = try await fixture.manager(app)
            let answer = try await daemon.tell("ChannelDescriptor", [.string(Self.channel.busText)])
            #expect(answer.first?.stringValue == "Restored")
            #expect(answer.last?.propertiesValue?["Image"]?.stringValue == "call-start")
            #expect(app.told.all.contains("channelDescriptor"))
            manager.link.stop()
        }
    }

    @Test func `other callbacks do not wait for a service update`() async throws {
        try await withBus { fixture in
            let daemon = try await ScriptedDaemon(fixture, restoring: Self.channel)
            let app = SlowApp()
            let manager = try await PTChannelManager.make(
                Delegates(manager: app, restoration: app.recording), settings: fixture.linkSettings())
            let uuid = DBusValue.string(Self.channel.busText)
            async let done: [DBusValue] = daemon.tell(
                "IncomingServiceUpdatePush", [uuid, .string("{}"), .boolean(true), .int32(5)])
            #expect(try await app.recording.hears("update began"))
            try await daemon.tell("DidBeginTransmitting", [uuid, .int32(1)])
            #expect(try await app.recording.hears("didBeginTransmitting"))
            app.finish()
            _ = try await done
            #expect(app.recording.told.all.last == "update ended")
            manager.link.stop()
        }
    }

    @Test func `a service update has as long as pttd waits for it, and is given up after that`() async throws {
        #expect(LinkSettings().serviceUpdateLimit == PTTBusLimits.serviceUpdateAnswer)
        try await withBus { fixture in
            let daemon = try await ScriptedDaemon(fixture, restoring: Self.channel)
            let app = SlowApp()
            var settings = fixture.linkSettings()
            settings.serviceUpdateLimit = .milliseconds(100)
            let manager = try await PTChannelManager.make(
                Delegates(manager: app, restoration: app.recording), settings: settings)
            let error = await #expect(throws: DBusError.self) {
                try await daemon.tell(
                    "IncomingServiceUpdatePush",
                    [.string(Self.channel.busText), .string("{}"), .boolean(true), .int32(5)])
            }
            #expect(error?.remoteName == "org.freedesktop.DBus.Error.Failed")
            #expect(app.recording.told.all == ["update began", "update ended"])
            manager.link.stop()
        }
    }
}

/// An app with the asynchronous form of the service update, which lasts as long as the test wants.
private final class SlowApp: PTChannelManagerDelegate, Sendable {
    let recording = RecordingApp()
    private let gate = AsyncStream<Void>.makeStream()

    func finish() { gate.continuation.yield() }

    func channelManager(_: PTChannelManager, didJoinChannel: UUID, reason: PTChannelJoinReason) {}
    func channelManager(_: PTChannelManager, didLeaveChannel: UUID, reason: PTChannelLeaveReason) {}
    func channelManager(
        _: PTChannelManager, channelUUID: UUID, didBeginTransmittingFrom: PTChannelTransmitRequestSource
    ) { recording.told.record("didBeginTransmitting") }
    func channelManager(
        _: PTChannelManager, channelUUID: UUID, didEndTransmittingFrom: PTChannelTransmitRequestSource
    ) {}
    func channelManager(_: PTChannelManager, receivedEphemeralPushToken: Data) {}
    func incomingPushResult(channelManager: PTChannelManager, channelUUID: UUID, pushPayload: [String: Any])
        -> PTPushResult
    { .leaveChannel }
    func channelManager(_: PTChannelManager, didActivate: PTAudioSession) {}
    func channelManager(_: PTChannelManager, didDeactivate: PTAudioSession) {}

    func incomingServiceUpdatePush(
        channelManager: PTChannelManager, channelUUID: UUID, pushPayload: [String: Any], isHighPriority: Bool,
        remainingHighPriorityBudget: Int
    ) async {
        recording.told.record("update began")
        for await _ in gate.stream { break }
        recording.told.record("update ended")
    }
}
