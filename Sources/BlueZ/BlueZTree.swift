// The objects of BlueZ, kept up to date from its messages. Pure: messages in, events out.
import DBus
import MonotonicTime

/// The adapters, devices, services and characteristics that BlueZ has.
struct BlueZTree {
    static let devicesMaximum = 1024
    static let attributesMaximum = 8192

    private(set) var adapters: [AdapterIdentifier: Adapter] = [:]
    private(set) var devices: [DeviceIdentifier: Device] = [:]
    private(set) var services: [ServiceIdentifier: Service] = [:]
    private(set) var characteristics: [CharacteristicIdentifier: Characteristic] = [:]
    /// Characteristics whose service is not known yet. They are not reported.
    private var orphans: Set<CharacteristicIdentifier> = []
    /// A reason that came ahead of `Connected` = false.
    private var reasons: [DeviceIdentifier: DisconnectReason] = [:]
    /// What BlueZ said that made no sense, for the log; taken by `takeComplaints`.
    private var complaints: [String] = []

    mutating func takeComplaints() -> [String] {
        defer { complaints = [] }
        return complaints
    }

    // MARK: What comes in

    /// The answer to `GetManagedObjects`, into an empty tree.
    mutating func load(_ objects: [DBusObjectPath: [String: [String: DBusValue]]]) -> [BlueZEvent] {
        // Parents before children.
        objects.sorted { $0.key < $1.key }.flatMap { interfacesAdded($0.key, $0.value) }
    }

    /// `ObjectManager.InterfacesAdded`.
    mutating func interfacesAdded(
        _ path: DBusObjectPath, _ interfaces: [String: [String: DBusValue]]
    ) -> [BlueZEvent] {
        var events: [BlueZEvent] = []
        switch BlueZObject(path) {
        case .adapter(let identifier):
            if let properties = interfaces[BlueZName.adapter] { events += add(identifier, properties) }
        case .device(let identifier):
            if let properties = interfaces[BlueZName.device] { events += add(identifier, properties) }
            if let properties = interfaces[BlueZName.battery] { events += battery(identifier, properties) }
        case .service(let identifier):
            if let properties = interfaces[BlueZName.gattService] { events += add(identifier, properties) }
        case .characteristic(let identifier):
            if let properties = interfaces[BlueZName.characteristic] { events += add(identifier, properties) }
        case .other: break
        }
        return events
    }

    /// `ObjectManager.InterfacesRemoved`.
    mutating func interfacesRemoved(_ path: DBusObjectPath, _ interfaces: [String]) -> [BlueZEvent] {
        switch BlueZObject(path) {
        case .adapter(let identifier) where interfaces.contains(BlueZName.adapter):
            return remove(identifier, .removed)
        case .device(let identifier):
            if interfaces.contains(BlueZName.device) { return remove(identifier, .removed) }
            guard interfaces.contains(BlueZName.battery), devices[identifier]?.batteryPercentage != nil else {
                return []
            }
            devices[identifier]?.batteryPercentage = nil
            return [.batteryChanged(identifier, nil)]
        case .service(let identifier) where interfaces.contains(BlueZName.gattService): return remove(identifier)
        case .characteristic(let identifier) where interfaces.contains(BlueZName.characteristic):
            return remove(identifier)
        default: return []
        }
    }

    /// `Properties.PropertiesChanged`.
    mutating func propertiesChanged(
        _ path: DBusObjectPath, _ interface: String, _ properties: [String: DBusValue], invalidated: [String],
        at time: Instant
    ) -> [BlueZEvent] {
        switch (BlueZObject(path), interface) {
        case (.adapter(let identifier), BlueZName.adapter): return change(identifier, properties)
        case (.device(let identifier), BlueZName.device): return change(identifier, properties, invalidated)
        case (.device(let identifier), BlueZName.battery): return battery(identifier, properties)
        case (.device(let identifier), BlueZName.network):
            let hasEnded = devices[identifier] != nil && properties["Connected"]?.boolValue == false
            return hasEnded ? [.networkDisconnected(identifier)] : []
        case (.characteristic(let identifier), BlueZName.characteristic): return change(identifier, properties, time)
        default: return []
        }
    }

