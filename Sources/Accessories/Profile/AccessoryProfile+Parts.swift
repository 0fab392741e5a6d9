// The parts of a profile that are not its controls: provenance, transport, and what is written to the accessory.
import BlueZ

extension AccessoryProfile {
    /// How sure the facts are.
    public enum Confidence: String, CaseIterable, Sendable {
        /// The maker's own code or documentation says so.
        case vendor
        /// Code together with values captured from a real device.
        case capture
        /// Code that drives the device, without a capture.
        case code
        /// Told by a third party.
        case secondary
    }

    /// Whether the device is to be paired.
    public enum Bonding: String, CaseIterable, Sendable {
        /// It loses its keys or refuses: pairing breaks it.
        case never
        /// Only when it refuses to work without.
        case asNeeded = "as-needed"
        /// Before anything else.
        case required
    }

    /// How its presses come in.
    public enum Transport: String, CaseIterable, Sendable {
        /// Bluetooth LE characteristics that notify.
        case gatt
        /// A serial stream over Bluetooth classic (Serial Port Profile, RFCOMM).
        case spp
        /// AT commands of a hands-free profile, where a program hands them on (BlueALSA).
        case handsFree = "hands-free"
        /// Keys of an input device: wired, USB, HID over Bluetooth, AVRCP.
        case input
        /// A serial port of the machine.
        case serial

        /// Whether what comes in is a stream of bytes.
        public var isStream: Bool { self == .spp || self == .handsFree || self == .serial }
    }

    /// Bytes to write to a characteristic.
    public struct CharacteristicWrite: Hashable, Sendable {
        /// The GATT service.
        public var service: BluetoothUUID
        /// The characteristic in it.
        public var characteristic: BluetoothUUID
        /// What is written, at most 512 bytes.
        public var value: [UInt8]
    }

    /// A light that shows what the channel does.
    public struct Light: Hashable, Sendable {
        /// The GATT service.
        public var service: BluetoothUUID
        /// The characteristic that is written.
        public var characteristic: BluetoothUUID
        /// What is written for each state, at most 512 bytes; for a state that is missing nothing is written.
        public var values: [AccessoryFeedback: [UInt8]]
    }

    /// What the link may do while nothing is held, to spare the battery. While a control is held it is always the tightest.
    public struct IdleLink: Hashable, Sendable {
        /// How often the two sides meet, 7.5 ms to 4 s.
        public var interval: Duration
        /// How many connection events the device may skip, 0 to 499.
        public var latency: Int
        /// After how long a silence the link is lost, 100 ms to 32 s.
        public var supervisionTimeout: Duration
    }

    /// Where the battery level comes from.
    public enum Battery: String, CaseIterable, Sendable {
        /// Nowhere.
        case none
        /// The standard battery service (0x180F), which BlueZ reads itself.
        case service
        /// The accessory's own text, behind `DecodeRule.Text.batteryPrefix`.
        case text
    }

    /// A characteristic, a stream or an input device that carries buttons.
    public struct Input: Hashable, Sendable {
        /// Distinguishes the inputs of one profile.
        public var name = "1"
        /// The GATT service; nil of a stream and of keys.
        public var service: BluetoothUUID?
        /// The characteristic in it that notifies; nil of a stream and of keys.
        public var characteristic: BluetoothUUID?
        /// Whether the characteristic can also be read.
        public var isReadable = false
        /// Devices of the family may lack it.
        public var isOptional = false
        /// Whether the state of a held control is told again and again; nil: not known.
        public var repeats: Bool?
        /// What its values mean.
        public var rule: DecodeRule
    }
}

extension AccessoryProfile.Input {
    /// A stream or keys, until it is given a characteristic.
    package init(rule: DecodeRule) { self.init(name: "1", rule: rule) }
}

/// Vendor and product of an input device, as lsusb(8) shows them.
public struct InputDeviceID: Hashable, Sendable, CustomStringConvertible {
    /// The vendor id.
    public var vendor: UInt16
    /// The product id.
    public var product: UInt16

    /// "046d:0a44".
    public var description: String { "\(hexadecimal(vendor, digits: 4)):\(hexadecimal(product, digits: 4))" }
}

extension InputDeviceID {
    /// A device as `description` writes it; nil when it is anything else.
    public init?(_ text: String) {
        let parts = text.split(separator: ":", omittingEmptySubsequences: false)
        guard parts.count == 2, parts.allSatisfy({ $0.utf8.count == 4 && $0.allSatisfy(\.isHexDigit) }),
            let vendor = UInt16(parts[0], radix: 16), let product = UInt16(parts[1], radix: 16)
        else { return nil }
        self.init(vendor: vendor, product: product)
    }
}

/// What the person with the button is shown by its light.
public enum AccessoryFeedback: String, CaseIterable, Hashable, Sendable {
    /// Nobody speaks.
    case idle
    /// This device transmits.
    case transmitting
    /// Somebody else speaks.
    case receiving
    /// What was asked for was refused; shown for a moment.
    case refused
}

/// A number in hexadecimal, filled with zeros to so many digits.
func hexadecimal(_ value: some BinaryInteger, digits: Int) -> String {
    let text = String(value, radix: 16)
    return String(repeating: "0", count: max(0, digits - text.count)) + text
}
