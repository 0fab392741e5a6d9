// BlueZ's objects by their paths. The only place that knows how those paths are built.
import DBus

/// An adapter, such as `hci0`.
public struct AdapterIdentifier: Hashable, Sendable, Comparable, CustomStringConvertible {
    /// Its object path, such as `/org/bluez/hci0`.
    public let path: DBusObjectPath
    /// Its kernel name, such as `hci0`.
    public var name: String { String(path.lastComponent) }
    /// The kernel's number of it, 0 for `hci0`.
    public var index: UInt16? { UInt16(name.dropFirst(3)) }
    /// Its kernel name.
    public var description: String { name }
    /// The order of the paths.
    public static func < (lhs: Self, rhs: Self) -> Bool { lhs.path < rhs.path }
}

/// A device as one adapter knows it.
public struct DeviceIdentifier: Hashable, Sendable, Comparable, CustomStringConvertible {
    /// Its object path, such as `/org/bluez/hci0/dev_AA_BB_CC_DD_EE_FF`.
    public let path: DBusObjectPath
    /// The adapter that knows it.
    public let adapter: AdapterIdentifier
    /// The address the path was made from. `Device1.Address` may differ later, for devices with private addresses.
    public let address: BluetoothAddress
    /// The address and the adapter.
    public var description: String { "\(address) on \(adapter)" }
    /// The order of the paths.
    public static func < (lhs: Self, rhs: Self) -> Bool { lhs.path < rhs.path }
}

/// A GATT service of a remote device.
public struct ServiceIdentifier: Hashable, Sendable, Comparable, CustomStringConvertible {
    /// Its object path, such as `…/dev_AA_BB_CC_DD_EE_FF/service000a`.
    public let path: DBusObjectPath
    /// The device that has it.
    public let device: DeviceIdentifier
    /// The path.
    public var description: String { path.rawValue }
    /// The order of the paths.
    public static func < (lhs: Self, rhs: Self) -> Bool { lhs.path < rhs.path }
}

/// A GATT characteristic of a remote device.
public struct CharacteristicIdentifier: Hashable, Sendable, Comparable, CustomStringConvertible {
    /// Its object path, such as `…/service000a/char000b`.
    public let path: DBusObjectPath
    /// The service that it belongs to.
    public let service: ServiceIdentifier
    /// The device that has it.
    public var device: DeviceIdentifier { service.device }
    /// The path.
    public var description: String { path.rawValue }
    /// The order of the paths.
    public static func < (lhs: Self, rhs: Self) -> Bool { lhs.path < rhs.path }
}

/// What an object path of `org.bluez` stands for.
enum BlueZObject: Hashable {
    case adapter(AdapterIdentifier)
    case device(DeviceIdentifier)
    case service(ServiceIdentifier)
    case characteristic(CharacteristicIdentifier)
    /// The root, descriptors, media players and whatever else there is.
    case other

    init(_ path: DBusObjectPath) {
        let parts = path.rawValue.split(separator: "/")
        self = .other
        guard parts.count >= 3, parts[0] == "org", parts[1] == "bluez", Self.isNumbered(parts[2], "hci", radix: 10)
        else { return }
        guard let adapterPath = Self.path(parts, 3) else { return }
        let adapter = AdapterIdentifier(path: adapterPath)
        if parts.count == 3 {
            self = .adapter(adapter)
            return
        }
        guard parts[3].hasPrefix("dev_"), let address = BluetoothAddress(parts[3].dropFirst(4), separator: "_"),
            let devicePath = Self.path(parts, 4)
        else { return }
        let device = DeviceIdentifier(path: devicePath, adapter: adapter, address: address)
        if parts.count == 4 {
            self = .device(device)
            return
        }
        guard Self.isNumbered(parts[4], "service", radix: 16), let servicePath = Self.path(parts, 5) else { return }
        let service = ServiceIdentifier(path: servicePath, device: device)
        if parts.count == 5 {
            self = .service(service)
        } else if parts.count == 6, Self.isNumbered(parts[5], "char", radix: 16) {
            self = .characteristic(CharacteristicIdentifier(path: path, service: service))
        }
    }

    private static func isNumbered(_ part: Substring, _ prefix: String, radix: Int) -> Bool {
        part.hasPrefix(prefix) && part.dropFirst(prefix.count).first?.isHexDigit == true
            && UInt16(part.dropFirst(prefix.count), radix: radix) != nil
    }

    private static func path(_ parts: [Substring], _ count: Int) -> DBusObjectPath? {
        try? DBusObjectPath("/" + parts.prefix(count).joined(separator: "/"))
    }
}

extension AdapterIdentifier {
    /// From an object path; nil when it is not an adapter's.
    public init?(path: String) {
        guard let path = try? DBusObjectPath(path), case .adapter(let identifier) = BlueZObject(path) else {
            return nil
        }
        self = identifier
    }

    /// The device with that address as this adapter would name it.
    public func device(_ address: BluetoothAddress) -> DeviceIdentifier? {
        DeviceIdentifier(path: "\(path)/dev_\(address.text(separator: "_"))")
    }
}

extension DeviceIdentifier {
    /// From an object path; nil when it is not a device's.
    public init?(path: String) {
        guard let path = try? DBusObjectPath(path), case .device(let identifier) = BlueZObject(path) else { return nil }
        self = identifier
    }
}

extension CharacteristicIdentifier {
    /// From an object path; nil when it is not a characteristic's.
    public init?(path: String) {
        guard let path = try? DBusObjectPath(path), case .characteristic(let identifier) = BlueZObject(path) else {
            return nil
        }
        self = identifier
    }
}

/// Names on the bus.
enum BlueZName {
    static let service = "org.bluez"
    static let manager: DBusObjectPath = "/org/bluez"
    static let adapter = "org.bluez.Adapter1"
    static let device = "org.bluez.Device1"
    static let gattService = "org.bluez.GattService1"
    static let characteristic = "org.bluez.GattCharacteristic1"
    static let battery = "org.bluez.Battery1"
    static let gattManager = "org.bluez.GattManager1"
    static let advertisingManager = "org.bluez.LEAdvertisingManager1"
    static let advertisement = "org.bluez.LEAdvertisement1"
    static let gattProfile = "org.bluez.GattProfile1"
    static let agentManager = "org.bluez.AgentManager1"
    static let agent = "org.bluez.Agent1"
    static let profileManager = "org.bluez.ProfileManager1"
    static let profile = "org.bluez.Profile1"
    static let network = "org.bluez.Network1"
    static let networkServer = "org.bluez.NetworkServer1"
    static let objectManager = "org.freedesktop.DBus.ObjectManager"
    static let properties = "org.freedesktop.DBus.Properties"
}
