// Lets known devices reconnect automatically: a GattProfile1 with the services' UUIDs, registered with each adapter.
import DBus
import Logging
import MonotonicTime
import Reactor

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
        guard services != reconciler.wanted ?? [] else { return }
        reconciler.want(services.isEmpty ? nil : services)
        do throws(DBusError) {
            try await exportProfile()
        } catch {
            logger.error("cannot export the reconnection profile", metadata: ["reason": "\(error)"])
        }
        scheduleReconcile()
    }

    private func exportProfile() async throws(DBusError) {
        let uuids = DBusValue.strings((reconciler.wanted ?? []).sorted().map(\.rawValue))
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
        guard let uuids = reconciler.wanted else { return }
        do throws(BlueZError) {
            try await call(
                adapter.path, BlueZName.gattManager, "RegisterApplication",
                [.objectPath(applicationPath), .properties([:])],
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
            try await call(
                adapter.path, BlueZName.gattManager, "UnregisterApplication", [.objectPath(applicationPath)],
                during: "unregister from \(adapter)")
        } catch {
            // Not registered there (any more) is what was wanted.
            logger.debug("unregistering", metadata: ["adapter": "\(adapter)", "reason": "\(error)"])
        }
        guard current == life else { return }
        reconciler.didUnregister(adapter)
    }

    func unregisterAll() async {
        reconciler.want(nil)
        reconcileTimer?.cancel()
        for adapter in reconciler.registered.keys { await unregister(adapter, life: life) }
        await connection.unexport(at: profilePath)
        await connection.unexportObjectManager(at: applicationPath)
        await unregisterAgent()
    }
}
