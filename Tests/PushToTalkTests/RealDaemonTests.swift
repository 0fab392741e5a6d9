// Apple's rules, shown by an app and the real pttd.
import BusTestSupport
import DBus
import Foundation
import PTTBus
import Synchronization
import Testing

@testable import PushToTalk

/// An app and a pttd on a bus of their own.
private struct World {
    static let channel = UUID(uuidString: "3D0C5F4E-2D0B-4C55-A3F1-9A2B5D2F0C22")!
    static let descriptor = PTChannelDescriptor(name: "Site", image: PTImage(named: "audio-radio"))

    let daemon: RealDaemon
    let app = RecordingApp()
    let manager: PTChannelManager
    let fixture: BusFixture

    init(_ fixture: BusFixture, settings: String = "", name: String? = "org.example.Radio") async throws {
        self.fixture = fixture
        daemon = try await RealDaemon(fixture, settings: settings)
        manager = try await fixture.manager(app, name: name)
    }

    /// Joins and forgets what that told.
    func join() async throws {
        manager.requestJoinChannel(channelUUID: Self.channel, descriptor: Self.descriptor)
        #expect(try await app.hears("receivedEphemeralPushToken"))
        app.told.clear()
    }

    /// A user of the machine, as `pttctl` is.
    func user() async throws -> DaemonClient {
        try await DaemonClient.find(
            on: .address(fixture.bus.address), loop: fixture.loop, logger: fixture.logger)
    }

    /// Waits until exactly this has been told, in this order, and forgets it.
    func expect(_ expected: [String], _ location: SourceLocation = #_sourceLocation) async throws {
        let told = try await app.told.wait(for: expected.count)
        #expect(told == expected, sourceLocation: location)
        app.told.clear()
    }

    /// Nothing else is told by and by.
    func expectSilence(_ location: SourceLocation = #_sourceLocation) async throws {
        try await Task.sleep(for: .milliseconds(400))
        #expect(app.told.all == [], sourceLocation: location)
    }
}

private func withWorld(settings: String = "", _ body: (World) async throws -> Void) async throws {
    try await withBus { fixture in
        let world = try await World(fixture, settings: settings)
        try await body(world)
        world.manager.link.stop()
        world.daemon.kill()
    }
}

