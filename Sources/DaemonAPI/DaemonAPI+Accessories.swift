// The methods of org.pttd.AccessoryManager1 and org.pttd.Accessory1.
import DBus
import Logging
import MonotonicTime
import PTTBus
import Vocabulary

extension DaemonAPI {
    func accessoryManagerExport() throws(DBusError) -> DBusExport {
        try DBusExport(
            try PTTBus.declaration(of: PTTBus.accessoryManagerInterface), properties: accessoryManager.properties,
            starters: [
                "StartScan": action { try await $0.startScan($1.sender) },
                "StopScan": action { api, call in
                    await api.settled(call.sender)
                    await api.drop(.scan, for: call.sender)
                    await api.scannersChanged()
                },
                "AddAccessory": method { try await $0.addAccessory($1) },
                "StartLearning": method { try await $0.startLearning($1) },
                "ListProfiles": method { api, _ in
                    let profiles = try await api.accessoryControls.profiles()
                    return [.array(.properties, profiles.map { .properties($0.properties) })]
                },
            ])
    }

    private func accessoryExport(_ properties: AccessoryProperties) throws(DBusError) -> DBusExport {
        let id = properties.id
        return try DBusExport(
            try PTTBus.declaration(of: PTTBus.accessoryInterface), properties: properties.properties,
            starters: [
                "Remove": action { api, _ in try await api.accessoryControls.remove(id) },
                "Bind": action { api, call in
                    let arguments = Arguments(call)
                    let control = try arguments.text(0, "control", bytes: 1...PTTBusLimits.accessoryNameBytes)
                    let action = try arguments.text(1, "action", bytes: 1...PTTBusLimits.actionBytes)
                    try await api.accessoryControls.bind(control, to: action, of: id)
                },
                "SetGesture": action { api, call in
                    let gesture = try Arguments(call).choice(0, "gesture", [Gesture?](Gesture.choices) + [nil]) {
                        $0?.rawValue ?? "default"
                    }
                    try await api.accessoryControls.setGesture(gesture, of: id)
                },
                "SetBondedOnly": action { api, call in
                    let bondedOnly: Bool = try Arguments(call).value(0)
                    try await api.accessoryControls.setBondedOnly(bondedOnly, of: id)
                },
                "StartTest": action { try await $0.startTest(id, $1.sender) },
                "StopTest": action { api, call in
                    await api.settled(call.sender)
                    await api.drop(.test(id), for: call.sender)
                    await api.testersChanged(of: id)
                },
            ])
    }

    // MARK: Scanning

    private func startScan(_ caller: String) async throws {
        let controls = try accessoryControls
        guard isHolding(.scan, caller) || count(of: .scan) < PTTBusLimits.scanners else {
            throw DBusErrorReply.limitsExceeded(
                "\(PTTBusLimits.scanners) programs are scanning, which is the limit; end one")
        }
        try await hold(.scan, for: caller)
        do {
            // Asked again by each, so that each is told why there is none.
            try await controls.setScanning(true)
        } catch {
            await drop(.scan, for: caller)
            await scannersChanged()
            throw error
        }
        await scannersChanged()
        for device in await controls.discoveredDevices() { found(device) }
    }

    /// Sees to it that there is a scan while somebody wants one.
    func scannersChanged() async {
        let isWanted = count(of: .scan) > 0
        if !isWanted, accessoryManager.scanning { try? await (try? accessoryControls)?.setScanning(false) }
        // Somebody may have come or gone meanwhile.
        guard isWanted == (count(of: .scan) > 0) else { return await scannersChanged() }
        accessoryManager.scanning = isWanted
        showAccessoryManager()
    }

    // MARK: Adding

    private func addAccessory(_ call: DBusMethodCall) async throws -> [DBusValue] {
        let addition = try Arguments(call).addition()
        let use = WatchedCaller.Use.adding(addition.address)
        let controls = try accessoryControls
        guard count(of: use) == 0 else {
            throw AccessoryError(.busy, "\(addition.address) is being added already; wait for it")
        }
        let additions = callers.values.reduce(0) { $0 + $1.uses.count { if case .adding = $0 { true } else { false } } }
        guard additions < PTTBusLimits.additions else {
            throw AccessoryError(.busy, "\(PTTBusLimits.additions) accessories are being added; wait for one")
        }
        try await hold(use, for: call.sender)
        let result: Result<(id: String, notes: [String]), AccessoryError>
        do throws(AccessoryError) {
            result = .success(try await controls.add(addition))
        } catch {
            result = .failure(error)
        }
        await drop(use, for: call.sender)
        let added = try result.get()
        return [.objectPath(try DBusObjectPath(PTTBus.accessoryPath(added.id))), .strings(added.notes)]
    }

