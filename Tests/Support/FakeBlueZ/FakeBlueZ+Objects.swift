// The objects of org.bluez: manager, adapter, devices, attributes.
import DBus
import Logging

extension FakeBlueZ {
    // MARK: /org/bluez

    func agentManager() throws -> DBusExport {
        let interface = DBusInterface(
            "org.bluez.AgentManager1",
            methods: [
                .init("RegisterAgent", in: [.init("agent", .objectPath), .init("capability", .string)]),
                .init("UnregisterAgent", in: [.init("agent", .objectPath)]),
                .init("RequestDefaultAgent", in: [.init("agent", .objectPath)]),
            ])
        return try DBusExport(
            interface,
            methods: [
                "RegisterAgent": { [weak self] call in
                    try await self?.registerAgent(call.sender, call.arguments.argument(0), call.arguments.argument(1))
                    return []
                },
                "UnregisterAgent": { [weak self] call in
                    try await self?.unregisterAgent(call.sender, call.arguments.argument(0))
                    return []
                },
                "RequestDefaultAgent": { [weak self] call in
                    guard await self?.agents[call.sender] != nil else { throw BlueZReply.doesNotExist }
                    return []
                },
            ])
    }

    private func registerAgent(_ sender: String, _ path: DBusObjectPath, _ capability: String) async throws {
        let known = ["", "DisplayOnly", "DisplayYesNo", "KeyboardOnly", "NoInputNoOutput", "KeyboardDisplay"]
        guard known.contains(capability) else { throw BlueZReply.invalidArguments }
        guard agents[sender] == nil else { throw BlueZReply.alreadyExists }
        agents[sender] = path
        await watchClient(sender)
    }

    private func unregisterAgent(_ sender: String, _ path: DBusObjectPath) throws {
        guard agents[sender] == path else { throw BlueZReply.doesNotExist }
        agents[sender] = nil
    }

    // MARK: Adapter

    func adapterExport() throws -> DBusExport {
        let interface = DBusInterface(
            "org.bluez.Adapter1",
            methods: [
                .init("StartDiscovery"), .init("StopDiscovery"),
                .init("SetDiscoveryFilter", in: [.init("properties", .dictionary(key: .string, value: .variant))]),
                .init("RemoveDevice", in: [.init("device", .objectPath)]),
            ],
            properties: [
                .init("Address", .string), .init("AddressType", .string), .init("Name", .string),
                .init("Alias", .string), .init("Powered", .boolean, .readwrite), .init("Discovering", .boolean),
                .init("UUIDs", .array(.string)),
            ])
        return try DBusExport(
            interface,
            properties: [
                "Address": .string("00:AA:01:00:00:01"), "AddressType": .string("public"), "Name": .string("fake"),
                "Alias": .string("fake"), "Powered": .boolean(isPowered), "Discovering": .boolean(false),
                "UUIDs": .strings([]),
            ],
            setters: [
                "Powered": { [weak self] call in
                    try await self?.setAdapterPowered(call.arguments.argument(0))
                    return call.arguments[0]
                }
            ],
            methods: [
                "StartDiscovery": { [weak self] call in
                    try await self?.startDiscovery(for: call.sender)
                    return []
                },
                "StopDiscovery": { [weak self] call in
                    try await self?.stopDiscovery(for: call.sender)
                    return []
                },
                "SetDiscoveryFilter": { _ in [] },
                "RemoveDevice": { [weak self] call in
                    try await self?.removeDevice(call.arguments.argument(0))
                    return []
                },
            ])
    }

    func gattManager() throws -> DBusExport {
        let interface = DBusInterface(
            "org.bluez.GattManager1",
            methods: [
                .init(
                    "RegisterApplication",
                    in: [
                        .init("application", .objectPath), .init("options", .dictionary(key: .string, value: .variant)),
                    ]),
                .init("UnregisterApplication", in: [.init("application", .objectPath)]),
            ])
        return try DBusExport(
            interface,
            methods: [
                "RegisterApplication": { [weak self] call in
                    try await self?.registerApplication(call.sender, call.arguments.argument(0))
                    return []
                },
                "UnregisterApplication": { [weak self] call in
                    try await self?.unregister(call.arguments.argument(0), call.sender)
                    return []
                },
            ])
    }

