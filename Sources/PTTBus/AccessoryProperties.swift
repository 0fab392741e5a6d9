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
    /// What its microphone and speaker are doing, in words; empty when it has none.
    public var sound = ""
    /// Whether its talk control is held.
    public var held = false
    /// What keeps it from working and what to do; empty when nothing does.
    public var problem = ""

    /// The interface whose properties these are.
    public static let interface = PTTBus.accessoryInterface

    /// The defaults: an accessory that has not been seen.
    public init() {}

    /// Each property, once.
    public static let table: [BusProperty<Self>] = [
        .init("Id", \.id), .init("Name", \.name), .init("Address", \.address), .init("Transport", \.transport),
        .init("Profile", \.profile), .init("ProfileTitle", \.profileTitle), .init("Origin", \.origin),
        .init("Connected", \.connected), .init("Ready", \.ready), .init("Bonded", \.bonded),
        .init("BondedOnly", \.bondedOnly), .init("Gesture", \.gesture), .init("Bindings", \.bindings),
        .init(
            "Battery", \.battery, { .int32(Int32($0 ?? -1)) },
            { $0.integerValue.map { (0...100).contains($0) ? Int($0) : nil } }),
        .init("Sound", \.sound), .init("Held", \.held), .init("Problem", \.problem),
    ]
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

    /// Each property, once.
    public static let table: [BusProperty<Self>] = [
        .init("Scanning", \.scanning), .init("EmergencyActive", \.emergencyActive),
    ]
}

/// The properties of `org.pttd.Learning1`.
extension LearningReport: BusProperties {
    /// The interface whose properties these are.
    public static let interface = PTTBus.learningInterface

    /// Where the accessory is that was added; nil: none was.
    public var accessoryPath: DBusObjectPath? {
        accessory.flatMap { PTTBus.accessoryObject($0) }
    }

    /// Each property, once.
    public static let table: [BusProperty<Self>] = [
        .init("Step", word: \.step), .init("Prompt", \.prompt),
        .init("Round", \.round, { .uint32(UInt32(clamping: $0)) }, { $0.integerValue.map { Int($0) } }),
        .init("Profile", \.profile), .init("File", \.file), .init("Text", \.text),
        .init(
            "Accessory", \.accessory, { .objectPath($0.flatMap { PTTBus.accessoryObject($0) } ?? "/") },
            { .some($0.objectPathValue.flatMap { PTTBus.accessoryID($0.rawValue) }) }),
        .init("Problem", \.problem),
    ]
}
