// A daemon whose rules are the test's, behind the real org.pttd, and the real pttctl against it.
import BusTestSupport
import DBus
import DaemonAPI
import FoundationEssentials
import Glibc
import PTTBus
import PushToTalkCore
import Reactor
import Testing

/// What the daemon does when it is asked; and that it was.
actor ScriptedDaemon: DaemonControls {
    nonisolated let loop: EventLoop
    nonisolated var unownedExecutor: UnownedSerialExecutor { loop.asUnownedSerialExecutor() }
    nonisolated let asked = Recorder<String>()
    nonisolated let inhibitors = Recorder<[Inhibitor]>()
    private var refusal: PTChannelError?
    private var refused: String?
    private var isQueueing = false
    private var joined = (status: "connecting", detail: "")
    private(set) var channel: ChannelProperties?
    private(set) var api: DaemonAPI?

    static let uuid = "127face1-cb21-11e5-93d0-0002a5d5c51b"

    private init(loop: EventLoop) { self.loop = loop }

    /// On the fixture's bus.
    static func start(_ fixture: BusFixture, joined: Bool = false) async throws -> ScriptedDaemon {
        let daemon = ScriptedDaemon(loop: fixture.loop)
        let bus = DBusConnection(to: .address(fixture.bus.address), on: fixture.loop, logger: fixture.logger)
        let api = DaemonAPI(bus: bus, controls: daemon, logger: fixture.logger)
        await daemon.serve(api)
        try await api.start()
        if joined {
            await daemon.show {
                $0 = ChannelProperties()
                $0?.uuid = uuid
                $0?.name = "Crew"
                $0?.serviceStatus = "ready"
            }
        }
        return daemon
    }

    private func serve(_ api: DaemonAPI) { self.api = api }

    func stop() async {
        await api?.stop()
        api = nil
    }

    /// - Parameter only: What is refused; nil: everything.
    func refuse(_ code: PTChannelError.Code, _ words: String, only: String? = nil) {
        refused = only
        refusal = PTChannelError(code, explanation: words)
    }

    /// What a join leads to.
    func joinsLead(to status: String, _ detail: String) { joined = (status, detail) }

    /// Changes what the channel's object says.
    func show(_ change: @Sendable (inout ChannelProperties?) -> Void) async {
        change(&channel)
        await api?.update(channel: channel)
    }

    private func note(_ text: String) throws(PTChannelError) {
        asked.record(text)
        if let refusal, refused.map({ text.hasPrefix($0) }) ?? true { throw refusal }
    }

    // MARK: DaemonControls

    /// Presses wait for the floor from now on.
    func letWait() { isQueueing = true }

    func pressTalkKey(_ channel: UUID, caller: String) async throws(PTChannelError) {
        try note("press")
        guard !isQueueing else {
            await show { $0?.queuePosition = 2 }
            return
        }
        await show { $0?.transmitting = true }
    }

    func releaseTalkKey(caller: String) async -> Bool {
        asked.record("release")
        await show { $0?.transmitting = false }
        return true
    }

    func register(_ application: Application) async throws(PTInstantiationError) -> UUID? { nil }
    func applicationLeft(_ application: ApplicationID) async {}

    func join(_ request: JoinRequest) async throws(PTChannelError) -> UUID {
        let media = request.media?.rawValue ?? "-"
        try note("join \(request.channel?.uuidString.lowercased() ?? "-") \(request.link ?? "-") \(media)")
        let name = request.descriptor.name
        await show {
            $0 = ChannelProperties()
            $0?.uuid = Self.uuid
            $0?.name = name.isEmpty ? "Crew" : name
        }
        let (status, detail) = joined
        await show {
            $0?.serviceStatus = status
            $0?.serviceStatusDetail = detail
        }
        return UUID(uuidString: Self.uuid)!
    }

    func changeChannel(_ choice: ChannelChoice, by caller: BusCaller) async throws(PTChannelError) -> UUID {
        try note("change \(choice)")
        // The configured channels are not this one's; who scripts them says so.
        return UUID(uuidString: Self.uuid)!
    }

    func replayLast(_ channel: UUID, by caller: BusCaller) async throws(PTChannelError) {
        try note("replay \(channel.uuidString.lowercased())")
    }

    /// What the relay keeps: one that goes on, an own one, and one of somebody else.
    static let kept = [
        KeptMessage(id: "c", talker: "Bob", beganAt: 0, milliseconds: 900, isGoingOn: true),
        KeptMessage(id: "b", talker: "Here", beganAt: 0, milliseconds: 12_345, isOwn: true),
        KeptMessage(id: "a", talker: "A\u{1B}da", beganAt: 0, milliseconds: 4_150),
        KeptMessage(id: "z", talker: "Eve", beganAt: 0, milliseconds: 50, canBeOpened: false),
    ]

    func keptMessages(_ channel: UUID, by caller: BusCaller) async throws(PTChannelError) -> [KeptMessage] {
        try note("history")
        return Self.kept
    }

    func replayKept(_ id: String, of channel: UUID, by caller: BusCaller) async throws(PTChannelError) {
        try note("replay \(id)")
    }

    func leave(_ channel: UUID, by caller: BusCaller) async throws(PTChannelError) {
        try note("leave \(channel.uuidString.lowercased())")
        await show { $0 = nil }
    }

    func requestBeginTransmitting(_ channel: UUID, by caller: BusCaller) async throws(PTChannelError) {}
    func requestStopTransmitting(_ channel: UUID, by caller: BusCaller) async throws(PTChannelError) {}
    func requestingCallerLeft(_ caller: BusCaller) async {}
    func setDescriptor(
        _ descriptor: PTChannelDescriptor, of channel: UUID, by caller: BusCaller
    ) async throws(PTChannelError) {}
    func setServiceStatus(
        _ status: PTServiceStatus, of channel: UUID, by caller: BusCaller
    ) async throws(PTChannelError) {}

    func setTransmissionMode(
        _ mode: PTTransmissionMode, of channel: UUID, by caller: BusCaller
    ) async throws(PTChannelError) {
        try note("mode \(mode.busName)")
        await show { $0?.transmissionMode = mode.busName }
    }

    func setActiveRemoteParticipant(
        _ participant: PTParticipant?, of channel: UUID, by caller: BusCaller
    ) async throws(PTChannelError) {}
    func setAccessoryButtonEventsEnabled(
        _ enabled: Bool, of channel: UUID, by caller: BusCaller
    ) async throws(PTChannelError) {}
    func reportPushToTalkMessage(
        _ payload: String, to channel: UUID, by caller: BusCaller
    ) async throws(PTChannelError) {}

    func callsChanged(inhibitors held: [Inhibitor]) async {
        inhibitors.record(held)
        await api?.update(call: held.map { "\($0.who): \($0.why)" }.joined(separator: ", "))
    }
}

