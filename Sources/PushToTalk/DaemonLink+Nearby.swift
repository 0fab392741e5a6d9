// Channels nearby, as pttd reports them.
import DBus
import PTTBus
import PushToTalkCore
import Reactor

/// Those who want to know which channels are nearby.
struct NearbyFollowers {
    var continuations: [UUID: AsyncStream<PTNearbyList>.Continuation] = [:]
    /// The last list from pttd; nil: none yet.
    var list: PTNearbyList?
    var match: DBusMatch?

    mutating func tell(_ new: PTNearbyList) {
        guard new != list else { return }
        list = new
        for continuation in continuations.values { continuation.yield(new) }
    }
}

extension DaemonLink {
    /// Tells the reader of a stream what is nearby, from now on.
    func followNearby(_ id: UUID, _ continuation: AsyncStream<PTNearbyList>.Continuation) {
        nearby.continuations[id] = continuation
        if let list = nearby.list { continuation.yield(list) }
        if nearby.continuations.count == 1 { Task { await browse() } }
    }

    /// The stream is no longer read.
    func endNearby(_ id: UUID) {
        guard nearby.continuations.removeValue(forKey: id) != nil, nearby.continuations.isEmpty else { return }
        nearby.list = nil
        Task { await browse() }
    }

    /// Has pttd look for channels while somebody wants to know them; also when pttd is back.
    func browse() async {
        guard let bus else { return }
        let isWanted = !nearby.continuations.isEmpty
        do throws(DBusError) {
            if isWanted, nearby.match == nil {
                nearby.match = try await bus.addMatch(
                    DBusMatchRule(
                        sender: PTTBus.name, path: Self.rootPath, interface: "org.freedesktop.DBus.Properties",
                        argument0: PTTBus.nearbyInterface)
                ) { [weak self] _ in self?.assumeIsolated { $0.nearbyChanged() } }
            }
            try await bus.call(
                destination: PTTBus.name, path: Self.rootPath, interface: PTTBus.nearbyInterface,
                method: isWanted ? "StartBrowsing" : "StopBrowsing", startsService: false)
            if isWanted { await readNearby() }
        } catch {
            if isWanted { nearby.tell(PTNearbyList(problem: PTChannelError(error).explanation)) }
        }
        // Somebody may have come or gone meanwhile.
        if isWanted == nearby.continuations.isEmpty { await browse() }
    }

    private func nearbyChanged() { Task { await readNearby() } }

    private func readNearby() async {
        guard let bus, !nearby.continuations.isEmpty else { return }
        do throws(DBusError) {
            let properties = try await bus.getProperties(
                of: PTTBus.nearbyInterface, destination: PTTBus.name, path: Self.rootPath)
            let told = NearbyProperties(properties: properties)
            nearby.tell(
                PTNearbyList(
                    channels: told.channels.compactMap { PTNearbyChannel($0) },
                    newcomers: told.newcomers.map { PTNearbyNewcomer($0) },
                    problem: told.problem.isEmpty ? nil : told.problem))
        } catch {
            nearby.tell(PTNearbyList(problem: PTChannelError(error).explanation))
        }
    }

    /// Calls a method of pttd's channels nearby, in order with the other things the app wants.
    @discardableResult
    nonisolated func askNearby(
        _ method: String, _ arguments: [DBusValue], timeout: Duration = DBusConnection.defaultTimeout
    ) async throws -> [DBusValue] {
        let result: Result<[DBusValue], PTChannelError> = await withCheckedContinuation { continuation in
            let fits = submit { link in
                Task {
                    do throws(DBusError) {
                        continuation.resume(returning: .success(try await link.callNearby(method, arguments, timeout)))
                    } catch {
                        continuation.resume(returning: .failure(PTChannelError(error)))
                    }
                }
            }
            if !fits { continuation.resume(returning: .failure(Self.tooMany)) }
        }
        return try result.get()
    }

    private func callNearby(
        _ method: String, _ arguments: [DBusValue], _ timeout: Duration
    ) async throws(DBusError) -> [DBusValue] {
        guard let bus else { throw .disconnected }
        return try await bus.call(
            destination: PTTBus.name, path: Self.rootPath, interface: PTTBus.nearbyInterface, method: method,
            arguments: arguments, timeout: timeout)
    }
}
