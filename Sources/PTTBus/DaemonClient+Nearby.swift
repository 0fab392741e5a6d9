// What the daemon can be asked about channels nearby.
import DBus
import FoundationEssentials

/// Requests about channels nearby. They fail with `DaemonClientError.bus`, whose `channelError` is what the daemon answered, or with
/// `.notRunning`.
extension DaemonClient {
    /// Looks for channels until `stopBrowsing`, or until this client leaves the bus. What is found is in `snapshot.nearby`.
    public func startBrowsing() async throws(DaemonClientError) { try await callNearby("StartBrowsing") }

    /// Ends this client's browsing.
    public func stopBrowsing() async throws(DaemonClientError) { try await callNearby("StopBrowsing") }

    /// Creates a channel that this machine hosts, announces it and makes it the active one.
    ///
    /// - Parameter name: Nil: made from the machine's name.
    /// - Returns: The channel's UUID.
    public func createNearbyChannel(_ name: String?) async throws(DaemonClientError) -> UUID {
        let answer = try await callNearby("CreateChannel", [.string(name ?? ""), .properties([:])])
        guard let uuid = answer.first?.stringValue.flatMap({ UUID(uuidString: $0) }) else {
            throw .bus(.unexpectedType(expected: "s", got: answer.signature.rawValue))
        }
        return uuid
    }

    /// Makes a channel nearby the active one.
    ///
    /// - Parameter id: `NearbyChannelDescription.id`.
    public func joinNearbyChannel(_ id: String) async throws(DaemonClientError) {
        try await callNearby("JoinChannel", [.string(id)])
    }

    /// Ends a channel that this machine hosts, for all its members.
    ///
    /// - Parameter id: `NearbyChannelDescription.id`.
    public func deleteNearbyChannel(_ id: String) async throws(DaemonClientError) {
        try await callNearby("DeleteChannel", [.string(id)])
    }

    @discardableResult
    private func callNearby(
        _ member: String, _ arguments: [DBusValue] = []
    ) async throws(DaemonClientError) -> [DBusValue] {
        try await call(Self.root, PTTBus.nearbyInterface, member, arguments)
    }
}
