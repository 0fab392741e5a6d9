// The daemon's modules within the test: a private bus, a relay on loopback, files for sound; and a program that joins.
import Audio
import Bridge
import BusTestSupport
import ChannelService
import Cryptography
import DBus
import FoundationEssentials
import Glibc
import Logging
import MonotonicTime
import PTTBus
import PushToTalkCore
import Reactor
import RelayProtocol
import RelayServer
import Synchronization
import Testing
import Vocabulary

@testable import pttd

/// Everything of `pttd` but its process; its relay has the channel "Local", and those that the test names.
struct RunningDaemon {
    let parts: Daemon.Parts
    private let disk: EventLoop
    let relay: RelayServer
    let invitation: InvitationLink
    let channels: [ChannelMembership]

    /// A daemon that has started, with its state in `directory`; its configured channel is that of the relay.
    init(
        _ fixture: BusFixture, in directory: TemporaryDirectory, channels names: [String] = [],
        floor rules: FloorRules = FloorRules(), runsCommands: Bool = false,
        configure: (inout Configuration) -> Void = { _ in }
    ) async throws {
        let (identity, _) = try Identity.loadOrCreate(at: directory.path + "/identity.pem", commonName: "test")
        var server = RelayServerConfiguration(
            listenAddress: "127.0.0.1", listenPort: 0, identity: identity,
            channels: [.local(of: identity)]
                + names.map {
                    RelayChannelConfiguration(
                        id: ChannelID(), name: DisplayName(cleaning: $0, fallback: "?"), token: InvitationToken())
                })
        for index in server.channels.indices { server.channels[index].rules = rules }
        server.acceptsPushes = true
        relay = try RelayServer(configuration: server, logger: fixture.logger)
        _ = try await relay.start()
        invitation = try await relay.invitation(
            for: RelayChannelConfiguration.local(of: identity).id, host: "127.0.0.1")
        var invitations = [invitation]
        for channel in server.channels.dropFirst() {
            invitations.append(try await relay.invitation(for: channel.id, host: "127.0.0.1"))
        }
        channels = invitations.map { ChannelMembership(configured: $0) }
        var configuration = Configuration()
        configuration.sound = ChannelServiceConfiguration(
            microphone: .wav(path: try directory.silence()), speaker: .wav(path: directory.path + "/heard.wav"))
        configuration.sound.playsTones = false
        configuration.desktop = false
        configure(&configuration)
        disk = try EventLoop(name: "disk", mayWait: true)
        parts = try await Daemon.Parts(
            configuration, channels: channels, relayCarriesPushes: true,
            state: directory.path, identity: identity, bus: .address(fixture.bus.address),
            systemBus: .address(fixture.bus.address),
            runsCommands: runsCommands, loop: fixture.loop, disk: disk)
        await parts.start(fixture.logger)
    }

    /// A daemon with the channels and the relay of another one, which has stopped, and its state in the same `directory`.
    init(_ fixture: BusFixture, in directory: TemporaryDirectory, like other: RunningDaemon) async throws {
        (relay, invitation, channels) = (other.relay, other.invitation, other.channels)
        let (identity, _) = try Identity.loadOrCreate(at: directory.path + "/identity.pem", commonName: "test")
        var configuration = Configuration()
        configuration.desktop = false
        configuration.sound = ChannelServiceConfiguration(
            microphone: .wav(path: directory.path + "/silence.wav"), speaker: .wav(path: directory.path + "/again.wav"))
        configuration.sound.playsTones = false
        disk = try EventLoop(name: "disk", mayWait: true)
        parts = try await Daemon.Parts(
            configuration, channels: channels, relayCarriesPushes: true, state: directory.path, identity: identity,
            bus: .address(fixture.bus.address), systemBus: .address(fixture.bus.address),
            runsCommands: false, loop: fixture.loop, disk: disk)
        await parts.start(fixture.logger)
    }

    /// The configured channel.
    var configured: UUID { invitation.channel.uuid }

