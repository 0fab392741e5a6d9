// Classic devices with a serial port: ProfileManager1, ConnectProfile, and the descriptor that goes to Profile1.NewConnection.
import DBus
import Glibc
import Logging
import MonotonicTime
import Reactor

/// A registered Profile1.
public struct SerialClient: Sendable {
    let sender: String
    let path: DBusObjectPath
    /// What it was registered with.
    public let options: [String: DBusValue]
}

/// The serial port of a classic device.
struct SerialPort {
    /// How many of the next attempts find no record of it.
    var missingRecords = 0
    /// Whether bluetoothd then says that all is well, as 5.66 does at times.
    var isSilent = false
    /// Without a bond it is refused.
    var needsBond = false
    /// The device's end, and bluetoothd's own descriptor of the host's end.
    var ends: (device: Int32, held: Int32)?
    var watch: EventLoop.Watch?
    var isConnecting = false
    /// What the host wrote.
    var received: [UInt8] = []
}

extension FakeBlueZ {
    static let serialUUID = PeripheralProfile.short("1101")

    func profileManager() throws -> DBusExport {
        let interface = DBusInterface(
            "org.bluez.ProfileManager1",
            methods: [
                .init(
                    "RegisterProfile",
                    in: [
                        .init("profile", .objectPath), .init("UUID", .string),
                        .init("options", .dictionary(key: .string, value: .variant)),
                    ]), .init("UnregisterProfile", in: [.init("profile", .objectPath)]),
            ])
        return try DBusExport(
            interface,
            methods: [
                "RegisterProfile": { [weak self] call in
                    let options = call.arguments[2].propertiesValue ?? [:]
                    // As bluetoothd does.
                    guard !options.isEmpty else { throw BlueZReply.invalidArguments }
                    try await self?.registerProfile(
                        SerialClient(
                            sender: call.sender, path: call.arguments.argument(0), options: options))
                    return []
                },
                "UnregisterProfile": { [weak self] call in
                    try await self?.unregisterProfile(call.sender)
                    return []
                },
            ])
    }

    private func registerProfile(_ client: SerialClient) async throws {
        if refusedRegistrations > 0 {
            refusedRegistrations -= 1
            throw BlueZReply.failed("not now")
        }
        guard serialClient == nil else { throw BlueZReply.alreadyExists }
        serialClient = client
        await watchClient(client.sender)
    }

    private func unregisterProfile(_ sender: String) throws {
        guard serialClient?.sender == sender else { throw BlueZReply.doesNotExist }
        endSerialClient()
    }

    /// With the profile its connections go.
    func endSerialClient() {
        serialClient = nil
        for name in ports.keys { hangUp(name) }
    }

    // MARK: What Device1 is asked

    func connectProfile(_ name: String, _ uuid: String) async throws {
        guard isPowered else { throw BlueZReply.notReady }
        guard uuid == Self.serialUUID, let client = serialClient, peripherals[name]?.profile.isSerial == true else {
            throw DBusErrorReply("org.bluez.Error.NotAvailable", "br-connection-profile-unavailable")
        }
        guard ports[name, default: SerialPort()].isConnecting == false else { throw BlueZReply.inProgress }
        ports[name, default: SerialPort()].isConnecting = true
        defer { ports[name]?.isConnecting = false }
        if peripherals[name]?.isLinked == false {
            do { try await connect(name) } catch let error as DBusErrorReply {
                guard error.name == "org.bluez.Error.Failed" else { throw error }
                throw BlueZReply.failed("br-connection-page-timeout")
            }
        }
        guard let port = ports[name] else { return }
        if port.needsBond, records[name]?.isPaired != true { throw BlueZReply.failed("br-connection-key-missing") }
        if port.missingRecords > 0 {
            ports[name]?.missingRecords -= 1
            if port.isSilent { return }
            throw DBusErrorReply("org.bluez.Error.NotAvailable", "br-connection-profile-unavailable")
        }
        // bluetoothd takes it for connected.
        if port.ends != nil { return }
        guard await handOver(name, to: client) else { throw BlueZReply.failed("br-connection-refused") }
    }

