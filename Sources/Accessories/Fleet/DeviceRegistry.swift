// The devices that bluetoothd and the kernel report, and the accessory that each device belongs to.
import BlueZ
import MonotonicTime

/// Owns the facts about devices and the maps from devices and characteristics to accessories. Nothing else keeps either.
///
/// An accessory has at most one Bluetooth device and any number of local devices.
struct DeviceRegistry: Sendable {
    /// Local devices known at a time.
    static let localDevicesMax = 128

    /// What bluetoothd knows. As bounded as `BlueZTree`.
    private var devices: [DeviceIdentifier: DeviceFacts] = [:]
    /// Devices that send more values a second than are looked at. As bounded as `devices`.
    private var floods: [DeviceIdentifier: Int] = [:]
    private var localDevices: [LocalDeviceID: LocalDeviceFacts] = [:]
    private var localProblems: [LocalDeviceID: String] = [:]
    private var owners: [DeviceIdentifier: AccessoryID] = [:]
    private var localOwners: [LocalDeviceID: AccessoryID] = [:]
    /// Where the values of a characteristic go: one look-up on the path of a press.
    private var inputs: [CharacteristicIdentifier: (owner: AccessoryID, index: Int)] = [:]

    /// Everything that is known, as it was reported.
    var reports: [AccessoryReport] {
        devices.values.sorted { $0.id < $1.id }.map { .bluetooth(.device($0)) }
            + localDevices.values.sorted { $0.id < $1.id }.map { .local(.added($0)) }
    }

    /// An accessory is gone, or is built anew: nothing belongs to it.
    mutating func release(_ id: AccessoryID) {
        route([:], to: id)
        assign(nil, to: id)
        localOwners = localOwners.filter { $0.value != id }
    }

    // MARK: Bluetooth devices

    /// Those that belong to no accessory, in a fixed order.
    var unowned: [DeviceFacts] { devices.values.filter { owners[$0.id] == nil }.sorted { $0.id < $1.id } }

    /// The device with this address. Where several adapters know one, it is the one that is connected, else the first.
    func device(address: String) -> DeviceFacts? {
        let address = address.uppercased()
        let known = devices.values.filter { $0.address.uppercased() == address }.sorted { $0.id < $1.id }
        return known.first(where: \.isReachable) ?? known.first
    }

    func owner(of device: DeviceIdentifier) -> AccessoryID? { owners[device] }

    mutating func update(_ facts: DeviceFacts) { devices[facts.id] = facts }

    /// bluetoothd has forgotten a device. It belongs to its accessory until that has been told.
    mutating func remove(_ device: DeviceIdentifier) {
        devices[device] = nil
        floods[device] = nil
    }

    /// bluetoothd has ended, and its devices with it.
    mutating func removeAllBluetooth() {
        devices = [:]
        floods = [:]
    }

    /// The accessory uses this device and no other; nil: none.
    mutating func assign(_ device: DeviceIdentifier?, to id: AccessoryID) {
        guard let device else {
            if owners.contains(where: { $0.value == id }) { owners = owners.filter { $0.value != id } }
            return
        }
        guard owners[device] != id else { return }
        owners = owners.filter { $0.value != id }
        // Values of the former device are not this one's.
        route([:], to: id)
        owners[device] = id
    }

    /// Values of these characteristics, and of no others, go to the accessory's inputs.
    mutating func route(_ found: [CharacteristicIdentifier: Int], to id: AccessoryID) {
        inputs = inputs.filter { $0.value.owner != id }
        for (characteristic, index) in found { inputs[characteristic] = (id, index) }
    }

    func input(of characteristic: CharacteristicIdentifier) -> (owner: AccessoryID, index: Int)? {
        inputs[characteristic]
    }

    /// A device sends more values a second than are looked at; nil: not any more.
    ///
    /// - Returns: Whether that is new.
    mutating func setFlood(_ rate: Int?, of device: DeviceIdentifier) -> Bool {
        defer { floods[device] = rate }
        return rate != nil && floods[device] == nil
    }

    func flood(of device: DeviceIdentifier) -> Int? { floods[device] }

    // MARK: Local devices

    var unownedLocal: [LocalDeviceFacts] {
        localDevices.values.filter { localOwners[$0.id] == nil }.sorted { $0.id < $1.id }
    }

    func local(_ device: LocalDeviceID) -> LocalDeviceFacts? { localDevices[device] }

    func owner(of device: LocalDeviceID) -> AccessoryID? { localOwners[device] }

    /// The local devices of an accessory, in a fixed order.
    func localDevices(of id: AccessoryID) -> [LocalDeviceFacts] {
        localDevices.values.filter { localOwners[$0.id] == id }.sorted { $0.id < $1.id }
    }

    /// Those that came by Bluetooth.
    var wirelessLocals: [LocalDeviceFacts] { localDevices.values.filter { $0.address != nil }.sorted { $0.id < $1.id } }

    func isLocal(_ id: AccessoryID) -> Bool { localOwners.values.contains(id) }

    /// A local device is there and works.
    ///
    /// - Returns: False when there are too many.
    mutating func add(_ facts: LocalDeviceFacts) -> Bool {
        guard localDevices[facts.id] != nil || localDevices.count < Self.localDevicesMax else { return false }
        localDevices[facts.id] = facts
        localProblems[facts.id] = nil
        return true
    }

    mutating func assign(_ device: LocalDeviceID, to id: AccessoryID) { localOwners[device] = id }

    /// - Returns: What was known of it, and whose it was.
    mutating func remove(_ device: LocalDeviceID) -> (facts: LocalDeviceFacts?, owner: AccessoryID?) {
        localProblems[device] = nil
        return (localDevices.removeValue(forKey: device), localOwners.removeValue(forKey: device))
    }

    func problem(of device: LocalDeviceID) -> String? { localProblems[device] }

    /// What keeps a local device from working; nil: nothing. The problems of no more than `localDevicesMax` devices are kept.
    ///
    /// - Returns: Whether that is different from what was known.
    mutating func setProblem(_ problem: String?, of device: LocalDeviceID) -> Bool {
        let known = localProblems[device]
        if problem == nil || known != nil || localProblems.count < Self.localDevicesMax {
            localProblems[device] = problem
        }
        return known != problem
    }
}
