// The properties of accessories, their manager and a learning session.
import DBus
import Vocabulary

/// The properties of `org.pttd.Accessory1`.
public struct AccessoryProperties: BusProperties, Hashable, Codable {
    /// Its name in the configuration, or its address.
    public var id = ""
    /// The name it advertises, or that the configuration gives it.
    public var name = ""
    /// The Bluetooth address; empty until it has been seen, and for wired ones.
    public var address = ""
    /// "gatt", "spp", "hands-free", "input", "serial"; empty until a profile matches.
    public var transport = ""
    /// The profile's id; empty until one matches.
    public var profile = ""
    /// The profile's title; empty until one matches.
    public var profileTitle = ""
    /// Its origin: "configuration", "added" or "automatic".
    public var origin = ""
    /// Whether there is a connection.
    public var connected = false
    /// Whether presses arrive.
    public var ready = false
    /// Whether it is bonded.
    public var bonded = false
    /// Whether it has to be bonded.
    public var bondedOnly = false
    /// "hold", "toggle" or "hybrid": of its talk control; empty until a profile matches.
    public var gesture = ""
    /// What each control does, as `Bind` takes it.
    public var bindings: [String: String] = [:]
    /// Percent; nil while unknown (-1 on the bus).
    public var battery: Int?
    /// Whether its talk control is held.
    public var held = false
    /// What keeps it from working and what to do; empty when nothing does.
    public var problem = ""

    /// The interface whose properties these are.
    public static let interface = PTTBus.accessoryInterface

    /// The defaults: an accessory that has not been seen.
    public init() {}

    /// From what a daemon sent.
    public init(properties: [String: DBusValue]) {
        id = properties["Id"]?.stringValue ?? ""
        name = properties["Name"]?.stringValue ?? ""
        address = properties["Address"]?.stringValue ?? ""
        transport = properties["Transport"]?.stringValue ?? ""
        profile = properties["Profile"]?.stringValue ?? ""
        profileTitle = properties["ProfileTitle"]?.stringValue ?? ""
        origin = properties["Origin"]?.stringValue ?? ""
        connected = properties["Connected"]?.boolValue ?? false
        ready = properties["Ready"]?.boolValue ?? false
        bonded = properties["Bonded"]?.boolValue ?? false
        bondedOnly = properties["BondedOnly"]?.boolValue ?? false
        gesture = properties["Gesture"]?.stringValue ?? ""
        bindings = properties["Bindings"]?.get() ?? [:]
        battery = properties["Battery"]?.integerValue.flatMap { (0...100).contains($0) ? Int($0) : nil }
        held = properties["Held"]?.boolValue ?? false
        problem = properties["Problem"]?.stringValue ?? ""
    }

    /// The values by property name.
    public var properties: [String: DBusValue] {
        [
            "Id": .string(id), "Name": .string(name), "Address": .string(address), "Transport": .string(transport),
            "Profile": .string(profile), "ProfileTitle": .string(profileTitle), "Origin": .string(origin),
            "Connected": .boolean(connected), "Ready": .boolean(ready), "Bonded": .boolean(bonded),
            "BondedOnly": .boolean(bondedOnly), "Gesture": .string(gesture), "Bindings": bindings.dbusValue,
            "Battery": .int32(Int32(battery ?? -1)), "Held": .boolean(held), "Problem": .string(problem),
        ]
    }
}

/// The properties of `org.pttd.AccessoryManager1`.
public struct AccessoryManagerProperties: BusProperties, Hashable, Codable {
    /// Whether somebody scans.
    public var scanning = false
    /// Whether any emergency control is active.
    public var emergencyActive = false

    /// The interface whose properties these are.
    public static let interface = PTTBus.accessoryManagerInterface

    /// The defaults: neither.
    public init() {}

    /// From what a daemon sent.
    public init(properties: [String: DBusValue]) {
        scanning = properties["Scanning"]?.boolValue ?? false
        emergencyActive = properties["EmergencyActive"]?.boolValue ?? false
    }

    /// The values by property name.
    public var properties: [String: DBusValue] {
        ["Scanning": .boolean(scanning), "EmergencyActive": .boolean(emergencyActive)]
    }
}

/// The properties of `org.pttd.Learning1`.
extension LearningReport: BusProperties {
    /// The interface whose properties these are.
    public static let interface = PTTBus.learningInterface

    /// Where the accessory is that was added; nil: none was.
    public var accessoryPath: DBusObjectPath? {
        accessory.flatMap { try? DBusObjectPath(PTTBus.accessoryPath($0)) }
    }

    /// From what a daemon sent.
    public init(properties: [String: DBusValue]) {
        self.init()
        step = properties["Step"]?.stringValue.flatMap { LearningStep(rawValue: $0) } ?? .connecting
        prompt = properties["Prompt"]?.stringValue ?? ""
        round = Int(properties["Round"]?.integerValue ?? 0)
        profile = properties["Profile"]?.stringValue ?? ""
        file = properties["File"]?.stringValue ?? ""
        text = properties["Text"]?.stringValue ?? ""
        accessory = properties["Accessory"]?.objectPathValue.flatMap { PTTBus.accessoryID($0.rawValue) }
        problem = properties["Problem"]?.stringValue ?? ""
    }

    /// The values by property name.
    public var properties: [String: DBusValue] {
        [
            "Step": .string(step.rawValue), "Prompt": .string(prompt), "Round": .uint32(UInt32(clamping: round)),
            "Profile": .string(profile), "File": .string(file), "Text": .string(text),
            "Accessory": .objectPath(accessoryPath ?? "/"), "Problem": .string(problem),
        ]
    }
}