    // MARK: Trying

    private func startTest(_ accessory: String, _ caller: String) async throws {
        let controls = try accessoryControls
        let use = WatchedCaller.Use.test(accessory)
        try await hold(use, for: caller)
        do {
            try await controls.setTesting(accessory, true)
        } catch {
            await drop(use, for: caller)
            throw error
        }
        // The caller may have left meanwhile.
        await testersChanged(of: accessory)
    }

    /// Ends the test of an accessory that nobody tries any more.
    func testersChanged(of accessory: String) async {
        guard count(of: .test(accessory)) == 0 else { return }
        try? await (try? accessoryControls)?.setTesting(accessory, false)
    }

    // MARK: What is told

    /// The accessories, each at the path of its id.
    public func update(accessories new: [AccessoryProperties]) async {
        do throws(DBusError) {
            var paths: Set<DBusObjectPath> = []
            for accessory in new {
                let path = try DBusObjectPath(PTTBus.accessoryPath(accessory.id))
                guard paths.insert(path).inserted else { continue }
                if accessories.contains(path) {
                    try await bus.setProperties(accessory.properties, of: PTTBus.accessoryInterface, at: path)
                } else {
                    accessories.insert(path)
                    try await bus.export([try accessoryExport(accessory)], at: path)
                }
            }
            for path in accessories.subtracting(paths).sorted() {
                accessories.remove(path)
                await bus.unexport(at: path)
            }
        } catch {
            logger.error("accessories not shown on the bus", metadata: ["error": "\(error)"])
        }
    }

    /// A scan found a device, or something about it is different.
    public func found(_ device: DiscoveredDevice) {
        tellAccessories("DeviceFound", [.string(device.address), .properties(device.properties)])
    }

    /// A device is no longer known to the system's Bluetooth.
    public func lost(address: String) { tellAccessories("DeviceLost", [.string(address)]) }

    /// Where the adding of an accessory is.
    public func addProgress(address: String, _ step: AddStep) {
        tellAccessories("AddProgress", [.string(address), .string(step.rawValue)])
    }

    /// A control went down or came up.
    ///
    /// - Parameters:
    ///   - accessory: The accessory's id.
    ///   - time: When the machine received it.
    public func control(_ control: String, of accessory: String, isDown: Bool, at time: Instant) {
        guard let path = try? DBusObjectPath(PTTBus.accessoryPath(accessory)), accessories.contains(path) else {
            return
        }
        tell(
            "Control", of: PTTBus.accessoryInterface, at: path,
            [.string(control), .boolean(isDown), .int64(time.nanoseconds)])
    }

    /// An emergency control is active from now on, or no more.
    ///
    /// - Parameters:
    ///   - accessory: The accessory's id.
    ///   - isAnyActive: Whether this one or any other is.
    public func emergency(_ isActive: Bool, accessory: String, control: String, isAnyActive: Bool) {
        guard let path = try? DBusObjectPath(PTTBus.accessoryPath(accessory)) else { return }
        accessoryManager.emergencyActive = isAnyActive
        showAccessoryManager()
        tellAccessories("Emergency", [.boolean(isActive), .objectPath(path), .string(control)])
    }

    private func tellAccessories(_ member: String, _ arguments: [DBusValue]) {
        tell(member, of: PTTBus.accessoryManagerInterface, at: Self.managerPath, arguments)
    }

    private func tell(_ member: String, of interface: String, at path: DBusObjectPath, _ arguments: [DBusValue]) {
        bus.assumeIsolated { bus in
            do throws(DBusError) {
                try bus.emitSignal(member, of: interface, at: path, arguments)
            } catch {
                // Without a bus there is nobody to tell.
                guard case .disconnected = error else {
                    return logger.error("signal not sent", metadata: ["signal": "\(member)", "why": "\(error)"])
                }
            }
        }
    }

    private func showAccessoryManager() {
        guard isExported else { return }
        show(
            accessoryManager.properties, of: PTTBus.accessoryManagerInterface, at: Self.managerPath, "accessory manager"
        )
    }
}
