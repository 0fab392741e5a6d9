// What this machine offers to other devices: a GATT service with readable values (GattManager1), and its advertisement
// (LEAdvertisingManager1).
import DBus
import Logging

/// A GATT service of this machine, whose characteristics can only be read, by anybody and without pairing.
public struct LocalService: Hashable, Sendable {
    /// What it is.
    public var uuid: BluetoothUUID
    /// What its characteristics are, in the order of their handles. Several may be of one kind.
    public var characteristics: [BluetoothUUID]

    /// A service with these characteristics.
    public init(_ uuid: BluetoothUUID, characteristics: [BluetoothUUID]) {
        self.uuid = uuid
        self.characteristics = characteristics
    }
}

/// What this machine advertises; others can connect to it by the advertisement. Legacy advertising data has 31 bytes,
/// of which 3 are flags.
public struct LocalAdvertisement: Hashable, Sendable {
    /// The services that are named: 18 bytes for one of 128 bits.
    public var services: [BluetoothUUID]
    /// Data of a company: 4 bytes and these.
    public var manufacturerData: [UInt16: [UInt8]]

    /// An advertisement of these services.
    public init(services: [BluetoothUUID], manufacturerData: [UInt16: [UInt8]] = [:]) {
        self.services = services
        self.manufacturerData = manufacturerData
    }

    fileprivate var changingProperties: [String: DBusValue] {
        var data: [DBusValue: DBusValue] = [:]
        for (company, bytes) in manufacturerData { data[.uint16(company)] = .variant(.bytes(bytes)) }
        return ["ManufacturerData": .dictionary(key: .uint16, value: .variant, data)]
    }

    fileprivate var properties: [String: DBusValue] {
        // Who is not discoverable is not reported by the discovery of others.
        changingProperties.merging([
            "Type": .string("peripheral"), "ServiceUUIDs": .strings(services.map(\.rawValue)),
            "Discoverable": .boolean(true),
        ]) { $1 }
    }
}

/// What a client offers.
struct LocalOffer {
    /// Reads a characteristic, by its place in the service. Called on the loop.
    let read: @Sendable (Int) -> [UInt8]
    /// bluetoothd has let go of the advertisement.
    let released: @Sendable () -> Void
    let characteristics: Int
}

extension BlueZClient {
    private var servicePath: DBusObjectPath { Self.child(offerPath, "service0") }
    private var offerPath: DBusObjectPath { Self.child(basePath, "offer") }
    private var advertisementPath: DBusObjectPath { Self.child(basePath, "advertisement") }

    private func characteristicPath(_ index: Int) -> DBusObjectPath { Self.child(servicePath, "char\(index)") }

    /// Offers a service on an adapter, and advertises it, until `withdraw`, or until bluetoothd or the adapter goes.
    ///
    /// - Parameters:
    ///   - read: Gives the value of a characteristic by its place, at most 512 bytes; called on the loop for each read, and for each part of
    ///     a long one.
    ///   - released: Called on the loop when bluetoothd has ended the advertisement by itself.
    /// - Throws: What bluetoothd answers. Nothing is offered then.
    public func offer(
        _ service: LocalService, advertising advertisement: LocalAdvertisement, on adapter: AdapterIdentifier,
        read: @escaping @Sendable (Int) -> [UInt8], released: @escaping @Sendable () -> Void
    ) async throws(BlueZError) {
        await withdraw(from: adapter)
        offer = LocalOffer(read: read, released: released, characteristics: service.characteristics.count)
        do throws(DBusError) { try await export(service, advertisement) } catch {
            await withdraw(from: adapter)
            throw BlueZError(error, during: "export the service")
        }
        do throws(BlueZError) {
            try await call(
                adapter.path, BlueZName.gattManager, "RegisterApplication",
                [.objectPath(offerPath), .properties([:])],
                during: "offer a service on \(adapter)")
            try await call(
                adapter.path, BlueZName.advertisingManager, "RegisterAdvertisement",
                [.objectPath(advertisementPath), .properties([:])],
                during: "advertise on \(adapter)")
        } catch {
            await withdraw(from: adapter)
            throw error
        }
    }

    /// Advertises something else; bluetoothd reads it from the change.
    public func update(_ advertisement: LocalAdvertisement) async {
        guard offer != nil else { return }
        do throws(DBusError) {
            try await connection.setProperties(
                advertisement.changingProperties, of: BlueZName.advertisement, at: advertisementPath)
        } catch {
            logger.error("cannot change the advertisement", metadata: ["reason": "\(error)"])
        }
    }

