// Channels nearby on a real bus: what is asked, what is refused, what is told, and what ends when its caller leaves.
import BusTestSupport
import DBus
import DaemonAPI
import FoundationEssentials
import PTTBus
import PushToTalkCore
import Reactor
import Testing

/// Stands for the rooms below: notes what is asked, and refuses when told to.
private actor NearbyStand: NearbyControls {
    enum Asked: Hashable, Sendable {
        case browse(Bool)
        case create(String?)
        case join(String)
        case delete(String)
    }

    let loop: EventLoop
    nonisolated var unownedExecutor: UnownedSerialExecutor { loop.asUnownedSerialExecutor() }
    nonisolated let asked = Recorder<Asked>()
    private var refusal: PTChannelError?

    init(_ loop: EventLoop) { self.loop = loop }

    func refuse(_ error: PTChannelError?) { refusal = error }

    private func note(_ asked: Asked) throws(PTChannelError) {
        self.asked.record(asked)
        if let refusal { throw refusal }
    }

    func setBrowsing(_ isOn: Bool) async { asked.record(.browse(isOn)) }

    func createChannel(_ name: String?, by caller: BusCaller) async throws(PTChannelError) -> UUID {
        try note(.create(name))
        return Served.uuid
    }

    func joinChannel(_ id: String, by caller: BusCaller) async throws(PTChannelError) -> UUID {
        try note(.join(id))
        return Served.uuid
    }

    func deleteChannel(_ id: String, by caller: BusCaller) async throws(PTChannelError) { try note(.delete(id)) }
}

@Suite(.timeLimit(.minutes(1))) struct NearbyMethodTests {
    private func withStand(_ body: (Served, NearbyStand) async throws -> Void) async throws {
        try await withBus { fixture in
            let served = try await Served(fixture)
            let stand = NearbyStand(fixture.loop)
            await served.api.serve(nearby: stand)
            try await body(served, stand)
            await served.close()
        }
    }

    private static var crane: NearbyChannelDescription {
        var channel = NearbyChannelDescription()
        channel.id = "127face1-cb21-11e5-93d0-0002a5d5c51b.abcdefgh"
        channel.uuid = "127face1-cb21-11e5-93d0-0002a5d5c51b"
        (channel.name, channel.creator, channel.members) = ("Crane 2", "Anna", 3)
        channel.isOwn = true
        return channel
    }

    @Test func `every method asks for what it says`() async throws {
        try await withStand { served, stand in
            let client = served.client
            #expect(try await client.createNearbyChannel("Crane 2") == Served.uuid)
            _ = try await client.createNearbyChannel(nil)
            try await client.joinNearbyChannel("a.b")
            try await client.deleteNearbyChannel("c.d")
            #expect(stand.asked.all == [.create("Crane 2"), .create(nil), .join("a.b"), .delete("c.d")])
        }
    }

    @Test func `a refusal has its error name and words`() async throws {
        try await withStand { served, stand in
            let refusal = PTChannelError(.channelNotFound, explanation: "no such channel is nearby")
            await stand.refuse(refusal)
            do throws(DaemonClientError) {
                try await served.client.joinNearbyChannel("x")
                Issue.record("it is refused")
            } catch {
                #expect(error.channelError == refusal)
            }
        }
    }

    @Test(arguments: [
        ("JoinChannel", [DBusValue.string("")]), ("DeleteChannel", [.string(String(repeating: "a", count: 65))]),
        ("CreateChannel", [.string(String(repeating: "a", count: 129)), .properties([:])]),
    ])
    func `arguments beyond a bound are refused, and nobody is asked`(
        method: String, arguments: [DBusValue]
    ) async throws {
        try await withStand { served, stand in
            let bus = try await served.fixture.connect()
            let error = await errorOf {
                _ = try await bus.call(
                    destination: PTTBus.name, path: "/org/pttd", interface: PTTBus.nearbyInterface, method: method,
                    arguments: arguments)
            }
            #expect(error?.name == "org.freedesktop.DBus.Error.InvalidArgs")
            #expect(stand.asked.all.isEmpty)
        }
    }

    @Test func `channels are looked for while anybody wants them, and no longer than its callers are there`()
        async throws
    {
        try await withStand { served, stand in
            let other = try await Served.client(served.fixture)
            try await served.client.startBrowsing()
            try await served.client.startBrowsing()
            try await other.startBrowsing()
            #expect(stand.asked.all == [.browse(true)])
            try await served.client.stopBrowsing()
            #expect(stand.asked.all == [.browse(true)])
            await other.close()
            #expect(try await eventually { stand.asked.all == [.browse(true), .browse(false)] })
        }
    }

    @Test func `what is nearby is told to who watches`() async throws {
        try await withStand { served, _ in
            try await served.client.watch { _ in }
            await served.api.update(nearby: [Self.crane], problem: "avahi-daemon does not run")
            let client = served.client
            #expect(
                try await eventually {
                    let nearby = await client.snapshot.nearby
                    return nearby.channels == [Self.crane] && nearby.problem == "avahi-daemon does not run"
                })
            let later = try await Served.client(served.fixture)
            #expect(await later.snapshot.nearby.channels == [Self.crane], "also to who comes later")
            await later.close()
        }
    }
}
