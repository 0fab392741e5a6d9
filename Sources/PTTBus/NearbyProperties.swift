// What the daemon says of channels nearby.
import DBus

/// One channel nearby, as `org.pttd.Nearby1` tells it.
public struct NearbyChannelDescription: Hashable, Sendable, Codable {
    /// Names the channel in requests: its UUID with the beginning of its host's key, for two hosts may claim one UUID.
    public var id = ""
    /// The channel's UUID, RFC 9562, lower case.
    public var uuid = ""
    /// What its creator calls it. Text of a stranger.
    public var name = ""
    /// Who created it. Text of a stranger.
    public var creator = ""
    /// The number of its members.
    public var members = 0
    /// "open": whoever is near may join; "code": who knows the code; "ask": whom the creator admits.
    public var admission = "open"
    /// Whether this machine hosts it.
    public var isOwn = false

    /// A channel without a name.
    public init() {}

    /// From what a daemon sent.
    public init(properties: [String: DBusValue]) {
        id = properties["Id"]?.stringValue ?? ""
        uuid = properties["UUID"]?.stringValue ?? ""
        name = properties["Name"]?.stringValue ?? ""
        creator = properties["Creator"]?.stringValue ?? ""
        members = properties["Members"]?.integerValue.map { Int(clamping: $0) } ?? 0
        admission = properties["Admission"]?.stringValue ?? ""
        isOwn = properties["Own"]?.boolValue ?? false
    }

    /// The values by property name.
    public var properties: [String: DBusValue] {
        [
            "Id": .string(id), "UUID": .string(uuid), "Name": .string(name), "Creator": .string(creator),
            "Members": .uint32(UInt32(clamping: members)), "Admission": .string(admission), "Own": .boolean(isOwn),
        ]
    }
}

/// The properties of `org.pttd.Nearby1`.
public struct NearbyProperties: BusProperties, Hashable, Codable {
    /// Whether somebody browses.
    public var browsing = false
    /// What keeps channels from being found or announced, and what to do; empty when nothing does.
    public var problem = ""
    /// The channels that are known now.
    public var channels: [NearbyChannelDescription] = []

    /// The interface whose properties these are.
    public static let interface = PTTBus.nearbyInterface

    /// The defaults: nobody browses.
    public init() {}

    /// From what a daemon sent.
    public init(properties: [String: DBusValue]) {
        browsing = properties["Browsing"]?.boolValue ?? false
        problem = properties["Problem"]?.stringValue ?? ""
        channels =
            properties["Channels"]?.arrayValue?.compactMap(\.propertiesValue)
            .map { NearbyChannelDescription(properties: $0) } ?? []
    }

    /// The values by property name.
    public var properties: [String: DBusValue] {
        [
            "Browsing": .boolean(browsing), "Problem": .string(problem),
            "Channels": .array(
                .dictionary(key: .string, value: .variant), channels.map { .properties($0.properties) }),
        ]
    }
}
