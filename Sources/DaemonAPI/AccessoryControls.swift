// What the bus can ask about accessories: the seam between serving them and the rules behind it.
import PTTBus

/// What `AddAccessory` asks for. Its arguments have been checked one by one; what they mean together has not.
public struct AddAccessoryRequest: Hashable, Sendable {
    /// The Bluetooth address, in capitals.
    public var address: String
    /// What was said beside it.
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

/// What the bus can ask about accessories. `DaemonAPI` has checked the arguments' form, counts callers, and asks once for all of
/// them; accessories are named by the ids that `DaemonAPI.update(accessories:)` told last, or did a moment ago.
public protocol AccessoryControls: Actor {
    /// The first caller wants a scan, or the last one wants none any more. What is found is told by `DaemonAPI.found`.
    ///
    /// - Throws: Why there is no scan.
    func setScanning(_ isOn: Bool) async throws(AccessoryError)

    /// What is known of devices now.
    func discoveredDevices() async -> [DiscoveredDevice]

    /// Adds an accessory; progress is told by `DaemonAPI.addProgress`. One that was added has been told by
    /// `DaemonAPI.update(accessories:)` before this returns.
    ///
    /// - Returns: Its id, and what the installer should know.
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

    /// The first caller tries an accessory, or the last one tries it no more. Its controls are told by `DaemonAPI.control`.
    func setTesting(_ accessory: String, _ isOn: Bool) async throws(AccessoryError)

    /// Begins to learn; where it is is told by `DaemonAPI.update(learning:)`. There is one session at a time.
    func startLearning(_ request: LearningRequest) async throws(AccessoryError)

    /// The session ends without a profile, if it is not over yet.
    func cancelLearning() async

    /// The person has pressed every other key, or there is none. Changes nothing unless that is what the session waits for.
    func proceedLearning() async

    /// The profiles that are known, by id.
    func profiles() async -> [ProfileDescription]
}
