// What scanning, adding and testing accessories reports.
import DBus
import Vocabulary

/// The content of `DeviceFound`: the address, and these properties; what is unknown is absent.
extension DiscoveredDevice: BusPropertySet {
    /// Where the accessory is that it is already; nil: it is none.
    public var accessoryPath: DBusObjectPath? { accessory.flatMap { PTTBus.accessoryObject($0) } }

    /// Each property, once.
    public static let table: [BusProperty<Self>] = [
        .init("Name", \.name), .init("Paired", \.isPaired), .init("Connected", \.isConnected),
        .init(
            "RSSI", \.signalStrength, { $0.map { .int16(Int16(clamping: $0)) } },
            { $0.integerValue.map { Int(clamping: $0) } }),
        .init("Profile", optional: \.profile), .init("ProfileTitle", optional: \.profileTitle),
        .init("Refusal", optional: \.refusal),
        .init(
            "Accessory", \.accessory, { $0.flatMap { PTTBus.accessoryObject($0) }.map { .objectPath($0) } },
            { .some($0.objectPathValue.flatMap { PTTBus.accessoryID($0.rawValue) }) }),
    ]

    /// A device without an address.
    public init() { self.init(address: "") }

    /// From the arguments of `DeviceFound`.
    public init(address: String, properties: [String: DBusValue]) {
        self.init(properties: properties)
        self.address = address
    }
}

extension AccessoryAddition {
    /// The options of `AddAccessory`.
    var properties: [String: DBusValue] {
        var result: [String: DBusValue] = [:]
        if let name { result["Name"] = .string(name) }
        if let profileID { result["Profile"] = .string(profileID) }
        if let gesture { result["Gesture"] = .string(gesture.rawValue) }
        if isBondedOnly { result["BondedOnly"] = .boolean(true) }
        if let pairs { result["Pair"] = .boolean(pairs) }
        return result
    }
}

/// A profile that the daemon knows; an entry of `ListProfiles`.
public struct ProfileDescription: BusPropertySet, Hashable, Codable {
    /// Its name in configuration files.
    public var id = ""
    /// Its name for people.
    public var title = ""
    /// "gatt", "spp", "hands-free", "input", "serial".
    public var transport = ""
    /// How sure the facts are: "vendor", "capture", "code", "secondary".
    public var confidence = ""
    /// One author is all there is behind the facts.
    public var isExperimental = false
    /// Why such a device cannot be a talk button; nil: it can.
    public var refusal: String?

    /// A profile.
    public init(
        id: String, title: String, transport: String, confidence: String, isExperimental: Bool = false,
        refusal: String? = nil
    ) {
        self.id = id
        self.title = title
        self.transport = transport
        self.confidence = confidence
        self.isExperimental = isExperimental
        self.refusal = refusal
    }

    /// A profile without an id.
    public init() {}

    /// Each property, once.
    public static let table: [BusProperty<Self>] = [
        .init("Id", \.id), .init("Title", \.title), .init("Transport", \.transport),
        .init("Confidence", \.confidence), .init("Experimental", \.isExperimental),
        .init("Refusal", \.refusal, { .string($0 ?? "") }, { $0.stringValue.map { $0.isEmpty ? nil : $0 } }),
    ]
}