    func disconnectProfile(_ name: String) async throws {
        guard ports[name]?.ends != nil, let client = serialClient, let path = path(name) else {
            throw BlueZReply.notConnected
        }
        _ = try? await connection?.call(
            destination: client.sender, path: client.path, interface: "org.bluez.Profile1",
            method: "RequestDisconnection", arguments: [.objectPath(path)], timeout: configuration.profileTimeout)
        hangUp(name)
    }

    /// Makes a connection and gives it to the profile. Whoever called `ConnectProfile` has his answer after the profile's.
    private func handOver(_ name: String, to client: SerialClient) async -> Bool {
        var pair: [Int32] = [0, 0]
        guard let path = path(name), socketpair(AF_UNIX, Int32(SOCK_STREAM.rawValue), 0, &pair) == 0 else {
            return false
        }
        for end in pair { _ = fcntl(end, F_SETFD, FD_CLOEXEC) }
        _ = fcntl(pair[0], F_SETFL, O_NONBLOCK)
        ports[name, default: SerialPort()].ends = (pair[0], pair[1])
        ports[name]?.watch = try? loop.watch(pair[0], for: .readable) { [weak self] _ in
            self?.assumeIsolated { $0.readSerial(name) }
        }
        do {
            try await connection?.call(
                destination: client.sender, path: client.path, interface: "org.bluez.Profile1",
                method: "NewConnection",
                arguments: [
                    .objectPath(path), .unixDescriptor(try DBusDescriptor(duplicating: pair[1])), .properties([:]),
                ], timeout: configuration.profileTimeout)
            return true
        } catch {
            hangUp(name)
            return false
        }
    }

    private func readSerial(_ name: String) {
        guard let end = ports[name]?.ends?.device else { return }
        var buffer = [UInt8](repeating: 0, count: 256)
        let count = read(end, &buffer, buffer.count)
        if count < 0, errno == EAGAIN { return }
        guard count > 0 else { return hangUp(name) }
        ports[name]?.received += buffer[..<count]
    }

    // MARK: What the device does

    /// The serial connection ends; the link need not.
    func hangUp(_ name: String) {
        guard let ends = ports[name]?.ends else { return }
        ports[name]?.watch?.cancel()
        ports[name]?.watch = nil
        ports[name]?.ends = nil
        shutdown(ends.device, Int32(SHUT_RDWR))
        close(ends.device)
        close(ends.held)
    }

    /// Sends bytes as they are; false when there is no connection, or it does not take them all.
    public func sendSerial(_ name: String, _ bytes: [UInt8]) -> Bool {
        guard let end = ports[name]?.ends?.device else { return false }
        return bytes.withUnsafeBytes { send(end, $0.baseAddress, $0.count, Int32(MSG_NOSIGNAL)) } == bytes.count
    }

    /// The device connects to the host by itself: the link, then the port. False when the host does not take it.
    public func dialSerial(_ name: String) async -> Bool {
        guard isPowered, let record = records[name], record.isExported, let client = serialClient else { return false }
        if peripherals[name]?.isLinked == false {
            peripherals[name]?.isLinked = true
            records[name]?.linkNumber += 1
            await change(name, ["Connected": .boolean(true)])
        }
        return await handOver(name, to: client)
    }

    /// What the host wrote to the device.
    public func receivedSerial(_ name: String) -> [UInt8] { ports[name]?.received ?? [] }

    /// The next attempts find no record.
    public func setMissingRecords(_ count: Int, of name: String, silently: Bool = false) {
        ports[name, default: SerialPort()].missingRecords = count
        ports[name]?.isSilent = silently
    }

    /// Whether the port is refused without a bond.
    public func setNeedsBond(_ needsBond: Bool, of name: String) {
        ports[name, default: SerialPort()].needsBond = needsBond
    }

    /// The next registrations of a profile are refused.
    public func refuseRegistrations(_ count: Int) { refusedRegistrations = count }

    /// Whether the device has a serial connection.
    public func hasSerial(_ name: String) -> Bool { ports[name]?.ends != nil }

    /// bluetoothd lets go of the profile.
    public func releaseProfile() async {
        guard let client = serialClient else { return }
        endSerialClient()
        _ = try? await connection?.call(
            destination: client.sender, path: client.path, interface: "org.bluez.Profile1", method: "Release")
    }
}