    func stop() async {
        await parts.stop()
        await relay.stop()
        // What was to be written is written.
        disk.stop()
    }
}

/// A folder of a test's own, which goes with the object.
final class TemporaryDirectory: Sendable {
    let path: String

    init() throws {
        var template = Array("/tmp/pttd-test-XXXXXX".utf8CString)
        try #require(mkdtemp(&template) != nil)
        path = String(decoding: template.dropLast().map { UInt8(truncatingIfNeeded: $0) }, as: UTF8.self)
    }

    deinit { try? FileManager.default.removeItem(atPath: path) }

    /// A file of ten silent seconds.
    func silence() throws -> String {
        let rate: UInt32 = 48_000
        let count = 10 * rate * 2
        var bytes = Array("RIFF".utf8) + Self.little(36 + count) + Array("WAVEfmt ".utf8) + Self.little(16)
        bytes += [1, 0, 1, 0] + Self.little(rate) + Self.little(rate * 2) + [2, 0, 16, 0] + Array("data".utf8)
        bytes += Self.little(count) + [UInt8](repeating: 0, count: Int(count))
        let file = path + "/silence.wav"
        try Data(bytes).write(to: URL(filePath: file))
        return file
    }

    private static func little(_ value: UInt32) -> [UInt8] { withUnsafeBytes(of: value.littleEndian) { Array($0) } }
}

/// A program with a channel manager: what it is told is recorded, and pushes are answered as told beforehand.
final class TestProgram: Sendable {
    let client: DaemonClient
    let told = Recorder<DelegateCall>()
    /// What its registration returned.
    let channel: UUID?

    /// A program that has registered under `name`.
    init(_ fixture: BusFixture, name: String = "", answer: PTPushResult = .leaveChannel) async throws {
        client = try await DaemonClient.find(
            on: .address(fixture.bus.address), loop: fixture.loop, logger: fixture.logger)
        if !name.isEmpty { try await client.takeName(name) }
        let told = told
        try await client.serveDelegate { call in
            told.record(call)
            return switch call {
            case .incomingPush: .pushResult(answer)
            case .channelDescriptor: .descriptor(PTChannelDescriptor(name: "named by its program", image: nil))
            default: .done
            }
        }
        channel = try await client.registerApplication(name: name)
    }

    /// Why a join by a link alone is refused; nil: it is not.
    func refusalToJoin(by link: String) async -> PTChannelError.Code? {
        await refusal { _ = try await client.joinChannel(nil, name: "", link: link) }
    }

    /// A program that registers as soon as `org.pttd` is served.
    static func whenServed(_ fixture: BusFixture, name: String) async throws -> TestProgram {
        let deadline = Instant.now + .seconds(10)
        while true {
            do {
                return try await TestProgram(fixture, name: name)
            } catch DaemonClientError.notRunning where Instant.now < deadline {
                try await Task.sleep(for: .milliseconds(1))
            }
        }
    }

    /// The push token it was told last.
    var token: PushToken? {
        for case .callback(.receivedEphemeralPushToken(let token), _) in told.all.reversed() { return token }
        return nil
    }

    /// Waits until these methods have been called, in this order, since the last `told.clear()`.
    func expect(_ methods: [String], _ comment: Comment? = nil, location: SourceLocation = #_sourceLocation)
        async throws
    {
        let all = try await told.wait(for: methods.count).map(\.member)
        #expect(all == methods, comment, sourceLocation: location)
    }
}

extension DaemonClient {
    /// The active channel's properties, asked for now.
    func active() async throws -> ChannelProperties? {
        try await refresh()
        return snapshot.activeChannel?.properties
    }
}

/// The code of the channel error that `body` is refused with.
func refusal(_ body: () async throws -> Void) async -> PTChannelError.Code? {
    do {
        try await body()
        return nil
    } catch {
        return (error as? DaemonClientError)?.channelError?.code
    }
}