    /// `Device1.Disconnected`. Remembered for when `Connected` becomes false.
    mutating func disconnecting(_ path: DBusObjectPath, reason: String) {
        guard case .device(let identifier) = BlueZObject(path), devices[identifier]?.isConnected == true else { return }
        reasons[identifier] = DisconnectReason(name: reason)
    }

    /// bluetoothd is gone, and everything with it.
    mutating func clear() -> [BlueZEvent] {
        adapters.keys.sorted().flatMap { remove($0, .serviceGone) }
            + devices.keys.sorted().flatMap { remove($0, .serviceGone) }
            + characteristics.keys.sorted().flatMap { remove($0) }
    }

    // MARK: Adapters

    private mutating func add(_ identifier: AdapterIdentifier, _ properties: [String: DBusValue]) -> [BlueZEvent] {
        guard adapters[identifier] == nil else { return change(identifier, properties) }
        var adapter = Adapter(identifier)
        read(identifier.path, properties) { adapter.update(&$0) }
        adapters[identifier] = adapter
        return [.adapterAdded(adapter)] + (adapter.isPowered ? [.adapterPowered(identifier, true)] : [])
    }

    private mutating func change(_ identifier: AdapterIdentifier, _ properties: [String: DBusValue]) -> [BlueZEvent] {
        guard var adapter = adapters[identifier] else { return [] }
        let old = adapter
        read(identifier.path, properties) { adapter.update(&$0) }
        guard adapter != old else { return [] }
        adapters[identifier] = adapter
        return [.adapterChanged(adapter)]
            + (adapter.isPowered != old.isPowered ? [.adapterPowered(identifier, adapter.isPowered)] : [])
    }

    private mutating func remove(_ identifier: AdapterIdentifier, _ reason: DisconnectReason) -> [BlueZEvent] {
        guard adapters.removeValue(forKey: identifier) != nil else { return [] }
        let below = devices.keys.filter { $0.adapter == identifier }.sorted()
        return below.flatMap { remove($0, reason) } + [.adapterRemoved(identifier)]
    }

    // MARK: Devices

    private mutating func add(_ identifier: DeviceIdentifier, _ properties: [String: DBusValue]) -> [BlueZEvent] {
        guard devices[identifier] == nil else { return change(identifier, properties, []) }
        guard devices.count < Self.devicesMaximum else {
            complaints.append("\(identifier.path): more than \(Self.devicesMaximum) devices; this one is ignored")
            return []
        }
        var device = Device(identifier)
        read(identifier.path, properties) { device.update(&$0) }
        devices[identifier] = device
        var events: [BlueZEvent] = [.deviceAdded(device)]
        if device.isConnected { events.append(.deviceConnected(identifier)) }
        if device.areServicesResolved { events.append(.servicesResolved(identifier, true)) }
        return events
    }

    private mutating func change(
        _ identifier: DeviceIdentifier, _ properties: [String: DBusValue], _ invalidated: [String]
    ) -> [BlueZEvent] {
        guard var device = devices[identifier] else { return [] }
        let old = device
        read(identifier.path, properties) { device.update(&$0) }
        device.invalidate(invalidated)
        guard device != old else { return properties["RSSI"] != nil ? [.deviceHeard(identifier)] : [] }
        devices[identifier] = device
        var events: [BlueZEvent] = [.deviceChanged(device)]
        if device.isConnected != old.isConnected, device.isConnected {
            reasons[identifier] = nil
            events.append(.deviceConnected(identifier))
        }
        if device.areServicesResolved != old.areServicesResolved {
            events.append(.servicesResolved(identifier, device.areServicesResolved))
        }
        if device.isConnected != old.isConnected, !device.isConnected {
            events.append(.deviceDisconnected(identifier, reasons.removeValue(forKey: identifier) ?? .unknown))
        }
        return events
    }

    private mutating func battery(_ identifier: DeviceIdentifier, _ properties: [String: DBusValue]) -> [BlueZEvent] {
        guard let old = devices[identifier] else { return [] }
        var percentage: UInt8?
        read(identifier.path, properties) { percentage = $0.take("Percentage") }
        guard let percentage, percentage <= 100, percentage != old.batteryPercentage else { return [] }
        devices[identifier]?.batteryPercentage = percentage
        return [.batteryChanged(identifier, percentage)]
    }

