// The daemon's requests for accessories, and the signals that it sends meanwhile.
import DBus
import MonotonicTime
import Vocabulary

/// Signals of the daemon about accessories, in addition to their properties.
public enum AccessorySignal: Hashable, Sendable {
    /// A scan found a device, or something about it is different.
    case found(DiscoveredDevice)
    /// A device is no longer known to the system's Bluetooth.
    case lost(address: String)
    /// Where `AddAccessory` is.
    case addProgress(address: String, AddStep)
    /// A control went down or came up; `time` is when the machine received it.
    case control(accessory: DBusObjectPath, control: String, isDown: Bool, time: Instant)
    /// An emergency control is active from now on, or no more.
    case emergency(isActive: Bool, accessory: DBusObjectPath, control: String)

    /// From a signal's message; nil for any other.
    init?(_ message: DBusMessage) {
        let arguments = message.arguments
        switch (message.interface, message.member) {
        case (PTTBus.accessoryManagerInterface, "DeviceFound"):
            guard let address = arguments.first?.stringValue, arguments.count > 1 else { return nil }
            self = .found(DiscoveredDevice(address: address, properties: arguments[1].propertiesValue ?? [:]))
        case (PTTBus.accessoryManagerInterface, "DeviceLost"):
            guard let address = arguments.first?.stringValue else { return nil }
            self = .lost(address: address)
        case (PTTBus.accessoryManagerInterface, "AddProgress"):
            guard let address = arguments.first?.stringValue, arguments.count > 1,
                let step = arguments[1].stringValue.flatMap({ AddStep(rawValue: $0) })
            else { return nil }
            self = .addProgress(address: address, step)
        case (PTTBus.accessoryManagerInterface, "Emergency"):
            guard arguments.count > 2, let isActive = arguments[0].boolValue,
                let accessory = arguments[1].objectPathValue, let control = arguments[2].stringValue
            else { return nil }
            self = .emergency(isActive: isActive, accessory: accessory, control: control)
        case (PTTBus.accessoryInterface, "Control"):
            guard arguments.count > 2, let path = message.path, let control = arguments[0].stringValue,
                let isDown = arguments[1].boolValue, let time = arguments[2].integerValue
            else { return nil }
            self = .control(accessory: path, control: control, isDown: isDown, time: Instant(nanoseconds: time))
        default: return nil
        }
    }
}

/// What `AddAccessory` answered.
public struct AddedAccessory: Hashable, Sendable {
    /// Where the accessory is.
    public var path: DBusObjectPath
    /// What the installer should know, in words.
    public var notes: [String]
}

/// Requests about accessories. They fail with `DaemonClientError.bus`, whose `accessoryError` is what the daemon answered, or with
/// `.notRunning`.
extension DaemonClient {
    // MARK: Setting up

    /// Scans until `stopScan`, or until this client leaves the bus. What is found comes as `.accessory(.found)` to `watch`, what is
    /// known already first.
    public func startScan() async throws(DaemonClientError) { try await callAccessories("StartScan") }

    /// Ends this client's scan.
    public func stopScan() async throws(DaemonClientError) { try await callAccessories("StopScan") }

    /// Connects and remembers an accessory; returns when its presses arrive. Where it is comes as `.accessory(.addProgress)` to
    /// `watch`. It is taken back when this client leaves the bus meanwhile.
    public func addAccessory(_ addition: AccessoryAddition) async throws(DaemonClientError) -> AddedAccessory {
        try await callAccessories(
            "AddAccessory", [.string(addition.address), .properties(addition.properties)], PTTBusLimits.addAnswer
        ).read("oas") {
            guard $0.count > 1, let path = $0[0].objectPathValue, let notes: [String] = $0[1].get() else { return nil }
            return AddedAccessory(path: path, notes: notes)
        }
    }

    /// The profiles that are known, by id.
    public func profiles() async throws(DaemonClientError) -> [ProfileDescription] {
        let profiles = try await callAccessories("ListProfiles").first?.arrayValue ?? []
        return profiles.compactMap(\.propertiesValue).map { ProfileDescription(properties: $0) }.filter {
            !$0.id.isEmpty
        }
    }

