// Channels nearby, as an app sees them through the real pttd.
import BusTestSupport
import Foundation
import Testing

@testable import PushToTalk

@Suite(.timeLimit(.minutes(2))) struct NearbyChannelsOfAppsTests {
    private func withManager(
        _ body: (PTChannelManager, RecordingApp, RealDaemon) async throws -> Void
    ) async throws {
        try await withBus { fixture in
            let daemon = try await RealDaemon(fixture)
            let app = RecordingApp()
            let manager = try await fixture.manager(app, name: "org.example.Radio")
            try await body(manager, app, daemon)
            manager.link.stop()
            daemon.kill()
        }
    }

    /// The first list of the stream that fits.
    private func first(
        _ lists: inout AsyncStream<PTNearbyList>.Iterator, _ fits: (PTNearbyList) -> Bool
    ) async -> PTNearbyList? {
        while let list = await lists.next() { if fits(list) { return list } }
        return nil
    }

    @Test func `an app creates sees and deletes a channel`() async throws {
        try await withManager { manager, app, _ in
            let uuid = try await manager.createNearbyChannel(named: "Crane 2")
            #expect(try await app.hears("didJoinChannel(developerRequest)"))
            #expect(manager.activeChannelUUID == uuid)
            var lists = manager.nearbyChannels().makeAsyncIterator()
            // No avahi-daemon is on this bus: nobody else sees the channel, and the app can say why.
            let list = try #require(await first(&lists) { !$0.channels.isEmpty && $0.problem != nil })
            #expect(list.problem?.contains("avahi-daemon") == true)
            let channel = try #require(list.channels.first)
            #expect(list.channels.count == 1 && channel.channelUUID == uuid && channel.name == "Crane 2")
            #expect(channel.isHostedHere && channel.admission == .open && channel.creator == "Test")
            manager.leaveChannel(channelUUID: uuid)
            #expect(try await app.hears("didLeaveChannel(developerRequest)"))
            try await manager.joinNearbyChannel(channel)
            #expect(try await app.hears("didJoinChannel(developerRequest)", times: 2))
            try await manager.deleteNearbyChannel(channel)
            #expect(await first(&lists) { $0.channels.isEmpty } != nil)
        }
    }

    @Test func `what cannot be done is thrown`() async throws {
        try await withManager { manager, _, daemon in
            var lists = manager.nearbyChannels().makeAsyncIterator()
            _ = await lists.next()
            await #expect(throws: PTChannelError.self) {
                try await manager.createNearbyChannel(named: String(repeating: "x", count: 10_000))
            }
            let uuid = try await manager.createNearbyChannel()
            let channel = try #require(await first(&lists) { !$0.channels.isEmpty }?.channels.first)
            #expect(channel.channelUUID == uuid && channel.name == "Test", "the machine's name")
            try await manager.deleteNearbyChannel(channel)
            await #expect(throws: PTChannelError.self) { try await manager.joinNearbyChannel(channel) }
            daemon.kill()
            let away = try #require(await first(&lists) { $0.problem?.contains("not running") == true })
            #expect(away.channels.isEmpty)
            // It looks for channels again when pttd is back.
            try await daemon.start()
            #expect(await first(&lists) { $0.problem?.contains("avahi-daemon") == true } != nil)
        }
    }
}
