// Finds the device that a command line names, by its address or by its advertised name.
import MonotonicTime
import PTTBus
import Terminal
import Vocabulary

/// Looks for one device by its name. Pure.
struct DeviceFinder {
    /// How long it is looked for.
    static let timeout = Duration.seconds(60)
    /// How long others of the same name are waited for after the first.
    static let others = Duration.seconds(1)

    let name: String
    private var found: [String: DiscoveredDevice] = [:]
    private var firstInSight: Instant?

    init(_ name: String) { self.name = name }

    mutating func handle(_ device: DiscoveredDevice, at now: Instant) {
        guard device.name.lowercased() == name.lowercased() else { return }
        found[device.address] = device
        if device.signalStrength != nil, firstInSight == nil { firstInSight = now }
    }

    /// The device, as soon as it has been the only one of its name in range for a moment; nil before that.
    func decision(at now: Instant) throws(Failure) -> DiscoveredDevice? {
        guard let firstInSight, now - firstInSight >= Self.others else { return nil }
        return try only(found.values.filter { $0.signalStrength != nil })
    }

    /// The device when time is up: one that is known, though not in sight, will do.
    func lastDecision() throws(Failure) -> DiscoveredDevice {
        let inSight = found.values.filter { $0.signalStrength != nil }
        if let device = try only(inSight.isEmpty ? Array(found.values) : inSight) { return device }
        throw Failure(
            "no device called '\(name.plain(limit: 64))' was in range within \(Self.timeout.components.seconds) s; try again and press "
                + "its button meanwhile, or list the devices in range: pttctl accessory scan")
    }

    private func only(_ all: [DiscoveredDevice]) throws(Failure) -> DiscoveredDevice? {
        // Those that are accessories already are not looked for while there is another.
        let strangers = all.filter { $0.accessory == nil }
        let devices = strangers.isEmpty ? all : strangers
        guard devices.count > 1 else { return devices.first }
        let addresses = devices.sorted { ($0.signalStrength ?? -200) > ($1.signalStrength ?? -200) }.map {
            "\($0.address.plain(limit: 32)) (\($0.signalStrength.map { "\($0) dBm" } ?? "not in range"))"
        }
        throw Failure(
            "several devices are called '\(name.plain(limit: 64))'; give the address of one: "
                + addresses.joined(separator: ", "))
    }

    /// The address that `text` is, or that of the device with this name, looked for by a scan.
    static func address(_ text: String, _ daemon: DaemonClient, tell: (String) -> Void) async throws -> String {
        guard !text.isBluetoothAddress else { return text.uppercased() }
        guard !text.resemblesBluetoothAddress else {
            throw Failure(
                "'\(text.plain(limit: 64))' is not a Bluetooth address; write six pairs of 0-9 and A-F: 00:11:22:33:44:55"
            )
        }
        let live = try await LiveFeed.start(daemon, seconds: Double(timeout.components.seconds))
        defer { live.stop() }
        try await daemon.startScan()
        tell("looking for '\(text.plain(limit: 64))': \(AccessoryScan.advice)")
        var finder = DeviceFinder(text)
        var decided: DiscoveredDevice?
        loop: for await item in live.news {
            switch item {
            case .event(.accessory(.found(let device)), let time): finder.handle(device, at: time)
            case .event(.running(false), _): throw Failure.daemonLeft
            case .event: break
            case .tick:
                decided = try finder.decision(at: .now)
                if decided != nil { break loop }
            case .interrupted: throw Failure("interrupted; nothing was changed")
            case .timeUp: break loop
            }
        }
        let device = try decided ?? finder.lastDecision()
        try? await daemon.stopScan()
        tell("found \(device.nameText) at \(device.address.plain(limit: 32))")
        return device.address
    }
}