    /// Withdraws the service and its advertisement. It succeeds if there are none.
    public func withdraw(from adapter: AdapterIdentifier) async {
        guard let old = offer else { return }
        offer = nil
        for (interface, method, path) in [
            (BlueZName.advertisingManager, "UnregisterAdvertisement", advertisementPath),
            (BlueZName.gattManager, "UnregisterApplication", offerPath),
        ] {
            do throws(BlueZError) {
                try await call(
                    adapter.path, interface, method, [.objectPath(path)],
                    during: "withdraw from \(adapter)")
            } catch {
                logger.debug("withdrawing", metadata: ["adapter": "\(adapter)", "reason": "\(error)"])
            }
        }
        await connection.unexport(at: advertisementPath)
        for index in 0..<old.characteristics { await connection.unexport(at: characteristicPath(index)) }
        await connection.unexport(at: servicePath)
        await connection.unexportObjectManager(at: offerPath)
    }

    private func export(_ service: LocalService, _ advertisement: LocalAdvertisement) async throws(DBusError) {
        await connection.exportObjectManager(at: offerPath)
        try await connection.export(
            [
                try DBusExport(
                    Self.serviceInterface,
                    properties: ["UUID": .string(service.uuid.rawValue), "Primary": .boolean(true)])
            ], at: servicePath)
        for (index, uuid) in service.characteristics.enumerated() {
            try await connection.export(
                [
                    try DBusExport(
                        Self.characteristicInterface,
                        properties: [
                            "UUID": .string(uuid.rawValue), "Service": .objectPath(servicePath),
                            "Flags": .strings(["read"]),
                        ],
                        methods: [
                            "ReadValue": { [weak self] call in
                                guard let self else { throw LocalReply.failed }
                                return [.bytes(try await self.value(of: index, call))]
                            }
                        ])
                ], at: characteristicPath(index))
        }
        try await connection.export(
            [
                try DBusExport(
                    Self.advertisementInterface, properties: advertisement.properties,
                    methods: [
                        "Release": { [weak self] call in
                            await self?.advertisementReleased(by: call.sender)
                            return []
                        }
                    ])
            ], at: advertisementPath)
    }

    /// A part of a value, as bluetoothd asks for it. A long value is read from an offset (Bluetooth Core, Vol 3, Part F, 3.4.4.5).
    private func value(of index: Int, _ call: DBusMethodCall) throws -> [UInt8] {
        guard call.sender == owner, let offer else { throw DBusErrorReply.accessDenied("bluetoothd reads this") }
        let options = call.arguments.first?.propertiesValue ?? [:]
        let offset = Int(clamping: options["offset"]?.integerValue ?? 0)
        let value = offer.read(index).prefix(Characteristic.largestValue)
        guard (0...value.count).contains(offset) else { throw LocalReply.invalidOffset }
        return Array(value.dropFirst(offset))
    }

    private func advertisementReleased(by sender: String) {
        guard sender == owner else { return }
        logger.debug("bluetoothd has ended the advertisement")
        offer?.released()
    }

    private static let serviceInterface = DBusInterface(
        BlueZName.gattService, properties: [.init("UUID", .string), .init("Primary", .boolean)])

    private static let characteristicInterface = DBusInterface(
        BlueZName.characteristic,
        methods: [
            .init(
                "ReadValue", in: [.init("options", .dictionary(key: .string, value: .variant))],
                out: [.init("value", .array(.byte))])
        ],
        properties: [.init("UUID", .string), .init("Service", .objectPath), .init("Flags", .array(.string))])

    private static let advertisementInterface = DBusInterface(
        BlueZName.advertisement, methods: [.init("Release")],
        properties: [
            .init("Type", .string), .init("ServiceUUIDs", .array(.string)), .init("Discoverable", .boolean),
            .init("ManufacturerData", .dictionary(key: .uint16, value: .variant)),
        ])
}

/// The errors that bluetoothd knows of a characteristic (`org.bluez.GattCharacteristic`).
private enum LocalReply {
    static let failed = DBusErrorReply("org.bluez.Error.Failed", "the service is no longer offered")
    static let invalidOffset = DBusErrorReply("org.bluez.Error.InvalidOffset", "the value is shorter")
}