    /// Learns a button. The session is in `snapshot.learning` and ends when this client leaves the bus.
    ///
    /// - Parameters:
    ///   - address: A Bluetooth address; nil: any input device or serial port that a udev rule has tagged.
    ///   - name: The name of the profile; nil: made from the device's.
    ///   - adds: Whether the accessory is added with it.
    /// - Returns: Where the session is.
    public func startLearning(
        _ address: String?, name: String? = nil, adds: Bool = true
    ) async throws(DaemonClientError) -> DBusObjectPath {
        var options: [String: DBusValue] = ["Add": .boolean(adds)]
        if let name { options["Name"] = .string(name) }
        return try await callAccessories("StartLearning", [.string(address ?? ""), .properties(options)])
            .read("o") { $0.first?.objectPathValue }
    }

    /// Ends a learning session of this client without a profile.
    public func cancelLearning(_ session: DBusObjectPath) async throws(DaemonClientError) {
        try await call(session, PTTBus.learningInterface, "Cancel", [])
    }

    /// Goes on with a learning session of this client that waits for other keys: all have been pressed, or there is none.
    public func proceedLearning(_ session: DBusObjectPath) async throws(DaemonClientError) {
        try await call(session, PTTBus.learningInterface, "Proceed", [])
    }

    // MARK: An accessory

    /// Forgets an accessory, and has the system's Bluetooth forget the device.
    public func removeAccessory(_ accessory: DBusObjectPath) async throws(DaemonClientError) {
        try await callAccessory(accessory, "Remove")
    }

    /// Has a control do something.
    ///
    /// - Parameters:
    ///   - control: Its name, such as "ptt" or "soft1".
    ///   - action: "transmit", "emergency", "channel-up", "channel-down", "nearby-next", "replay-last", "none",
    ///     "command: PROGRAM ARGUMENTS", or "default".
    public func bind(
        _ control: String, to action: String, of accessory: DBusObjectPath
    ) async throws(DaemonClientError) {
        try await callAccessory(accessory, "Bind", [.string(control), .string(action)])
    }

    /// Has its talk controls work by "hold", "toggle", "hybrid" or "default".
    public func setGesture(_ gesture: String, of accessory: DBusObjectPath) async throws(DaemonClientError) {
        try await callAccessory(accessory, "SetGesture", [.string(gesture)])
    }

    /// Says whether it has to be bonded.
    public func setBondedOnly(_ bondedOnly: Bool, of accessory: DBusObjectPath) async throws(DaemonClientError) {
        try await callAccessory(accessory, "SetBondedOnly", [.boolean(bondedOnly)])
    }

    /// Until `stopTest`, or until this client leaves the bus, its controls come as `.accessory(.control)` to `watch` and do nothing
    /// else.
    public func startTest(of accessory: DBusObjectPath) async throws(DaemonClientError) {
        try await callAccessory(accessory, "StartTest")
    }

    /// Ends this client's test.
    public func stopTest(of accessory: DBusObjectPath) async throws(DaemonClientError) {
        try await callAccessory(accessory, "StopTest")
    }

    // MARK: Calling

    @discardableResult
    private func callAccessories(
        _ method: String, _ arguments: [DBusValue] = [], _ timeout: Duration = DBusConnection.defaultTimeout
    ) async throws(DaemonClientError) -> [DBusValue] {
        try await call(Self.root, PTTBus.accessoryManagerInterface, method, arguments, timeout)
    }

    private func callAccessory(
        _ path: DBusObjectPath, _ method: String, _ arguments: [DBusValue] = []
    ) async throws(DaemonClientError) {
        do throws(DaemonClientError) {
            try await call(path, PTTBus.accessoryInterface, method, arguments)
        } catch {
            guard error.isUnknownObject else { throw error }
            throw .refused(
                AccessoryError(.notFound, "there is no such accessory; 'pttctl accessory list' lists the accessories"))
        }
    }
}
