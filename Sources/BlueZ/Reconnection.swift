// Lets known devices reconnect automatically: a GattProfile1 with the services' UUIDs, registered with each adapter.
import DBus
import Logging
import MonotonicTime
import Reactor

/// What is registered where, against what is wanted. Pure.
struct ReconnectionState: Sendable {
    /// What to do for an adapter.
    enum Step: Hashable {
        case register(AdapterIdentifier)
        case unregister(AdapterIdentifier)
    }

    static let firstRetry = Duration.seconds(1)
    static let longestRetry = Duration.seconds(60)

    private(set) var wanted: Set<BluetoothUUID> = []
    private(set) var registered: [AdapterIdentifier: Set<BluetoothUUID>] = [:]
    private var failures: [AdapterIdentifier: Int] = [:]
    private var blockedUntil: [AdapterIdentifier: Instant] = [:]

    mutating func want(_ uuids: Set<BluetoothUUID>) {
        wanted = uuids
        failures = [:]
        blockedUntil = [:]
    }

    mutating func forgetAll() {
        registered = [:]
        failures = [:]
        blockedUntil = [:]
    }

    mutating func forget(_ adapter: AdapterIdentifier) {
        registered[adapter] = nil
        failures[adapter] = nil
        blockedUntil[adapter] = nil
    }

    /// The next thing to do, if any is due.
    func next(adapters: [AdapterIdentifier], at now: Instant) -> Step? {
        for adapter in adapters {
            if let blocked = blockedUntil[adapter], blocked > now { continue }
            if let current = registered[adapter] {
                // BlueZ reads the UUIDs when the profile is registered: others mean registering again.
                if current != wanted { return .unregister(adapter) }
            } else if !wanted.isEmpty {
                return .register(adapter)
            }
        }
        return nil
    }

    /// When the next failed registration is due again.
    var nextDeadline: Instant? { blockedUntil.values.min() }

    mutating func didRegister(_ adapter: AdapterIdentifier, _ uuids: Set<BluetoothUUID>) {
        registered[adapter] = uuids
        failures[adapter] = nil
        blockedUntil[adapter] = nil
    }

    mutating func didUnregister(_ adapter: AdapterIdentifier) { registered[adapter] = nil }

    mutating func didFail(_ adapter: AdapterIdentifier, at now: Instant) {
        let count = failures[adapter, default: 0]
        failures[adapter] = min(count + 1, 16)
        blockedUntil[adapter] = now + min(Self.firstRetry * (1 << min(count, 16)), Self.longestRetry)
    }
}

extension BlueZClient {
    private var applicationPath: DBusObjectPath { Self.child(basePath, "gatt") }
    private var profilePath: DBusObjectPath { Self.child(applicationPath, "profile") }

    static func child(_ path: DBusObjectPath, _ name: String) -> DBusObjectPath {
        // The names are ours and valid.
        (try? path.appending(name)) ?? path
    }

    private static let profileInterface = DBusInterface(
        BlueZName.gattProfile, methods: [.init("Release")], properties: [.init("UUIDs", .array(.string))])

    /// Has BlueZ reconnect every known, **trusted** device that offers one of these services, whenever it is heard,
    /// without a discovery of ours. Registered on each adapter, and again whenever bluetoothd or an adapter returns.
    ///
    /// `reconnectionArmed` and `reconnectionFailed` tell what came of it. An empty set ends it.
    public func setReconnectingServices(_ services: Set<BluetoothUUID>) async {
        guard services != reconciler.wanted else { return }
        reconciler.want(services)
        do throws(DBusError) {
            try await exportProfile()
        } catch {
            logger.error("cannot export the reconnection profile", metadata: ["reason": "\(error)"])
        }
        scheduleReconcile()
    }

