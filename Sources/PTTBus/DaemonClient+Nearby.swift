// The daemon's requests for channels nearby.
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
    /// - Parameters:
    ///   - name: Nil: made from the machine's name.
    ///   - admission: How somebody gets in. The code of a locked channel is in `snapshot.nearby` then.
    /// - Returns: The channel's UUID.
    public func createNearbyChannel(
        _ name: String?, admission: NearbyAdmission = .open
    ) async throws(DaemonClientError) -> UUID {
        let options: [String: DBusValue] = admission == .open ? [:] : ["Admission": .string(admission.rawValue)]
        return try await callNearby("CreateChannel", [.string(name ?? ""), .properties(options)])
            .read("s") { $0.first?.stringValue.flatMap { UUID(uuidString: $0) } }
    }

    /// Makes a channel nearby the active one. Waits up to `PTTBusLimits.nearbyJoinTime` when its creator is asked.
    ///
    /// - Parameters:
    ///   - id: `NearbyChannelDescription.id`.
    ///   - code: Of a locked channel; nil: none.
    public func joinNearbyChannel(_ id: String, code: String? = nil) async throws(DaemonClientError) {
        let options: [String: DBusValue] = code.map { ["Code": .string($0)] } ?? [:]
        try await callNearby("JoinChannel", [.string(id), .properties(options)], PTTBusLimits.nearbyJoinTime)
    }

    /// Lets a newcomer into a channel of this machine, or does not.
    ///
    /// - Parameter id: `NearbyNewcomerDescription.id`.
    public func decideNearby(_ isAdmitted: Bool, about id: String) async throws(DaemonClientError) {
        try await callNearby(isAdmitted ? "Admit" : "Refuse", [.string(id)])
    }

    /// Ends a channel that this machine hosts, for all its members.
    ///
    /// - Parameter id: `NearbyChannelDescription.id`.
    public func deleteNearbyChannel(_ id: String) async throws(DaemonClientError) {
        try await callNearby("DeleteChannel", [.string(id)])
    }

    @discardableResult
    private func callNearby(
        _ member: String, _ arguments: [DBusValue] = [], _ timeout: Duration? = nil
    ) async throws(DaemonClientError) -> [DBusValue] {
        try await call(Self.root, PTTBus.nearbyInterface, member, arguments, timeout)
    }
}
