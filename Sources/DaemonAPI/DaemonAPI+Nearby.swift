// The methods of org.pttd.Nearby1.
import DBus
import FoundationEssentials
import Logging
import PTTBus
import PushToTalkCore

extension DaemonAPI {
    func nearbyExport() throws(DBusError) -> DBusExport {
        try DBusExport(
            try PTTBus.declaration(of: PTTBus.nearbyInterface), properties: nearby.properties,
            starters: [
                "StartBrowsing": action { try await $0.startBrowsing($1.sender) },
                "StopBrowsing": action { api, call in
                    await api.settled(call.sender)
                    await api.drop(.browse, for: call.sender)
                    await api.browsersChanged()
                },
                "CreateChannel": method { api, call in
                    let arguments = Arguments(call)
                    let name = try arguments.text(0, "name", bytes: 0...PTTBusLimits.nearbyNameBytes)
                    let admission = try arguments.admission(1)
                    try api.countJoin(of: call.sender)
                    let uuid = try await api.nearbyControls.createChannel(
                        name.isEmpty ? nil : name, admission: admission, by: api.identity(of: call.sender))
                    return [.string(uuid.uuidString.lowercased())]
                },
                "JoinChannel": method { api, call in
                    let arguments = Arguments(call)
                    let id = try arguments.text(0, "id", bytes: 1...PTTBusLimits.nearbyIDBytes)
                    let uuid = try await api.joinNearby(id, try arguments.nearbyCode(1), call.sender)
                    return [.objectPath(try DBusObjectPath(PTTBus.channelPath(uuid)))]
                },
                "DeleteChannel": action { api, call in
                    let id = try Arguments(call).text(0, "id", bytes: 1...PTTBusLimits.nearbyIDBytes)
                    try await api.nearbyControls.deleteChannel(id, by: api.identity(of: call.sender))
                },
                "Admit": action { try await $0.decideNearby(true, $1) },
                "Refuse": action { try await $0.decideNearby(false, $1) },
            ])
    }

    /// A join may wait for somebody's answer, for which nobody waits when the caller has left the bus.
    private func joinNearby(_ id: String, _ code: String?, _ sender: String) async throws -> UUID {
        let caller = identity(of: sender)
        try countJoin(of: sender)
        guard !isHolding(.joiningNearby, sender) else {
            throw DBusErrorReply.limitsExceeded("this program joins a channel nearby already; wait for its answer")
        }
        try await hold(.joiningNearby, for: sender)
        let result: Result<UUID, any Error>
        do {
            result = .success(try await nearbyControls.joinChannel(id, code: code, by: caller))
        } catch {
            result = .failure(error)
        }
        await drop(.joiningNearby, for: sender)
        return try result.get()
    }

    private func decideNearby(_ isAdmitted: Bool, _ call: DBusMethodCall) async throws {
        let id = try Arguments(call).text(0, "id", bytes: 1...PTTBusLimits.nearbyIDBytes)
        try await nearbyControls.decide(isAdmitted, about: id, by: identity(of: call.sender))
    }

    private func startBrowsing(_ caller: String) async throws {
        guard isHolding(.browse, caller) || count(of: .browse) < PTTBusLimits.browsers else {
            throw DBusErrorReply.limitsExceeded("\(PTTBusLimits.browsers) programs browse; end one")
        }
        _ = try nearbyControls
        try await hold(.browse, for: caller)
        await browsersChanged()
    }

    /// Sees to it that channels are looked for while somebody wants them.
    func browsersChanged() async {
        let isWanted = count(of: .browse) > 0
        guard isWanted != nearby.browsing else { return }
        nearby.browsing = isWanted
        await (try? nearbyControls)?.setBrowsing(isWanted)
        // Somebody may have come or gone meanwhile.
        guard isWanted == (count(of: .browse) > 0) else { return await browsersChanged() }
        showNearby()
    }

    /// The channels nearby, who waits to be admitted to those of this machine, and what keeps them from being found.
    public func update(
        nearby channels: [NearbyChannelDescription], newcomers: [NearbyNewcomerDescription] = [], problem: String,
        bluetoothProblem: String = ""
    ) {
        var new = nearby
        (new.channels, new.newcomers, new.problem, new.bluetoothProblem) = (
            channels, newcomers, problem, bluetoothProblem
        )
        guard new != nearby else { return }
        nearby = new
        showNearby()
    }

    private func showNearby() {
        guard isExported else { return }
        show(nearby.properties, of: PTTBus.nearbyInterface, at: Self.managerPath, "channels nearby")
    }
}
