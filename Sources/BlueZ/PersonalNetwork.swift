// Personal area networks (org.bluez.Network1, org.bluez.NetworkServer1; doc/network-api.txt of BlueZ): IP over classic Bluetooth.
import DBus
import Logging

extension BlueZClient {
    /// The role of the machine that others connect to: the network access point (Bluetooth PAN profile 1.0, 2.1).
    private static let accessPoint = DBusValue.string("nap")

    /// Connects to the network of a paired device. bluetoothd keeps it until `disconnectNetwork`, the end of the link,
    /// or the end of this client's connection to the bus; `networkDisconnected` reports the end.
    ///
    /// - Returns: The network interface, such as `bnep0`. It is up, and its only address is the kernel's link-local
    ///   one.
    /// - Throws: A kind `notSupported` when the device offers no network, `unreachable` when it does not answer,
    ///   `notPermitted` or `unreachable` when it does not let this machine in.
    public func connectNetwork(_ device: DeviceIdentifier) async throws(BlueZError) -> String {
        let operation = "connect to the network of \(device)"
        var values: [DBusValue]
        do throws(BlueZError) {
            values = try await call(
                device.path, BlueZName.network, "Connect", [Self.accessPoint], timeout: BlueZTimeout.connect,
                during: operation)
        } catch {
            guard error.kind == .alreadyDone else {
                // bluetoothd makes this interface when it knows that the device has such a service.
                guard error.kind != .noSuchObject else {
                    throw BlueZError(.notSupported, "the device offers no network", during: operation)
                }
                throw error
            }
            values = try await call(
                device.path, BlueZName.properties, "Get", [.string(BlueZName.network), .string("Interface")],
                during: operation)
        }
        if case .variant(let inner)? = values.first { values = [inner] }
        guard let name = values.first?.stringValue, Self.interfaceNameLengths.contains(name.utf8.count),
            !name.contains("/")
        else { throw BlueZError(.malformedAnswer, "no name of a network interface", during: operation) }
        return name
    }

    /// IFNAMSIZ is 16, its end included.
    private static let interfaceNameLengths = 1...15

    /// Disconnects from the network of a device. It succeeds if there is no connection.
    public func disconnectNetwork(_ device: DeviceIdentifier) async throws(BlueZError) {
        try await call(
            device.path, BlueZName.network, "Disconnect", during: "disconnect from the network of \(device)",
            accepting: [.notConnected, .noSuchObject, .unavailable])
    }

    /// Offers a network to paired devices, until `withdrawNetwork`, or until bluetoothd or this client's connection to the bus ends. Their
    /// interfaces become ports of a bridge.
    ///
    /// - Parameter bridge: A bridge that exists.
    public func offerNetwork(over bridge: String, on adapter: AdapterIdentifier) async throws(BlueZError) {
        try await call(
            adapter.path, BlueZName.networkServer, "Register", [Self.accessPoint, .string(bridge)],
            during: "offer a network on \(adapter)", accepting: [.alreadyDone])
    }

    /// Stops offering a network. It succeeds if none was offered.
    public func withdrawNetwork(from adapter: AdapterIdentifier) async {
        do throws(BlueZError) {
            try await call(
                adapter.path, BlueZName.networkServer, "Unregister", [Self.accessPoint],
                during: "withdraw the network from \(adapter)")
        } catch {
            logger.debug("withdrawing a network", metadata: ["adapter": "\(adapter)", "reason": "\(error)"])
        }
    }
}
