// Changing what accessories do, and keeping it.
import Accessories
import Files
import Logging
import Settings
import Vocabulary

extension AccessorySetup {
    /// Has a control do something else; nil: what it does otherwise.
    public func bind(_ control: Control, to action: ControlAction?, of id: AccessoryID)
        async throws(AccessoryError)
    {
        let status = try status(of: id)
        let profileID =
            status.profileID
            ?? service.assumeIsolated { service in
                service.configurations.first { $0.id == id }?.profileID
            }
        if let profile = profileID.flatMap({ library[$0] }),
            !profile.controls.contains(control)
        {
            let known = profile.controls.map(\.rawValue).joined(separator: ", ")
            throw AccessoryError(
                .invalid, "'\(id)' has no control '\(control.rawValue)'; it has \(known.isEmpty ? "none" : known)")
        }
        if case .command? = action, !allowsCommands {
            throw AccessoryError(
                .refused, "only a user's own daemon runs commands: systemctl --user start pttd, and bind it there")
        }
        try await change(status) { $0.bindings[control] = action }
    }

    /// Has talk controls work otherwise; nil: as the profile says.
    public func setGesture(_ gesture: Gesture?, of id: AccessoryID) async throws(AccessoryError) {
        let status = try status(of: id)
        let profile = status.profileID.flatMap { library[$0] }
        if let gesture, gesture == .hold || gesture == .hybrid, let profile,
            profile.toggleOnly.contains(where: { profile.defaultAction(of: $0) == .transmit })
        {
            throw AccessoryError(
                .refused, "'\(id)' tells no release, so it can only toggle: one press begins, the next one ends")
        }
        try await change(status) { $0.gesture = gesture }
    }

    /// Says whether an accessory has to be bonded. Where pttd.toml asks for a bond of all, only that exempts one.
    public func setBondedOnly(_ isBondedOnly: Bool, of id: AccessoryID) async throws(AccessoryError) {
        let status = try status(of: id)
        if !isBondedOnly, self.isBondedOnly, configured[id] == nil {
            throw AccessoryError(
                .refused,
                "[accessories] of pttd.toml asks for a bond of all accessories: exempt '\(id)' there, by an [accessory.NAME] with its "
                    + "address and bonded-only = false")
        }
        if isBondedOnly, let profile = status.profileID.flatMap({ library[$0] }), profile.bonding == .never {
            throw AccessoryError(
                .refused, "'\(id)' (\(profile.title)) cannot be bonded, and so would never be used")
        }
        try await change(status) { $0.isBondedOnly = isBondedOnly }
    }

    /// Tries an accessory: its controls are reported and do nothing. Nothing is done for one that is gone.
    public func setTesting(_ id: AccessoryID, _ isOn: Bool) throws(AccessoryError) {
        if isOn { _ = try status(of: id) }
        service.assumeIsolated { $0.setTesting(id, isOn) }
    }

    func status(of id: AccessoryID) throws(AccessoryError) -> AccessoryStatus {
        guard let status = service.assumeIsolated({ $0.statuses.first { $0.id == id } }) else { throw .unknown(id) }
        return status
    }

    /// Changes what is kept of an accessory, writes it down, and has the service use it.
    private func change(
        _ status: AccessoryStatus, _ body: @Sendable (inout AccessoryStore.Change) -> Void
    ) async throws(AccessoryError) {
        let (original, isBondedOnly, origin) = (configured[status.id], isBondedOnly, origin(of: status.id))
        let result = try await edit { contents throws(AccessoryError) in
            guard let original else {
                // A person may have removed it while this waited for the disk: that stays so.
                guard origin != .added || contents.accessories.contains(where: { $0.id == status.id }) else {
                    throw .unknown(status.id)
                }
                return contents.change(status, body).used(isBondedOnly: isBondedOnly)
            }
            var change = contents.changes[status.id] ?? AccessoryStore.Change()
            body(&change)
            contents.changes[status.id] = change.isEmpty ? nil : change
            return change.applied(to: original)
        }
        await service.configure(result)
        handler(.changed)
    }

    /// The device as the scan knows it.
    func scannedDevice(_ address: String) -> DeviceFacts? { scan.device(address: address) }

    /// Has an accessory work by another profile; false when that is not possible.
    func useProfile(_ profileID: String, of status: AccessoryStatus) async -> Bool {
        // The administrator's word on its profile is the last.
        guard configured[status.id]?.profileID == nil else { return false }
        do throws(AccessoryError) {
            try await change(status) { $0.profileID = profileID }
            return true
        } catch {
            logger.error("accessory's profile not kept", metadata: ["id": "\(status.id)", "why": "\(error)"])
            return false
        }
    }
}

extension AccessoryError {
    static func unknown(_ id: AccessoryID) -> AccessoryError {
        AccessoryError(.notFound, "there is no accessory '\(id)'; 'pttctl accessory list' shows those there are")
    }
}

extension AccessoryStore.Contents {
    /// Changes an accessory that is not in pttd.toml. One that was taken by itself until now is kept from now on: what a person has
    /// said about it makes it that person's.
    ///
    /// - Returns: The accessory after the change.
    fileprivate mutating func change(
        _ status: AccessoryStatus, _ body: (inout AccessoryStore.Change) -> Void
    ) -> AccessoryConfiguration {
        let index = accessories.firstIndex { $0.id == status.id }
        var accessory =
            index.map { accessories[$0] }
            ?? AccessoryConfiguration(
                id: status.id, address: status.address.isEmpty ? nil : status.address,
                profileID: status.address.isEmpty ? status.profileID : nil)
        var change = AccessoryStore.Change(accessory)
        body(&change)
        accessory.gesture = change.gesture
        accessory.isBondedOnly = change.isBondedOnly ?? false
        accessory.bindings = change.bindings
        accessory.profileID = change.profileID
        if let index { accessories[index] = accessory } else { accessories.append(accessory) }
        return accessory
    }
}
