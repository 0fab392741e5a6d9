// Channels nearby on a real bus: what is asked, what is refused, what is told, and what ends when its caller leaves.
import BusTestSupport
import DBus
import DaemonAPI
import FoundationEssentials
import PTTBus
import PushToTalkCore
import Reactor
import Testing

/// Stands for the modules below: notes what is asked, and refuses when told to.
private actor NearbyStand: NearbyControls {
    enum Asked: Hashable, Sendable {
        case browse(Bool)
        case create(String?, NearbyAdmission)
        case join(String, String?)
        case cancel
        case decide(Bool, String)
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

    func createChannel(
        _ name: String?, admission: NearbyAdmission, by caller: BusCaller
    ) async throws(PTChannelError) -> UUID {
        try note(.create(name, admission))
        return Served.uuid
    }

    func joinChannel(_ id: String, code: String?, by caller: BusCaller) async throws(PTChannelError) -> UUID {
        try note(.join(id, code))
        if id == Self.waiting { await withCheckedContinuation { asking = $0 } }
        if isCancelled { throw PTChannelError(.unknown, explanation: "given up") }
        return Served.uuid
    }

    /// A channel whose creator is asked.
    static let waiting = "waiting"
    private var asking: CheckedContinuation<Void, Never>?
    private var isCancelled = false

    func cancelJoining(by caller: BusCaller) {
        asked.record(.cancel)
        isCancelled = true
        asking?.resume()
        asking = nil
    }

    func decide(_ isAdmitted: Bool, about id: String, by caller: BusCaller) async throws(PTChannelError) {
        try note(.decide(isAdmitted, id))
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
        (channel.isOwn, channel.admission, channel.code) = (true, "code", "271828")
        return channel
    }

    @Test func `every method asks for what it says`() async throws {
        try await withStand { served, stand in
            let client = served.client
            #expect(try await client.createNearbyChannel("Crane 2") == Served.uuid)
            _ = try await client.createNearbyChannel(nil, admission: .code)
            _ = try await client.createNearbyChannel(nil, admission: .ask)
            try await client.joinNearbyChannel("a.b")
            try await client.joinNearbyChannel("a.b", code: "271 828")
            try await client.decideNearby(true, about: "e.f")
            try await client.decideNearby(false, about: "g.h")
            try await client.deleteNearbyChannel("c.d")
            #expect(
                stand.asked.all == [
                    .create("Crane 2", .open), .create(nil, .code), .create(nil, .ask), .join("a.b", nil),
                    .join("a.b", "271 828"), .decide(true, "e.f"), .decide(false, "g.h"), .delete("c.d"),
                ])
        }
    }

    @Test func `a join that waits is given up when its caller leaves, and holds up nobody else`() async throws {
        try await withStand { served, stand in
            let other = try await Served.client(served.fixture)
            let waiting = Task { try await other.joinNearbyChannel(NearbyStand.waiting) }
            #expect(try await eventually { stand.asked.all.contains(.join(NearbyStand.waiting, nil)) })
            try await served.client.joinNearbyChannel("a.b")
            let second = await errorOf { try await other.joinNearbyChannel("a.b") }
            #expect(second != nil, "one join of one program at a time")
            await other.close()
            #expect(try await eventually { stand.asked.all.last == .cancel })
            await #expect(throws: (any Error).self) { try await waiting.value }
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
        ("JoinChannel", [DBusValue.string(""), .properties([:])]),
        ("JoinChannel", [.string("a"), .properties(["Code": .string(String(repeating: "1", count: 25))])]),
        ("CreateChannel", [.string("a"), .properties(["Admission": .string("closed")])]),
        // A misspelt option would be meant to do something.
        ("CreateChannel", [.string("a"), .properties(["admission": .string("code")])]),
        ("CreateChannel", [.string("a"), .properties(["Admission": .boolean(true)])]),
        ("JoinChannel", [.string("a"), .properties(["code": .string("1")])]),
        ("Admit", [.string("")]), ("DeleteChannel", [.string(String(repeating: "a", count: 97))]),
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
            let anna = NearbyNewcomerDescription(
                id: "a.1", name: "Anna", channel: Self.crane.id, channelName: "Crane 2")
            await served.api.update(nearby: [Self.crane], newcomers: [anna], problem: "avahi-daemon is not running")
            let client = served.client
            #expect(
                try await eventually {
                    let nearby = await client.snapshot.nearby
                    return nearby.channels == [Self.crane] && nearby.newcomers == [anna]
                        && nearby.problem == "avahi-daemon is not running"
                })
            let later = try await Served.client(served.fixture)
            #expect(await later.snapshot.nearby.channels == [Self.crane], "also to who comes later")
            await later.close()
        }
    }
}
