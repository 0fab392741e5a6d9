// The interface between the accessory objects on the bus and the rules behind them.
import PTTBus

/// What `AddAccessory` asks for. Its arguments have been checked one by one; what they mean together has not.
public struct AddAccessoryRequest: Hashable, Sendable {
    /// The Bluetooth address, in capitals.
    public var address: String
    /// The options of the call.
    public var options: AddAccessoryOptions

    /// A request.
    public init(address: String, options: AddAccessoryOptions = AddAccessoryOptions()) {
        self.address = address
        self.options = options
    }
}

/// What `StartLearning` asks for.
public struct LearningRequest: Hashable, Sendable {
    /// The Bluetooth address, in capitals; nil: any tagged input device or serial port.
    public var address: String?
    /// The name of the profile; nil: made from the device's.
    public var name: String?
    /// Whether the accessory is added with it.
    public var addsAccessory: Bool

    /// A request.
    public init(address: String?, name: String? = nil, addsAccessory: Bool = true) {
        self.address = address
        self.name = name
        self.addsAccessory = addsAccessory
    }
}

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
    func add(_ request: AddAccessoryRequest) async throws(AccessoryError) -> (id: String, notes: [String])

    /// Whoever adds the device of this address has left the bus: the call above ends, and all of it is taken back.
    func cancelAdding(address: String) async

    /// Forgets an accessory.
    func remove(_ accessory: String) async throws(AccessoryError)

    /// Has a control do something; both are words to check.
    func bind(_ control: String, to action: String, of accessory: String) async throws(AccessoryError)

    /// Has talk controls work by "hold", "toggle", "hybrid" or "default", which has been checked.
    func setGesture(_ gesture: String, of accessory: String) async throws(AccessoryError)

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
