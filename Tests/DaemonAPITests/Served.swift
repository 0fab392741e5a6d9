// An org.pttd on a real bus, with a stand-in for the rest of the daemon behind it.
import BusTestSupport
import DBus
import DaemonAPI
import FoundationEssentials
import Logging
import PTTBus
import PushToTalkCore
import Reactor
import Testing

/// Stands for the rest of the daemon: notes what is asked, and refuses when told to.
actor Controls: DaemonControls {
    /// Something that was asked.
    enum Asked: Hashable, Sendable {
        case register(ApplicationID)
        case left(ApplicationID)
        case join(JoinRequest)
        case change(ChannelChoice, BusCaller)
        case replay(UUID, BusCaller)
        case kept(UUID, BusCaller)
        case replayKept(String, UUID, BusCaller)
        case leave(UUID, BusCaller)
        case begin(UUID, BusCaller)
        case stop(UUID, BusCaller)
        case requesterLeft(BusCaller)
        case descriptor(UUID, PTChannelDescriptor)
        case status(UUID, PTServiceStatus)
        case mode(UUID, PTTransmissionMode)
        case participant(UUID, PTParticipant?)
        case buttons(UUID, Bool)
        case push(UUID, String)
        case calls([Inhibitor])
    }

    let loop: EventLoop
    nonisolated var unownedExecutor: UnownedSerialExecutor { loop.asUnownedSerialExecutor() }
    /// Who holds the talk key.
    var holders: [String] = []
    /// The channel of each press.
    var presses: [UUID] = []
    /// Everything else that was asked, in order.
    nonisolated let asked = Recorder<Asked>()
    /// The programs that are registered, with how to call them.
    var applications: [ApplicationID: Application] = [:]
    /// What is called while a program registers.
    var restoration: (@Sendable (Application) async -> Void)?
    var refusal: PTChannelError?
    var instantiationRefusal: PTInstantiationError?
    private var isHoldingPresses = false
    private var heldPresses: [CheckedContinuation<Void, Never>] = []

    init(_ loop: EventLoop) { self.loop = loop }

    func refuse(_ error: PTChannelError?) { refusal = error }
    func refuseInstantiation(_ error: PTInstantiationError?) { instantiationRefusal = error }
    func restore(_ body: (@Sendable (Application) async -> Void)?) { restoration = body }
    func delegate(of busName: String) -> ApplicationDelegate? {
        applications.first { $0.key.busName == busName }?.value.delegate
    }

    private func note(_ asked: Asked) throws(PTChannelError) {
        self.asked.record(asked)
        if let refusal { throw refusal }
    }

    func pressTalkKey(_ channel: UUID, caller: String) async throws(PTChannelError) {
        // As in the daemon, a refused press is a press until it is let go, and a second one is no other.
        if !holders.contains(caller) { holders.append(caller) }
        presses.append(channel)
        if isHoldingPresses { await withCheckedContinuation { heldPresses.append($0) } }
        if let refusal { throw refusal }
    }

    /// Presses are not answered until `answerPresses`.
    func holdPresses() { isHoldingPresses = true }

    func answerPresses() {
        isHoldingPresses = false
        for press in heldPresses { press.resume() }
        heldPresses = []
    }

    func releaseTalkKey(caller: String) async -> Bool {
        guard let index = holders.firstIndex(of: caller) else { return false }
        holders.remove(at: index)
        return true
    }

    func register(_ application: Application) async throws(PTInstantiationError) -> UUID? {
        asked.record(.register(application.id))
        if let instantiationRefusal { throw instantiationRefusal }
        applications[application.id] = application
        await restoration?(application)
        return application.id.name.isEmpty ? nil : Served.uuid
    }

    func applicationLeft(_ application: ApplicationID) async {
        applications[application] = nil
        asked.record(.left(application))
    }

    func join(_ request: JoinRequest) async throws(PTChannelError) -> UUID {
        try note(.join(request))
        return request.channel ?? Served.uuid
    }

    func changeChannel(_ choice: ChannelChoice, by caller: BusCaller) async throws(PTChannelError) -> UUID {
        try note(.change(choice, caller))
        return Served.uuid
    }

    func replayLast(_ channel: UUID, by caller: BusCaller) async throws(PTChannelError) {
        try note(.replay(channel, caller))
    }

    /// What the relay keeps.
    static let kept = [
        KeptMessage(id: "b", talker: "Ada", beganAt: 1_763_762_589_000, milliseconds: 4_200),
        KeptMessage(
            id: "a", talker: "", beganAt: -1, milliseconds: .max, isGoingOn: true, isOwn: true, canBeOpened: false),
    ]

    func keptMessages(_ channel: UUID, by caller: BusCaller) async throws(PTChannelError) -> [KeptMessage] {
        try note(.kept(channel, caller))
        return Self.kept
    }

    func replayKept(_ id: String, of channel: UUID, by caller: BusCaller) async throws(PTChannelError) {
        try note(.replayKept(id, channel, caller))
    }

    func leave(_ channel: UUID, by caller: BusCaller) async throws(PTChannelError) { try note(.leave(channel, caller)) }

    func requestBeginTransmitting(_ channel: UUID, by caller: BusCaller) async throws(PTChannelError) {
        try note(.begin(channel, caller))
    }

    func requestStopTransmitting(_ channel: UUID, by caller: BusCaller) async throws(PTChannelError) {
        try note(.stop(channel, caller))
    }

    func requestingCallerLeft(_ caller: BusCaller) async { asked.record(.requesterLeft(caller)) }

    func setDescriptor(
        _ descriptor: PTChannelDescriptor, of channel: UUID, by caller: BusCaller
    ) async throws(PTChannelError) { try note(.descriptor(channel, descriptor)) }

    func setServiceStatus(
        _ status: PTServiceStatus, of channel: UUID, by caller: BusCaller
    ) async throws(PTChannelError) { try note(.status(channel, status)) }

    func setTransmissionMode(
        _ mode: PTTransmissionMode, of channel: UUID, by caller: BusCaller
    ) async throws(PTChannelError) { try note(.mode(channel, mode)) }

    func setActiveRemoteParticipant(
        _ participant: PTParticipant?, of channel: UUID, by caller: BusCaller
    ) async throws(PTChannelError) { try note(.participant(channel, participant)) }

    func setAccessoryButtonEventsEnabled(
        _ enabled: Bool, of channel: UUID, by caller: BusCaller
    ) async throws(PTChannelError) { try note(.buttons(channel, enabled)) }

    func reportPushToTalkMessage(
        _ payload: String, to channel: UUID, by caller: BusCaller
    ) async throws(PTChannelError) { try note(.push(channel, payload)) }

    func callsChanged(inhibitors: [Inhibitor]) async { asked.record(.calls(inhibitors)) }
}

