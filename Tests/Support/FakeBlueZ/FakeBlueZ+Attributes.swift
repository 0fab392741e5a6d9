// GATT services and characteristics: reading, writing, notifying.
import DBus
import Logging
import MonotonicTime

extension FakeBlueZ {
    static let characteristicInterface = "org.bluez.GattCharacteristic1"

    func servicePath(_ name: String) -> DBusObjectPath? { path(name).flatMap { try? $0.appending("service0010") } }

    func characteristicPath(_ name: String) -> DBusObjectPath? {
        servicePath(name).flatMap { try? $0.appending("char0011") }
    }

    func exportAttributes(_ name: String) async {
        guard let peripheral = peripherals[name], !peripheral.profile.isSerial,
            records[name]?.areAttributesExported == false,
            let service = servicePath(name), let characteristic = characteristicPath(name), let connection
        else { return }
        records[name]?.areAttributesExported = true
        do {
            try await connection.export([serviceExport(peripheral)], at: service)
            try await connection.export([characteristicExport(peripheral, service)], at: characteristic)
        } catch {
            logger.error("attribute object", metadata: ["reason": "\(error)"])
        }
    }

    func unexportAttributes(_ name: String) async {
        guard records[name]?.areAttributesExported == true, let service = servicePath(name),
            let characteristic = characteristicPath(name)
        else { return }
        records[name]?.areAttributesExported = false
        records[name]?.subscribers = []
        await connection?.unexport(at: characteristic)
        await connection?.unexport(at: service)
    }

    private func serviceExport(_ peripheral: Peripheral) throws -> DBusExport {
        try DBusExport(
            DBusInterface(
                "org.bluez.GattService1",
                properties: [
                    .init("UUID", .string), .init("Primary", .boolean), .init("Device", .objectPath),
                    .init("Includes", .array(.objectPath)),
                ]),
            properties: [
                "UUID": .string(peripheral.profile.service), "Primary": .boolean(true),
                "Device": .objectPath(devicePath(peripheral)), "Includes": .array(.objectPath, []),
            ])
    }

    private func characteristicExport(_ peripheral: Peripheral, _ service: DBusObjectPath) throws -> DBusExport {
        let name = peripheral.name
        let options = DBusInterface.Argument("options", .dictionary(key: .string, value: .variant))
        let interface = DBusInterface(
            Self.characteristicInterface,
            methods: [
                .init("ReadValue", in: [options], out: [.init("value", .array(.byte))]),
                .init("WriteValue", in: [.init("value", .array(.byte)), options]), .init("StartNotify"),
                .init("StopNotify"),
            ],
            properties: [
                .init("UUID", .string), .init("Service", .objectPath), .init("Value", .array(.byte)),
                .init("Notifying", .boolean), .init("Flags", .array(.string)),
            ])
        return try DBusExport(
            interface,
            properties: [
                "UUID": .string(peripheral.profile.characteristic), "Service": .objectPath(service),
                "Value": .bytes([]), "Notifying": .boolean(false), "Flags": .strings(peripheral.profile.flags),
            ],
            methods: [
                "ReadValue": { [weak self] _ in [.bytes(try await self?.read(name) ?? [])] },
                "WriteValue": { [weak self] call in
                    try await self?.write(name, call.arguments.argument(0))
                    return []
                },
                "StartNotify": { [weak self] call in
                    try await self?.subscribe(call.sender, to: name)
                    return []
                },
                "StopNotify": { [weak self] call in
                    try await self?.stopNotify(call.sender, name)
                    return []
                },
            ])
    }

    // MARK: What GattCharacteristic1 is asked

    private func read(_ name: String) async throws -> [UInt8] {
        guard let peripheral = peripherals[name], peripheral.isLinked else { throw BlueZReply.failed("Not connected") }
        guard peripheral.profile.flags.contains("read") else { throw BlueZReply.notPermitted("Read not permitted") }
        await signal(name, peripheral.value)
        return peripheral.value
    }

    private func write(_ name: String, _ value: [UInt8]) throws {
        guard let peripheral = peripherals[name], peripheral.isLinked else { throw BlueZReply.failed("Not connected") }
        guard peripheral.profile.flags.contains("write") else { throw BlueZReply.notPermitted("Write not permitted") }
        guard value.count <= 512 else {
            throw DBusErrorReply("org.bluez.Error.InvalidValueLength", "Invalid value length")
        }
    }

    /// One session for each client; accepted while there is no link, and kept over links.
    private func subscribe(_ sender: String, to name: String) async throws {
        guard let record = records[name], let peripheral = peripherals[name] else { throw BlueZReply.doesNotExist }
        guard !record.subscribers.contains(sender) else {
            throw peripheral.isLinked ? BlueZReply.failed("Already notifying") : BlueZReply.inProgress
        }
        records[name]?.subscribers.insert(sender)
        await watchClient(sender)
        await setNotifying(name, true)
    }

    private func stopNotify(_ sender: String, _ name: String) async throws {
        guard records[name]?.subscribers.contains(sender) == true else {
            throw BlueZReply.failed("No notify session started")
        }
        await unsubscribe(sender, from: name)
    }

    func unsubscribe(_ sender: String, from name: String) async {
        guard records[name]?.subscribers.remove(sender) != nil, records[name]?.subscribers.isEmpty == true else {
            return
        }
        await setNotifying(name, false)
    }

    private func setNotifying(_ name: String, _ isNotifying: Bool) async {
        guard records[name]?.areAttributesExported == true, let path = characteristicPath(name) else { return }
        do {
            try await connection?.setProperties(
                ["Notifying": .boolean(isNotifying)], of: Self.characteristicInterface, at: path)
        } catch {
            logger.error("notifying", metadata: ["reason": "\(error)"])
        }
    }

    // MARK: What the button does

    /// The button's value changes; it notifies when there is a link and a subscriber. Returns when that was sent.
    func notify(_ name: String, _ value: [UInt8]) async -> Instant {
        peripherals[name]?.value = value
        let now = Instant.now
        if peripherals[name]?.profile.isSerial == true {
            _ = sendSerial(name, value)
            return now
        }
        guard peripherals[name]?.isLinked == true, records[name]?.areServicesResolved == true,
            records[name]?.subscribers.isEmpty == false
        else { return now }
        await signal(name, value)
        return now
    }

    /// BlueZ signals a value also when it is equal to the one before.
    private func signal(_ name: String, _ value: [UInt8]) async {
        guard let connection, records[name]?.areAttributesExported == true, let path = characteristicPath(name) else {
            return
        }
        do {
            if await connection.property("Value", of: Self.characteristicInterface, at: path) == .bytes(value) {
                try await connection.emitSignal(
                    "PropertiesChanged", of: "org.freedesktop.DBus.Properties", at: path,
                    [.string(Self.characteristicInterface), .properties(["Value": .bytes(value)]), .strings([])])
            } else {
                try await connection.setProperties(
                    ["Value": .bytes(value)], of: Self.characteristicInterface, at: path)
            }
        } catch {
            logger.error("notification", metadata: ["reason": "\(error)"])
        }
    }

    func setBattery(_ name: String, _ percentage: UInt8) async -> Bool {
        guard peripherals[name]?.profile.hasBattery == true, let path = path(name) else { return false }
        peripherals[name]?.battery = percentage
        guard records[name]?.hasBattery == true else { return true }
        try? await connection?.setProperties(["Percentage": .byte(percentage)], of: "org.bluez.Battery1", at: path)
        return true
    }
}
