// Setting up accessories on a real bus: what is asked, what is refused, what is told, and what ends when its caller leaves.
import BusTestSupport
import DBus
import DaemonAPI
import MonotonicTime
import PTTBus
import Reactor
import Testing
import Vocabulary

/// Stands for the modules below: notes what is asked, and refuses when told to.
actor AccessoryStand: AccessoryControls {
    enum Asked: Hashable, Sendable {
        case scan(Bool)
        case add(AccessoryAddition)
        case cancelAdding(String)
        case remove(String)
        case bind(String, String, String)
        case gesture(Gesture?, String)
        case bondedOnly(Bool, String)
        case test(String, Bool)
        case learn(LearningRequest)
        case cancelLearning
        case proceedLearning
    }

    let loop: EventLoop
    nonisolated var unownedExecutor: UnownedSerialExecutor { loop.asUnownedSerialExecutor() }
    nonisolated let asked = Recorder<Asked>()
    private var refusal: AccessoryError?
    /// An addition that takes until it is cancelled.
    private var isSlow = false
    private var adding: CheckedContinuation<Void, Never>?

    init(_ loop: EventLoop) { self.loop = loop }

    func refuse(_ error: AccessoryError?) { refusal = error }
    func takeTime() { isSlow = true }

    private func note(_ asked: Asked) throws(AccessoryError) {
        self.asked.record(asked)
        if let refusal { throw refusal }
    }

    func setScanning(_ isOn: Bool) async throws(AccessoryError) { try note(.scan(isOn)) }

    func discoveredDevices() async -> [DiscoveredDevice] { [Self.device] }

    func add(_ addition: AccessoryAddition) async throws(AccessoryError) -> (id: String, notes: [String]) {
        try note(.add(addition))
        if isSlow {
            await withCheckedContinuation { adding = $0 }
            throw AccessoryError(.notConnected, "cancelled")
        }
        return ("left-seat", ["it is not bonded"])
    }

    func cancelAdding(address: String) async {
        asked.record(.cancelAdding(address))
        adding?.resume()
        adding = nil
    }

    func remove(_ accessory: String) async throws(AccessoryError) { try note(.remove(accessory)) }
    func bind(_ control: String, to action: String, of accessory: String) async throws(AccessoryError) {
        try note(.bind(control, action, accessory))
    }
    func setGesture(_ gesture: Gesture?, of accessory: String) async throws(AccessoryError) {
        try note(.gesture(gesture, accessory))
    }
    func setBondedOnly(_ bondedOnly: Bool, of accessory: String) async throws(AccessoryError) {
        try note(.bondedOnly(bondedOnly, accessory))
    }
    func setTesting(_ accessory: String, _ isOn: Bool) async throws(AccessoryError) { try note(.test(accessory, isOn)) }
    func startLearning(_ request: LearningRequest) async throws(AccessoryError) { try note(.learn(request)) }
    func cancelLearning() async { asked.record(.cancelLearning) }
    func proceedLearning() async { asked.record(.proceedLearning) }
    func profiles() async -> [ProfileDescription] { [Self.profile] }

    static let profile = ProfileDescription(
        id: "itag", title: "iTAG", transport: "gatt", confidence: "code", isExperimental: true,
        refusal: "it tells no release")

    static var device: DiscoveredDevice {
        var device = DiscoveredDevice(address: "C4:00:00:00:00:01")
        device.name = "PTT-Z"
        device.signalStrength = -61
        device.profile = "ptt-z"
        device.profileTitle = "Pryme"
        device.isPaired = true
        device.accessory = "left-seat"
        return device
    }
}

