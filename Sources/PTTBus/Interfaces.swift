// The names of org.pttd, shared by the daemon that serves them and the programs that call it.
import DBus
import FoundationEssentials

/// The well-known name, object paths and interfaces of `org.pttd`. The XML files in `Interfaces/` are their source; this type
/// carries them and the names that code needs.
public enum PTTBus {
    /// The well-known bus name.
    public static let name = "org.pttd"
    /// The daemon's object and the root of its object tree.
    public static let managerPath = "/org/pttd"
    /// `org.pttd.Manager1`.
    public static let managerInterface = "org.pttd.Manager1"
    /// `org.pttd.Channel1`.
    public static let channelInterface = "org.pttd.Channel1"
    /// `org.pttd.Accessory1`.
    public static let accessoryInterface = "org.pttd.Accessory1"
    /// `org.pttd.AccessoryManager1`, of the daemon's object.
    public static let accessoryManagerInterface = "org.pttd.AccessoryManager1"
    /// `org.pttd.Nearby1`, of the daemon's object.
    public static let nearbyInterface = "org.pttd.Nearby1"
    /// `org.pttd.Learning1`.
    public static let learningInterface = "org.pttd.Learning1"
    /// `org.pttd.Delegate1`, which programs with a channel manager serve.
    public static let delegateInterface = "org.pttd.Delegate1"
    /// The signal of `org.pttd.Manager1` to a program whose registration the daemon has ended.
    public static let registrationEnded = "RegistrationEnded"

    /// The introspection XML of the named interface.
    public static func xml(of interface: String) -> String {
        let bytes: [UInt8]
        switch interface {
        case managerInterface: bytes = PackageResources.org_pttd_Manager1_xml
        case channelInterface: bytes = PackageResources.org_pttd_Channel1_xml
        case accessoryInterface: bytes = PackageResources.org_pttd_Accessory1_xml
        case accessoryManagerInterface: bytes = PackageResources.org_pttd_AccessoryManager1_xml
        case nearbyInterface: bytes = PackageResources.org_pttd_Nearby1_xml
        case learningInterface: bytes = PackageResources.org_pttd_Learning1_xml
        case delegateInterface: bytes = PackageResources.org_pttd_Delegate1_xml
        default: preconditionFailure("no interface \(interface) in org.pttd")
        }
        return String(decoding: bytes, as: UTF8.self)
    }

    /// The declaration of the named interface, read from its XML.
    ///
    /// - Throws: `DBusError.invalid` when the XML does not declare it.
    public static func declaration(of interface: String) throws(DBusError) -> DBusInterface {
        guard let declared = try DBusIntrospection(xml: xml(of: interface)).interface(interface) else {
            throw .invalid("the XML of \(interface) does not declare it")
        }
        return declared
    }

    private static let channelPrefix = managerPath + "/channel/"

    /// The object path of the channel with this UUID, as RFC 9562 writes it: an object path has no dashes.
    public static func channelPath(_ uuid: String) -> String {
        channelPrefix + String(uuid.map { $0 == "-" ? "_" : $0 })
    }

    /// The object path of the channel with this UUID.
    public static func channelPath(_ uuid: UUID) -> String { channelPath(uuid.uuidString.lowercased()) }

    /// The UUID of the channel at this object path; nil when no channel can be there.
    public static func channelUUID(_ path: String) -> UUID? {
        guard path.hasPrefix(channelPrefix) else { return nil }
        return UUID(uuidString: String(path.dropFirst(channelPrefix.count).map { $0 == "_" ? "-" : $0 }))
    }

    private static let accessoryPrefix = managerPath + "/accessory/"

    /// The object path of an accessory: its id, with every byte but letters and digits written as `_` and two hexadecimal digits.
    public static func accessoryPath(_ id: String) -> String {
        // An element of a path is not empty; the bare `_` is no id's otherwise.
        accessoryPrefix + (id.isEmpty ? "_" : id.utf8.map(escaped).joined())
    }

    /// The same as a value of the bus; nil only for an id that is longer than a path may be.
    static func accessoryObject(_ id: String) -> DBusObjectPath? { try? DBusObjectPath(accessoryPath(id)) }

