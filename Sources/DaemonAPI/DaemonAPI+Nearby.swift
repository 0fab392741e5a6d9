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
                "StartBrowsing": method { api, call in
                    try await api.startBrowsing(call.sender)
                    return []
                },
                "StopBrowsing": method { api, call in
                    await api.settled(call.sender)
                    await api.drop(.browse, for: call.sender)
                    await api.browsersChanged()
                    return []
                },
                "CreateChannel": method { api, call in
                    let name = try Arguments(call).text(0, "name", bytes: 0...PTTBusLimits.nearbyNameBytes)
                    let caller = api.identity(of: call.sender)
                    try api.countJoin(of: call.sender)
                    let uuid = try await api.askNearby { controls throws(PTChannelError) in
                        try await controls.createChannel(name.isEmpty ? nil : name, by: caller)
                    }
                    return [.string(uuid.uuidString.lowercased())]
                },
                "JoinChannel": method { api, call in
                    let id = try Arguments(call).text(0, "id", bytes: 1...PTTBusLimits.nearbyIDBytes)
                    let caller = api.identity(of: call.sender)
                    try api.countJoin(of: call.sender)
                    let uuid = try await api.askNearby { controls throws(PTChannelError) in
                        try await controls.joinChannel(id, by: caller)
                    }
                    return [.objectPath(try DBusObjectPath(PTTBus.channelPath(uuid)))]
                },
                "DeleteChannel": method { api, call in
                    let id = try Arguments(call).text(0, "id", bytes: 1...PTTBusLimits.nearbyIDBytes)
                    let caller = api.identity(of: call.sender)
                    try await api.askNearby { controls throws(PTChannelError) in
                        try await controls.deleteChannel(id, by: caller)
                    }
                    return []
                },
            ])
    }

    /// Does something that may be refused with a channel error, by its D-Bus name.
    private func askNearby<T: Sendable>(
        _ body: nonisolated(nonsending) @Sendable (any NearbyControls) async throws(PTChannelError) -> T
    ) async throws -> T {
        let controls = try nearbyControls
        do throws(PTChannelError) { return try await body(controls) } catch { throw PTTBus.reply(error) }
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

    /// The channels nearby, and what keeps them from being found.
    public func update(nearby channels: [NearbyChannelDescription], problem: String) {
        guard channels != nearby.channels || problem != nearby.problem else { return }
        (nearby.channels, nearby.problem) = (channels, problem)
        showNearby()
    }

    private func showNearby() {
        guard isExported else { return }
        let properties = nearby.properties
        bus.assumeIsolated { bus in
            do throws(DBusError) {
                try bus.setProperties(properties, of: PTTBus.nearbyInterface, at: Self.managerPath)
            } catch {
                logger.error("channels nearby not shown on the bus", metadata: ["error": "\(error)"])
            }
        }
    }
}
