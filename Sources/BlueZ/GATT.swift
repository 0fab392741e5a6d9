// GATT services and characteristics of remote devices (org.bluez.GattService1, GattCharacteristic1).
import DBus

/// A service of a remote device.
public struct Service: Hashable, Sendable {
    /// Which one.
    public let identifier: ServiceIdentifier
    /// What it is.
    public internal(set) var uuid: BluetoothUUID?
    /// Whether it is a primary service.
    public internal(set) var isPrimary = true

    init(_ identifier: ServiceIdentifier) { self.identifier = identifier }

    mutating func update(_ reader: inout PropertyReader) {
        if let text: String = reader.take("UUID") {
            uuid = BluetoothUUID(text)
            if uuid == nil { reader.complain("UUID") }
        }
        reader.take("Primary", into: &isPrimary)
    }
}

/// A characteristic of a remote device.
public struct Characteristic: Hashable, Sendable {
    /// What can be done with it (`GattCharacteristic1.Flags`).
    public struct Flags: OptionSet, Hashable, Sendable {
        /// The bits.
        public let rawValue: UInt8
        /// Flags of the given bits.
        public init(rawValue: UInt8) { self.rawValue = rawValue }
        /// It can be read.
        public static let read = Flags(rawValue: 1)
        /// It can be written, with an answer.
        public static let write = Flags(rawValue: 2)
        /// It can be written without an answer.
        public static let writeWithoutResponse = Flags(rawValue: 4)
        /// It notifies.
        public static let notify = Flags(rawValue: 8)
        /// It indicates.
        public static let indicate = Flags(rawValue: 16)
        /// It wants an encrypted or authenticated link.
        public static let needsEncryption = Flags(rawValue: 32)

        init(_ names: [String]) {
            self = []
            for name in names {
                switch name {
                case "read": insert(.read)
                case "write": insert(.write)
                case "write-without-response": insert(.writeWithoutResponse)
                case "notify": insert(.notify)
                case "indicate": insert(.indicate)
                case _ where name.hasPrefix("encrypt-") || name.hasPrefix("secure-"): insert(.needsEncryption)
                default: continue
                }
            }
        }
    }

    /// Which one.
    public let identifier: CharacteristicIdentifier
    /// What it is; nil when BlueZ gave none that is a UUID.
    public internal(set) var uuid: BluetoothUUID?
    /// What its service is; nil until that is known.
    public internal(set) var service: BluetoothUUID?
    /// What can be done with it.
    public internal(set) var flags: Flags = []
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
        if let names: [String] = reader.take("Flags") { flags = Flags(names) }
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
