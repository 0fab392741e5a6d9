// Why something about an accessory was not done, with what to do about it.
import Accessories

/// Why an accessory was not added, changed, removed or learned.
public struct AccessorySetupError: Error, Hashable, Sendable, CustomStringConvertible {
    /// The kind of it.
    public enum Kind: Hashable, Sendable {
        /// There is no such device or accessory, or no Bluetooth.
        case notFound
        /// It is not allowed, or the device cannot be a talk button.
        case refused
        /// No profile fits the device.
        case notRecognised
        /// The device refused to be paired.
        case pairingFailed
        /// The device could not be connected, or was lost.
        case notConnected
        /// It is an accessory already, or another has the name.
        case alreadyConfigured
        /// Too much is under way.
        case busy
        /// It could not be written, and so would not outlast a restart.
        case notSaved
        /// What was given means nothing.
        case invalid
    }

    /// The kind of it.
    public var kind: Kind
    /// What happened and what to do.
    public var description: String

    init(_ kind: Kind, _ description: String) {
        self.kind = kind
        self.description = description
    }

    static func unknown(_ id: AccessoryID) -> AccessorySetupError {
        AccessorySetupError(.notFound, "there is no accessory '\(id)'; 'pttctl accessory list' shows those there are")
    }
}
