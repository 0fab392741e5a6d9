// The media player: where it is registered, and what the keys of a headset become.
import BusTestSupport
import DBus
import MonotonicTime
import TestSupport
import Testing

@testable import BlueZ
@testable import FakeBlueZ

/// A fake bluetoothd and a media player on a bus of their own.
private struct PlayerWorld {
    let fixture: BusFixture
    let fake: FakeBlueZ
    let connection: DBusConnection
    let player: MediaPlayer
    let events = Recorder<MediaPlayerEvent>()

    static func run(
        startsDaemon: Bool = true, configuration: FakeBlueZ.Configuration = .init(),
        _ body: (PlayerWorld) async throws -> Void
    ) async throws {
        try await withBus { fixture in
            let fake = FakeBlueZ(
                on: .address(fixture.bus.address), loop: fixture.loop, logger: fixture.logger, peripherals: [],
                configuration: configuration)
            if startsDaemon { try await fake.start() }
            let connection = try await fixture.connect()
            let world = PlayerWorld(fixture, fake, connection)
            await world.player.start()
            var failure: (any Error)?
            do { try await body(world) } catch { failure = error }
            await world.player.stop()
            await fake.stop()
            await connection.close()
            if let failure { throw failure }
        }
    }

    private init(_ fixture: BusFixture, _ fake: FakeBlueZ, _ connection: DBusConnection) {
        self.fixture = fixture
        self.fake = fake
        self.connection = connection
        let events = events
        player = MediaPlayer(on: connection, logger: fixture.logger) { events.record($0) }
    }

    var keys: [MediaKey] { events.all.compactMap { if case .pressed(let key, _) = $0 { key } else { nil } } }

    func until(_ event: MediaPlayerEvent) async throws {
        let all = try await events.wait { $0.last == event }
        try #require(all.last == event, "\(all)")
    }
}

@Suite struct MediaPlayerTests {
    @Test func `every key of a headset is a press, in the order they came`() async throws {
        try await PlayerWorld.run { world in
            try await world.until(.registered(true))
            #expect(await world.fake.playerStatuses == ["Paused"])
            let before = Instant.now
            // A headset alternates by what it believes; the same key twice is two presses.
            for key in ["Play", "Pause", "Play", "Play", "Next", "Previous", "Stop", "PlayPause"] {
                #expect(await world.fake.pressMediaKey(key))
            }
            let keys: [MediaKey] = [.play, .pause, .play, .play, .next, .previous, .stop, .playPause]
            try await world.events.wait { _ in world.keys.count >= keys.count }
            #expect(world.keys == keys)
            for case .pressed(_, let time) in world.events.all { #expect(time >= before && time <= .now) }
        }
    }

    @Test func `only bluetoothd may press`() async throws {
        try await PlayerWorld.run { world in
            try await world.until(.registered(true))
            let other = try await world.fixture.connect()
            let name = try #require(await world.connection.uniqueName)
            await #expect(throws: DBusError.self) {
                try await other.call(
                    destination: name, path: "/pttd/player", interface: "org.mpris.MediaPlayer2.Player",
                    method: "Play")
            }
            #expect(world.keys.isEmpty)
            let status = try await other.getProperty(
                "PlaybackStatus", of: "org.mpris.MediaPlayer2.Player", destination: name, path: "/pttd/player")
            #expect(status.unwrapped.stringValue == "Paused")
            await other.close()
        }
    }

    @Test func `it is registered again when bluetoothd or the adapter returns, and taken back at the end`() async throws
    {
        try await PlayerWorld.run(startsDaemon: false) { world in
            try await world.fake.start()
            try await world.until(.registered(true))
            await world.fake.stop()
            try await world.until(.registered(false))
            try await world.fake.start()
            try await world.until(.registered(true))
            try await world.fake.setAdapterPresent(false)
            try await world.until(.registered(false))
            try await world.fake.setAdapterPresent(true)
            try await world.until(.registered(true))
            #expect(await world.fake.pressMediaKey("Play"))
            try await world.events.wait { _ in !world.keys.isEmpty }
            #expect(world.keys == [.play])
            await world.player.stop()
            #expect(await world.fake.playerStatuses.isEmpty)
            #expect(await !world.fake.pressMediaKey("Play"))
            // And it may begin anew.
            await world.player.start()
            try await world.until(.registered(true))
        }
    }

    @Test func `an adapter that is off is registered with once it is on`() async throws {
        var configuration = FakeBlueZ.Configuration()
        configuration.powerOnDelay = .seconds(600)
        try await PlayerWorld.run(configuration: configuration) { world in
            #expect(await world.fake.playerStatuses.isEmpty)
            try await world.fake.setAdapterPowered(true)
            try await world.until(.registered(true))
            // Switched off and on again BlueZ keeps the player.
            try await world.fake.setAdapterPowered(false)
            try await world.fake.setAdapterPowered(true)
            #expect(await world.fake.playerStatuses == ["Paused"])
        }
    }

    @Test func `a player that BlueZ refuses is told, tried again, and the problem withdrawn`() async throws {
        try await PlayerWorld.run(startsDaemon: false) { world in
            await world.fake.setRefusesPlayers(true)
            try await world.fake.start()
            let all = try await world.events.wait { !$0.isEmpty }
            guard case .problem(let problem?) = try #require(all.first) else {
                Issue.record("\(all)")
                return
            }
            #expect(problem.contains("hci0") && problem.contains("retrying"))
            await world.fake.setRefusesPlayers(false)
            try await world.until(.registered(true))
            #expect(world.events.all.contains(.problem(nil)))
        }
    }

    @Test
    func
        `whatever adapters do, only those that are on are registered with, each once, and nothing is asked of one in a pause`()
    {
        var random = SeededGenerator()
        let adapters = (0..<3).compactMap { AdapterIdentifier(path: "/org/bluez/hci\($0)") }
        for _ in 0..<200 {
            var registration = AdapterRegistrations<DBusObjectPath>()
            registration.want("/player")
            var powered: Set<AdapterIdentifier> = []
            var registered: Set<AdapterIdentifier> = []
            var now = Instant.zero
            for _ in 0..<50 {
                now = now + .milliseconds(Int.random(in: 0...3000, using: &random))
                guard let adapter = adapters.randomElement(using: &random) else { return }
                switch Int.random(in: 0..<4, using: &random) {
                case 0:
                    registration.retry(adapter)
                    powered.insert(adapter)
                case 1:
                    registration.retry(adapter)
                    powered.remove(adapter)
                case 2:
                    registration.forget(adapter)
                    powered.remove(adapter)
                    registered.remove(adapter)
                default:
                    registration.forgetAll()
                    powered = []
                    registered = []
                }
                for _ in 0..<10 {
                    guard let step = registration.next(adapters: powered.sorted(), at: now) else { break }
                    guard case .register(let next) = step else {
                        Issue.record("\(step) although it is wanted")
                        return
                    }
                    #expect(powered.contains(next) && !registered.contains(next))
                    if random.chance(50) {
                        registration.didRegister(next, "/player")
                        registered.insert(next)
                    } else {
                        registration.didFail(next, at: now)
                        #expect(registration.next(adapters: powered.sorted(), at: now) != .register(next))
                    }
                }
                #expect(Set(registration.registered.keys) == registered)
            }
            registration.want(nil)
            while case .unregister(let adapter)? = registration.next(adapters: powered.sorted(), at: now) {
                registration.didUnregister(adapter)
                registered.remove(adapter)
            }
            #expect(registered.isEmpty && registration.nextDeadline == nil)
        }
    }
}
