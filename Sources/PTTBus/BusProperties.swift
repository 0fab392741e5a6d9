// The properties of the objects of org.pttd, as Swift types: the daemon writes them, its clients read them.
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
    /// What uses the audio instead of push-to-talk; empty if nothing does.
    public var call = ""
    /// Why the microphone cannot be used; empty while it can, as far as is known.
    public var microphoneProblem = ""
    /// Why nothing can be heard; empty while it can, as far as is known.
    public var speakerProblem = ""

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
        microphoneProblem = properties["MicrophoneProblem"]?.stringValue ?? ""
        speakerProblem = properties["SpeakerProblem"]?.stringValue ?? ""
    }

    /// The values by property name.
    public var properties: [String: DBusValue] {
        [
            "Version": .string(version), "ActiveChannel": .objectPath(activeChannel),
            "Channels": .array(.string, channels.map { .string($0) }), "Call": .string(call),
            "MicrophoneProblem": .string(microphoneProblem), "SpeakerProblem": .string(speakerProblem),
        ]
    }
}
