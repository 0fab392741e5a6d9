// Media players that programs register, and the keys of a headset that are handed to them.
import DBus

extension FakeBlueZ {
    /// A registered media player, and what it said it can.
    struct Player: Sendable {
        let sender: String
        let path: DBusObjectPath
        let status: String
        let flags: [String: Bool]
    }

    func mediaExport() throws -> DBusExport {
        let interface = DBusInterface(
            "org.bluez.Media1",
            methods: [
                .init(
                    "RegisterPlayer",
                    in: [.init("player", .objectPath), .init("properties", .dictionary(key: .string, value: .variant))]),
                .init("UnregisterPlayer", in: [.init("player", .objectPath)]),
            ])
        return try DBusExport(
            interface,
            methods: [
                "RegisterPlayer": { [weak self] call in
                    try await self?.registerPlayer(call)
                    return []
                },
                "UnregisterPlayer": { [weak self] call in
                    try await self?.unregisterPlayer(call.sender, call.arguments.argument(0))
                    return []
                },
            ])
    }

    private func registerPlayer(_ call: DBusMethodCall) async throws {
        guard !refusesPlayers else { throw BlueZReply.notSupported }
        let path: DBusObjectPath = try call.arguments.argument(0)
        guard !players.contains(where: { $0.sender == call.sender && $0.path == path }) else {
            throw BlueZReply.alreadyExists
        }
        guard let properties = call.arguments[1].propertiesValue,
            let status = properties["PlaybackStatus"]?.stringValue
        else { throw BlueZReply.invalidArguments }
        await watchClient(call.sender)
        players.append(
            Player(
                sender: call.sender, path: path, status: status, flags: properties.compactMapValues { $0.boolValue }))
    }

    private func unregisterPlayer(_ sender: String, _ path: DBusObjectPath) throws {
        let left = players.filter { $0.sender != sender || $0.path != path }
        guard left.count < players.count else { throw BlueZReply.doesNotExist }
        players = left
    }

    /// Refuses media players, or no longer.
    public func setRefusesPlayers(_ refuses: Bool) { refusesPlayers = refuses }

    /// The status that the registered players told, in the order of registration.
    public var playerStatuses: [String] { players.map(\.status) }

    /// A headset presses a key: the first player gets it, without an answer being wanted. False: it goes to the input device instead.
    public func pressMediaKey(_ method: String) async -> Bool {
        let needed = ["Play": "CanPlay", "Pause": "CanPause", "Next": "CanGoNext", "Previous": "CanGoPrevious"]
        guard let connection, let player = players.first, player.flags["CanControl"] == true,
            needed[method].map({ player.flags[$0] == true }) ?? true
        else { return false }
        try? await connection.send(
            destination: player.sender, path: player.path, interface: "org.mpris.MediaPlayer2.Player", method: method)
        return true
    }
}