@Suite(.timeLimit(.minutes(2)), .serialized) struct RealDaemonTests {
    private static let transmission = [
        "didBeginTransmitting(developerRequest)", "didActivate", "didEndTransmitting(developerRequest)",
        "didDeactivate",
    ]

    @Test(.shows("requestJoinChannel", "order.join", "activeChannelUUID", "push.token"))
    func `joining tells the channel and then its token`() async throws {
        try await withWorld { world in
            #expect(world.manager.activeChannelUUID == nil)
            #expect(world.app.told.all == [])
            world.manager.requestJoinChannel(channelUUID: World.channel, descriptor: World.descriptor)
            try await world.expect(["didJoinChannel(developerRequest)", "receivedEphemeralPushToken"])
            #expect(world.manager.activeChannelUUID == World.channel)
            let user = try await world.user()
            let shown = await user.snapshot.activeChannel?.properties
            #expect(shown?.name == "Site")
            #expect(shown?.transmissionMode == "halfDuplex")
            let first = world.app.token.withLock { $0 }
            #expect((32...100).contains(first.count))
            world.manager.leaveChannel(channelUUID: World.channel)
            try await world.expect(["didLeaveChannel(developerRequest)"])
            #expect(world.manager.activeChannelUUID == nil)
            try await world.join()
            #expect(world.app.token.withLock { $0 } != first)
            await user.close()
        }
    }

    @Test(.shows("channelLimitReached", "channelNotFound", "leaveChannel"))
    func `a device has one channel`() async throws {
        try await withWorld { world in
            world.manager.leaveChannel(channelUUID: World.channel)
            try await world.expect(["failedToLeaveChannel(channelNotFound)"])
            try await world.join()
            world.manager.requestJoinChannel(channelUUID: UUID(), descriptor: World.descriptor)
            try await world.expect(["failedToJoinChannel(channelLimitReached)"])
            world.manager.requestBeginTransmitting(channelUUID: UUID())
            try await world.expect(["failedToBeginTransmitting(channelNotFound)"])
            let error = await #expect(throws: PTChannelError.self) {
                try await world.manager.setServiceStatus(.ready, channelUUID: UUID())
            }
            #expect(error?.code == .channelNotFound)
            world.manager.leaveChannel(channelUUID: World.channel)
            try await world.expect(["didLeaveChannel(developerRequest)"])
        }
    }

    @Test(.shows("requestBeginTransmitting", "stopTransmitting", "order.transmit", "session.notFirst"))
    func `a transmission has its four callbacks in order`() async throws {
        try await withWorld { world in
            try await world.join()
            for _ in 0..<3 {
                world.manager.requestBeginTransmitting(channelUUID: World.channel)
                #expect(try await world.app.hears("didActivate"))
                #expect(world.manager.audioSession.isActive)
                world.manager.stopTransmitting(channelUUID: World.channel)
                try await world.expect(Self.transmission)
                #expect(!world.manager.audioSession.isActive)
            }
        }
    }

    @Test(.shows("order.userTransmits", "order.userLeaves", "PTChannelTransmitRequestSource", "PTChannelLeaveReason"))
    func `the user talks and leaves too`() async throws {
        try await withWorld { world in
            try await world.join()
            let user = try await world.user()
            try await user.beginTransmitting()
            #expect(try await world.app.hears("didActivate"))
            try await user.stopTransmitting()
            try await world.expect([
                "didBeginTransmitting(userRequest)", "didActivate", "didEndTransmitting(userRequest)", "didDeactivate",
            ])
            try await user.leaveChannel(World.channel)
            try await world.expect(["didLeaveChannel(userRequest)"])
            await user.close()
        }
    }

    @Test(.shows("transmissionInProgress", "transmissionNotFound"))
    func `begins and ends that do not fit fail`() async throws {
        try await withWorld { world in
            try await world.join()
            world.manager.stopTransmitting(channelUUID: World.channel)
            try await world.expect(["failedToStopTransmitting(transmissionNotFound)"])
            world.manager.requestBeginTransmitting(channelUUID: World.channel)
            try await world.expect(["didBeginTransmitting(developerRequest)", "didActivate"])
            world.manager.requestBeginTransmitting(channelUUID: World.channel)
            try await world.expect(["failedToBeginTransmitting(transmissionInProgress)"])
            let error = await #expect(throws: PTChannelError.self) {
                try await world.manager.setActiveRemoteParticipant(
                    PTParticipant(name: "Ada", image: nil), channelUUID: World.channel)
            }
            #expect(error?.code == .transmissionInProgress)
            world.manager.stopTransmitting(channelUUID: World.channel)
            try await world.expect(["didEndTransmitting(developerRequest)", "didDeactivate"])
            try await world.expectSilence()
        }
    }

    @Test(
        .shows("setTransmissionMode", "setServiceStatus", "transmissionNotAllowed", "setAccessoryButtonEventsEnabled"))
    func `mode and status decide who may transmit`() async throws {
        try await withWorld { world in
            try await world.join()
            let manager = world.manager
            try await manager.setTransmissionMode(.listenOnly, channelUUID: World.channel)
            manager.requestBeginTransmitting(channelUUID: World.channel)
            try await world.expect(["failedToBeginTransmitting(transmissionNotAllowed)"])
            try await manager.setTransmissionMode(.halfDuplex, channelUUID: World.channel)
            for status in [PTServiceStatus.connecting, .unavailable] {
                try await manager.setServiceStatus(status, channelUUID: World.channel)
                manager.requestBeginTransmitting(channelUUID: World.channel)
                try await world.expect(["failedToBeginTransmitting(transmissionNotAllowed)"])
            }
            try await manager.setServiceStatus(.ready, channelUUID: World.channel)
            try await manager.setAccessoryButtonEventsEnabled(false, channelUUID: World.channel)
            let user = try await world.user()
            #expect(await user.snapshot.activeChannel?.properties.accessoryButtonEventsEnabled == false)
            manager.requestBeginTransmitting(channelUUID: World.channel)
            #expect(try await world.app.hears("didActivate"))
            manager.stopTransmitting(channelUUID: World.channel)
            try await world.expect(Self.transmission)
            await user.close()
        }
    }

    @Test(.shows("setChannelDescriptor")) func `the descriptor is shown`() async throws {
        try await withWorld { world in
            try await world.join()
            try await world.manager.setChannelDescriptor(
                PTChannelDescriptor(name: "Night shift", image: nil), channelUUID: World.channel)
            let user = try await world.user()
            #expect(await user.snapshot.activeChannel?.properties.name == "Night shift")
            await user.close()
        }
    }

    @Test(.shows("order.receive", "setActiveRemoteParticipant", "push.report", "push.payload", "pushResult"))
    func `a push makes somebody heard`() async throws {
        try await withWorld { world in
            try await world.join()
            world.app.push.withLock {
                $0 = { _, payload in
                    .activeRemoteParticipant(PTParticipant(name: payload["activeSpeaker"] as? String ?? "", image: nil))
                }
            }
            try await world.manager.reportPushToTalkMessage(
                userInfo: ["activeSpeaker": "Ada"], channelUUID: World.channel)
            try await world.expect(["incomingPushResult", "didActivate"])
            let user = try await world.user()
            #expect(await user.snapshot.activeChannel?.properties.activeRemoteParticipant == "Ada")
            world.manager.requestBeginTransmitting(channelUUID: World.channel)
            try await world.expect(["failedToBeginTransmitting(transmissionInProgress)"])
            try await world.manager.setActiveRemoteParticipant(nil, channelUUID: World.channel)
            try await world.expect(["didDeactivate"])
            await user.close()
        }
    }

    @Test(.shows("order.collision")) func `stop then receive keeps the session`() async throws {
        try await withWorld { world in
            try await world.join()
            world.app.push.withLock {
                $0 = { manager, _ in
                    manager.stopTransmitting(channelUUID: World.channel)
                    return .activeRemoteParticipant(PTParticipant(name: "Ada", image: nil))
                }
            }
            world.manager.requestBeginTransmitting(channelUUID: World.channel)
            try await world.expect(["didBeginTransmitting(developerRequest)", "didActivate"])
            try await world.manager.reportPushToTalkMessage(userInfo: [:], channelUUID: World.channel)
            try await world.expect(["incomingPushResult", "didEndTransmitting(developerRequest)"])
            try await world.expectSilence()
            #expect(world.manager.audioSession.isActive)
            try await world.manager.setActiveRemoteParticipant(nil, channelUUID: World.channel)
            try await world.expect(["didDeactivate"])
        }
    }

    @Test(.shows("order.fullDuplex")) func `full duplex has one activation`() async throws {
        try await withWorld { world in
            try await world.join()
            try await world.manager.setTransmissionMode(.fullDuplex, channelUUID: World.channel)
            try await world.manager.setActiveRemoteParticipant(
                PTParticipant(name: "Ada", image: nil), channelUUID: World.channel)
            try await world.expect(["didActivate"])
            world.manager.requestBeginTransmitting(channelUUID: World.channel)
            try await world.expect(["didBeginTransmitting(developerRequest)"])
            world.manager.stopTransmitting(channelUUID: World.channel)
            try await world.expect(["didEndTransmitting(developerRequest)"])
            try await world.expectSilence()
            try await world.manager.setActiveRemoteParticipant(nil, channelUUID: World.channel)
            try await world.expect(["didDeactivate"])
        }
    }

    @Test(.shows("order.hangUp")) func `a push may end the channel`() async throws {
        try await withWorld { world in
            try await world.join()
            try await world.manager.reportPushToTalkMessage(userInfo: ["over": true], channelUUID: World.channel)
            try await world.expect(["incomingPushResult", "didLeaveChannel(developerRequest)"])
        }
    }

    @Test(.shows("push.serviceUpdate", "delegate.serviceUpdate")) func `a service update has no speaker`() async throws
    {
        try await withWorld { world in
            try await world.join()
            try await world.manager.reportPushToTalkMessage(
                userInfo: ["aps": ["ptt-push-type": "service-update"]], channelUUID: World.channel)
            let told = try await world.app.told.wait(for: 1)
            #expect(told.first?.hasPrefix("incomingServiceUpdatePush(") == true, "\(told)")
        }
    }

    @Test(.shows("callActive", "order.call", "session")) func `a call supersedes`() async throws {
        try await withWorld { world in
            try await world.join()
            var interruptions = world.manager.audioSession.interruptions.makeAsyncIterator()
            world.manager.requestBeginTransmitting(channelUUID: World.channel)
            try await world.expect(["didBeginTransmitting(developerRequest)", "didActivate"])
            let softphone = try await world.fixture.connect()
            var lock = try await softphone.call(
                destination: PTTBus.name, path: "/org/pttd", interface: PTTBus.managerInterface, method: "Inhibit",
                arguments: [.string("call"), .string("Linphone"), .string("a call")])
            try await world.expect(["didEndTransmitting(unknown)", "didDeactivate"])
            guard case .began = await interruptions.next() else {
                Issue.record("the session was not interrupted")
                return
            }
            world.manager.requestBeginTransmitting(channelUUID: World.channel)
            try await world.expect(["failedToBeginTransmitting(callActive)"])
            #expect(lock.count == 1)
            #expect(world.manager.audioSession.isInterrupted)
            // Who joins during the call is told of it, and who leaves has no interruption any more.
            world.manager.leaveChannel(channelUUID: World.channel)
            try await world.expect(["didLeaveChannel(developerRequest)"])
            guard case .ended = await interruptions.next() else {
                Issue.record("leaving did not end the interruption")
                return
            }
            #expect(!world.manager.audioSession.isInterrupted)
            try await world.join()
            guard case .began = await interruptions.next() else {
                Issue.record("the call was not told to who joined")
                return
            }
            lock = []
            guard case .ended = await interruptions.next() else {
                Issue.record("the end of the call was not told")
                return
            }
            #expect(!world.manager.audioSession.isInterrupted)
            world.manager.requestBeginTransmitting(channelUUID: World.channel)
            try await world.expect(["didBeginTransmitting(developerRequest)", "didActivate"])
            await softphone.close()
        }
    }

    @Test(.shows("order.restart", "PTChannelJoinReason"))
    func `a restart during a transmission is told`() async throws {
        try await withWorld { world in
            try await world.join()
            world.manager.requestBeginTransmitting(channelUUID: World.channel)
            try await world.expect(["didBeginTransmitting(developerRequest)", "didActivate"])
            world.daemon.kill()
            try await world.expect(["didEndTransmitting(unknown)", "didDeactivate"])
            #expect(world.manager.activeChannelUUID == nil)
            try await world.daemon.start()
            #expect(try await world.app.hears("didJoinChannel(channelRestoration)"))
            #expect(world.manager.activeChannelUUID == World.channel)
            let user = try await world.user()
            #expect(
                try await eventually {
                    try await user.refresh()
                    return await user.snapshot.activeChannel != nil
                })
            await user.close()
            world.app.told.clear()
            world.manager.requestBeginTransmitting(channelUUID: World.channel)
            #expect(try await world.app.hears("didActivate"))
            world.manager.stopTransmitting(channelUUID: World.channel)
            #expect(try await world.app.hears("didDeactivate"))
            #expect(world.app.told.all.filter { $0 != "receivedEphemeralPushToken" } == Self.transmission)
        }
    }

    @Test(.shows("order.launch")) func `an app that starts again has its channel before its manager`() async throws {
        try await withWorld { world in
            try await world.join()
            world.manager.link.stop()
            let app = RecordingApp()
            let manager = try await world.fixture.manager(app, name: "org.example.Radio")
            #expect(app.told.all.first == "didJoinChannel(channelRestoration)")
            #expect(manager.activeChannelUUID == World.channel)
            manager.link.stop()
        }
    }

    @Test(.shows("deviceManagementRestriction")) func `the administrator may forbid joining`() async throws {
        try await withWorld(settings: "[policy]\njoin = false\n") { world in
            world.manager.requestJoinChannel(channelUUID: World.channel, descriptor: World.descriptor)
            try await world.expect(["failedToJoinChannel(deviceManagementRestriction)"])
        }
    }
}
