// A local device that a udev rule has assigned to pttd, as the monitor reports it.

/// An input device or serial port that a udev rule has given to pttd.
public struct InputDevice: Hashable, Sendable {
    /// How it tells.
    public enum Kind: Hashable, Sendable {
        /// Keys: an evdev device.
        case keys
        /// Bytes: a serial port.
        case serialPort
        /// One key: a switch at a line of a serial port.
        case serialLine
    }

    /// Its node, "/dev/input/event7". Stable while it is plugged in.
    public var node: String
    /// How it tells.
    public var kind = Kind.keys
    /// The kernel's name for it; of a serial port udev's, or the node's.
    public var name: String
    /// Bus, vendor and product as lsusb(8) shows the latter two.
    public var bus: UInt16 = 0
    /// The vendor id.
    public var vendor: UInt16 = 0
    /// The product id.
    public var product: UInt16 = 0
    /// What distinguishes it from others of its kind, as the kernel has it: the address of a Bluetooth device, a serial number.
    public var unique: String?
    /// The keys that it has, KEY_* and BTN_* of <linux/input-event-codes.h>.
    public var keys: Set<UInt16> = []
    /// udev's properties of it whose names begin with `ID_`.
    public var properties: [String: String] = [:]
    /// What the udev rule says.
    public var rule = InputDeviceRule()

    /// The Bluetooth address that it came by, in capitals; nil for others.
    public var bluetoothAddress: String? {
        guard bus == Self.bluetoothBus, let unique else { return nil }
        let parts = unique.split(separator: ":", omittingEmptySubsequences: false)
        guard parts.count == 6, parts.allSatisfy({ $0.utf8.count == 2 && $0.allSatisfy(\.isHexDigit) }) else {
            return nil
        }
        return unique.uppercased()
    }

    /// BUS_BLUETOOTH of <linux/input.h>.
    static let bluetoothBus: UInt16 = 5
}

/// A node that carries the tag, before it is opened.
struct TaggedDevice: Hashable, Sendable {
    /// udev's properties kept of one device, and how long each may be in bytes.
    static let propertiesMax = 64
    static let propertyLengthMax = 256

    var node: String
    var isSerial: Bool
    var rule: InputDeviceRule
    /// Those whose names begin with `ID_`.
    var properties: [String: String]

    /// "/dev/tty", "/dev/tty1", "/dev/console": reading them would take somebody's screen away.
    private static func isConsole(_ node: String) -> Bool {
        node == "/dev/console" || (node.hasPrefix("/dev/tty") && node.dropFirst(8).allSatisfy(\.isNumber))
    }

    /// From all of udev's properties; nil for consoles, and for nodes of the subsystems that are neither evdev's nor a serial port ("/dev/input/js0").
    init?(node: String, subsystem: String, properties: [String: String]) {
        switch subsystem {
        case "input" where node.hasPrefix("/dev/input/event"): isSerial = false
        case "tty" where node.hasPrefix("/dev/") && !Self.isConsole(node): isSerial = true
        default: return nil
        }
        self.node = node
        rule = InputDeviceRule(properties: properties)
        let kept = properties.lazy.filter {
            $0.key.hasPrefix("ID_") && $0.key.utf8.count <= Self.propertyLengthMax
                && $0.value.utf8.count <= Self.propertyLengthMax
        }
        self.properties = Dictionary(
            uniqueKeysWithValues: kept.sorted { $0.key < $1.key }.prefix(Self.propertiesMax).map { ($0.key, $0.value) })
    }
}