    /// The id of the accessory at this object path; nil when no accessory can be there.
    public static func accessoryID(_ path: String) -> String? {
        guard path.hasPrefix(accessoryPrefix) else { return nil }
        let element = Array(path.utf8.dropFirst(accessoryPrefix.utf8.count))
        guard element != [UInt8(ascii: "_")] else { return "" }
        var bytes: [UInt8] = []
        var rest = element[...]
        while let byte = rest.popFirst() {
            guard byte == UInt8(ascii: "_") else {
                bytes.append(byte)
                continue
            }
            guard let decoded = UInt8(String(decoding: rest.prefix(2), as: UTF8.self), radix: 16), rest.count >= 2
            else { return nil }
            bytes.append(decoded)
            rest = rest.dropFirst(2)
        }
        // One id has one path.
        guard !bytes.isEmpty, let id = String(validating: bytes, as: UTF8.self), accessoryPath(id) == path else {
            return nil
        }
        return id
    }

    private static func escaped(_ byte: UInt8) -> String {
        switch byte {
        case UInt8(ascii: "a")...UInt8(ascii: "z"), UInt8(ascii: "A")...UInt8(ascii: "Z"),
            UInt8(ascii: "0")...UInt8(ascii: "9"):
            return String(UnicodeScalar(byte))
        default:
            let digits = String(byte, radix: 16)
            return digits.utf8.count == 1 ? "_0" + digits : "_" + digits
        }
    }

    /// The object path of the learning session with this number.
    public static func learningPath(_ number: UInt32) -> String { managerPath + "/learning/\(number)" }
}

/// Every bound of `org.pttd`. What is beyond one is refused with `org.freedesktop.DBus.Error.InvalidArgs`, or with
/// `org.freedesktop.DBus.Error.LimitsExceeded` where there is too much of something; nothing grows.
public enum PTTBusLimits {
    /// Longest name of a channel or a participant, in bytes of UTF-8.
    public static let nameBytes = 256
    /// Longest invitation link, in bytes.
    public static let linkBytes = 4_096
    /// Longest `who` of an inhibitor lock, in bytes.
    public static let whoBytes = 128
    /// Longest `why` of an inhibitor lock, in bytes.
    public static let whyBytes = 512
    /// Longest push payload, in bytes of JSON.
    public static let payloadBytes = 4_096
    /// Inhibitor locks of everybody together.
    public static let locks = 256
    /// Inhibitor locks of one caller.
    public static let locksPerCaller = 16
    /// Programs with a channel manager.
    public static let applications = 64
    /// Callers whose leaving the bus is watched because they hold something.
    public static let watchedCallers = 256
    /// Callers that scan.
    public static let scanners = 16
    /// Callers that browse channels nearby.
    public static let browsers = 32
    /// Longest name of a channel nearby, in bytes of UTF-8.
    public static let nearbyNameBytes = 128
    /// Longest `Id` of a channel nearby, or of a newcomer, in bytes.
    public static let nearbyIDBytes = 96
    /// Longest code of a channel nearby, with spaces, in bytes.
    public static let nearbyCodeBytes = 24
    /// How long joining a channel nearby takes at most: its creator may be asked.
    public static let nearbyJoinTime: Duration = .seconds(135)
    /// Accessories that are being added at a time.
    public static let additions = 4
    /// Longest name of an accessory, and of a learned profile, in bytes.
    public static let accessoryNameBytes = 64
    /// Longest action that `Bind` takes, in bytes.
    public static let actionBytes = 1_024
    /// How long `AddAccessory` may take: the search, the connection, the pairing and the subscription.
    public static let addAnswer = Duration.seconds(150)
    /// Joins and changes of channel that lead to the relay: at once and a second, by one caller.
    public static let joins = DBusCallBound.Rate(burst: 16, perSecond: 4)
    /// Those of all callers together.
    public static let joinsOfAll = DBusCallBound.Rate(burst: 32, perSecond: 8)
    /// Begins of one caller that lead to the relay, with the talk key or by request: at once and a second. Further ones wait for their
    /// turn. A relay ends a connection with too many requests, and all callers of this machine share one.
    public static let begins = DBusCallBound.Rate(burst: 10, perSecond: 8)
    /// Those of all callers together.
    public static let beginsOfAll = DBusCallBound.Rate(burst: 16, perSecond: 12)
    /// Calls of any kind. Whoever waits for each answer before the next call stays below it, however fast. The last end of a caller is taken even so.
    public static let calls = DBusCallBound(
        caller: .init(burst: 256, perSecond: 5_000), all: .init(burst: 512, perSecond: 8_000),
        share: .init(burst: 16, perSecond: 2),
        endings: ["StopTransmitting", "RequestStopTransmitting"])
    /// Calls of a program's delegate that wait for earlier ones.
    public static let delegateQueue = 64
    /// How long a program's delegate may take to answer.
    public static let delegateAnswer = Duration.seconds(10)
    /// How long it may take to complete a service update.
    public static let serviceUpdateAnswer = Duration.seconds(30)
}
