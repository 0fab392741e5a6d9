// An input device, and what its udev rule says about it.

/// An input device that a udev rule has given to pttd.
public struct InputDevice: Hashable, Sendable {
    /// Its node, "/dev/input/event7". Stable while it is plugged in.
    public var node: String
    /// The kernel's name for it.
    public var name: String
    /// Bus, vendor and product as lsusb(8) shows the latter two.
    public var bus: UInt16
    /// The vendor id.
    public var vendor: UInt16
    /// The product id.
    public var product: UInt16
    /// What the udev rule says.
    public var rule: InputDeviceRule

    /// A device as described.
    public init(
        node: String, name: String, bus: UInt16 = 0, vendor: UInt16 = 0, product: UInt16 = 0,
        rule: InputDeviceRule = InputDeviceRule()
    ) {
        self.node = node
        self.name = name
        self.bus = bus
        self.vendor = vendor
        self.product = product
        self.rule = rule
    }
}

/// What an installer writes into a udev rule besides `TAG+="pttd"`.
///
/// `ENV{PTTD_PROFILE}="…"` names the profile; `ENV{PTTD_GRAB}="1"` keeps its keys from everybody else.
public struct InputDeviceRule: Hashable, Sendable {
    /// A value longer than this is no profile's name.
    static let valueLengthMax = 64

    /// The profile; nil when the rule names none.
    public var profileID: String?
    /// Its keys reach nobody else, the desktop for one.
    public var isGrabbed: Bool
    /// What in the rule was not understood, in words.
    public var problems: [String]

    /// A rule that only tags.
    public init(profileID: String? = nil, isGrabbed: Bool = false) {
        self.profileID = profileID
        self.isGrabbed = isGrabbed
        problems = []
    }

    /// Reads the properties that udev has for a device; those of others are not looked at.
    public init(properties: [String: String]) {
        self.init()
        for (key, value) in properties.sorted(by: { $0.key < $1.key }) where key.hasPrefix("PTTD_") {
            switch key {
            case "PTTD_PROFILE":
                if value.isEmpty || value.utf8.count > Self.valueLengthMax {
                    problems.append("PTTD_PROFILE is not a profile's id: write ENV{PTTD_PROFILE}=\"id\"")
                } else {
                    profileID = value
                }
            case "PTTD_GRAB":
                switch value {
                case "1": isGrabbed = true
                case "0", "": isGrabbed = false
                default: problems.append("PTTD_GRAB is \"\(value.prefix(16))\": write 1 or 0")
                }
            default:
                problems.append("\(key.prefix(64)) is not known: PTTD_PROFILE and PTTD_GRAB are")
            }
        }
    }
}
