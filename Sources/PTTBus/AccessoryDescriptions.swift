// What scanning, adding and testing accessories reports.
import DBus
import Vocabulary

extension DiscoveredDevice {
    /// Where the accessory is that it is already; nil: it is none.
    public var accessoryPath: DBusObjectPath? {
        accessory.flatMap { try? DBusObjectPath(PTTBus.accessoryPath($0)) }
    }

    /// From the arguments of `DeviceFound`.
    public init(address: String, properties: [String: DBusValue]) {
        self.init(address: address)
        name = properties["Name"]?.stringValue ?? ""
        signalStrength = properties["RSSI"]?.integerValue.map { Int($0) }
        profile = properties["Profile"]?.stringValue
        profileTitle = properties["ProfileTitle"]?.stringValue
        refusal = properties["Refusal"]?.stringValue
        isPaired = properties["Paired"]?.boolValue ?? false
        isConnected = properties["Connected"]?.boolValue ?? false
        accessory = properties["Accessory"]?.objectPathValue.flatMap { PTTBus.accessoryID($0.rawValue) }
    }

    /// As the second argument of `DeviceFound`; what is unknown is absent.
    public var properties: [String: DBusValue] {
        var result: [String: DBusValue] = [
            "Name": .string(name), "Paired": .boolean(isPaired), "Connected": .boolean(isConnected),
        ]
        if let signalStrength { result["RSSI"] = .int16(Int16(clamping: signalStrength)) }
        if let profile { result["Profile"] = .string(profile) }
        if let profileTitle { result["ProfileTitle"] = .string(profileTitle) }
        if let refusal { result["Refusal"] = .string(refusal) }
        if let accessoryPath { result["Accessory"] = .objectPath(accessoryPath) }
        return result
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
public struct ProfileDescription: Hashable, Sendable, Codable {
    /// Its name in configuration files.
    public var id: String
    /// Its name for people.
    public var title: String
    /// "gatt", "spp", "hands-free", "input", "serial".
    public var transport: String
    /// How sure the facts are: "vendor", "capture", "code", "secondary".
    public var confidence: String
    /// One author is all there is behind the facts.
    public var isExperimental: Bool
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

    /// `a{sv}`, an entry of `ListProfiles`.
    public static let dbusType = DBusType.dictionary(key: .string, value: .variant)

    /// As `a{sv}`.
    public var busValue: DBusValue {
        .properties([
            "Id": .string(id), "Title": .string(title), "Transport": .string(transport),
            "Confidence": .string(confidence), "Experimental": .boolean(isExperimental),
            "Refusal": .string(refusal ?? ""),
        ])
    }

    /// From `a{sv}`; nil for anything else, or without an id.
    public init?(busValue: DBusValue) {
        guard let properties = busValue.propertiesValue, let id = properties["Id"]?.stringValue else { return nil }
        let refusal = properties["Refusal"]?.stringValue ?? ""
        self.init(
            id: id, title: properties["Title"]?.stringValue ?? "",
            transport: properties["Transport"]?.stringValue ?? "",
            confidence: properties["Confidence"]?.stringValue ?? "",
            isExperimental: properties["Experimental"]?.boolValue ?? false, refusal: refusal.isEmpty ? nil : refusal)
    }
}
