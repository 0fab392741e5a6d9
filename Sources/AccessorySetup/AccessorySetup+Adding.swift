// Adding accessories and removing them, as AddStateMachine says.
import Accessories
import BlueZ
import Logging
import MonotonicTime
import Vocabulary

extension AccessorySetup {
    /// Adds an accessory; returns when its presses arrive and it has been written down.
    ///
    /// - Returns: Its id, and what the installer should know.
    /// - Throws: Why not; then nothing is as if it had been tried.
    public func add(_ addition: AccessoryAddition) async throws(AccessoryError) -> (
        id: AccessoryID, notes: [String]
    ) {
        try check(addition)
        let names = takenNames
        var wanted = addition
        wanted.isBondedOnly = addition.isBondedOnly || isBondedOnly
        let machine = AddStateMachine(wanted, library: library, at: .now) { device in
            AccessoryNames.unique(AccessoryNames.name(from: device.name, fallback: "button")) { names.contains($0) }
        }
        let result = await withCheckedContinuation { continuation in
            let scans = service.assumeIsolated { $0.scans.count }
            additions[addition.address] = Addition(
                machine: machine, isBondedOnly: addition.isBondedOnly, scansBefore: scans, answer: continuation)
            carryOut(machine.firstActions, of: addition.address)
            observeAsNeeded()
            guard radio == .on else { return finish(addition.address, .failure(noRadio)) }
            if let device = scan.device(address: addition.address) { add(addition.address, .device(device)) }
            schedule()
        }
        switch result {
        case .success(let notes):
            guard let id = contents.accessories.last(where: { $0.address == addition.address })?.id else {
                throw AccessoryError(.notFound, "the accessory has been removed again")
            }
            return (id, notes)
        case .failure(let error): throw error
        }
    }

    var library: ProfileLibrary { service.assumeIsolated { $0.library } }

    private var takenNames: Set<String> {
        Set(service.assumeIsolated { $0.statuses.map(\.id.text) })
            .union(configured.keys.map(\.text)).union(contents.accessories.map(\.id.text))
            .union(additions.values.compactMap { $0.machine.configuration?.id.text })
    }

    private func check(_ addition: AccessoryAddition) throws(AccessoryError) {
        guard additions[addition.address] == nil else {
            throw AccessoryError(.busy, "\(addition.address) is being added already; wait for it")
        }
        if let name = addition.name {
            guard AccessoryNames.isValid(name) else {
                throw AccessoryError(
                    .invalid,
                    "'\(name)' is no name: use letters, digits, '-' and '_', at most 64, such as "
                        + "'\(AccessoryNames.name(from: name, fallback: "left-hand"))'")
            }
            guard !takenNames.contains(name) else {
                throw AccessoryError(
                    .alreadyConfigured, "there is an accessory '\(name)' already; choose another name")
            }
        }
        let (library, configurations) = service.assumeIsolated { ($0.library, $0.configurations) }
        if let id = addition.profileID, library[id] == nil {
            throw AccessoryError(
                .invalid, "there is no profile '\(id)'; 'pttctl profile list' shows those there are")
        }
        let accessory =
            configurations.first { $0.address == addition.address && origin(of: $0.id) != .automatic }?.id
            ?? accessoryAddresses[addition.address].flatMap { origin(of: $0) == .automatic ? nil : $0 }
        if let accessory {
            throw AccessoryError(
                .alreadyConfigured, "\(addition.address) is accessory '\(accessory)' already; remove that first")
        }
        guard configured.count + contents.accessories.count < AccessorySettings.accessoriesMax else {
            throw AccessoryError(
                .busy, "there are \(AccessorySettings.accessoriesMax) accessories; remove one first")
        }
    }

    /// Whoever adds this device wants it no more.
    public func cancelAdding(address: String) { add(address, .cancelled) }

    /// Forgets an accessory, and has BlueZ forget the device.
    public func remove(_ id: AccessoryID) async throws(AccessoryError) {
        let status = try status(of: id)
        guard configured[id] == nil else {
            throw AccessoryError(
                .refused, "'\(id)' is in pttd.toml: remove [accessory.\(id)] there, and restart pttd")
        }
        let address = status.address.isEmpty ? contents.accessories.first { $0.id == id }?.address : status.address
        guard contents.accessories.contains(where: { $0.id == id }) || address != nil else {
            throw AccessoryError(.refused, "'\(id)' comes from a udev rule: remove that rule, then unplug it")
        }
        try await edit { contents in
            contents.accessories.removeAll { $0.id == id }
            contents.changes[id] = nil
        }
        let device = if let address { await service.device(address: address) } else { nil as DeviceFacts? }
        // First of all BlueZ forgets it: what that trusts would be taken again by itself.
        let failure =
            if let device { await service.perform(.remove(device: device.id)) } else { nil as BluetoothFailure? }
        await service.unconfigure(id)
        handler(.changed)
        if let failure, failure != .doesNotExist {
            logger.notice(
                "BlueZ has not forgotten a removed accessory", metadata: ["id": "\(id)", "why": "\(failure)"])
        }
    }

    // MARK: Additions

    func add(_ address: String, _ event: AddStateMachine.Event) {
        guard var addition = additions[address] else { return }
        let actions = addition.machine.handle(event, at: .now)
        // Kept before the actions are carried out: they cause more events.
        additions[address] = addition
        carryOut(actions, of: address)
        schedule()
    }

    private func carryOut(_ actions: [AddStateMachine.Action], of address: String) {
        for action in actions {
            switch action {
            case .progress(let step): handler(.progress(address: address, step))
            case .scan(let isOn):
                additions[address]?.isScanning = isOn
                scanAsNeeded()
            case .configure(let configuration):
                // What was taken by itself is in the way of what a person adds.
                if let old = accessoryAddresses[address] { service.assumeIsolated { $0.unconfigure(old) } }
                service.assumeIsolated { $0.configure(configuration) }
            case .unconfigure(let id): service.assumeIsolated { $0.unconfigure(id) }
            case .command(let command):
                Task {
                    let failure = await service.perform(command)
                    add(address, .completed(command, failure))
                }
            case .save(var configuration):
                // What pttd.toml asks for is kept there, and may be different at the next start.
                configuration.isBondedOnly = additions[address]?.isBondedOnly ?? configuration.isBondedOnly
                Task { [configuration] in
                    do throws(AccessoryError) {
                        try await edit { $0.accessories.append(configuration) }
                        add(address, .saved(nil))
                    } catch {
                        add(address, .saved(error.description))
                    }
                }
            case .finished(let result): finish(address, result)
            }
        }
    }

    private func finish(_ address: String, _ result: Result<[String], AccessoryError>) {
        guard let addition = additions.removeValue(forKey: address) else { return }
        switch result {
        case .success: logger.notice("accessory added", metadata: ["address": "\(address)"])
        case .failure(let error):
            logger.notice("accessory not added", metadata: ["address": "\(address)", "why": "\(error)"])
        }
        handler(.changed)
        addition.answer.resume(returning: result)
        observeAsNeeded()
    }
}
