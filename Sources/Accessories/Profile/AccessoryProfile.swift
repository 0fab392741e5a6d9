// What is known of one family of accessories: how it is recognised, and what its bytes mean. Data, never code.
import BlueZ

/// A family of push-to-talk accessories, as described by one profile file.
public struct AccessoryProfile: Hashable, Sendable {
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
    }

    /// Bytes to write to a characteristic.
    public struct CharacteristicWrite: Hashable, Sendable {
        /// The GATT service.
        public var service: BluetoothUUID
        /// The characteristic in it.
        public var characteristic: BluetoothUUID
        /// What is written.
        public var value: [UInt8]
    }

    /// A light that shows what the channel does.
    public struct Light: Hashable, Sendable {
        /// The GATT service.
        public var service: BluetoothUUID
        /// The characteristic that is written.
        public var characteristic: BluetoothUUID
        /// What is written for each state; for a state that is missing nothing is written.
        public var values: [AccessoryFeedback: [UInt8]]
    }

    /// What the link may do while nothing is held, to spare the battery. While a control is held it is always the tightest.
    public struct IdleLink: Hashable, Sendable {
        /// How often the two sides meet.
        public var interval: Duration
        /// How many meetings the device may skip.
        public var latency: Int
        /// After how long a silence the link is lost.
        public var supervisionTimeout: Duration
    }

    /// Where the battery level comes from.
    public enum Battery: String, CaseIterable, Sendable {
        /// Nowhere.
        case none
        /// The standard battery service (0x180F), which BlueZ reads itself.
        case service
        /// The accessory's own text, behind `TextRule.batteryPrefix`.
        case text
    }

    /// A characteristic whose notifications carry buttons.
    public struct Input: Hashable, Sendable {
        /// Distinguishes the inputs of one profile.
        public var name: String
        /// The GATT service.
        public var service: BluetoothUUID
        /// The characteristic in it that notifies.
        public var characteristic: BluetoothUUID
        /// Whether the characteristic can also be read.
        public var isReadable: Bool
        /// Devices of the family may lack it.
        public var isOptional: Bool
        /// What its values mean.
        public var rule: DecodeRule
    }

    /// Its name in configuration files, `[a-z0-9-]`.
    public var id: String
    /// Its name for people.
    public var title: String
    /// How sure the facts are.
    public var confidence: Confidence
    /// Where the facts are from.
    public var sources: [String]
    /// One author is all there is behind the facts: shown as experimental.
    public var isExperimental = false
    /// Why a device of this family cannot be used as a talk button unless this profile is named for it, in words for people; nil: it can.
    public var refusal: String?
    /// Only used when it is named: its marks are those of many other devices.
    public var isExplicitOnly = false
    /// How its presses come in.
    public var transport = Transport.gatt
    /// Whether to pair.
    public var bonding: Bonding
    /// Where the battery level comes from.
    public var battery: Battery
    /// Names the device advertises.
    public var names: [NamePattern]
    /// The service's UUID is the maker's own: no other device has it, so that no name is needed.
    public var serviceIdentifies: Bool
    /// Services that a device of the family advertises, for families without inputs.
    public var advertisedServices: [BluetoothUUID] = []
    /// Input devices of the family, by vendor and product.
    public var inputDevices: [InputDeviceID] = []
    /// udev properties that input devices and serial ports of the family have.
    public var udevProperties: [String: String] = [:]
    /// Written, in order, once the inputs are subscribed to.
    public var startCommands: [CharacteristicWrite] = []
    /// Written once a stream is open.
    public var streamStart: [UInt8] = []
    /// Its light.
    public var light: Light?
    /// The link while nothing is held; nil: the usual one.
    public var idleLink: IdleLink?
    /// The characteristics to subscribe to.
    public var inputs: [Input]
    /// What each control does unless the configuration says otherwise.
    public var gestures: [Control: Gesture]
    /// Talk controls that tell no release, or hide it: they can only toggle.
    public var toggleOnly: Set<Control> = []
    /// Windows that keep contact bounce and accidents from becoming presses.
    public var timing: GestureTiming

    /// The services of all inputs, each once.
    public var services: [BluetoothUUID] {
        inputs.map(\.service).reduce(into: []) { if !$0.contains($1) { $0.append($1) } }
    }

    /// Whether a device's name is one of this family's.
    public func matches(name: String?) -> Bool {
        guard let name else { return false }
        return names.contains { $0.matches(name) }
    }
}

