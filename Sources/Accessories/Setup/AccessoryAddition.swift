// What a person asks for who adds an accessory, and the steps that are told.

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

/// Where an addition is.
public enum AdditionStep: String, Hashable, Sendable {
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
