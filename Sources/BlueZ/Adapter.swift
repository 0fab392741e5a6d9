// An adapter (org.bluez.Adapter1).
import DBus

/// A local Bluetooth controller.
public struct Adapter: Hashable, Sendable {
    /// Which one.
    public let identifier: AdapterIdentifier
    /// Its address.
    public internal(set) var address: BluetoothAddress?
    /// Whether it is switched on.
    public internal(set) var isPowered = false
    /// Whether any program has a discovery running on it.
    public internal(set) var isDiscovering = false
    /// Its friendly name.
    public internal(set) var alias = ""

    init(_ identifier: AdapterIdentifier) { self.identifier = identifier }

    mutating func update(_ reader: inout PropertyReader) {
        if let text: String = reader.take("Address") { address = BluetoothAddress(text) }
        reader.take("Powered", into: &isPowered)
        reader.take("Discovering", into: &isDiscovering)
        reader.take("Alias", into: &alias)
    }
}

/// What a discovery looks for (`Adapter1.SetDiscoveryFilter`).
public struct DiscoveryFilter: Hashable, Sendable {
    /// Report only devices that offer one of these; empty: all.
    public var services: Set<BluetoothUUID> = []
    /// Look for Low Energy devices only.
    public var lowEnergyOnly = true
    /// Report each advertisement, not only changes.
    public var reportsDuplicates = false

    /// All Low Energy devices.
    public init() {}

    var dbusValue: DBusValue {
        var properties: [String: DBusValue] = [
            "Transport": .string(lowEnergyOnly ? "le" : "auto"), "DuplicateData": .boolean(reportsDuplicates),
        ]
        if !services.isEmpty { properties["UUIDs"] = .strings(services.sorted().map(\.rawValue)) }
        return .properties(properties)
    }
}