@Suite(.timeLimit(.minutes(1))) struct AccessoryMethodTests {
    private func withStand(
        _ body: (Served, AccessoryStand, DBusObjectPath) async throws -> Void
    ) async throws {
        try await withBus { fixture in
            let served = try await Served(fixture)
            let stand = AccessoryStand(fixture.loop)
            await served.api.serve(accessories: stand)
            let path = try DBusObjectPath(PTTBus.accessoryPath(Served.accessory.id))
            try await body(served, stand, path)
            await served.close()
        }
    }

    @Test func `every method asks for what it says`() async throws {
        try await withStand { served, stand, path in
            let client = served.client
            let addition = AccessoryAddition(
                address: "C4:00:00:00:00:01", name: "left-seat", profileID: "ptt-z", gesture: .hybrid,
                isBondedOnly: true, pairs: true)
            let added = try await client.addAccessory(addition)
            #expect(added.path == "/org/pttd/accessory/left_2dseat" && added.notes == ["it is not bonded"])
            try await client.bind("soft1", to: "command: /bin/echo hello", of: path)
            try await client.setGesture("toggle", of: path)
            try await client.setBondedOnly(true, of: path)
            try await client.removeAccessory(path)
            #expect(
                stand.asked.all == [
                    .add(addition),
                    .bind("soft1", "command: /bin/echo hello", "vest"), .gesture(.toggle, "vest"),
                    .bondedOnly(true, "vest"), .remove("vest"),
                ])
            let profiles = try await client.profiles()
            #expect(profiles == [AccessoryStand.profile])
        }
    }

    @Test(arguments: AccessoryError.Code.allCases)
    func `a refusal has its own error name and words`(_ code: AccessoryError.Code) async throws {
        try await withStand { served, stand, path in
            let client = served.client
            let refusal = AccessoryError(code, "no, because; do this")
            await stand.refuse(refusal)
            func error(_ body: () async throws(DaemonClientError) -> Void) async -> AccessoryError? {
                do throws(DaemonClientError) {
                    try await body()
                    return nil
                } catch {
                    return error.accessoryError
                }
            }
            let address = "C4:00:00:00:00:01"
            #expect(await error { () throws(DaemonClientError) in try await client.startScan() } == refusal)
            #expect(
                await error { () throws(DaemonClientError) in
                    _ = try await client.addAccessory(AccessoryAddition(address: address))
                } == refusal)
            #expect(
                await error { () throws(DaemonClientError) in _ = try await client.startLearning(nil) } == refusal)
            #expect(await error { () throws(DaemonClientError) in try await client.removeAccessory(path) } == refusal)
            #expect(
                await error { () throws(DaemonClientError) in try await client.bind("ptt", to: "none", of: path) }
                    == refusal)
            #expect(
                await error { () throws(DaemonClientError) in try await client.setGesture("hold", of: path) } == refusal
            )
            #expect(
                await error { () throws(DaemonClientError) in try await client.setBondedOnly(false, of: path) }
                    == refusal)
            #expect(await error { () throws(DaemonClientError) in try await client.startTest(of: path) } == refusal)
            // A refused scan, addition or session is none.
            await stand.refuse(nil)
            try await client.startScan()
            _ = try await client.addAccessory(AccessoryAddition(address: address))
            _ = try await client.startLearning(nil)
        }
    }

    @Test func `what means nothing is refused before it is asked`() async throws {
        try await withStand { served, stand, path in
            let bus = try await served.fixture.connect()
            func call(
                _ path: DBusObjectPath, _ interface: String, _ method: String, _ arguments: [DBusValue]
            ) async -> String? {
                await errorOf {
                    _ = try await bus.call(
                        destination: PTTBus.name, path: path, interface: interface, method: method,
                        arguments: arguments)
                }?.name
            }
            let invalid = "org.freedesktop.DBus.Error.InvalidArgs"
            let manager = PTTBus.accessoryManagerInterface
            func add(_ address: String, _ options: [String: DBusValue] = [:]) async -> String? {
                await call("/org/pttd", manager, "AddAccessory", [.string(address), .properties(options)])
            }
            for address in [
                "", "hello", "C4:00:00:00:00", "C4-00-00-00-00-01", "G4:00:00:00:00:01", "C4:00:00:00:00:01 ",
            ] {
                await #expect(add(address) == invalid)
            }
            let address = "C4:00:00:00:00:01"
            await #expect(add(address, ["Gesture": .string("wave")]) == invalid)
            await #expect(add(address, ["Name": .string("")]) == invalid)
            await #expect(add(address, ["Name": .string(String(repeating: "x", count: 65))]) == invalid)
            await #expect(add(address, ["Name": .uint32(1)]) == invalid)
            await #expect(add(address, ["BondedOnly": .string("yes")]) == invalid)
            await #expect(add(address, ["BondedOnly": .boolean(true), "Pair": .boolean(false)]) == invalid)
            await #expect(add(address, ["Colour": .string("red")]) == invalid)
            let accessory = PTTBus.accessoryInterface
            await #expect(call(path, accessory, "SetGesture", [.string("none")]) == invalid)
            await #expect(call(path, accessory, "Bind", [.string(""), .string("none")]) == invalid)
            let long = DBusValue.string(String(repeating: "x", count: 1_025))
            await #expect(call(path, accessory, "Bind", [.string("ptt"), long]) == invalid)
            await #expect(
                call("/org/pttd", manager, "StartLearning", [.string("nonsense"), .properties([:])]) == invalid)
            #expect(stand.asked.all.isEmpty)
            await bus.close()
        }
    }

    @Test func `a scan lasts as long as anybody wants it`() async throws {
        try await withStand { served, stand, _ in
            let events = Recorder<DaemonClient.Event>()
            try await served.client.watch { events.record($0) }
            let other = try await Served.client(served.fixture)
            try await served.client.startScan()
            try await events.wait { $0.contains { if case .accessory(.found) = $0 { true } else { false } } }
            let found = events.all.compactMap { event -> DiscoveredDevice? in
                if case .accessory(.found(let device)) = event { device } else { nil }
            }
            #expect(found == [AccessoryStand.device])
            try await other.startScan()
            try await served.client.stopScan()
            #expect(!stand.asked.all.contains(.scan(false)))
            await #expect(served.client.snapshot.accessoryManager.scanning)
            await other.close()
            try await stand.asked.wait { $0.contains(.scan(false)) }
            #expect(stand.asked.all.last == .scan(false))
            let client = served.client
            #expect(try await eventually { await !client.snapshot.accessoryManager.scanning })
            await served.api.found(AccessoryStand.device)
            await served.api.lost(address: "C4:00:00:00:00:01")
            await served.api.addProgress(address: "C4:00:00:00:00:01", .pairing)
            try await events.wait { $0.contains { if case .accessory(.addProgress) = $0 { true } else { false } } }
            let signals = events.all.compactMap { if case .accessory(let signal) = $0 { signal } else { nil } }
            #expect(
                signals.suffix(2) == [
                    .lost(address: "C4:00:00:00:00:01"), .addProgress(address: "C4:00:00:00:00:01", .pairing),
                ])
        }
    }

    @Test func `there is a limit of scanners`() async throws {
        try await withStand { served, _, _ in
            var clients: [DaemonClient] = []
            for _ in 0..<PTTBusLimits.scanners {
                let client = try await Served.client(served.fixture)
                try await client.startScan()
                clients.append(client)
            }
            let error = await errorOf { try await served.client.startScan() }
            #expect(error?.name == "org.freedesktop.DBus.Error.LimitsExceeded")
            await clients.removeFirst().close()
            let client = served.client
            #expect(try await eventually { await errorOf { try await client.startScan() } == nil })
            for client in clients { await client.close() }
        }
    }

    @Test func `an addition is taken back when its caller leaves`() async throws {
        try await withStand { served, stand, _ in
            await stand.takeTime()
            let other = try await Served.client(served.fixture)
            let call = Task { _ = try? await other.addAccessory(AccessoryAddition(address: "C4:00:00:00:00:01")) }
            try await stand.asked.wait(for: 1)
            let error = await errorOf {
                _ = try await served.client.addAccessory(AccessoryAddition(address: "C4:00:00:00:00:01"))
            }
            #expect(error?.name == "org.pttd.Error.Accessory.Busy")
            await other.close()
            await call.value
            try await stand.asked.wait(for: 2)
            #expect(stand.asked.all.last == .cancelAdding("C4:00:00:00:00:01"))
        }
    }

    @Test func `a test lasts as long as anybody wants it and its controls are told`() async throws {
        try await withStand { served, stand, path in
            let events = Recorder<DaemonClient.Event>()
            try await served.client.watch { events.record($0) }
            let other = try await Served.client(served.fixture)
            try await other.startTest(of: path)
            try await served.client.startTest(of: path)
            await served.api.control("ptt", of: "vest", isDown: true, at: Instant(nanoseconds: 42))
            await served.api.control("ptt", of: "nobody", isDown: true, at: Instant(nanoseconds: 43))
            try await events.wait { $0.contains { if case .accessory = $0 { true } else { false } } }
            let signals = events.all.compactMap { if case .accessory(let signal) = $0 { signal } else { nil } }
            #expect(
                signals == [.control(accessory: path, control: "ptt", isDown: true, time: Instant(nanoseconds: 42))])
            try await served.client.stopTest(of: path)
            #expect(!stand.asked.all.contains(.test("vest", false)))
            await other.close()
            try await stand.asked.wait { $0.contains(.test("vest", false)) }
            #expect(stand.asked.all.count { $0 == .test("vest", false) } == 1)
        }
    }

    @Test func `emergencies are told`() async throws {
        try await withStand { served, _, path in
            let events = Recorder<DaemonClient.Event>()
            try await served.client.watch { events.record($0) }
            await served.api.emergency(true, accessory: "vest", control: "emergency", isAnyActive: true)
            try await events.wait(for: 2)
            await #expect(served.client.snapshot.accessoryManager.emergencyActive)
            await served.api.emergency(false, accessory: "vest", control: "emergency", isAnyActive: false)
            try await events.wait(for: 4)
            await #expect(!served.client.snapshot.accessoryManager.emergencyActive)
            let signals = events.all.compactMap { if case .accessory(let signal) = $0 { signal } else { nil } }
            #expect(
                signals == [
                    .emergency(isActive: true, accessory: path, control: "emergency"),
                    .emergency(isActive: false, accessory: path, control: "emergency"),
                ])
        }
    }

    @Test func `a learning session is its callers and ends with it`() async throws {
        try await withStand { served, stand, _ in
            let other = try await Served.client(served.fixture)
            try await served.client.watch { _ in }
            let session = try await other.startLearning("C4:00:00:00:00:01", name: "crane", adds: false)
            #expect(
                stand.asked.all == [
                    .learn(LearningRequest(address: "C4:00:00:00:00:01", name: "crane", addsAccessory: false))
                ])
            var properties = LearningReport()
            properties.step = .press
            properties.prompt = "Press the button."
            properties.round = 1
            await served.api.update(learning: properties)
            let (client, shown) = (served.client, properties)
            #expect(try await eventually { await client.snapshot.learning[session] == shown })
            let busy = await errorOf { _ = try await client.startLearning(nil) }
            #expect(busy?.name == "org.pttd.Error.Accessory.Busy")
            let denied = await errorOf { try await client.cancelLearning(session) }
            let refused = await errorOf { try await client.proceedLearning(session) }
            #expect(refused?.name == "org.freedesktop.DBus.Error.AccessDenied")
            try await other.proceedLearning(session)
            try await stand.asked.wait { $0.contains(.proceedLearning) }
            #expect(denied?.name == "org.freedesktop.DBus.Error.AccessDenied")
            await other.close()
            try await stand.asked.wait { $0.contains(.cancelLearning) }
            #expect(try await eventually { await client.snapshot.learning.isEmpty })
            // The next one begins.
            let next = try await client.startLearning(nil)
            #expect(next != session)
            try await client.cancelLearning(next)
            #expect(stand.asked.all.count { $0 == .cancelLearning } == 2)
        }
    }

    @Test func `a session that is over is shown until the next one`() async throws {
        try await withStand { served, stand, _ in
            let client = served.client
            try await client.watch { _ in }
            let session = try await client.startLearning(nil)
            var properties = LearningReport()
            properties.step = .done
            properties.profile = "crane"
            properties.file = "/var/lib/pttd/profiles.d/crane.toml"
            properties.text = "id = \"crane\"\n"
            properties.accessory = "C4:00:00:00:00:01"
            await served.api.update(learning: properties)
            let shown = properties
            #expect(try await eventually { await client.snapshot.learning[session] == shown })
            let next = try await client.startLearning(nil)
            #expect(try await eventually { await client.snapshot.learning[session] == nil })
            #expect(try await eventually { await client.snapshot.learning[next] != nil })
            #expect(!stand.asked.all.contains(.cancelLearning))
        }
    }

    @Test func `callers that leave at once leave nothing behind`() async throws {
        try await withStand { served, stand, path in
            for _ in 0..<30 {
                let hasty = try await served.fixture.connect()
                let calls = ["StartScan", "StartLearning", "StartTest"].map { method in
                    Task {
                        _ = try? await hasty.call(
                            destination: PTTBus.name, path: method == "StartTest" ? path : "/org/pttd",
                            interface: method == "StartTest"
                                ? PTTBus.accessoryInterface : PTTBus.accessoryManagerInterface,
                            method: method,
                            arguments: method == "StartLearning" ? [.string(""), .properties([:])] : [])
                    }
                }
                try await Task.sleep(for: .microseconds(Int.random(in: 0...3_000)))
                await hasty.close()
                for call in calls { await call.value }
            }
            let client = served.client
            try await client.watch { _ in }
            #expect(
                try await eventually {
                    let snapshot = await client.snapshot
                    return snapshot.learning.isEmpty && !snapshot.accessoryManager.scanning
                })
            // Nothing is held by anybody: all can be had.
            #expect(try await eventually { await errorOf { _ = try await client.startLearning(nil) } == nil })
            try await client.startScan()
            try await client.stopScan()
            #expect(stand.asked.all.last == .scan(false))
        }
    }

    @Test func `accessories come and go at the paths of their ids`() async throws {
        try await withStand { served, _, path in
            let client = served.client
            try await client.watch { _ in }
            var second = AccessoryProperties()
            second.id = "C4:00:00:00:00:02"
            second.bindings = ["ptt": "transmit", "soft1": "channel-up"]
            second.bonded = true
            await served.api.update(accessories: [second, Served.accessory])
            let secondPath: DBusObjectPath = "/org/pttd/accessory/C4_3a00_3a00_3a00_3a00_3a02"
            let shown = second
            #expect(try await eventually { await client.snapshot.accessories[secondPath] == shown })
            await #expect(client.snapshot.accessories[path] == Served.accessory)
            await served.api.update(accessories: [second])
            #expect(try await eventually { await client.snapshot.accessories[path] == nil })
            let gone = await errorOf { try await client.removeAccessory(path) }
            #expect(gone?.name == "org.pttd.Error.Accessory.NotFound")
        }
    }

    @Test(arguments: ["", "vest", "C4:00:00:00:00:01", "a_b-c.d", "ä 中", "_"])
    func `paths and ids are one and the same`(_ id: String) throws {
        let path = PTTBus.accessoryPath(id)
        _ = try DBusObjectPath(path)
        #expect(PTTBus.accessoryID(path) == id)
    }

    @Test(arguments: [
        "/org/pttd/accessory/", "/org/pttd/accessory/a_", "/org/pttd/accessory/a_zz", "/org/pttd/channel/a",
        "/org/pttd/accessory/_61", "/org/pttd/accessory/_2D",
    ])
    func `other paths are no accessories`(_ path: String) { #expect(PTTBus.accessoryID(path) == nil) }
}
