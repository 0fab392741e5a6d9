// BlueALSA's sound devices (org.bluealsa.PCM1(7)), as headsets.
import DBus
import Reactor

/// The headsets that BlueALSA offers.
///
/// Its objects are listed anew after each change; there are a few of them at most.
actor BlueALSAPCMs {
    nonisolated let loop: EventLoop
    nonisolated var unownedExecutor: UnownedSerialExecutor { loop.asUnownedSerialExecutor() }

    private static let service = "org.bluealsa"
    private static let root: DBusObjectPath = "/org/bluealsa"
    private static let objectManager = "org.freedesktop.DBus.ObjectManager"
    private static let pcm = "org.bluealsa.PCM1"
    private static let timeout = Duration.seconds(5)

    private let bus: DBusConnection
    private let handler: @Sendable ([HeadsetFacts]) -> Void
    private var match: DBusMatch?
    private var watch: DBusNameWatch?
    private var isListing = false
    private var isDirty = false
    private var isThere = false

    /// - Parameter handler: Called on the bus's loop.
    init(on bus: DBusConnection, handler: @escaping @Sendable ([HeadsetFacts]) -> Void) {
        self.bus = bus
        loop = bus.loop
        self.handler = handler
    }

    /// Begins to follow it. It may come later.
    func start() async throws(DBusError) {
        guard match == nil else { return }
        let rule = DBusMatchRule(sender: Self.service, interface: Self.objectManager)
        match = try await bus.addMatch(rule) { [weak self] _ in self?.assumeIsolated { $0.list() } }
        watch = try await bus.watchName(Self.service) { [weak self] owner in
            self?.assumeIsolated { $0.ownerChanged(owner) }
        }
    }

    private func ownerChanged(_ owner: String?) {
        isThere = owner != nil
        if isThere { list() } else { handler([]) }
    }

    private func list() {
        guard isThere else { return }
        guard !isListing else {
            isDirty = true
            return
        }
        isListing = true
        isDirty = false
        Task { await self.read() }
    }

    private func read() async {
        var facts: [HeadsetFacts]?
        do throws(DBusError) {
            let answer = try await bus.call(
                destination: Self.service, path: Self.root, interface: Self.objectManager, method: "GetManagedObjects",
                timeout: Self.timeout, startsService: false)
            facts = Self.facts(answer)
        } catch {
            // It says nothing new; the next signal, or its next life, is asked again.
        }
        isListing = false
        guard isThere else { return }
        if let facts { handler(facts) }
        if isDirty { list() }
    }

    /// The headsets among BlueALSA's objects. What is malformed is left out.
    static func facts(_ arguments: [DBusValue]) -> [HeadsetFacts] {
        var headsets: [String: HeadsetFacts] = [:]
        for (_, interfaces) in arguments.first?.dictionaryValue ?? [:] {
            guard let properties = interfaces.dictionaryValue?[.string(pcm)]?.propertiesValue,
                let device = properties["Device"]?.objectPathValue,
                let address = HeadsetAddress.find(in: device.lastComponent),
                let transport = properties["Transport"]?.stringValue?.uppercased()
            else { continue }
            let isHandsFree = transport == "HFP-AG" || transport == "HSP-AG"
            // A2DP-source: this machine plays, the device listens.
            guard isHandsFree || transport == "A2DP-SOURCE" else { continue }
            var headset = headsets[address] ?? HeadsetFacts(address: address)
            let name = "bluealsa:DEV=\(address),PROFILE=\(isHandsFree ? "sco" : "a2dp")"
            switch (properties["Mode"]?.stringValue, isHandsFree) {
            case ("source", true): headset.microphone = name
            // One link for both directions: speech is heard where it is spoken into.
            case ("sink", true): headset.speaker = name
            case ("sink", false): headset.speaker = headset.speaker ?? name
            default: continue
            }
            headsets[address] = headset
        }
        return headsets.values.sorted { $0.address < $1.address }
    }
}
