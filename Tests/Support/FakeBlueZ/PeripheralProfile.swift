// The buttons that can be simulated: their services, and what they send when pressed and released.

/// A kind of GATT button.
public struct PeripheralProfile: Sendable {
    /// The name in commands and arguments.
    public let name: String
    /// The button's service.
    public let service: String
    /// The characteristic that notifies.
    public let characteristic: String
    /// What it notifies when pressed.
    public let pressed: [UInt8]
    /// What it notifies when released.
    public let released: [UInt8]
    /// The characteristic's BlueZ flags.
    public let flags: [String]
    /// Services in the advertisement.
    public let advertised: [String]
    /// Whether it has the battery service.
    public let hasBattery: Bool
    /// The name to advertise instead of the given one.
    public let advertisedName: String?
    /// A classic device with a serial port instead of characteristics.
    public let isSerial: Bool

    /// A 16-bit service or characteristic number on the Bluetooth base.
    static func short(_ digits: String) -> String { "0000\(digits)-0000-1000-8000-00805f9b34fb" }

    /// A kind of button of a test's own.
    public init(
        _ name: String, _ service: String, _ characteristic: String, pressed: [UInt8] = [1], released: [UInt8] = [0],
        flags: [String] = ["read", "notify"], isAdvertised: Bool = true, hasBattery: Bool = false,
        advertisedName: String? = nil, isSerial: Bool = false
    ) {
        self.name = name
        self.service = service
        self.characteristic = characteristic
        self.pressed = pressed
        self.released = released
        self.flags = flags
        advertised = isAdvertised ? [service] : []
        self.hasBattery = hasBattery
        self.advertisedName = advertisedName
        self.isSerial = isSerial
    }

    /// All of them.
    public static let all = [
        PeripheralProfile("ptt-z", short("ffe0"), short("ffe1"), flags: ["write", "notify"], advertisedName: "PTT-Z"),
        PeripheralProfile(
            "aina-v2", "127face1-cb21-11e5-93d0-0002a5d5c51b", "127fbeef-cb21-11e5-93d0-0002a5d5c51b", hasBattery: true,
            advertisedName: "APTT00001"),
        PeripheralProfile(
            "anytone-elet", short("ff01"), short("ff02"), pressed: Array("ELET1".utf8), released: Array("ELET2".utf8),
            flags: ["notify"], advertisedName: "ELET-PTT60B02A"),
        PeripheralProfile(
            "td-q2l", "89a8591d-bb19-485b-9f59-58492bc33e24", "894c8042-e841-461c-a5c9-5a73d25db08e",
            isAdvertised: false, advertisedName: "TID-MIC-Q2L-0001"),
        PeripheralProfile(
            "microbit", "e95d9882-251d-470a-a062-fa1922dfa9a8", "e95dda90-251d-470a-a062-fa1922dfa9a8",
            advertisedName: "BBC micro:bit [zuvop]"),
        PeripheralProfile(
            "motorola-wm500", short("fd8e"), "0002fd8e-0000-1000-8000-00805f9b34fb", advertisedName: "WM500_0042"),
        PeripheralProfile("itag", short("ffe0"), short("ffe1"), released: [1], advertisedName: "iTAG"),
        // Of no profile.
        PeripheralProfile("unknown", short("fff0"), short("fff1"), isAdvertised: false, advertisedName: "SHIELD-7"),
        PeripheralProfile(
            "aina-v1", short("1101"), short("1101"), pressed: Array("+PTT=P".utf8), released: Array("+PTT=R".utf8),
            flags: [], advertisedName: "APTT12345", isSerial: true),
    ]

    /// The profile of that name.
    public static func named(_ name: String) -> PeripheralProfile? { all.first { $0.name == name } }
}
