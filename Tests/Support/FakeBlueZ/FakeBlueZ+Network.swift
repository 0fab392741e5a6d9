// Personal area networks: NetworkServer1 on the adapter, Network1 on devices that offer one.
import DBus

/// The network of a device, and what bluetoothd has of it.
public struct FakeNetwork: Sendable {
    /// Who connected to it; nil: nobody.
    var client: String?
    /// What the interface is called.
    public var interface = "bnep0"
}

extension FakeBlueZ {
    func networkServer() throws -> DBusExport {
        try DBusExport(
            DBusInterface(
                "org.bluez.NetworkServer1",
                methods: [
                    .init("Register", in: [.init("uuid", .string), .init("bridge", .string)]),
                    .init("Unregister", in: [.init("uuid", .string)]),
                ]),
            methods: [
                "Register": { [weak self] call in
                    try await self?.registerNetwork(call.sender, call.arguments.argument(0), call.arguments.argument(1))
                    return []
                },
                "Unregister": { [weak self] call in
                    try await self?.unregisterNetwork(call.sender, call.arguments.argument(0))
                    return []
                },
            ])
    }

    private func registerNetwork(_ sender: String, _ role: String, _ bridge: String) async throws {
        guard role == "nap", !bridge.isEmpty else { throw BlueZReply.invalidArguments }
        guard offeredNetwork == nil else { throw BlueZReply.alreadyExists }
        await watchClient(sender)
        offeredNetwork = (sender, bridge)
    }

    private func unregisterNetwork(_ sender: String, _ role: String) throws {
        guard role == "nap", offeredNetwork?.sender == sender else { throw BlueZReply.failed("Not registered") }
        offeredNetwork = nil
    }

    /// Lets a device that is exported offer a network, as soon as its services are known.
    public func offerNetwork(_ name: String) async throws {
        guard let path = path(name), let connection else { return }
        networks[name] = FakeNetwork()
        let interface = DBusInterface(
            "org.bluez.Network1",
            methods: [
                .init("Connect", in: [.init("uuid", .string)], out: [.init("interface", .string)]), .init("Disconnect"),
            ],
            properties: [.init("Connected", .boolean), .init("Interface", .string), .init("UUID", .string)])
        try await connection.export(
            [
                try DBusExport(
                    interface,
                    properties: ["Connected": .boolean(false), "Interface": .string(""), "UUID": .string("")],
                    methods: [
                        "Connect": { [weak self] call in
                            guard let self else { throw BlueZReply.notReady }
                            return [
                                .string(try await self.connectNetwork(name, call.sender, call.arguments.argument(0)))
                            ]
                        },
                        "Disconnect": { [weak self] _ in
                            guard await self?.endNetwork(name) == true else { throw BlueZReply.notConnected }
                            return []
                        },
                    ])
            ], at: path)
    }

    private func connectNetwork(_ name: String, _ sender: String, _ role: String) async throws -> String {
        guard role == "nap" else { throw BlueZReply.invalidArguments }
        guard networks[name]?.client == nil else { throw BlueZReply.alreadyConnected }
        guard isPowered, peripherals[name]?.isAdvertising == true else { throw BlueZReply.failed("Host is down") }
        await watchClient(sender)
        networks[name]?.client = sender
        let interface = networks[name]?.interface ?? ""
        await tellNetwork(name, isConnected: true, interface)
        return interface
    }

    /// Ends the connection to a device's network, from either side.
    ///
    /// - Returns: Whether there was one.
    @discardableResult
    public func endNetwork(_ name: String) async -> Bool {
        guard networks[name]?.client != nil else { return false }
        networks[name]?.client = nil
        await tellNetwork(name, isConnected: false, "")
        return true
    }

    /// What the interface of a device's network is called from now on.
    public func rename(_ name: String, _ interface: String) { networks[name]?.interface = interface }

    private func tellNetwork(_ name: String, isConnected: Bool, _ interface: String) async {
        guard let path = path(name) else { return }
        try? await connection?.setProperties(
            ["Connected": .boolean(isConnected), "Interface": .string(interface)], of: "org.bluez.Network1", at: path)
    }

    /// What a client that has left the bus had of networks ends.
    func forgetNetworks(of sender: String) async {
        if offeredNetwork?.sender == sender { offeredNetwork = nil }
        for (name, network) in networks where network.client == sender { await endNetwork(name) }
    }
}
