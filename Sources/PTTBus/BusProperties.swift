// What the objects of org.pttd say of themselves, as Swift types: written by the daemon, read by its clients.
import DBus

/// A property set that travels as `a{sv}`.
public protocol BusProperties: Sendable {
    /// The interface whose properties these are.
    static var interface: String { get }
    /// The values by property name.
    var properties: [String: DBusValue] { get }
    /// From what a daemon sent; a missing property keeps its default, so clients outlive additions.
    init(properties: [String: DBusValue])
}

/// The properties of `org.pttd.Manager1`.
public struct ManagerProperties: BusProperties, Hashable {
    /// The version of pttd.
    public var version = ""
    /// The object path of the joined channel; "/" while there is none.
    public var activeChannel: DBusObjectPath = "/"
    /// The names of the configured channels, in their order.
    public var channels: [String] = []
    /// Who has the audio instead of push-to-talk; empty while nobody has.
    public var call = ""

    /// The interface whose properties these are.
    public static let interface = PTTBus.managerInterface

    /// The defaults: no version, no channel.
    public init() {}

    /// From what a daemon sent.
    public init(properties: [String: DBusValue]) {
        version = properties["Version"]?.stringValue ?? ""
        activeChannel = properties["ActiveChannel"]?.objectPathValue ?? "/"
        channels = properties["Channels"]?.arrayValue?.compactMap(\.stringValue) ?? []
        call = properties["Call"]?.stringValue ?? ""
    }

    /// The values by property name.
    public var properties: [String: DBusValue] {
        [
            "Version": .string(version), "ActiveChannel": .objectPath(activeChannel),
            "Channels": .array(.string, channels.map { .string($0) }), "Call": .string(call),
        ]
    }
}

/// The properties of `org.pttd.Accessory1`.
public struct AccessoryProperties: BusProperties, Hashable, Codable {
    /// The name it advertises, or that the configuration gives it.
    public var name = ""
    /// The Bluetooth address; empty until it has been seen.
    public var address = ""
    /// The profile's id; empty until one matches.
    public var profile = ""
    /// The profile's title; empty until one matches.
    public var profileTitle = ""
    /// Whether there is a connection.
    public var connected = false
    /// Whether presses arrive.
    public var ready = false
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
        name = properties["Name"]?.stringValue ?? ""
        address = properties["Address"]?.stringValue ?? ""
        profile = properties["Profile"]?.stringValue ?? ""
        profileTitle = properties["ProfileTitle"]?.stringValue ?? ""
        connected = properties["Connected"]?.boolValue ?? false
        ready = properties["Ready"]?.boolValue ?? false
        battery = properties["Battery"]?.integerValue.flatMap { (0...100).contains($0) ? Int($0) : nil }
        held = properties["Held"]?.boolValue ?? false
        problem = properties["Problem"]?.stringValue ?? ""
    }

    /// The values by property name.
    public var properties: [String: DBusValue] {
        [
            "Name": .string(name), "Address": .string(address), "Profile": .string(profile),
            "ProfileTitle": .string(profileTitle), "Connected": .boolean(connected), "Ready": .boolean(ready),
            "Battery": .int32(Int32(battery ?? -1)), "Held": .boolean(held), "Problem": .string(problem),
        ]
    }
}
