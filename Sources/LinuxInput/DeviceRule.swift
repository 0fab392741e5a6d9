// The values of an installer's udev rule for a device. They are not trusted.

/// What an installer writes into a udev rule besides `TAG+="pttd"`.
///
/// | property | what |
/// |---|---|
/// | `PTTD_PROFILE` | the id of the accessory profile |
/// | `PTTD_ACCESSORY` | the accessory's name, the one in pttd.toml if it is there too |
/// | `PTTD_GRAB` | `1`: its keys reach nobody else |
/// | `PTTD_BAUD` | a serial port's speed, 9600 unless given |
/// | `PTTD_LINE` | the line of a serial port that a bare switch closes: `cts`, `dsr`, `dcd`; `!cts` for one that opens |
public struct InputDeviceRule: Hashable, Sendable {
    /// Maximum length of a name, in bytes.
    static let valueLengthMax = 64
    static let known = ["PTTD_PROFILE", "PTTD_ACCESSORY", "PTTD_GRAB", "PTTD_BAUD", "PTTD_LINE"]

    /// The profile; nil when the rule names none.
    public var profileID: String?
    /// The accessory that it is; nil when the rule names none.
    public var accessoryName: String?
    /// Its keys reach nobody else, the desktop for one.
    public var isGrabbed = false
    /// How fast a serial port talks, in bits per second.
    public var baud = SerialPort.usualBaud
    /// The line of the serial port that carries the switch; nil: the port sends bytes.
    public var line: SerialLine?
    /// What in the rule was not understood, in words.
    public var problems: [String] = []
}

extension InputDeviceRule {
    /// Reads the properties that udev has for a device; those of others are not looked at.
    init(properties: [String: String]) {
        self.init()
        for (key, value) in properties.sorted(by: { $0.key < $1.key }) where key.hasPrefix("PTTD_") {
            read(key, value)
        }
    }

    private mutating func read(_ key: String, _ value: String) {
        // A rule takes a property back by an empty value.
        if value.isEmpty, Self.known.contains(key) { return }
        switch key {
        case "PTTD_PROFILE":
            profileID = name(value)
            if profileID == nil {
                problems.append("PTTD_PROFILE is not a profile's id: write ENV{PTTD_PROFILE}=\"id\"")
            }
        case "PTTD_ACCESSORY":
            accessoryName = name(value)
            if accessoryName == nil {
                problems.append("PTTD_ACCESSORY is not an accessory's name: write ENV{PTTD_ACCESSORY}=\"name\"")
            }
        case "PTTD_GRAB":
            switch value {
            case "1": isGrabbed = true
            case "0": isGrabbed = false
            default: problems.append("PTTD_GRAB is \"\(value.prefix(16))\": write 1 or 0")
            }
        case "PTTD_BAUD":
            if let number = Int(value), SerialPort.speeds[number] != nil {
                baud = number
            } else {
                let list = SerialPort.speeds.keys.sorted().map(String.init).joined(separator: ", ")
                problems.append("PTTD_BAUD is \"\(value.prefix(16))\": write one of \(list)")
            }
        case "PTTD_LINE":
            line = SerialLine(value)
            if line == nil {
                problems.append(
                    "PTTD_LINE is \"\(value.prefix(16))\": write cts, dsr or dcd, or !cts for a switch that opens")
            }
        default:
            problems.append("\(key.prefix(64)) is not known: \(Self.known.joined(separator: ", ")) are")
        }
    }

    private func name(_ value: String) -> String? {
        let isFit = value.utf8.count <= Self.valueLengthMax && value.utf8.allSatisfy { $0 >= 0x20 && $0 != 0x7F }
        return isFit ? value : nil
    }
}

/// A line of a serial port that a switch without electronics closes against one that is always on (RTS, DTR).
public struct SerialLine: Hashable, Sendable {
    /// Which line.
    public enum Name: String, CaseIterable, Sendable {
        /// Clear to send, pin 8 of nine.
        case cts
        /// Data set ready, pin 6.
        case dsr
        /// Carrier detect, pin 1.
        case dcd
    }

    /// The key that a closed switch is: one that desktops leave alone (KEY_F13 of <linux/input-event-codes.h>).
    public static let key: UInt16 = 183

    /// Which line.
    public var name: Name
    /// Pressing opens the switch.
    public var isInverted: Bool

    /// A line.
    public init(_ name: Name, isInverted: Bool = false) {
        self.name = name
        self.isInverted = isInverted
    }

    /// Reads `cts` or `!cts`; nil when it is neither.
    init?(_ text: String) {
        let isInverted = text.hasPrefix("!")
        guard let name = Name(rawValue: String(text.dropFirst(isInverted ? 1 : 0)).lowercased()) else { return nil }
        self.init(name, isInverted: isInverted)
    }
}
