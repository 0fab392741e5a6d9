// The one channel manager of a process, as an app gets it, with the samples' own delegates.
import BusTestSupport
import DBus
import Foundation
import PushToTalk
import Reactor
import Testing

@testable import PushToTalkSamples

@Suite(.timeLimit(.minutes(1)), .serialized) struct SharedManagerTests {
    @Test(.shows("shared", "factory")) @MainActor func `a process has one manager`() async throws {
        let fixture = try BusFixture()
        setenv("DBUS_SESSION_BUS_ADDRESS", fixture.bus.address, 1)
        defer { unsetenv("DBUS_SESSION_BUS_ADDRESS") }
        let app = RecordingApp()
        // A failure is not for ever.
        await #expect(throws: PTInstantiationError.self) {
            _ = try await PTChannelManager.channelManager(delegate: app, restorationDelegate: app)
        }
        let daemon = try await ScriptedDaemon(fixture, restoring: ChannelManagerTests.channel)
        let outcomes = Recorder<String>()
        let handler: @Sendable (PTChannelManager?, (any Error)?) -> Void = { manager, error in
            outcomes.record(
                manager.map { "\(ObjectIdentifier($0))" } ?? (error as? PTInstantiationError).map { "\($0.code)" } ?? ""
            )
        }
        getByHandler(app, handler)
        getByHandler(app, handler)
        let told = try await outcomes.wait(for: 2)
        #expect(told.contains("instantiationAlreadyInProgress"))
        let window = Window()
        let manager = try await window.launch()
        #expect(told.contains("\(ObjectIdentifier(manager))"))
        #expect(app.told.all == ["didJoinChannel(channelRestoration)"])
        // The latest delegates are the ones that are called, on the main actor.
        try await daemon.tell(
            "DidBeginTransmitting", [.string(ChannelManagerTests.channel.busText), .int32(3)])
        #expect(window.lines == ["began"])
        #expect(app.told.all.count == 1)
        #expect(manager.audioSession === PTAudioSession.sharedInstance())
        await daemon.die()
        fixture.loop.stop()
    }

    private nonisolated func getByHandler(
        _ app: RecordingApp, _ handler: @escaping @Sendable (PTChannelManager?, (any Error)?) -> Void
    ) {
        PTChannelManager.channelManager(delegate: app, restorationDelegate: app, completionHandler: handler)
    }
}
