// What the rules need to know of a Bluetooth device, and what they can ask for. No D-Bus here.
import FoundationEssentials

/// A device as BlueZ knows it.
struct DeviceFacts: Equatable, Sendable {
    /// BlueZ's object path.
    var id: String
    var address: String
    var name: String?
    /// Services advertised or found.
    var services: [UUID]
    var isPaired: Bool
    var isTrusted: Bool
    var isConnected: Bool
    var servicesResolved: Bool
    /// Percent.
    var battery: Int?
    var characteristics: [CharacteristicFacts]
}

/// A characteristic of a connected device.
struct CharacteristicFacts: Equatable, Sendable {
    /// BlueZ's object path.
    var id: String
    var service: UUID
    var characteristic: UUID
}

/// Whether there is any Bluetooth at all.
enum RadioState: Equatable, Sendable {
    /// bluetoothd is not on the bus.
    case noService
    /// No adapter, or none that is powered.
    case off
    case on
}

/// What the rules ask of BlueZ. Each is answered by one `completed`.
enum BluetoothCommand: Hashable, Sendable {
    case connect(device: String)
    case disconnect(device: String)
    case pair(device: String)
    case trust(device: String)
    case startNotify(characteristic: String)
    case startDiscovery
    case stopDiscovery
    /// Have BlueZ connect known devices with these services by itself (GattProfile1).
    case autoConnect(services: [UUID])
}

/// Why BlueZ did not do it, as far as the rules differ.
enum BluetoothFailure: Error, Hashable, Sendable {
    /// Something of the kind is under way already.
    case inProgress
    /// The controller gave the attempt up, though the device is there ("le-connection-abort-by-local").
    case abortedLocally
    /// Nobody answered: asleep or out of range.
    case timedOut
    /// The adapter is not ready.
    case notReady
    case notConnected
    /// Another program holds the characteristic.
    case notPermitted
    /// It wants pairing, or the keys no longer fit.
    case authentication
    /// The object is gone.
    case doesNotExist
    case notSupported
    /// bluetoothd or the bus went away meanwhile.
    case serviceGone
    /// Anything else, in BlueZ's words.
    case other(String)

    /// From the name and message of a D-Bus error.
    ///
    /// The names are of org.bluez.Device(5) and org.bluez.GattCharacteristic(5); messages are looked at because BlueZ
    /// puts the reason of `Failed` there (org.bluez.Device(5), "le-connection-…", and ATT codes of GATT failures).
    init(errorName name: String, message: String) {
        let text = message.lowercased()
        let detail = message.isEmpty ? name : message
        switch name {
        case "org.bluez.Error.InProgress": self = .inProgress
        case "org.bluez.Error.AlreadyConnected": self = .inProgress
        case "org.bluez.Error.NotReady": self = .notReady
        case "org.bluez.Error.NotConnected": self = .notConnected
        case "org.bluez.Error.NotPermitted": self = .notPermitted
        case "org.bluez.Error.NotAuthorized", "org.bluez.Error.AuthenticationFailed",
            "org.bluez.Error.AuthenticationRejected", "org.bluez.Error.AuthenticationCanceled",
            "org.bluez.Error.AuthenticationTimeout":
            self = .authentication
        case "org.bluez.Error.DoesNotExist", "org.freedesktop.DBus.Error.UnknownObject",
            "org.freedesktop.DBus.Error.UnknownMethod", "org.freedesktop.DBus.Error.UnknownInterface":
            self = .doesNotExist
        case "org.bluez.Error.NotSupported": self = .notSupported
        case "org.freedesktop.DBus.Error.NoReply", "org.freedesktop.DBus.Error.Timeout",
            "org.freedesktop.DBus.Error.TimedOut":
            self = .timedOut
        case "org.freedesktop.DBus.Error.ServiceUnknown", "org.freedesktop.DBus.Error.NameHasNoOwner",
            "org.freedesktop.DBus.Error.Disconnected":
            self = .serviceGone
        default:
            if text.contains("abort-by-local") || text.contains("connection abort") {
                self = .abortedLocally
            } else if text.contains("in progress") || text.contains("already connect") {
                self = .inProgress
            } else if text.contains("timeout") || text.contains("timed out") || text.contains("host is down")
                || text.contains("connection-failed-to-be-established")
            {
                self = .timedOut
            } else if text.contains("not connected") {
                self = .notConnected
            } else if text.contains("authentication") || text.contains("encryption")
                || text.contains("0x05") || text.contains("0x0f")
            {
                self = .authentication
            } else {
                self = .other(String(detail.prefix(200)))
            }
        }
    }
}