/// The program that `swift build` made.
enum Program {
    /// Its path.
    static func path(_ name: String = "pttctl") throws -> String {
        var buffer = [CChar](repeating: 0, count: 4_096)
        let count = readlink("/proc/self/exe", &buffer, buffer.count - 1)
        // The test bundle lies beside it, or is run by a helper of the toolchain: then the argument names the bundle.
        let own = String(decoding: buffer.prefix(max(count, 0)).map { UInt8(truncatingIfNeeded: $0) }, as: UTF8.self)
        for start in [own] + CommandLine.arguments {
            var folder = start[...]
            while let slash = folder.lastIndex(of: "/") {
                folder = folder[..<slash]
                if access(folder + "/" + name, X_OK) == 0 { return folder + "/" + name }
            }
        }
        throw ChildProcess.Failure(description: "\(name) was not built: swift build --build-tests")
    }

    /// Starts it on the fixture's bus.
    static func start(_ fixture: BusFixture, _ arguments: [String]) throws -> ChildProcess {
        try ChildProcess(
            [try path()] + arguments,
            environment: [
                "DBUS_SESSION_BUS_ADDRESS": fixture.bus.address, "DBUS_SYSTEM_BUS_ADDRESS": "unix:path=/nowhere",
            ])
    }

    /// Runs it to its end.
    static func run(_ fixture: BusFixture, _ arguments: String..., input: String? = nil) async throws -> Outcome {
        let process = try start(fixture, arguments)
        if let input { process.say(input) }
        process.closeInput()
        let status = try await process.end()
        return Outcome(status: status, output: process.output, errors: process.errors)
    }
}

/// How a program ended, and what it said.
struct Outcome: Equatable {
    /// Its exit status; nil: it did not end.
    var status: Int32?
    var output = ""
    var errors = ""

    /// What it printed, as the object or array that it has to be.
    func json<T: Decodable>(_ type: T.Type) throws -> T {
        try JSONDecoder().decode(type, from: Data(output.utf8))
    }
}
