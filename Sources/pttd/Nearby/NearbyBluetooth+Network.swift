// The adapter between BlueZ and `BluetoothNetwork`. No rule lives here.
import BlueZ
import Glibc
import Logging
import MonotonicTime
import Nearby

extension NearbyBluetooth {
    // MARK: To a machine that hosts a channel

    /// Makes a network to that access point, unless there is one, and keeps it until `endNetwork`.
    ///
    /// - Returns: The network interface.
    func network(to accessPoint: BluetoothAccessPoint) async throws(BluetoothNetworkError) -> String {
        if let interface = interface(to: accessPoint) { return interface }
        keepNetwork(to: accessPoint)
        let outcome = await withCheckedContinuation {
            networkWaiters.append($0)
            // No event comes of Bluetooth that is off already.
            if isRadioKnown { updateRadio() }
        }
        switch outcome {
        case .connected(let interface): return interface
        case .failed(let error): throw error
        }
    }

    /// The same, without waiting for it.
    func keepNetwork(to accessPoint: BluetoothAccessPoint) {
        carryOut(network.handle(.wanted(accessPoint), at: .now))
        turn()
    }

    /// The interface of the network to that access point; nil: there is none.
    func interface(to accessPoint: BluetoothAccessPoint) -> String? {
        network.wish == accessPoint ? networkInterface : nil
    }

    /// The network to that access point is not wanted any more.
    func endNetwork(to accessPoint: BluetoothAccessPoint) {
        guard network.wish == accessPoint else { return }
        networkInterface = nil
        carryOut(network.handle(.wanted(nil), at: .now))
        turn()
    }

    func carryOut(_ actions: [BluetoothNetwork.Action]) {
        for action in actions {
            switch action {
            case .connect(let accessPoint, let ticket): Task { await connect(accessPoint, ticket) }
            case .disconnect(let accessPoint):
                guard let client, let device = paired(accessPoint) else { break }
                Task { try? await client.disconnectNetwork(device) }
            case .tell(let outcome): tell(outcome)
            }
        }
        schedule()
    }

    private func connect(_ accessPoint: BluetoothAccessPoint, _ ticket: UInt64) async {
        guard let client, let device = paired(accessPoint) else {
            return carryOut(network.handle(.refused(ticket: ticket, .notPaired), at: .now))
        }
        do throws(BlueZError) {
            let interface = try await client.connectNetwork(device)
            carryOut(network.handle(.connected(ticket: ticket, interface: interface), at: .now))
        } catch {
            carryOut(network.handle(.refused(ticket: ticket, .refused("\(error)")), at: .now))
        }
    }

    func tell(_ outcome: BluetoothNetwork.Outcome) {
        switch outcome {
        case .connected(let interface):
            logger.info("Bluetooth network connected", metadata: ["interface": "\(interface)"])
            networkInterface = interface
            let zones = [interface] + LocalAddresses.zones.filter { $0 != interface }
            carryOut(finder.handle(.zones(zones), at: .now))
            networkHandler(interface)
        case .failed(let error):
            networkInterface = nil
            logger.info("Bluetooth network not connected", metadata: ["why": "\(error)"])
        }
        for waiter in networkWaiters { waiter.resume(returning: outcome) }
        networkWaiters = []
    }

    /// The link to a device, or the network on it, has ended.
    func networkLost(_ device: DeviceIdentifier) {
        guard let accessPoint = BluetoothAccessPoint(address: device.address.bytes), network.wish == accessPoint,
            networkInterface != nil
        else { return }
        logger.info("Bluetooth network lost", metadata: ["device": "\(device)"])
        networkInterface = nil
        networkHandler(nil)
        carryOut(network.handle(.lost(accessPoint), at: .now))
    }

    /// Whether a network is there, or being made, over the link to this device.
    func carriesNetwork(_ device: DeviceIdentifier) -> Bool {
        network.isInUse && network.wish.flatMap { paired($0) } == device
    }

    /// The device that an adapter of this machine is paired with.
    private func paired(_ accessPoint: BluetoothAccessPoint) -> DeviceIdentifier? {
        client?.assumeIsolated { client in
            let own = client.adapters.filter { $0.isPowered && settings.mayUseNetwork($0) }.map(\.identifier)
            return client.devices.first {
                own.contains($0.identifier.adapter) && $0.isPaired
                    && $0.address.bytes == accessPoint.address
            }?.identifier
        }
    }

    // MARK: For others

    /// Offers a network to paired machines, while there is a bridge for it.
    func offerNetwork() {
        if if_nametoindex(settings.bridge) == 0 { withdrawNetwork() }
        guard offered == nil, !isOffering, if_nametoindex(settings.bridge) != 0, let client else { return }
        let adapters = client.assumeIsolated { $0.adapters.filter { $0.isPowered && settings.offersNetwork($0) } }
        guard let chosen = adapters.first(where: { $0.identifier == adapter }) ?? adapters.first,
            chosen.identifier != refusedOffer,
            let accessPoint = chosen.address.flatMap({ BluetoothAccessPoint(address: $0.bytes) })
        else { return }
        isOffering = true
        Task {
            defer { isOffering = false }
            do throws(BlueZError) {
                try await client.offerNetwork(over: settings.bridge, on: chosen.identifier)
                logger.info(
                    "offering a Bluetooth network to paired machines",
                    metadata: ["adapter": "\(chosen.identifier)", "bridge": "\(settings.bridge)"])
                offered = (chosen.identifier, accessPoint)
                renew()
            } catch {
                // It is not asked for with each read.
                refusedOffer = chosen.identifier
                logger.info("cannot offer a Bluetooth network", metadata: ["why": "\(error)"])
            }
        }
    }

    /// No channel is announced any more, or there is no Bluetooth.
    func withdrawNetwork() {
        guard let (adapter, _) = offered else { return }
        offered = nil
        guard let client else { return }
        Task { await client.withdrawNetwork(from: adapter) }
    }
}

extension BluetoothNetworkError {
    /// What to do, in words for the user.
    ///
    /// - Parameters:
    ///   - machine: What the other machine is called.
    ///   - accessPoint: Its adapter.
    func words(_ machine: String, _ accessPoint: BluetoothAccessPoint) -> String {
        switch self {
        case .notPaired:
            "Bluetooth can be the network once the two machines are paired: on the machine of \(machine) type "
                + "\"bluetoothctl discoverable on\", and here \"bluetoothctl\" with \"scan on\", \"pair \(accessPoint)\" and "
                + "\"trust \(accessPoint)\"; then trust this machine there as well, and join again"
        case .noRadio: "Bluetooth has been switched off; switch it on with \"bluetoothctl power on\", and join again"
        case .refused(let reason):
            "the Bluetooth network could not be set up (\(reason)): go nearer, and check that the machine of \(machine) trusts "
                + "this one (\"bluetoothctl devices Paired\", \"bluetoothctl trust …\" there); then join again"
        case .timedOut, .cancelled: "the Bluetooth network was not ready in time: go nearer, and join again"
        }
    }
}
