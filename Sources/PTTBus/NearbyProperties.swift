// The daemon's properties about channels nearby.
import DBus

/// How somebody gets into a channel nearby.
public enum NearbyAdmission: String, Hashable, Sendable, Codable, CaseIterable {
    /// Whoever is near may join.
    case open
    /// Whoever knows the code may.
    case code
    /// Whom the creator admits may.
    case ask
}

/// A person who waits to be admitted to a channel of this machine, as in `org.pttd.Nearby1`.
public struct NearbyNewcomerDescription: Hashable, Sendable, Codable {
    /// Names the newcomer in requests.
    public var id = ""
    /// What the newcomer calls itself. Text of a stranger.
    public var name = ""
    /// The `id` of the channel.
    public var channel = ""
    /// The name of the channel.
    public var channelName = ""

    /// A newcomer.
    public init(id: String, name: String, channel: String, channelName: String) {
        (self.id, self.name, self.channel, self.channelName) = (id, name, channel, channelName)
    }

    /// From what a daemon sent.
    public init(properties: [String: DBusValue]) {
        id = properties["Id"]?.stringValue ?? ""
        name = properties["Name"]?.stringValue ?? ""
        channel = properties["Channel"]?.stringValue ?? ""
        channelName = properties["ChannelName"]?.stringValue ?? ""
    }

    /// The values by property name.
    public var properties: [String: DBusValue] {
        [
            "Id": .string(id), "Name": .string(name), "Channel": .string(channel),
            "ChannelName": .string(channelName),
        ]
    }
}

/// One channel nearby, as in `org.pttd.Nearby1`.
public struct NearbyChannelDescription: Hashable, Sendable, Codable {
    /// Names the channel in requests: its UUID with the beginning of its host's key, for two hosts may claim one UUID.
    public var id = ""
    /// The channel's UUID, RFC 9562, lower case.
    public var uuid = ""
    /// What its creator calls it. Text of a stranger.
    public var name = ""
    /// The creator's name. Untrusted text.
    public var creator = ""
    /// The number of its members.
    public var members = 0
    /// "open": anyone nearby may join; "code": those who know the code; "ask": those whom the creator admits.
    public var admission = "open"
    /// Whether this machine hosts it.
    public var isOwn = false
    /// The code of a channel that this machine hosts, six digits; empty: none, or not known.
    public var code = ""
    /// How it was found: "network", "bluetooth", or both; empty for a channel of this machine that nothing has found.
    public var foundBy: [String] = []
    /// How strongly Bluetooth hears it, in dBm; nil: not by Bluetooth.
    public var signalStrength: Int?

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
        code = properties["Code"]?.stringValue ?? ""
        foundBy = properties["FoundBy"]?.arrayValue?.compactMap(\.stringValue) ?? []
        signalStrength = properties["SignalStrength"]?.integerValue.map { Int(clamping: $0) }
    }

    /// The values by property name.
    public var properties: [String: DBusValue] {
        var properties: [String: DBusValue] = [
            "Id": .string(id), "UUID": .string(uuid), "Name": .string(name), "Creator": .string(creator),
            "Members": .uint32(UInt32(clamping: members)), "Admission": .string(admission), "Own": .boolean(isOwn),
            "FoundBy": .strings(foundBy),
        ]
        if let signalStrength { properties["SignalStrength"] = .int16(Int16(clamping: signalStrength)) }
        if !code.isEmpty { properties["Code"] = .string(code) }
        return properties
    }
}

/// The properties of `org.pttd.Nearby1`.
public struct NearbyProperties: BusProperties, Hashable, Codable {
    /// Whether somebody browses.
    public var browsing = false
    /// What keeps channels from being found or announced, and what to do; empty when nothing does.
    public var problem = ""
    /// What keeps channels from being found or announced by Bluetooth; empty when nothing does, or nobody wants it.
    public var bluetoothProblem = ""
    /// The channels that are known now.
    public var channels: [NearbyChannelDescription] = []
    /// The people who wait to be admitted to channels of this machine, in the order of their requests.
    public var newcomers: [NearbyNewcomerDescription] = []

    /// The interface whose properties these are.
    public static let interface = PTTBus.nearbyInterface

    /// The defaults: nobody browses.
    public init() {}

    /// From what a daemon sent.
    public init(properties: [String: DBusValue]) {
        browsing = properties["Browsing"]?.boolValue ?? false
        problem = properties["Problem"]?.stringValue ?? ""
        bluetoothProblem = properties["BluetoothProblem"]?.stringValue ?? ""
        channels =
            properties["Channels"]?.arrayValue?.compactMap(\.propertiesValue)
            .map { NearbyChannelDescription(properties: $0) } ?? []
        newcomers =
            properties["Waiting"]?.arrayValue?.compactMap(\.propertiesValue)
            .map { NearbyNewcomerDescription(properties: $0) } ?? []
    }

    /// The values by property name.
    public var properties: [String: DBusValue] {
        [
            "Browsing": .boolean(browsing), "Problem": .string(problem),
            "BluetoothProblem": .string(bluetoothProblem),
            "Channels": .array(
                .dictionary(key: .string, value: .variant), channels.map { .properties($0.properties) }),
            "Waiting": .array(
                .dictionary(key: .string, value: .variant), newcomers.map { .properties($0.properties) }),
        ]
    }
}
