// The Serial Port Profile (org.bluez.Profile1): bluetoothd makes the connection and hands its descriptor over.
import DBus
import Logging
import MonotonicTime
import Reactor

/// The events of the serial profile.
public enum SerialProfileEvent: Sendable {
    /// A serial connection with a device is made, by us or by the device. The descriptor is the receiver's.
    case connected(DeviceIdentifier, DBusDescriptor)
    /// bluetoothd wants the connection closed.
    case disconnectionRequested(DeviceIdentifier)
}

/// Decides on a connection, on the loop, at once: bluetoothd waits for the answer, and `connectSerial` for bluetoothd. What it answers to
/// `disconnectionRequested` is ignored.
public typealias SerialProfileHandler = @Sendable (SerialProfileEvent) -> Bool

/// The registration of the serial profile.
struct SerialProfileState {
    let handler: SerialProfileHandler
    var isRegistered = false
    /// How often bluetoothd has released it: a registration that was under way then does not count.
    var releases = 0
    var backoff = Backoff.registration
    var timer: EventLoop.Timer?
}

extension BlueZClient {
    /// The service of the Serial Port Profile.
    public static let serialPort: BluetoothUUID = "1101"

    private var serialPath: DBusObjectPath { Self.child(basePath, "serial") }

    /// What the profile is registered with.
    ///
    /// * `Role` client: we connect to devices. bluetoothd 5.66 listens all the same and publishes a record, so that devices can connect to us.
    /// * `AutoConnect` false: true would make bluetoothd open the serial port of every device that connects, a telephone's or a GPS
    ///   receiver's too, and keep their own programs from it.
    /// * `RequireAuthentication` true: the link is encrypted with the keys of a bond, so that no other device can press the button.
    /// * `RequireAuthorization` true: who connects to us has to be trusted, or an agent is asked.
    private static let serialOptions: [String: DBusValue] = [
        "Name": .string("pttd accessories"), "Role": .string("client"), "AutoConnect": .boolean(false),
        "RequireAuthentication": .boolean(true), "RequireAuthorization": .boolean(true),
    ]

    /// Registers the serial profile, now and whenever bluetoothd returns. No effect when it is there already.
    ///
    /// - Parameter handler: Called on the loop.
    /// - Throws: When bluetoothd refuses; it is tried again all the same.
    public func registerSerialProfile(_ handler: @escaping SerialProfileHandler) async throws(BlueZError) {
        if serial == nil {
            serial = SerialProfileState(handler: handler)
            do throws(DBusError) {
                let export = try export(Self.serialInterface, as: "profile") { try $0.serialCalled($1) }
                try await connection.export([export], at: serialPath)
            } catch {
                serial = nil
                throw BlueZError(error, during: "export the serial profile")
            }
        }
        if isAvailable, serial?.isRegistered == false { try await registerSerialNow() }
    }

    /// Ends that. Connections that were handed over are bluetoothd's to end.
    public func unregisterSerialProfile() async {
        guard let state = serial else { return }
        serial = nil
        state.timer?.cancel()
        if state.isRegistered {
            // bluetoothd forgets the profiles of programs that leave; one that it does not know needs no taking back.
            _ = try? await call(
                BlueZName.manager, BlueZName.profileManager, "UnregisterProfile", [.objectPath(serialPath)],
                during: "unregister the serial profile")
        }
        await connection.unexport(at: serialPath)
    }

    private func registerSerialNow() async throws(BlueZError) {
        serial?.timer?.cancel()
        let (current, releases) = (life, serial?.releases)
        do throws(BlueZError) {
            try await call(
                BlueZName.manager, BlueZName.profileManager, "RegisterProfile",
                [.objectPath(serialPath), .string(Self.serialPort.rawValue), .properties(Self.serialOptions)],
                during: "register the serial profile", accepting: [.alreadyDone])
        } catch {
            if current == life { registerSerialLater() }
            throw error
        }
        guard current == life, releases == serial?.releases else { return }
        serial?.isRegistered = true
        serial?.backoff.reset()
    }

