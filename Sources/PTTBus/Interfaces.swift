// The names of org.pttd, shared by the daemon that serves them and the programs that call it.
import DBus
import FoundationEssentials

/// The well-known name, object paths and interfaces of `org.pttd`. The XML files in `Interfaces/` are their source; this type
/// carries them and the names that code needs.
public enum PTTBus {
    /// The version of these programs.
    public static let version = "0.1.0"
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
    /// `org.pttd.Delegate1`, which programs with a channel manager serve.
    public static let delegateInterface = "org.pttd.Delegate1"

    /// The introspection XML of the named interface.
    public static func xml(of interface: String) -> String {
        let bytes: [UInt8]
        switch interface {
        case managerInterface: bytes = PackageResources.org_pttd_Manager1_xml
        case channelInterface: bytes = PackageResources.org_pttd_Channel1_xml
        case accessoryInterface: bytes = PackageResources.org_pttd_Accessory1_xml
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

    /// The object path of the accessory in place `index` of the daemon's list.
    public static func accessoryPath(_ index: Int) -> String {
        managerPath + "/accessory/\(index)"
    }
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
    /// Calls of a program's delegate that wait for earlier ones.
    public static let delegateQueue = 64
    /// How long a program's delegate may take to answer.
    public static let delegateAnswer = Duration.seconds(10)
    /// How long it may take to complete a service update.
    public static let serviceUpdateAnswer = Duration.seconds(30)
}
