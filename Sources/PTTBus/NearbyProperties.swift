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
public struct NearbyNewcomerDescription: BusPropertySet, Hashable, Sendable, Codable {
    /// Names the newcomer in requests.
    public var id = ""
    /// What the newcomer calls itself. Text of a stranger.
    public var name = ""
    /// The `id` of the channel.
    public var channel = ""
    /// The name of the channel.
    public var channelName = ""

    /// Nobody.
    public init() {}

    /// A newcomer.
    public init(id: String, name: String, channel: String, channelName: String) {
        (self.id, self.name, self.channel, self.channelName) = (id, name, channel, channelName)
    }

    /// Each property, once.
    public static let table: [BusProperty<Self>] = [
        .init("Id", \.id), .init("Name", \.name), .init("Channel", \.channel), .init("ChannelName", \.channelName),
    ]
}

/// One channel nearby, as in `org.pttd.Nearby1`.
public struct NearbyChannelDescription: BusPropertySet, Hashable, Sendable, Codable {
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

    /// Each property, once.
    public static let table: [BusProperty<Self>] = [
        .init("Id", \.id), .init("UUID", \.uuid), .init("Name", \.name), .init("Creator", \.creator),
        .init(
            "Members", \.members, { .uint32(UInt32(clamping: $0)) }, { $0.integerValue.map { Int(clamping: $0) } }),
        .init("Admission", \.admission), .init("Own", \.isOwn),
        .init("Code", \.code, { $0.isEmpty ? nil : .string($0) }, { $0.stringValue }),
        .init("FoundBy", \.foundBy),
        .init(
            "SignalStrength", \.signalStrength, { $0.map { .int16(Int16(clamping: $0)) } },
            { $0.integerValue.map { Int(clamping: $0) } }),
    ]
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

    /// Each property, once.
    public static let table: [BusProperty<Self>] = [
        .init("Browsing", \.browsing), .init("Problem", \.problem), .init("BluetoothProblem", \.bluetoothProblem),
        .init("Channels", list: \.channels), .init("Waiting", list: \.newcomers),
    ]
}
