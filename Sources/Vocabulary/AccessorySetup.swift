// Setting up accessories: what is asked, how far it is, and what is told. `AccessorySetup` does it, org.pttd carries it,
// and `pttctl` shows it.

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

    /// The gestures that a person can ask for.
    public static let choices: [Gesture] = [.hold, .toggle, .hybrid]
}

/// A Bluetooth device that a scan found.
public struct DiscoveredDevice: Hashable, Sendable, Codable {
    /// Its address in the form 00:11:22:33:44:55.
    public var address: String
    /// The name it advertises; empty: none.
    public var name = ""
    /// How strongly it is heard, in dBm; nil: not in sight.
    public var signalStrength: Int?
    /// The id of the profile that probably fits; nil: none does.
    public var profile: String?
    /// That profile's title.
    public var profileTitle: String?
    /// Why it cannot be a talk button; nil: nothing is known against it.
    public var refusal: String?
    /// Whether the system is paired with it.
    public var isPaired = false
    /// Whether there is a connection.
    public var isConnected = false
    /// The id of the accessory that it is already; nil: it is none.
    public var accessory: String?

    /// A device of which nothing is known.
    public init(address: String) { self.address = address }
}

/// What a person says of an accessory to add.
public struct AccessoryAddition: Hashable, Sendable {
    /// The Bluetooth address, in capitals.
    public var address: String
    /// Its name; nil: made from the device's.
    public var name: String?
    /// The id of its profile; nil: it is recognised.
    public var profileID: String?
    /// Replaces the profile's gesture for its talk controls.
    public var gesture: Gesture?
    /// It has to be bonded.
    public var isBondedOnly: Bool
    /// It is paired, or not, whatever the profile says; nil: as the profile says.
    public var pairs: Bool?

    /// An accessory to add.
    public init(
        address: String, name: String? = nil, profileID: String? = nil, gesture: Gesture? = nil,
        isBondedOnly: Bool = false, pairs: Bool? = nil
    ) {
        self.address = address.uppercased()
        self.name = name
        self.profileID = profileID
        self.gesture = gesture
        self.isBondedOnly = isBondedOnly
        self.pairs = pairs
    }
}

/// Where the adding of an accessory is.
public enum AddStep: String, Hashable, Sendable, CaseIterable {
    /// The device is being looked for.
    case searching
    /// It is being connected.
    case connecting
    /// It is being paired.
    case pairing
    /// Its services are being looked at.
    case recognising
    /// Its buttons are being subscribed to.
    case subscribing
}

/// What a person wants to learn.
public struct LearningRequest: Hashable, Sendable {
    /// The Bluetooth address, in capitals; nil: any tagged input device or serial port.
    public var address: String?
    /// The name of the profile; nil: made from the device's.
    public var name: String?
    /// Whether the accessory is added with it.
    public var addsAccessory: Bool

    /// A request.
    public init(address: String?, name: String? = nil, addsAccessory: Bool = true) {
        self.address = address?.uppercased()
        self.name = name
        self.addsAccessory = addsAccessory
    }
}

/// Where a learning session is.
public enum LearningStep: String, Hashable, Sendable, Codable, CaseIterable {
    /// The device is being connected.
    case connecting
    /// The person is to touch nothing.
    case quiet
    /// The person is to press and to hold.
    case press
    /// The person is to let go.
    case release
    /// The person is to press every other key once.
    case others
    /// A profile has been written.
    case done
    /// It came to nothing.
    case failed

    /// Whether the session is over.
    public var isOver: Bool { self == .done || self == .failed }
}

/// Where a learning session is, and what came of it.
public struct LearningReport: Hashable, Sendable, Codable {
    /// Where the session is.
    public var step = LearningStep.connecting
    /// What the person is to do, in words.
    public var prompt = ""
    /// Counts the times that the person was asked to press, from 1; 0 before the first.
    public var round = 0
    /// When done: the profile's id.
    public var profile = ""
    /// When done: the file that was written.
    public var file = ""
    /// When done: the text in it.
    public var text = ""
    /// When done: the id of the accessory that it is now; nil: none was added.
    public var accessory: String?
    /// When failed: why, and what to do; when done without the accessory that was wanted: why not.
    public var problem = ""

    /// A session that has just begun.
    public init() {}
}

/// Why an accessory was not added, changed, removed or learned.
public struct AccessoryError: Error, Hashable, Sendable, CustomStringConvertible {
    /// The kind of it; the raw value is the end of the D-Bus error name.
    public enum Code: String, Hashable, Sendable, CaseIterable {
        /// There is no such device or accessory, it does not answer, or there is no Bluetooth.
        case notFound = "NotFound"
        /// It is not allowed, or the device cannot be a talk button.
        case refused = "Refused"
        /// No profile fits the device.
        case notRecognised = "NotRecognised"
        /// The device refused to be paired.
        case pairingFailed = "PairingFailed"
        /// The device could not be connected, or was lost.
        case notConnected = "NotConnected"
        /// It is an accessory already, or another has the name.
        case alreadyConfigured = "AlreadyConfigured"
        /// Somebody else does it, or too much is under way.
        case busy = "Busy"
        /// It could not be written, and so would not outlast a restart.
        case notSaved = "NotSaved"
        /// What was given means nothing here; `org.freedesktop.DBus.Error.InvalidArgs` on the bus.
        case invalid = "InvalidArgs"
    }

    /// The kind of it.
    public var code: Code
    /// What happened and what to do.
    public var description: String

    /// An error.
    public init(_ code: Code, _ description: String) {
        self.code = code
        self.description = description
    }
}