/// A served `org.pttd` with one channel and one accessory, and a client of it.
struct Served {
    let api: DaemonAPI
    let controls: Controls
    let client: DaemonClient
    let fixture: BusFixture

    init(_ fixture: BusFixture, delegateLimit: Duration = .seconds(10), isBounded: Bool = true) async throws {
        self.fixture = fixture
        controls = Controls(fixture.loop)
        let bus = DBusConnection(to: .address(fixture.bus.address), on: fixture.loop, logger: fixture.logger)
        api = DaemonAPI(
            bus: bus, controls: controls, logger: fixture.logger, delegateLimit: delegateLimit, isBounded: isBounded)
        try await api.start()
        await api.update(channel: Self.channel)
        await api.update(accessories: [Self.accessory])
        client = try await Self.client(fixture)
    }

    /// One more client.
    static func client(_ fixture: BusFixture) async throws -> DaemonClient {
        try await DaemonClient.find(on: .address(fixture.bus.address), loop: fixture.loop, logger: fixture.logger)
    }

    static let uuid = UUID(uuidString: "127FACE1-CB21-11E5-93D0-0002A5D5C51B") ?? UUID()
    static let path = (try? DBusObjectPath(PTTBus.channelPath(uuid))) ?? "/"

    static var channel: ChannelProperties {
        var channel = ChannelProperties()
        channel.uuid = "127face1-cb21-11e5-93d0-0002a5d5c51b"
        channel.name = "Local"
        channel.serviceStatus = "ready"
        return channel
    }

    static var accessory: AccessoryProperties {
        var accessory = AccessoryProperties()
        accessory.id = "vest"
        accessory.name = "PTT-Z"
        accessory.battery = 77
        return accessory
    }

    /// The channel as `owner` has joined it.
    func joined(by owner: String) async {
        var channel = Self.channel
        channel.owner = owner
        await api.update(channel: channel)
    }

    func close() async {
        await client.close()
        await api.stop()
    }
}

/// A PNG file, as far as anybody looks here.
let pngBytes: [UInt8] = [0x89, 0x50, 0x4E, 0x47, 0x0D, 0x0A, 0x1A, 0x0A, 1, 2, 3]

/// The D-Bus error that `body` ends with; nil when it ends well.
func errorOf(_ body: () async throws -> Void) async -> (name: String, message: String)? {
    do {
        try await body()
        return nil
    } catch DaemonClientError.bus(.remote(let name, let message)) {
        return (name, message)
    } catch DBusError.remote(let name, let message) {
        return (name, message)
    } catch {
        Issue.record("another error: \(error)")
        return nil
    }
}

/// The number of open descriptors of this process.
func openDescriptors() -> Int {
    (try? FileManager.default.contentsOfDirectory(atPath: "/proc/self/fd").count) ?? -1
}

/// The memory of this process, in KiB (second field of proc(5)'s statm, in pages).
func residentKibibytes() -> Int {
    let text = (try? String(contentsOfFile: "/proc/self/statm", encoding: .utf8)) ?? ""
    let fields = text.split(separator: " ")
    return fields.count > 1 ? (Int(fields[1]) ?? 0) * 4 : 0
}
