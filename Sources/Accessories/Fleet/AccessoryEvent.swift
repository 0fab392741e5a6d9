// What accessories tell the layers above: who wants to talk, and how each accessory is doing.
import MonotonicTime
import Vocabulary

/// An accessory, by its name in the configuration, or by its address when it was taken automatically.
public struct AccessoryID: Hashable, Comparable, Sendable, CustomStringConvertible {
    /// The name or address.
    public var text: String

    /// The accessory called `text`.
    public init(_ text: String) { self.text = text }

    /// The name or address.
    public var description: String { text }

    /// The order of the texts.
    public static func < (lhs: Self, rhs: Self) -> Bool { lhs.text < rhs.text }
}

/// A control of an accessory: one of the sources a transmission may come from.
public struct AccessorySource: Hashable, Sendable, CustomStringConvertible {
    /// Which accessory.
    public var accessory: AccessoryID
    /// Which of its controls.
    public var control: Control

    /// The control of an accessory.
    public init(accessory: AccessoryID, control: Control) {
        self.accessory = accessory
        self.control = control
    }

    /// "accessory/control".
    public var description: String { "\(accessory)/\(control.rawValue)" }
}

/// What the person with the button wants. The sources of all accessories are OR-ed: begins and ends alternate.
public enum AccessoryIntent: Hashable, Sendable {
    /// The first source went down.
    case transmitBegan(AccessorySource, TransmitUrgency)
    /// An emergency control went down while others held already: the transmission goes on, and is urgent from now on.
    case transmitEscalated(AccessorySource)
    /// The last source came up, or was lost.
    case transmitEnded(AccessorySource, AccessoryRelease)
}

/// How urgent a transmission is.
public enum TransmitUrgency: String, Hashable, Sendable {
    /// A talk control.
    case normal
    /// An emergency control: floor control puts it above all others.
    case emergency
}

/// What a control does.
public enum ControlAction: Hashable, Sendable, CustomStringConvertible {
    /// Nothing; its edges are reported only.
    case none
    /// Talk.
    case transmit
    /// Talk with the highest priority, and tell everybody who watches.
    case emergency
    /// The next configured channel.
    case channelUp
    /// The one before.
    case channelDown
    /// Join the next channel nearby.
    case nearbyNext
    /// Play the last message again.
    case replayLast
    /// Run a program, with its arguments; in a user's daemon only.
    case command([String])

    /// As it is written in the configuration; a command is shown by its words.
    public var description: String {
        switch self {
        case .none: "none"
        case .transmit: "transmit"
        case .emergency: "emergency"
        case .channelUp: "channel-up"
        case .channelDown: "channel-down"
        case .nearbyNext: "nearby-next"
        case .replayLast: "replay-last"
        case .command(let words): "command: \(words.joined(separator: " "))"
        }
    }
}

/// Why a source holds no more.
public enum AccessoryRelease: String, Hashable, Sendable {
    /// It was let go, or pressed again where it toggles.
    case released
    /// The link to the accessory is gone, or no longer usable.
    case disconnected
    /// The Bluetooth adapter was switched off or unplugged.
    case adapterOff
    /// The system's Bluetooth service ended.
    case bluetoothStopped
    /// The accessory was removed from the system.
    case removed
    /// The machine is going to sleep.
    case suspended
    /// The machine's input device is gone.
    case unplugged
    /// The daemon is ending.
    case stopped
}

/// How one accessory is doing, as `pttctl accessory list` shows it.
public struct AccessoryStatus: Hashable, Sendable {
    /// Which accessory.
    public var id: AccessoryID
    /// Its name: the device's own where it is known.
    public var name: String
    /// Its Bluetooth address; empty until it has been seen.
    public var address: String
    /// The id of its profile; nil until one matches.
    public var profileID: String?
    /// The title of its profile.
    public var profileTitle: String?
    /// There is a link to it.
    public var isConnected: Bool
    /// How its presses come in; nil until a profile matches.
    public var transport: AccessoryProfile.Transport?
    /// It is bonded: its link is encrypted with keys of its own.
    public var isBonded: Bool
    /// What each of its controls does.
    public var actions: [Control: ControlAction]
    /// Presses arrive: it is connected, recognised and subscribed.
    public var isReady: Bool
    /// Percent; nil while unknown.
    public var battery: Int?
    /// The Bluetooth address of its microphone and speaker; nil: it has none, or nothing is known of any.
    public var soundAddress: String?
    /// Its services say that it has a microphone and a speaker, or its configuration does.
    public var hasSound: Bool
    /// One of its controls takes part in the transmission.
    public var isHeld: Bool
    /// What keeps it from working and what to do; nil when nothing does.
    public var problem: String?
}

/// What the accessories report, in order, on the loop.
public enum AccessoryEvent: Hashable, Sendable {
    /// Somebody begins or ends talking. The time is that of the notification's arrival.
    case intent(AccessoryIntent, at: Instant)
    /// Any control went down or came up, those that do not talk (emergency, channel keys) among them.
    case control(AccessorySource, isDown: Bool, at: Instant)
    /// A control asks for something else than to talk.
    case action(ControlAction, AccessorySource, at: Instant)
    /// An emergency control was held for as long as its guard asks, or is held no more.
    case emergency(AccessorySource, isActive: Bool, at: Instant)
    /// An accessory is new, or its state is different.
    case changed(AccessoryStatus)
    /// An accessory is gone: a person has removed it, or it was taken automatically and is not any more.
    case removed(AccessoryID)
}

/// Which device has an accessory's microphone and speaker.
public enum AccessorySound: Hashable, Sendable {
    /// The accessory itself, if it has any.
    case own
    /// None is used.
    case none
    /// The device with this Bluetooth address: the other half of a speaker microphone, or a headset of its own.
    case device(address: String)
}

/// An accessory of the configuration.
public struct AccessoryConfiguration: Hashable, Sendable {
    /// Its name, unique.
    public var id: AccessoryID
    /// Its Bluetooth address in the form 00:11:22:33:44:55; nil to find it by name.
    public var address: String?
    /// The name it advertises; nil to find it by address alone.
    public var name: NamePattern?
    /// The id of its profile; nil to recognise it.
    public var profileID: String?
    /// Replaces the profile's gesture for its talk controls.
    public var gesture: Gesture?
    /// Replaces what controls do.
    public var bindings: [Control: ControlAction]
    /// It has to be bonded: a button without a bond can be imitated by anybody in reach.
    public var isBondedOnly: Bool
    /// Which device has its microphone and speaker.
    public var sound: AccessorySound

    /// An accessory with an address, a name, or both.
    public init(
        id: AccessoryID, address: String? = nil, name: NamePattern? = nil, profileID: String? = nil,
        gesture: Gesture? = nil, bindings: [Control: ControlAction] = [:], isBondedOnly: Bool = false,
        sound: AccessorySound = .own
    ) {
        self.sound = sound
        self.bindings = bindings
        self.isBondedOnly = isBondedOnly
        self.id = id
        self.address = address?.uppercased()
        self.name = name
        self.profileID = profileID
        self.gesture = gesture
    }

    /// Whether a device is this accessory.
    func matches(address: String, name: String?) -> Bool {
        if let own = self.address, own != address.uppercased() { return false }
        guard let pattern = self.name else { return self.address != nil }
        return name.map(pattern.matches) ?? false
    }
}
