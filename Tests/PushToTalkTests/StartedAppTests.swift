// An app that D-Bus starts: for a push over a real relay, and for the restoration of its channel.
import BusTestSupport
import Cryptography
import DBus
import Foundation
import PTTBus
import RelayProtocol
import RelayServer
import Synchronization
import Testing
import Vocabulary

@testable import PushToTalk

/// A relay, a pttd on its channel, and a service file by which the bus starts `PushToTalkApp`.
private final class Site {
    static let name = "org.example.Radio"
    static let channel = UUID(uuidString: "5E0C5F4E-2D0B-4C55-A3F1-9A2B5D2F0C33")!

    let relay: RelayServer
    let daemon: RealDaemon
    private let record: String

    init(_ fixture: BusFixture) async throws {
        let (identity, _) = try Identity.loadOrCreate(at: fixture.bus.directory + "/identity.pem", commonName: "test")
        unlink(fixture.bus.directory + "/identity.pem")
        let local = RelayChannelConfiguration(
            id: ChannelID(), name: DisplayName(cleaning: "Local", fallback: "Local"), token: InvitationToken())
        var configuration = RelayServerConfiguration(
            listenAddress: "127.0.0.1", listenPort: 0, identity: identity, channels: [local])
        configuration.acceptsPushes = true
        relay = try RelayServer(configuration: configuration, logger: fixture.logger)
        _ = try await relay.start()
        let invitation = try await relay.invitation(for: local.id, host: "127.0.0.1")
        record = fixture.bus.directory + "/record"
        let program = try RealDaemon.program("PushToTalkApp").path
        try fixture.bus.addService(
            Self.name, command: "\(program) --name \(Self.name) --record \(record) --listen 100 --seconds 20")
        daemon = try await RealDaemon(fixture, settings: "[channel]\nlink = \"\(invitation.text)\"\n")
    }

    /// Joins as the app does when its user asks for it, and ends; returns its token.
    func joinAndEnd(_ fixture: BusFixture) async throws -> [UInt8] {
        let app = RecordingApp()
        let manager = try await fixture.manager(app, name: Self.name)
        manager.requestJoinChannel(
            channelUUID: Self.channel, descriptor: PTChannelDescriptor(name: "Site", image: nil))
        #expect(try await app.hears("receivedEphemeralPushToken"))
        manager.link.stop()
        // pttd has heard of it before it answers what is asked after the bus has.
        let watcher = try await fixture.connect()
        #expect(try await eventually { try await watcher.owner(of: Self.name) == nil })
        _ = try await watcher.getProperties(
            of: PTTBus.managerInterface, destination: PTTBus.name, path: "/org/pttd")
        await watcher.close()
        return app.token.withLock { [UInt8]($0) }
    }

    /// The lines of the started app but for its tokens, when there are `count`.
    func lines(_ count: Int) async throws -> [String] {
        func read() -> [String] {
            let text = (try? String(contentsOfFile: record, encoding: .utf8)) ?? ""
            return text.components(separatedBy: "\n")
                .filter { !$0.isEmpty && !$0.hasPrefix("receivedEphemeralPushToken") }
        }
        let deadline = Date.now.addingTimeInterval(15)
        while read().count < count, Date.now < deadline { try await Task.sleep(for: .milliseconds(10)) }
        return read()
    }

    func stop() async {
        daemon.kill()
        await relay.stop()
        unlink(record)
    }
}

@Suite(
    .timeLimit(.minutes(1)), .serialized,
    .enabled(if: PrivateBus.startsServices, "dbus-broker leaves the start of services to systemd"))
struct StartedAppTests {
    @Test(.shows("push.starts", "push.payload")) func `a push starts the app`() async throws {
        try await withBus { fixture in
            let site = try await Site(fixture)
            let token = try #require(try await PushToken(site.joinAndEnd(fixture)))
            let topic = try #require(PushTopic(application: Site.name))
            let push = try #require(
                PushRequest(
                    token: token, topic: topic, payload: Array(#"{"activeSpeaker":"Ada"}"#.utf8), priority: 10,
                    lifetime: .zero))
            let relay = site.relay
            #expect(try await eventually { await relay.push(push) == .accepted(.sent) })
            let lines = try await site.lines(5)
            // The push and the app's next line of code do not wait for each other.
            #expect(lines.contains("ready \(Site.channel.busText)"))
            #expect(
                lines.filter { !$0.hasPrefix("ready") }.map { $0.prefix { $0 != " " } } == [
                    "didJoinChannel", "incomingPushResult", "didActivate", "didDeactivate",
                ], "\(lines)")
            #expect(lines.contains("incomingPushResult Ada"))
            #expect(lines.first == "didJoinChannel channelRestoration \(Site.channel.busText)")
            await site.stop()
        }
    }

    @Test(.shows("order.restart", "order.launch")) func `a restart starts the app`() async throws {
        try await withBus { fixture in
            let site = try await Site(fixture)
            _ = try await site.joinAndEnd(fixture)
            // The join was not waited for: it is answered when its record is on the disk.
            let record = site.daemon.state + "/channel"
            #expect(try await eventually { FileManager.default.fileExists(atPath: record) })
            site.daemon.kill()
            try await site.daemon.start()
            #expect(
                try await site.lines(2) == [
                    "didJoinChannel channelRestoration \(Site.channel.busText)", "ready \(Site.channel.busText)",
                ])
            await site.stop()
        }
    }
}