    private func registerSerialLater() {
        guard var state = serial else { return }
        state.timer?.cancel()
        state.timer = loop.schedule(after: state.backoff.delay()) { [weak self] in
            self?.assumeIsolated { $0.registerSerialAgain() }
        }
        serial = state
    }

    /// After bluetoothd came back, or let go of the profile.
    func registerSerialAgain() {
        guard isAvailable, let state = serial, !state.isRegistered else { return }
        Task {
            do throws(BlueZError) {
                try await registerSerialNow()
            } catch {
                logger.warning("no serial accessories for now; trying again", metadata: ["reason": "\(error)"])
            }
        }
    }

    // MARK: Connecting

    /// Connects a device's serial port. The handler gets the connection before this returns.
    ///
    /// bluetoothd asks the device for its services if it does not know them, and pages it if there is no link, which
    /// takes 5 s if the device does not answer.
    ///
    /// - Throws: A kind `notSupported` when the device shows no serial port, `inProgress` while another attempt runs,
    ///   `unreachable`, `authenticationFailed`. It may also return without a connection, when bluetoothd found no
    ///   record (5.66), or believes that there is one.
    public func connectSerial(_ device: DeviceIdentifier) async throws(BlueZError) {
        let operation = "connect the serial port of \(device)"
        guard serial?.isRegistered == true else {
            throw BlueZError(.notReady, "the serial profile is not registered", during: operation)
        }
        try await call(
            device.path, BlueZName.device, "ConnectProfile", [.string(Self.serialPort.rawValue)],
            timeout: BlueZTimeout.connect, during: "connect \(Self.serialPort) of \(device)", accepting: [.alreadyDone])
    }

    /// Disconnects one profile of a device (`Device1.DisconnectProfile`). It succeeds if the profile is not connected.
    public func disconnectProfile(_ device: DeviceIdentifier, _ profile: BluetoothUUID) async throws(BlueZError) {
        try await call(
            device.path, BlueZName.device, "DisconnectProfile", [.string(profile.rawValue)],
            during: "disconnect \(profile) of \(device)", accepting: [.notConnected])
    }

    // MARK: What bluetoothd calls

    private static let serialInterface = DBusInterface(
        BlueZName.profile,
        methods: [
            .init("Release"), .init("Cancel"),
            .init(
                "NewConnection",
                in: [
                    .init("device", .objectPath), .init("fd", .unixDescriptor),
                    .init("fd_properties", .dictionary(key: .string, value: .variant)),
                ]),
            .init("RequestDisconnection", in: [.init("device", .objectPath)]),
        ])

    /// Answers without waiting for anything: `ConnectProfile` waits for this.
    private func serialCalled(_ call: DBusMethodCall) throws -> [DBusValue] {
        guard let state = serial else {
            throw DBusErrorReply.accessDenied("only bluetoothd may call this profile")
        }
        switch call.member {
        case "Release":
            logger.debug("bluetoothd released the serial profile")
            serial?.isRegistered = false
            serial?.releases += 1
            registerSerialLater()
        case "NewConnection":
            guard let device = device(of: call), call.arguments.count == 3,
                let descriptor = call.arguments[1].descriptorValue
            else { throw DBusErrorReply("org.bluez.Error.Rejected", "no device at that path") }
            guard state.handler(.connected(device, descriptor)) else {
                logger.info(
                    "serial connection refused: the device is not an accessory", metadata: ["device": "\(device)"])
                throw DBusErrorReply("org.bluez.Error.Rejected", "not an accessory of this machine")
            }
        case "RequestDisconnection":
            if let device = device(of: call) { _ = state.handler(.disconnectionRequested(device)) }
        default: break
        }
        return []
    }

    private func device(of call: DBusMethodCall) -> DeviceIdentifier? {
        guard let path = call.arguments.first?.objectPathValue, case .device(let device) = BlueZObject(path),
            tree.devices[device] != nil
        else { return nil }
        return device
    }
}
