// Getting a channel manager, or not, and keeping it while pttd comes and goes.
import BusTestSupport
import DBus
import Foundation
import PTTBus
import PushToTalkCore
import Testing

@testable import PushToTalk

@Suite(.timeLimit(.minutes(1)), .serialized) struct DaemonLifeTests {
    private static let channel = ChannelManagerTests.channel

    @Test func `a daemon that dies and comes back leaves nothing open`() async throws {
        try await withBus { fixture in
            let daemon = try await ScriptedDaemon(fixture, restoring: Self.channel)
            let app = RecordingApp()
            let manager = try await fixture.manager(app)
            let uuid = DBusValue.string(Self.channel.busText)
            try await daemon.tell("DidBeginTransmitting", [uuid, .int32(1)])
            try await daemon.tell("DidActivateAudioSession", [.properties([:])])
            await daemon.die()
            #expect(try await app.hears("didDeactivate"))
            #expect(manager.activeChannelUUID == nil)
            manager.requestBeginTransmitting(channelUUID: Self.channel)
            #expect(try await app.hears("failedToBeginTransmitting(unknown)"))
            let next = try await ScriptedDaemon(fixture, restoring: Self.channel)
            #expect(try await app.hears("didJoinChannel(channelRestoration)", times: 2))
            #expect(manager.activeChannelUUID == Self.channel)
            #expect(
                app.told.all == [
                    "didJoinChannel(channelRestoration)", "didBeginTransmitting(userRequest)", "didActivate",
                    "didEndTransmitting(unknown)", "didDeactivate", "failedToBeginTransmitting(unknown)",
                    "didJoinChannel(channelRestoration)",
                ])
            // And once more, when it has lost the channel.
            await next.die()
            let last = try await ScriptedDaemon(fixture)
            #expect(try await app.hears("didLeaveChannel(unknown)"))
            manager.link.stop()
            await last.die()
        }
    }

    @Test func `an app whose registration pttd has ended leaves nothing open and registers again`() async throws {
        try await withBus { fixture in
            let daemon = try await ScriptedDaemon(fixture, restoring: Self.channel)
            let app = RecordingApp()
            let manager = try await fixture.manager(app)
            try await daemon.tell("DidBeginTransmitting", [.string(Self.channel.busText), .int32(1)])
            // A late call, as those are that the app did not read.
            try await daemon.endRegistration(after: "DidActivateAudioSession", [.properties([:])])
            #expect(try await app.hears("didJoinChannel(channelRestoration)", times: 2))
            #expect(manager.activeChannelUUID == Self.channel)
            #expect(
                app.told.all == [
                    "didJoinChannel(channelRestoration)", "didBeginTransmitting(userRequest)", "didActivate",
                    "didEndTransmitting(unknown)", "didDeactivate", "didJoinChannel(channelRestoration)",
                ])
            #expect(daemon.calls.all.count { $0.hasPrefix("RegisterApplication") } == 2)
            manager.link.stop()
        }
    }

    @Test func `a bus that dies and comes back is a daemon that does`() async throws {
        try await withBus { fixture in
            let daemon = try await ScriptedDaemon(fixture, restoring: Self.channel)
            let app = RecordingApp()
            let manager = try await fixture.manager(app, name: "org.example.Radio")
            fixture.bus.stop()
            #expect(try await eventually { manager.activeChannelUUID == nil })
            try fixture.bus.start()
            #expect(try await app.hears("didJoinChannel(channelRestoration)", times: 2))
            #expect(try await daemon.calls.wait(for: 2).last?.contains("org.example.Radio") == true)
            manager.link.stop()
        }
    }

    @Test func `a daemon that refuses at first is asked again`() async throws {
        try await withBus { fixture in
            let daemon = try await ScriptedDaemon(fixture, restoring: Self.channel)
            let app = RecordingApp()
            let manager = try await fixture.manager(app)
            await daemon.die()
            let tries = Recorder<Void>()
            let next = try await ScriptedDaemon(
                fixture,
                answers: [
                    "RegisterApplication": { _ in
                        tries.record(())
                        guard tries.all.count > 2 else { throw DBusErrorReply.failed("not yet") }
                        return [.properties(["ActiveChannel": .string(Self.channel.busText)])]
                    }
                ])
            #expect(try await app.hears("didJoinChannel(channelRestoration)", times: 2))
            manager.link.stop()
            await next.die()
        }
    }

    @Test(.shows("invalidPlatform")) func `without a daemon the platform is invalid and the words say what to do`()
        async throws
    {
        try await withBus { fixture in
            let error = await #expect(throws: PTInstantiationError.self) {
                _ = try await fixture.manager(RecordingApp())
            }
            #expect(error?.code == .invalidPlatform)
            #expect(error?.explanation.contains("systemctl --user start pttd") == true)
        }
    }

    @Test(.shows("missingEntitlement")) func `a name that another process owns is a missing entitlement`() async throws
    {
        try await withBus { fixture in
            let daemon = try await ScriptedDaemon(fixture)
            let other = try await fixture.connect()
            try await other.requestName("org.example.Radio")
            let error = await #expect(throws: PTInstantiationError.self) {
                _ = try await fixture.manager(RecordingApp(), name: "org.example.Radio")
            }
            #expect(error?.code == .missingEntitlement)
            let wrong = await #expect(throws: PTInstantiationError.self) {
                _ = try await fixture.manager(RecordingApp(), name: "no name")
            }
            #expect(wrong?.code == .missingEntitlement)
            #expect(wrong?.explanation.contains("org.example.Radio") == true)
            await other.close()
            await daemon.die()
        }
    }

    @Test(.shows("PTInstantiationError.told"), arguments: PTInstantiationError.Code.allCases)
    func `a refusal to register keeps its code`(_ code: PTInstantiationError.Code) async throws {
        try await withBus { fixture in
            let daemon = try await ScriptedDaemon(fixture)
            await daemon.answer("RegisterApplication") { _ in
                let name = "\(code)"
                throw DBusErrorReply("org.pttd.Error." + name.prefix(1).uppercased() + name.dropFirst(), "for a test")
            }
            let error = await #expect(throws: PTInstantiationError.self) {
                _ = try await fixture.manager(RecordingApp())
            }
            #expect(error?.code == code)
            #expect(error?.explanation == "for a test")
        }
    }

    @Test func `a queue that nobody serves is reported instead of waited for`() async throws {
        try await withBus { fixture in
            let daemon = try await ScriptedDaemon(fixture)
            let queue = DispatchQueue(label: "nobody")
            queue.suspend()
            let error = await #expect(throws: PTInstantiationError.self) {
                _ = try await fixture.manager(RecordingApp(), queue: queue)
            }
            queue.resume()
            await daemon.die()
            #expect(error?.explanation.contains("delegateQueue") == true)
        }
    }
}
