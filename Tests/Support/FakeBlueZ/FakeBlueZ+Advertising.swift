// What clients advertise and offer: LEAdvertisingManager1, and services of theirs that a device of the fake reads.
import DBus

/// What a client advertises.
public struct FakeAdvertisement: Sendable {
    /// Who advertises it, and where its object is.
    let sender: String
    let path: DBusObjectPath
    /// The properties of its `LEAdvertisement1`, as they were when it was registered.
    public let properties: [String: DBusValue]
}

extension FakeBlueZ {
    /// Advertisements that the controller has room for.
    public static let advertisementsMaximum = 2

    func advertisingManager() throws -> DBusExport {
        let options = DBusInterface.Argument("options", .dictionary(key: .string, value: .variant))
        return try DBusExport(
            DBusInterface(
                "org.bluez.LEAdvertisingManager1",
                methods: [
                    .init("RegisterAdvertisement", in: [.init("advertisement", .objectPath), options]),
                    .init("UnregisterAdvertisement", in: [.init("advertisement", .objectPath)]),
                ]),
            methods: [
                "RegisterAdvertisement": { [weak self] call in
                    try await self?.advertise(call.sender, call.arguments.argument(0))
                    return []
                },
                "UnregisterAdvertisement": { [weak self] call in
                    try await self?.endAdvertisement(call.sender, call.arguments.argument(0))
                    return []
                },
            ])
    }

    private func advertise(_ sender: String, _ path: DBusObjectPath) async throws {
        guard !advertisements.contains(where: { $0.sender == sender && $0.path == path }) else {
            throw BlueZReply.alreadyExists
        }
        guard advertisements.count < Self.advertisementsMaximum else {
            throw BlueZReply.notPermitted("Maximum advertisements reached")
        }
        let answer = try await connection?.call(
            destination: sender, path: path, interface: "org.freedesktop.DBus.Properties", method: "GetAll",
            arguments: [.string("org.bluez.LEAdvertisement1")], timeout: .seconds(5))
        guard let properties = answer?.first?.propertiesValue else { throw BlueZReply.invalidArguments }
        await watchClient(sender)
        advertisements.append(FakeAdvertisement(sender: sender, path: path, properties: properties))
    }

    private func endAdvertisement(_ sender: String, _ path: DBusObjectPath) throws {
        let left = advertisements.filter { !($0.sender == sender && $0.path == path) }
        guard left.count < advertisements.count else { throw BlueZReply.doesNotExist }
        advertisements = left
    }

    /// Ends all advertisements by itself, and says so.
    public func releaseAdvertisements() async throws {
        let released = advertisements
        advertisements = []
        for one in released {
            try await connection?.send(
                destination: one.sender, path: one.path, interface: "org.bluez.LEAdvertisement1", method: "Release")
        }
    }

    /// Reads a characteristic that a client offers, as for a device that is connected.
    ///
    /// - Throws: What the client answers.
    public func readOffered(_ uuid: String, offset: UInt16 = 0) async throws -> [UInt8] {
        for application in applications {
            let answer = try await connection?.call(
                destination: application.sender, path: application.path,
                interface: "org.freedesktop.DBus.ObjectManager", method: "GetManagedObjects", timeout: .seconds(5))
            let objects = answer?.first?.get([DBusObjectPath: [String: [String: DBusValue]]].self) ?? [:]
            for (path, interfaces) in objects
            where interfaces[Self.characteristicInterface]?["UUID"]?.stringValue == uuid {
                let value = try await connection?.call(
                    destination: application.sender, path: path, interface: Self.characteristicInterface,
                    method: "ReadValue", arguments: [.properties(["offset": .uint16(offset)])], timeout: .seconds(5))
                return value?.first?.bytesValue ?? []
            }
        }
        throw BlueZReply.doesNotExist
    }
}