/// A key or button of an accessory, by what it is for.
public enum Control: String, CaseIterable, Hashable, Sendable {
    /// The talk button.
    case ptt
    /// A second talk button.
    case ptt2
    /// The emergency button.
    case emergency
    /// The first free key, left on an AINA.
    case soft1
    /// The second free key, right on an AINA.
    case soft2
    /// The call or multi-function key.
    case call
    /// Next channel.
    case channelUp = "channel-up"
    /// Previous channel.
    case channelDown = "channel-down"
    /// Louder.
    case volumeUp = "volume-up"
    /// Quieter.
    case volumeDown = "volume-down"
}

/// Vendor and product of an input device, as lsusb(8) shows them.
public struct InputDeviceID: Hashable, Sendable {
    /// The vendor id.
    public var vendor: UInt16
    /// The product id.
    public var product: UInt16

    /// A device by its numbers.
    public init(vendor: UInt16, product: UInt16) {
        self.vendor = vendor
        self.product = product
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

/// What pressing a control does to a transmission.
public enum Gesture: String, CaseIterable, Hashable, Sendable {
    /// Transmit while it is held.
    case hold
    /// One press begins, the next one ends.
    case toggle
    /// A long press transmits while it is held; a short one begins, and the next press ends.
    case hybrid
    /// Nothing; its edges are reported only.
    case none
}

/// What the values of a characteristic mean.
public enum DecodeRule: Hashable, Sendable {
    /// A byte that has one value while pressed and another when released.
    public struct Values: Hashable, Sendable {
        /// The position of the byte.
        public var byte: Int
        /// The length of the whole value in bytes.
        public var size: Int
        /// Each control with the byte's values for pressed and released.
        public var controls: [ValueControl]
    }

    /// A control in a byte of codes.
    public struct ValueControl: Hashable, Sendable {
        /// Which control.
        public var control: Control
        /// The byte while it is pressed.
        public var pressed: UInt8
        /// The byte when it is not.
        public var released: UInt8
    }

    /// A byte whose bits say which controls are held.
    public struct Bits: Hashable, Sendable {
        /// The position of the byte.
        public var byte: Int
        /// The length of the whole value in bytes.
        public var size: Int
        /// Bits that mean no button, a heartbeat say.
        public var ignored: UInt8
        /// Each control's bit.
        public var controls: [BitControl]
    }

    /// A control in a byte of bits.
    public struct BitControl: Hashable, Sendable {
        /// Which control.
        public var control: Control
        /// Its bit, one of 0x01 … 0x80.
        public var bit: UInt8
    }

    /// A byte that is zero when the control is released.
    public struct NonZero: Hashable, Sendable {
        /// The position of the byte.
        public var byte: Int
        /// The length of the whole value in bytes.
        public var size: Int
        /// Which control.
        public var control: Control
    }

    /// Words without separators, possibly glued together or split between messages.
    public struct Text: Hashable, Sendable {
        /// Each control with its words; letters match in either case.
        public var controls: [TextControl]
        /// The word that one byte of battery level follows.
        public var batteryPrefix: String?
    }

    /// A control in a text.
    public struct TextControl: Hashable, Sendable {
        /// Which control.
        public var control: Control
        /// The word that says pressed.
        public var pressed: String
        /// The word that says released.
        public var released: String
    }

    /// One value per button.
    case value(Values)
    /// A mask of the buttons held.
    case bits(Bits)
    /// Anything but zero is held.
    case nonzero(NonZero)
    /// ASCII words.
    case text(Text)

    /// The controls this rule can report.
    public var controls: [Control] {
        switch self {
        case .value(let rule): rule.controls.map(\.control)
        case .bits(let rule): rule.controls.map(\.control)
        case .nonzero(let rule): [rule.control]
        case .text(let rule): rule.controls.map(\.control)
        }
    }
}

/// A name with `*` for any characters; letters match in either case, as makers vary them.
public struct NamePattern: Hashable, Sendable {
    /// The pattern as written.
    public var text: String

    /// A pattern; `*` stands for any characters, also none.
    public init(_ text: String) { self.text = text }

    /// Whether `name` as a whole fits.
    public func matches(_ name: String) -> Bool {
        let pattern = Array(text.lowercased().unicodeScalars)
        let name = Array(name.lowercased().unicodeScalars)
        // Greedy with one step back to the last star: linear in practice, never exponential.
        var p = 0
        var n = 0
        var star: (pattern: Int, name: Int)?
        while n < name.count {
            if p < pattern.count, pattern[p] == "*" {
                star = (p, n)
                p += 1
            } else if p < pattern.count, pattern[p] == name[n] {
                p += 1
                n += 1
            } else if let last = star {
                star = (last.pattern, last.name + 1)
                p = last.pattern + 1
                n = last.name + 1
            } else {
                return false
            }
        }
        return pattern[p...].allSatisfy { $0 == "*" }
    }
}
