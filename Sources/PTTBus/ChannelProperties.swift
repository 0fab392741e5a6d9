// The properties of a channel's object.
import DBus
import PushToTalkCore

/// The properties of `org.pttd.Channel1`.
public struct ChannelProperties: BusProperties, Hashable, Codable {
    /// The channel's UUID, RFC 9562, lower case.
    public var uuid = ""
    /// The name shown to users.
    public var name = ""
    /// The image as an icon's name; empty when there is none, or a file.
    public var imageName = ""
    /// The image as a PNG or JPEG file; empty when there is none, or an icon's name.
    public var imageData: [UInt8] = []
    /// "ready", "connecting" or "unavailable".
    public var serviceStatus = "connecting"
    /// Why the service is not ready; empty when it is.
    public var serviceStatusDetail = ""
    /// How the relay is reached: "QUIC", "TLS" or "TLS through proxy HOST:PORT"; empty while it is not.
    public var path = ""
    /// Why not by QUIC; empty when it is.
    public var pathReason = ""
    /// "halfDuplex", "fullDuplex" or "listenOnly".
    public var transmissionMode = "halfDuplex"
    /// Whether a transmission is in progress.
    public var transmitting = false
    /// What began it; empty while there is none.
    public var transmitSource = ""
    /// The place in the queue for the floor, from 1, of a begin that waits for it; 0: none waits.
    public var queuePosition: UInt32 = 0
    /// How loud own speech is, in dBFS (-96…0); `inputLevelOff` while nothing is recorded.
    public var inputLevel = Self.inputLevelOff
    /// The other member that is speaking; empty if nobody is. Of several, the one that has been heard for the longest
    /// time.
    public var activeRemoteParticipant = ""
    /// All who are heard, the longest first: several only where several may talk at once.
    public var remoteParticipants: [String] = []
    /// Whether buttons of accessories begin and end transmissions.
    public var accessoryButtonEventsEnabled = true
    /// The bus name of the program that joined: its well-known name, or else its unique one; empty: the configuration, or a user.
    public var owner = ""
    /// Whose the sound is.
    public var media = ChannelMedia.pttd

    // Not in the documents for scripts: the image's bytes.
    private enum CodingKeys: String, CodingKey {
        case uuid, name, imageName, serviceStatus, serviceStatusDetail, path, pathReason, transmissionMode,
            transmitting, transmitSource
        case queuePosition, inputLevel
        case activeRemoteParticipant, remoteParticipants, accessoryButtonEventsEnabled, owner, media
    }

    /// What `inputLevel` is while nothing is recorded: lower than any level.
    public static let inputLevelOff = -200.0

    /// `level` as on the bus: rounded to a tenth of a decibel. Nil, or a value that is not a number, is
    /// `inputLevelOff`.
    public static func inputLevel(_ level: Float?) -> Double {
        guard let level, level.isFinite else { return inputLevelOff }
        return (Double(level) * 10).rounded() / 10
    }

    /// The participants that are heard, the longest first.
    public var speakers: [String] {
        guard remoteParticipants.isEmpty else { return remoteParticipants }
        return activeRemoteParticipant.isEmpty ? [] : [activeRemoteParticipant]
    }

    /// The interface whose properties these are.
    public static let interface = PTTBus.channelInterface

    /// The defaults: a channel without a name, connecting.
    public init() {}

    /// The image; nil when there is none.
    public var image: PTImage? {
        get { imageName.isEmpty ? PTImage(data: imageData) : PTImage(named: imageName) }
        set {
            (imageName, imageData) = ("", [])
            switch newValue?.content {
            case .themedIcon(let name): imageName = name
            case .png(let bytes), .jpeg(let bytes): imageData = bytes
            case nil: break
            }
        }
    }

    /// Each property, once.
    public static let table: [BusProperty<Self>] = [
        .init("UUID", \.uuid), .init("Name", \.name), .init("ImageName", \.imageName),
        .init("ImageData", \.imageData), .init("ServiceStatus", \.serviceStatus),
        .init("ServiceStatusDetail", \.serviceStatusDetail), .init("Path", \.path),
        .init("PathReason", \.pathReason), .init("TransmissionMode", \.transmissionMode),
        .init("Transmitting", \.transmitting), .init("TransmitSource", \.transmitSource),
        .init("QueuePosition", \.queuePosition),
        .init("InputLevel", \.inputLevel, { .double($0) }, { $0.get(Double.self).flatMap { $0.isFinite ? $0 : nil } }),
        .init("ActiveRemoteParticipant", \.activeRemoteParticipant),
        .init("RemoteParticipants", \.remoteParticipants),
        .init("AccessoryButtonEventsEnabled", \.accessoryButtonEventsEnabled), .init("Owner", \.owner),
        .init("Media", word: \.media),
    ]
}
