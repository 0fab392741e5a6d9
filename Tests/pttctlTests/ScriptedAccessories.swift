// Accessories whose rules are the test's, behind the real org.pttd.
import BusTestSupport
import DaemonAPI
import MonotonicTime
import PTTBus
import Reactor
import Vocabulary

/// What is done with accessories when it is asked; and that it was.
actor ScriptedAccessories: AccessoryControls {
    nonisolated let loop: EventLoop
    nonisolated var unownedExecutor: UnownedSerialExecutor { loop.asUnownedSerialExecutor() }
    nonisolated let asked = Recorder<String>()
    private let api: DaemonAPI
    private var devices: [DiscoveredDevice] = []
    private var accessories: [AccessoryProperties] = []
    private var refusal: AccessoryError?
    private var notes: [String] = []
    private var known: [ProfileDescription] = []
    private var learning = LearningReport()

    private init(_ api: DaemonAPI, loop: EventLoop) {
        self.api = api
        self.loop = loop
    }

    /// Behind the object of `daemon`.
    static func serve(_ daemon: ScriptedDaemon) async throws -> ScriptedAccessories {
        let scripted = ScriptedAccessories(await daemon.api!, loop: daemon.loop)
        await scripted.begin()
        return scripted
    }

    private func begin() async { await api.serve(accessories: self) }

    static let address = "C4:11:22:33:44:55"

    /// A PTT-Z that works.
    static var button: AccessoryProperties {
        var button = AccessoryProperties()
        button.id = "PTT-Z"
        button.name = "PTT-Z"
        button.address = address
        button.transport = "gatt"
        button.profile = "ptt-z"
        button.profileTitle = "Pryme BT-PTT-Z"
        button.origin = "added"
        (button.connected, button.ready) = (true, true)
        button.gesture = "hold"
        button.bindings = ["ptt": "transmit", "soft1": "none"]
        button.battery = 85
        return button
    }

    /// The same before it is one.
    static var device: DiscoveredDevice {
        var device = DiscoveredDevice(address: address)
        device.name = "PTT-Z"
        device.signalStrength = -52
        device.profile = "ptt-z"
        device.profileTitle = "Pryme BT-PTT-Z"
        return device
    }

    // MARK: The script

    func know(_ devices: [DiscoveredDevice] = [], profiles: [ProfileDescription] = [], notes: [String] = []) {
        (self.devices, known, self.notes) = (devices, profiles, notes)
    }

    func refuse(_ code: AccessoryError.Code, _ words: String) { refusal = AccessoryError(code, words) }

    func show(_ new: [AccessoryProperties]) async {
        accessories = new
        await api.update(accessories: new)
    }

    func found(_ device: DiscoveredDevice) async { await api.found(device) }
    func lost(_ address: String) async { await api.lost(address: address) }

    func control(_ control: String, of id: String = "PTT-Z", isDown: Bool, at time: Instant = .now) async {
        await api.control(control, of: id, isDown: isDown, at: time)
    }

    func learn(_ change: @Sendable (inout LearningReport) -> Void) async {
        change(&learning)
        await api.update(learning: learning)
    }

    // MARK: AccessoryControls

    private func note(_ text: String) throws(AccessoryError) {
        asked.record(text)
        if let refusal { throw refusal }
    }

    private func change(
        _ id: String, _ text: String, _ change: (inout AccessoryProperties) -> Void
    ) async throws(AccessoryError) {
        try note(text)
        guard let index = accessories.firstIndex(where: { $0.id == id }) else {
            throw AccessoryError(.notFound, "there is no \(id)")
        }
        change(&accessories[index])
        await api.update(accessories: accessories)
    }

    func setScanning(_ isOn: Bool) async throws(AccessoryError) { try note("scan \(isOn ? "on" : "off")") }
    func discoveredDevices() async -> [DiscoveredDevice] { devices }

    func add(_ addition: AccessoryAddition) async throws(AccessoryError) -> (id: String, notes: [String]) {
        var words = [addition.address]
        for (key, value) in [
            ("name", addition.name), ("profile", addition.profileID), ("gesture", addition.gesture?.rawValue),
        ] {
            if let value { words.append("\(key)=\(value)") }
        }
        if addition.isBondedOnly { words.append("bonded-only") }
        if let pair = addition.pairs { words.append("pair=\(pair)") }
        try note("add \(words.joined(separator: " "))")
        for step in AddStep.allCases where step != .pairing || addition.pairs == true {
            await api.addProgress(address: addition.address, step)
        }
        await api.addProgress(address: "00:00:00:00:00:01", .pairing)
        var button = Self.button
        if let name = addition.name { (button.id, button.name) = (name, name) }
        button.gesture = addition.gesture?.rawValue ?? "hold"
        await show(accessories + [button])
        return (button.id, notes)
    }

    func cancelAdding(address: String) async { asked.record("cancel \(address)") }

    func remove(_ accessory: String) async throws(AccessoryError) {
        try note("remove \(accessory)")
        await show(accessories.filter { $0.id != accessory })
    }

    func bind(_ control: String, to action: String, of accessory: String) async throws(AccessoryError) {
        try await change(accessory, "bind \(accessory) \(control) \(action)") { $0.bindings[control] = action }
    }

    func setGesture(_ gesture: Gesture?, of accessory: String) async throws(AccessoryError) {
        try await change(accessory, "gesture \(accessory) \(gesture?.rawValue ?? "default")") {
            $0.gesture = gesture?.rawValue ?? "hold"
        }
    }

    func setBondedOnly(_ bondedOnly: Bool, of accessory: String) async throws(AccessoryError) {
        try await change(accessory, "bonded-only \(accessory) \(bondedOnly)") {
            $0.bondedOnly = bondedOnly
            $0.problem = bondedOnly ? "it is not bonded" : ""
        }
    }

    func setTesting(_ accessory: String, _ isOn: Bool) async throws(AccessoryError) {
        try note("test \(accessory) \(isOn ? "on" : "off")")
    }

    func startLearning(_ request: LearningRequest) async throws(AccessoryError) {
        let add = request.addsAccessory ? "" : " profile-only"
        try note("learn \(request.address ?? "-") \(request.name ?? "-")\(add)")
        learning = LearningReport()
    }

    func cancelLearning() async { asked.record("cancel learning") }
    func proceedLearning() async { asked.record("proceed learning") }
    func profiles() async -> [ProfileDescription] { known }
}

/// Runs `body` with a daemon and its accessories on a bus.
func withAccessories(
    _ body: (BusFixture, ScriptedDaemon, ScriptedAccessories) async throws -> Void
) async throws {
    try await withBus { fixture in
        let daemon = try await ScriptedDaemon.start(fixture)
        let accessories = try await ScriptedAccessories.serve(daemon)
        try await body(fixture, daemon, accessories)
        withExtendedLifetime((daemon, accessories)) {}
    }
}