    /// BlueZ reads the application's objects before it answers.
    private func registerApplication(_ sender: String, _ path: DBusObjectPath) async throws {
        guard let connection else { return }
        let answer = try? await connection.call(
            destination: sender, path: path, interface: "org.freedesktop.DBus.ObjectManager",
            method: "GetManagedObjects", timeout: .seconds(5))
        let objects = answer?.first?.get([DBusObjectPath: [String: [String: DBusValue]]].self) ?? [:]
        let profiles = objects.values.compactMap { $0["org.bluez.GattProfile1"] }
        guard !profiles.isEmpty || objects.values.contains(where: { $0["org.bluez.GattService1"] != nil }) else {
            throw BlueZReply.failed("No object received")
        }
        let services = profiles.compactMap { $0["UUIDs"]?.get([String].self) }.joined()
        await watchClient(sender)
        try register(Application(sender: sender, path: path, services: Set(services)))
    }

    // MARK: Device

    func exportDevice(_ name: String) async {
        guard let peripheral = peripherals[name], let record = records[name], !record.isExported, hasAdapter,
            let connection
        else { return }
        records[name]?.isExported = true
        do {
            try await connection.export([deviceExport(peripheral, record)], at: devicePath(peripheral))
        } catch {
            logger.error("device object", metadata: ["reason": "\(error)"])
        }
        hear(name)
    }

    func unexportDevice(_ name: String) async {
        guard let path = path(name), records[name]?.isExported == true else { return }
        await unexportAttributes(name)
        records[name]?.isExported = false
        records[name]?.areServicesResolved = false
        records[name]?.hasBattery = false
        await connection?.unexport(at: path)
    }

    private func deviceExport(_ peripheral: Peripheral, _ record: Record) throws -> DBusExport {
        let name = peripheral.name
        let interface = DBusInterface(
            "org.bluez.Device1",
            methods: [
                .init("Connect"), .init("Disconnect"), .init("Pair"), .init("CancelPairing"),
                .init("ConnectProfile", in: [.init("UUID", .string)]),
                .init("DisconnectProfile", in: [.init("UUID", .string)]),
            ],
            properties: [
                .init("Address", .string), .init("AddressType", .string), .init("Name", .string),
                .init("Alias", .string, .readwrite), .init("Paired", .boolean), .init("Bonded", .boolean),
                .init("Trusted", .boolean, .readwrite), .init("Blocked", .boolean), .init("Connected", .boolean),
                .init("ServicesResolved", .boolean), .init("UUIDs", .array(.string)), .init("RSSI", .int16),
                .init("Adapter", .objectPath),
            ])
        let uuids = record.isPermanent ? peripheral.services.sorted() : peripheral.profile.advertised
        return try DBusExport(
            interface,
            properties: [
                "Address": .string(peripheral.address),
                "AddressType": .string(peripheral.profile.isSerial ? "public" : "random"),
                "Name": .string(peripheral.advertisedName), "Alias": .string(peripheral.advertisedName),
                "Paired": .boolean(record.isPaired), "Bonded": .boolean(record.isPaired),
                "Trusted": .boolean(record.isTrusted), "Blocked": .boolean(false), "Connected": .boolean(false),
                "ServicesResolved": .boolean(false), "UUIDs": .strings(uuids), "RSSI": .int16(-50),
                "Adapter": .objectPath(adapterPath),
            ],
            setters: [
                "Alias": { $0.arguments[0] },
                "Trusted": { [weak self] call in
                    try await self?.trust(name, call.arguments.argument(0))
                    return call.arguments[0]
                },
            ],
            methods: [
                "Connect": { [weak self] _ in
                    try await self?.connect(name)
                    return []
                },
                "Disconnect": { [weak self] _ in
                    try await self?.disconnect(name)
                    return []
                },
                "Pair": { [weak self] call in
                    try await self?.pair(name, for: call.sender)
                    return []
                },
                "ConnectProfile": { [weak self] call in
                    try await self?.connectProfile(name, call.arguments.argument(0))
                    return []
                },
                "DisconnectProfile": { [weak self] _ in
                    try await self?.disconnectProfile(name)
                    return []
                },
                "CancelPairing": { [weak self] _ in
                    try await self?.cancelPairing(name)
                    return []
                },
            ])
    }

    // MARK: Battery

    func addBattery(_ name: String) async {
        guard let peripheral = peripherals[name], peripheral.profile.hasBattery, records[name]?.hasBattery == false,
            let connection
        else { return }
        records[name]?.hasBattery = true
        let interface = DBusInterface("org.bluez.Battery1", properties: [.init("Percentage", .byte)])
        do {
            let export = try DBusExport(interface, properties: ["Percentage": .byte(peripheral.battery)])
            try await connection.export([export], at: devicePath(peripheral))
        } catch {
            logger.error("battery object", metadata: ["reason": "\(error)"])
        }
    }

    func removeBattery(_ name: String) async {
        guard records[name]?.hasBattery == true, let path = path(name) else { return }
        records[name]?.hasBattery = false
        await connection?.unexport(["org.bluez.Battery1"], at: path)
    }
}