    private mutating func remove(_ identifier: DeviceIdentifier, _ reason: DisconnectReason) -> [BlueZEvent] {
        let attributes = characteristics.keys.filter { $0.device == identifier }.sorted().flatMap { remove($0) }
        for service in services.keys where service.device == identifier { services[service] = nil }
        guard let device = devices.removeValue(forKey: identifier) else { return attributes }
        let known = reasons.removeValue(forKey: identifier)
        var events: [BlueZEvent] = []
        if device.areServicesResolved { events.append(.servicesResolved(identifier, false)) }
        if device.isConnected { events.append(.deviceDisconnected(identifier, known ?? reason)) }
        return events + attributes + [.deviceRemoved(identifier)]
    }

    // MARK: GATT

    private mutating func add(_ identifier: ServiceIdentifier, _ properties: [String: DBusValue]) -> [BlueZEvent] {
        guard services[identifier] != nil || hasRoom(identifier.path) else { return [] }
        var service = services[identifier] ?? Service(identifier)
        read(identifier.path, properties) { service.update(&$0) }
        services[identifier] = service
        guard service.uuid != nil else { return [] }
        return orphans.filter { $0.service == identifier }.sorted().flatMap { adopt($0) }
    }

    private mutating func remove(_ identifier: ServiceIdentifier) -> [BlueZEvent] {
        services[identifier] = nil
        return characteristics.keys.filter { $0.service == identifier }.sorted().flatMap { remove($0) }
    }

    private mutating func add(
        _ identifier: CharacteristicIdentifier, _ properties: [String: DBusValue]
    ) -> [BlueZEvent] {
        guard characteristics[identifier] == nil else { return change(identifier, properties, nil) }
        guard hasRoom(identifier.path) else { return [] }
        var characteristic = Characteristic(identifier)
        read(identifier.path, properties) { characteristic.update(&$0) }
        guard characteristic.uuid != nil else { return [] }
        characteristics[identifier] = characteristic
        orphans.insert(identifier)
        return adopt(identifier)
    }

    /// Reports a characteristic once its service is known.
    private mutating func adopt(_ identifier: CharacteristicIdentifier) -> [BlueZEvent] {
        guard let service = services[identifier.service]?.uuid, orphans.remove(identifier) != nil else { return [] }
        characteristics[identifier]?.service = service
        return characteristics[identifier].map { [.characteristicAdded($0)] } ?? []
    }

    private mutating func change(
        _ identifier: CharacteristicIdentifier, _ properties: [String: DBusValue], _ time: Instant?
    ) -> [BlueZEvent] {
        guard var characteristic = characteristics[identifier] else { return [] }
        let wasNotifying = characteristic.isNotifying
        var value: [UInt8]?
        read(identifier.path, properties) {
            characteristic.update(&$0)
            value = $0.take("Value")
        }
        characteristics[identifier] = characteristic
        guard !orphans.contains(identifier) else { return [] }
        var events: [BlueZEvent] = []
        if characteristic.isNotifying != wasNotifying {
            events.append(.notifyingChanged(identifier, characteristic.isNotifying))
        }
        if let value, let time {
            if value.count <= Characteristic.largestValue {
                events.append(.valueChanged(identifier, value, at: time))
            } else {
                complaints.append("\(identifier): a value of \(value.count) bytes; dropped")
            }
        }
        return events
    }

    private mutating func remove(_ identifier: CharacteristicIdentifier) -> [BlueZEvent] {
        guard characteristics.removeValue(forKey: identifier) != nil else { return [] }
        return orphans.remove(identifier) == nil ? [.characteristicRemoved(identifier)] : []
    }

    // MARK: Bounds and complaints

    private mutating func hasRoom(_ path: DBusObjectPath) -> Bool {
        guard services.count + characteristics.count < Self.attributesMaximum else {
            complaints.append(
                "\(path): more than \(Self.attributesMaximum) services and characteristics; this one is ignored")
            return false
        }
        return true
    }

    private mutating func read(
        _ path: DBusObjectPath, _ properties: [String: DBusValue], _ body: (inout PropertyReader) -> Void
    ) {
        var reader = PropertyReader(properties)
        body(&reader)
        complaints += reader.complaints.map { "\(path): \($0)" }
    }
}