    private func exportProfile() async throws(DBusError) {
        let uuids = DBusValue.strings(reconciler.wanted.sorted().map(\.rawValue))
        if await connection.property("UUIDs", of: BlueZName.gattProfile, at: profilePath) != nil {
            try await connection.setProperties(["UUIDs": uuids], of: BlueZName.gattProfile, at: profilePath)
            return
        }
        let export = try DBusExport(
            Self.profileInterface, properties: ["UUIDs": uuids],
            methods: [
                "Release": { [weak self] call in
                    await self?.released(by: call.sender)
                    return []
                }
            ])
        await connection.exportObjectManager(at: applicationPath)
        try await connection.export([export], at: profilePath)
    }

    /// BlueZ lets go of the profile when an adapter goes; the adapter's removal follows.
    private func released(by sender: String) {
        guard sender == owner else { return }
        logger.debug("BlueZ released the reconnection profile")
    }

    /// What of the events concerns registrations.
    func noticed(_ event: BlueZEvent) {
        switch event {
        case .adapterAdded, .available: scheduleReconcile()
        case .adapterRemoved(let adapter): reconciler.forget(adapter)
        default: return
        }
    }

    private func scheduleReconcile() {
        guard isAvailable, !isReconciling else { return }
        isReconciling = true
        Task { await reconcile() }
    }

    private func reconcile() async {
        defer { isReconciling = false }
        while isAvailable, let step = reconciler.next(adapters: adapters.map(\.identifier), at: .now) {
            let current = life
            switch step {
            case .register(let adapter): await register(adapter, life: current)
            case .unregister(let adapter): await unregister(adapter, life: current)
            }
        }
        reconcileTimer?.cancel()
        guard isAvailable, let deadline = reconciler.nextDeadline else { return }
        reconcileTimer = loop.schedule(at: deadline) { [weak self] in
            self?.assumeIsolated { $0.scheduleReconcile() }
        }
    }

    private func register(_ adapter: AdapterIdentifier, life current: Int) async {
        let uuids = reconciler.wanted
        do throws(BlueZError) {
            _ = try await call(
                adapter.path, BlueZName.gattManager, "RegisterApplication",
                [.objectPath(applicationPath), .properties([:])], timeout: BlueZTimeout.short,
                during: "register for reconnection on \(adapter)")
            guard current == life, tree.adapters[adapter] != nil else { return }
            reconciler.didRegister(adapter, uuids)
            report([.reconnectionArmed(adapter)])
        } catch {
            guard current == life, tree.adapters[adapter] != nil else { return }
            if error.kind == .alreadyDone {
                // Registered with UUIDs that we do not know (any more): unregister, then again.
                reconciler.didRegister(adapter, [])
                return
            }
            if error.kind == .noSuchObject {
                // An adapter without Low Energy has no GattManager1, and will not get one.
                logger.debug(
                    "automatic reconnection is not available",
                    metadata: ["adapter": "\(adapter)", "reason": "\(error)"])
                reconciler.didRegister(adapter, uuids)
                return
            }
            reconciler.didFail(adapter, at: .now)
            report([.reconnectionFailed(adapter, error)])
        }
    }

    private func unregister(_ adapter: AdapterIdentifier, life current: Int) async {
        do throws(BlueZError) {
            _ = try await call(
                adapter.path, BlueZName.gattManager, "UnregisterApplication", [.objectPath(applicationPath)],
                timeout: BlueZTimeout.short, during: "unregister from \(adapter)")
        } catch {
            // Not registered there (any more) is what was wanted.
            logger.debug("unregistering", metadata: ["adapter": "\(adapter)", "reason": "\(error)"])
        }
        guard current == life else { return }
        reconciler.didUnregister(adapter)
    }

    func unregisterAll() async {
        reconciler.want([])
        reconcileTimer?.cancel()
        for adapter in reconciler.registered.keys { await unregister(adapter, life: life) }
        await connection.unexport(at: profilePath)
        await connection.unexportObjectManager(at: applicationPath)
        await unregisterAgent()
    }
}
