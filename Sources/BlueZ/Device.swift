// A remote device (org.bluez.Device1), with its battery (org.bluez.Battery1).
import DBus

/// A remote device as an adapter knows it.
public struct Device: Hashable, Sendable {
    /// Which one.
    public let identifier: DeviceIdentifier
    /// Its address now. After pairing with a private address it differs from the one in `identifier`.
    public internal(set) var address: BluetoothAddress
    /// The kind of address.
    public internal(set) var addressType: BluetoothAddressType?
    /// The name the device gives itself; nil when it has not said.
    public internal(set) var name: String?
    /// The name to show: given by the user, or the device's own, or its address.
    public internal(set) var alias = ""
    /// Whether there is a link.
    public internal(set) var isConnected = false
    /// Whether it was paired.
    public internal(set) var isPaired = false
    /// Whether the pairing's keys are kept. BlueZ before 5.65 does not tell; then the same as `isPaired`.
    public internal(set) var isBonded = false
    /// Whether the user trusts it: it may connect by itself.
    public internal(set) var isTrusted = false
    /// Whether its GATT services are known and usable.
    public internal(set) var areServicesResolved = false
    /// Its services, as advertised or found.
    public internal(set) var services: Set<BluetoothUUID> = []
    /// Manufacturers' data from its advertisement, by company identifier.
    public internal(set) var manufacturerData: [UInt16: [UInt8]] = [:]
    /// The strength of its last advertisement, in dBm; nil when it is not in sight.
    public internal(set) var rssi: Int16?
    /// Charge in per cent; nil when unknown.
    public internal(set) var batteryPercentage: UInt8?

    init(_ identifier: DeviceIdentifier) {
        self.identifier = identifier
        address = identifier.address
    }

    mutating func update(_ reader: inout PropertyReader) {
        if let text: String = reader.take("Address") {
            if let address = BluetoothAddress(text) { self.address = address } else { reader.complain("Address") }
        }
        if let text: String = reader.take("AddressType") { addressType = BluetoothAddressType(rawValue: text) }
        if let text: String = reader.take("Name") { name = text }
        reader.take("Alias", into: &alias)
        reader.take("Connected", into: &isConnected)
        if let paired: Bool = reader.take("Paired") {
            isPaired = paired
            if !reader.has("Bonded") { isBonded = paired }
        }
        reader.take("Bonded", into: &isBonded)
        reader.take("Trusted", into: &isTrusted)
        reader.take("ServicesResolved", into: &areServicesResolved)
        if let texts: [String] = reader.take("UUIDs") { services = Set(texts.compactMap { BluetoothUUID($0) }) }
        if let data: [UInt16: DBusValue] = reader.take("ManufacturerData") {
            manufacturerData = data.compactMapValues(\.bytesValue)
        }
        if let strength: Int16 = reader.take("RSSI") { rssi = strength }
    }

    mutating func invalidate(_ names: [String]) {
        for name in names {
            switch name {
            case "RSSI": rssi = nil
            case "Name": self.name = nil
            case "ManufacturerData": manufacturerData = [:]
            case "UUIDs": services = []
            default: continue
            }
        }
    }
}

/// Why a link ended. BlueZ says so since 5.80 (`Device1.Disconnected`); before that it is `.unknown`.
public enum DisconnectReason: Hashable, Sendable {
    /// BlueZ did not say.
    case unknown
    /// The device was not heard for the supervision time-out.
    case timeout
    /// This machine ended it.
    case local
    /// The device ended it.
    case remote
    /// Authentication failed.
    case authentication
    /// The machine went to sleep.
    case suspend
    /// BlueZ forgot the device, or its adapter went.
    case removed
    /// bluetoothd, or the bus, went.
    case serviceGone
    /// Another reason, as BlueZ names it.
    case other(String)

    init(name: String) {
        switch name {
        case "org.bluez.Reason.Timeout": self = .timeout
        case "org.bluez.Reason.Local": self = .local
        case "org.bluez.Reason.Remote": self = .remote
        case "org.bluez.Reason.Authentication": self = .authentication
        case "org.bluez.Reason.Suspend": self = .suspend
        case "org.bluez.Reason.Unknown": self = .unknown
        default: self = .other(String(name.prefix(128)))
        }
    }
}
