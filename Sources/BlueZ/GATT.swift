// GATT services and characteristics of remote devices (org.bluez.GattService1, GattCharacteristic1).
import DBus

/// A service of a remote device.
public struct Service: Hashable, Sendable {
    /// Which one.
    public let identifier: ServiceIdentifier
    /// What it is.
    public internal(set) var uuid: BluetoothUUID?

    init(_ identifier: ServiceIdentifier) { self.identifier = identifier }

    mutating func update(_ reader: inout PropertyReader) {
        if let text: String = reader.take("UUID") {
            uuid = BluetoothUUID(text)
            if uuid == nil { reader.complain("UUID") }
        }
    }
}

/// A characteristic of a remote device.
public struct Characteristic: Hashable, Sendable {
    /// Which one.
    public let identifier: CharacteristicIdentifier
    /// What it is; nil when BlueZ gave none that is a UUID.
    public internal(set) var uuid: BluetoothUUID?
    /// What its service is; nil until that is known.
    public internal(set) var service: BluetoothUUID?
    /// How it is written: with an answer where it gives one (`GattCharacteristic1.Flags`).
    public internal(set) var writeKind = WriteKind.request
    /// Whether it notifies some program on this machine.
    public internal(set) var isNotifying = false

    /// Longest value of an attribute (Bluetooth Core, Vol 3, Part F, 3.2.9).
    public static let largestValue = 512

    init(_ identifier: CharacteristicIdentifier) { self.identifier = identifier }

    mutating func update(_ reader: inout PropertyReader) {
        if let text: String = reader.take("UUID") {
            uuid = BluetoothUUID(text)
            if uuid == nil { reader.complain("UUID") }
        }
        if let flags: [String] = reader.take("Flags") {
            writeKind = flags.contains("write") || !flags.contains("write-without-response") ? .request : .command
        }
        reader.take("Notifying", into: &isNotifying)
    }
}

/// How to write a characteristic.
public enum WriteKind: String, Hashable, Sendable {
    /// With an answer.
    case request
    /// Without an answer.
    case command
}
