// The names of org.pttd, shared by the daemon that serves them and the programs that call it.
import DBus

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
    /// `org.pttd.Delegate1`.
    public static let delegateInterface = "org.pttd.Delegate1"
    /// `org.pttd.Accessory1`.
    public static let accessoryInterface = "org.pttd.Accessory1"

    /// The introspection XML of the named interface.
    public static func xml(of interface: String) -> String {
        let bytes: [UInt8]
        switch interface {
        case managerInterface: bytes = PackageResources.org_pttd_Manager1_xml
        case channelInterface: bytes = PackageResources.org_pttd_Channel1_xml
        case delegateInterface: bytes = PackageResources.org_pttd_Delegate1_xml
        case accessoryInterface: bytes = PackageResources.org_pttd_Accessory1_xml
        default: preconditionFailure("no interface \(interface) in org.pttd")
        }
        return String(decoding: bytes, as: UTF8.self)
    }

    /// The object path of the channel with this UUID, as RFC 9562 writes it: an object path has no dashes.
    public static func channelPath(_ uuid: String) -> String {
        managerPath + "/channel/" + String(uuid.map { $0 == "-" ? "_" : $0 })
    }

    /// The object path of the accessory in place `index` of the daemon's list.
    public static func accessoryPath(_ index: Int) -> String {
        managerPath + "/accessory/\(index)"
    }
}
