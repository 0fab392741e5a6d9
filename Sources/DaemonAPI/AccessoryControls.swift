// The interface between the accessory objects on the bus and the rules behind them.
import PTTBus
import Vocabulary

/// The requests of the bus about accessories. `DaemonAPI` checks the form of the arguments, counts callers, and makes
/// one request for all of them. Accessories are identified by the ids of the last `DaemonAPI.update(accessories:)`, or
/// of one a moment before.
public protocol AccessoryControls: Actor {
    /// Starts the scan for the first caller, or stops it after the last one. Report found devices with
    /// `DaemonAPI.found`.
    ///
    /// - Throws: Why there is no scan.
    func setScanning(_ isOn: Bool) async throws(AccessoryError)

    /// What is known of devices now.
    func discoveredDevices() async -> [DiscoveredDevice]

    /// Adds an accessory. Report progress with `DaemonAPI.addProgress`, and the added accessory with
    /// `DaemonAPI.update(accessories:)` before this returns.
    ///
    /// - Returns: Its id, and notes for the installer.
    func add(_ addition: AccessoryAddition) async throws(AccessoryError) -> (id: String, notes: [String])

    /// Whoever adds the device of this address has left the bus: the call above ends, and all of it is taken back.
    func cancelAdding(address: String) async

    /// Forgets an accessory.
    func remove(_ accessory: String) async throws(AccessoryError)

    /// Has a control do something; both are words to check.
    func bind(_ control: String, to action: String, of accessory: String) async throws(AccessoryError)

    /// Has talk controls work by this gesture; nil: by the profile's.
    func setGesture(_ gesture: Gesture?, of accessory: String) async throws(AccessoryError)

    /// Says whether an accessory has to be bonded.
    func setBondedOnly(_ bondedOnly: Bool, of accessory: String) async throws(AccessoryError)

    /// Starts the test of an accessory for the first caller, or stops it after the last one. Report its controls with
    /// `DaemonAPI.control`.
    func setTesting(_ accessory: String, _ isOn: Bool) async throws(AccessoryError)

    /// Starts a learning session. Report its progress with `DaemonAPI.update(learning:)`. There is one session at a
    /// time.
    func startLearning(_ request: LearningRequest) async throws(AccessoryError)

    /// The session ends without a profile, if it is not over yet.
    func cancelLearning() async

    /// The person has pressed every other key, or there is none. Changes nothing unless that is what the session waits for.
    func proceedLearning() async

    /// The profiles that are known, by id.
    func profiles() async -> [ProfileDescription]
}
