// BlueZ as this module sees it: its events as facts, the rules' commands as its calls. It has no rules.
import BlueZ
import DBus
import Logging
import MonotonicTime
import Reactor

/// The system's Bluetooth, through bluetoothd.
actor BlueZHost: BluetoothHost {
    nonisolated let loop: EventLoop
    nonisolated var unownedExecutor: UnownedSerialExecutor { loop.asUnownedSerialExecutor() }

    let connection: DBusConnection
    let logger: Logger
    private(set) var client: BlueZClient?
    private(set) var handler: (@Sendable (BluetoothReport) -> Void)?
    let streams = StreamTable()
    private var isAvailable = false
    private var radio = RadioState.noService
    /// What was told of each device, so that a new signal strength is no news.
    private(set) var told: [DeviceIdentifier: DeviceFacts] = [:]
    private var armed: Set<AdapterIdentifier> = []
    private var hasAgent = false
    /// A scan of ours is on: signal strengths are told.
    private var isListening = false
    private var heard: [DeviceIdentifier: Int16] = [:]
    let listening: Listening
    var adapterLinks: [AdapterIdentifier: AdapterLinks] = [:]
    /// Adapters whose links the kernel does not tell of, which is logged once.
    var unheardAdapters: Set<AdapterIdentifier> = []
    var linkTimer: EventLoop.Timer?

    init(on connection: DBusConnection, logger: Logger, listening: @escaping Listening = kernel) {
        self.listening = listening
        self.connection = connection
        self.logger = logger
        loop = connection.loop
    }

    func start(_ handler: @escaping @Sendable (BluetoothReport) -> Void) async throws(BlueZError) {
        guard client == nil else { return }
        self.handler = handler
        let client = BlueZClient(on: connection, logger: logger) { [weak self] event in
            self?.assumeIsolated { $0.received(event) }
        }
        self.client = client
        try await client.start()
    }

    func stop() async {
        handler = nil
        streams.closeAll()
        stopListening()
        linkTimer?.cancel()
        await client?.stop()
        client = nil
    }

    // MARK: In

    private func received(_ event: BlueZEvent) {
        switch event {
        case .available:
            isAvailable = true
            updateRadio()
            updateListeners()
        case .unavailable:
            serviceGone()
        case .adapterAdded, .adapterChanged, .adapterPowered:
            updateRadio()
            updateListeners()
        case .adapterRemoved(let adapter):
            setArmed(adapter, false)
            stopListening(on: adapter)
            updateRadio()
        case .deviceDisconnected(_, .serviceGone):
            // First of all the reason: everything that follows is the end of bluetoothd.
            serviceGone()
        case .deviceAdded(let device), .deviceChanged(let device):
            tell(device.identifier)
            hear(device)
        case .deviceConnected(let device), .deviceDisconnected(let device, _):
            if let device = client?.assumeIsolated({ $0.device(device) }) { connectionChanged(device) }
            tell(device)
        case .servicesResolved(let device, _), .batteryChanged(let device, _):
            tell(device)
        case .characteristicAdded(let characteristic):
            tell(characteristic.identifier.device)
        case .characteristicRemoved(let characteristic):
            tell(characteristic.device)
        case .deviceRemoved(let device):
            if let address = told.removeValue(forKey: device)?.address, let gone = BluetoothAddress(address) {
                adapterLinks[device.adapter]?.links.bluezKnows(gone)
            }
            heard[device] = nil
            streams.close(device)
            handler?(.deviceRemoved(device))
        case .valueChanged(let characteristic, let bytes, let time):
            if told[characteristic.device]?.isLinkLost == true { lookAtLinks(of: characteristic.device.adapter) }
            handler?(.value(characteristic: characteristic, bytes: bytes, at: time))
        case .reconnectionArmed(let adapter):
            setArmed(adapter, true)
        case .reconnectionFailed(let adapter, let error):
            logger.warning(
                "Bluetooth does not reconnect buttons by itself; it is asked for again",
                metadata: ["adapter": "\(adapter)", "reason": "\(error)"])
            setArmed(adapter, false)
        case .flooding(let device, let rate):
            handler?(.flooding(device: device, valuesPerSecond: rate))
        case .notifyingChanged, .deviceHeard, .networkDisconnected:
            return
        }
    }

    private func serviceGone() {
        isAvailable = false
        streams.closeAll()
        told = [:]
        heard = [:]
        isListening = false
        stopListening()
        armed = []
        updateRadio()
    }

    private func updateRadio() {
        let isPowered = client?.assumeIsolated { $0.adapters.contains(where: \.isPowered) } ?? false
        let state: RadioState = !isAvailable ? .noService : isPowered ? .on : .off
        guard state != radio else { return }
        radio = state
        handler?(.radio(state))
    }

    private func setArmed(_ adapter: AdapterIdentifier, _ isArmed: Bool) {
        let was = !armed.isEmpty
        if isArmed { armed.insert(adapter) } else { armed.remove(adapter) }
        if was != !armed.isEmpty { handler?(.autoConnect(isArmed: !was)) }
    }

    /// Tells a device as it is now, unless that is known.
    func tell(_ identifier: DeviceIdentifier) {
        guard let client else { return }
        let found = client.assumeIsolated { client -> DeviceFacts? in
            guard let device = client.device(identifier) else { return nil }
            return DeviceFacts(device, characteristics: client.characteristics(of: identifier))
        }
        guard var found else { return }
        found.isLinkLost = found.isConnected && hasLostLink(identifier, found.address)
        guard found != told[identifier] else { return }
        told[identifier] = found
        handler?(.device(found))
    }

    private func hear(_ device: Device) {
        guard isListening, let strength = device.rssi, heard[device.identifier] != strength else { return }
        heard[device.identifier] = strength
        handler?(.heard(device: device.identifier, signalStrength: Int(strength)))
    }

    // MARK: Out

    func perform(_ command: BluetoothCommand) async -> BluetoothFailure? {
        guard let client else { return .serviceGone }
        do throws(BlueZError) {
            switch command {
            case .connect(let device): try await client.connect(device)
            case .disconnect(let device): try await client.disconnect(device)
            case .pair(let device):
                try await registerAgent(client)
                try await client.pair(device)
            case .trust(let device): try await client.setTrusted(true, device)
            case .startNotify(let characteristic): try await client.startNotify(characteristic)
            case .read(let characteristic):
                let bytes = try await client.readValue(characteristic)
                handler?(.read(characteristic: characteristic, bytes: bytes))
            case .probe(.bluetoothd): try await client.ping()
            case .probe(.blueALSA): return await BlueALSA.ping(on: connection) ? nil : .timedOut
            case .cancelPairing(let device): await client.cancelPairing(device)
            case .startDiscovery: try await startDiscovery(client)
            case .stopDiscovery: try await stopDiscovery(client)
            case .autoConnect(let services): await client.setReconnectingServices(services)
            case .write(let characteristic, let value): try await write(value, characteristic, client)
            case .remove(let device): try await client.removeDevice(device)
            case .openStream(let device, let kind): return await openStream(device, kind)
            case .closeStream(let device, let kind): streams.close(StreamID(device: device, kind: kind))
            case .writeStream(let device, let kind, let bytes): return writeStream(bytes, to: device, kind)
            case .setLink(let device, let parameters): return setLink(device, parameters, client)
            }
            return nil
        } catch {
            return BluetoothFailure(error)
        }
    }

    /// With an answer where the characteristic gives one.
    private func write(
        _ value: [UInt8], _ characteristic: CharacteristicIdentifier, _ client: BlueZClient
    ) async throws(BlueZError) {
        let kind = await client.characteristic(characteristic)?.writeKind ?? .request
        try await client.writeValue(value, kind, to: characteristic)
    }

    /// The kernel only takes the command and hands it to the controller, so that the loop may do it.
    private func setLink(
        _ identifier: DeviceIdentifier, _ parameters: LEConnectionParameters, _ client: BlueZClient
    ) -> BluetoothFailure? {
        guard let device = client.assumeIsolated({ $0.device(identifier) }) else { return .doesNotExist }
        guard device.isConnected else { return .notConnected }
        guard let adapter = identifier.adapter.index else { return .notSupported }
        do throws(LEConnectionError) {
            // Of a bonded device with a private address, BlueZ and the kernel's link both have the identity address.
            try LEConnection.request(parameters, device: device.address, adapter: adapter)
            return nil
        } catch {
            switch error {
            case .notPermitted: return .notPermitted
            case .notConnected: return .notConnected
            case .noBluetooth, .noAdapter: return .notSupported
            case .invalidParameters, .failed: return .other("\(error)")
            }
        }
    }

    /// Only from the first pairing on: a machine that never pairs needs no agent of ours.
    private func registerAgent(_ client: BlueZClient) async throws(BlueZError) {
        guard !hasAgent else { return }
        try await client.registerAgent()
        hasAgent = true
    }

    /// On every adapter that is on; one that scans is enough.
    private func startDiscovery(_ client: BlueZClient) async throws(BlueZError) {
        var failure: BlueZError?
        var isScanning = false
        // Classic accessories too: what is looked for need not be of Low Energy.
        var filter = DiscoveryFilter()
        filter.lowEnergyOnly = false
        isListening = true
        for adapter in await client.adapters where adapter.isPowered {
            do throws(BlueZError) {
                try await client.startDiscovery(on: adapter.identifier, filter: filter)
                isScanning = true
            } catch {
                failure = error
            }
        }
        if let failure, !isScanning { throw failure }
    }

    /// On every adapter, whatever the others say: a scan that runs on disturbs links.
    private func stopDiscovery(_ client: BlueZClient) async throws(BlueZError) {
        isListening = false
        heard = [:]
        var failure: BlueZError?
        for adapter in await client.adapters {
            do throws(BlueZError) {
                try await client.stopDiscovery(on: adapter.identifier)
            } catch {
                failure = failure ?? error
            }
        }
        if let failure { throw failure }
    }
}

extension DeviceFacts {
    /// What the rules need of a device.
    init(_ device: Device, characteristics: [Characteristic]) {
        self.init(
            id: device.identifier, address: device.address.description, name: device.name, services: device.services,
            isPaired: device.isPaired, isTrusted: device.isTrusted, isConnected: device.isConnected,
            servicesResolved: device.areServicesResolved, battery: device.batteryPercentage.map { Int($0) },
            characteristics: characteristics.compactMap { characteristic in
                guard let service = characteristic.service, let uuid = characteristic.uuid else { return nil }
                return CharacteristicFacts(id: characteristic.identifier, service: service, characteristic: uuid)
            }, isPairedForNow: device.isPaired && !device.isBonded)
    }
}
