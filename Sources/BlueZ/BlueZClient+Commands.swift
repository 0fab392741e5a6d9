// Commands for adapters, devices and characteristics.
import DBus
import MonotonicTime
import Reactor

extension BlueZClient {
    /// How long a `Connect` may take before the device's state is read again.
    static let lookAgainAfter = Duration.seconds(3)
    /// How long the answer to `Pair` is waited for once the device is paired.
    static let pairedAnswerTime = Duration.seconds(2)

    /// Asks bluetoothd for a sign of life; an error is one, but for a time-out.
    public func ping() async throws(BlueZError) {
        try await call(
            "/", "org.freedesktop.DBus.Peer", "Ping", during: "ask for a sign of life")
    }

    // MARK: Adapters

    /// Starts discovery for this program. If it is already running, only the filter is set again. Stop it before
    /// connecting: a running scan breaks links that are being set up.
    public func startDiscovery(
        on adapter: AdapterIdentifier, filter: DiscoveryFilter = DiscoveryFilter()
    ) async throws(BlueZError) {
        let operation = "start discovery on \(adapter)"
        try await call(
            adapter.path, BlueZName.adapter, "SetDiscoveryFilter", [filter.dbusValue],
            during: operation)
        try await call(
            adapter.path, BlueZName.adapter, "StartDiscovery", during: operation, accepting: [.inProgress])
    }

    /// Stops this program's discovery. It succeeds if none is running, and if BlueZ answers `InProgress`, since
    /// discovery stops in that case, too.
    public func stopDiscovery(on adapter: AdapterIdentifier) async throws(BlueZError) {
        try await call(
            adapter.path, BlueZName.adapter, "StopDiscovery", during: "stop discovery on \(adapter)",
            accepting: [.inProgress, .alreadyDone, .notReady, .noSuchObject, .unavailable])
    }

    // MARK: Devices

    /// Connects a device. Returns when there is a link; its services follow with `servicesResolved`.
    /// - Throws: A `BlueZError` whose kind says whether, and when, another attempt makes sense.
    public func connect(_ device: DeviceIdentifier) async throws(BlueZError) {
        let looking = lookAgain(at: device, until: .now + BlueZTimeout.connect)
        defer { looking.cancel() }
        do throws(BlueZError) {
            try await call(
                device.path, BlueZName.device, "Connect", timeout: BlueZTimeout.connect, during: "connect \(device)")
            await look(at: device)
        } catch {
            // With a link that it does not signal, 5.66 answers at once: success, or that it is at it.
            if error.kind == .alreadyDone || error.kind == .inProgress { await look(at: device) }
            if error.kind == .alreadyDone { return }
            // BlueZ 5.66 says "Input/output error" here.
            if error.kind == .unreachable, tree.adapters[device.adapter]?.isPowered == false {
                throw BlueZError(.notReady, "the adapter is off", during: error.operation)
            }
            throw error
        }
    }

    /// Reads a device's properties again and again while it is being connected.
    ///
    /// When a link was there before bluetoothd, after its restart, 5.66 may not signal `Connected` ("Device … is already
    /// connected" in its log), although the property is true; nor need it answer `Connect`.
    private func lookAgain(at device: DeviceIdentifier, until end: Instant) -> Task<Void, Never> {
        Task {
            while !Task.isCancelled, .now < end {
                await withCheckedContinuation { continuation in
                    loop.schedule(after: Self.lookAgainAfter) { continuation.resume() }
                }
                guard !Task.isCancelled else { return }
                await look(at: device)
            }
        }
    }

    private func look(at device: DeviceIdentifier) async {
        guard tree.devices[device]?.isConnected == false else { return }
        let answer = try? await call(
            device.path, BlueZName.properties, "GetAll", [.string(BlueZName.device)],
            during: "look at \(device)")
        guard let properties = answer?.first?.propertiesValue else { return }
        report(tree.propertiesChanged(device.path, BlueZName.device, properties, invalidated: [], at: .now))
    }

    /// Disconnects a device. An untrusted one is not reconnected by BlueZ until it is connected by hand; a trusted one
    /// with a reconnecting service is, at once, while it advertises.
    public func disconnect(_ device: DeviceIdentifier) async throws(BlueZError) {
        try await call(
            device.path, BlueZName.device, "Disconnect", timeout: BlueZTimeout.connect,
            during: "disconnect \(device)", accepting: [.notConnected])
    }

    /// Pairs with a device. Register an agent first.
    ///
    /// It ends when BlueZ answers, when the device has been paired for `pairedAnswerTime` (5.66 may then owe the answer for ever), when
    /// the device is gone, with `cancelPairing`, or after `BlueZTimeout.pair`.
    public func pair(_ device: DeviceIdentifier) async throws(BlueZError) {
        let operation = "pair \(device)"
        guard pairing[device] == nil else {
            throw BlueZError(.inProgress, "a pairing of it is under way", during: operation)
        }
        let asking = Task { () -> BlueZError? in
            do throws(BlueZError) {
                try await call(
                    device.path, BlueZName.device, "Pair", timeout: BlueZTimeout.pair, during: operation)
                return nil
            } catch {
                return error
            }
        }
        pairing[device] = Pairing(asking: asking)
        defer { pairing.removeValue(forKey: device)?.timer?.cancel() }
        guard let error = await asking.value else { return }
        switch error.kind {
        case .alreadyDone: return
        case .cancelled, .timedOut:
            if tree.devices[device]?.isPaired == true { return }
            if tree.devices[device] == nil {
                throw BlueZError(.noSuchObject, "the device went away while it was being paired", during: operation)
            }
            // BlueZ gives it up, too; its answer is of no interest.
            try? await connection.send(
                destination: BlueZName.service, path: device.path, interface: BlueZName.device, method: "CancelPairing")
            throw error
        default: throw error
        }
    }

    /// Gives up a pairing of ours that is under way: `pair` fails at once, whether BlueZ answers or not.
    public func cancelPairing(_ device: DeviceIdentifier) { pairing[device]?.asking.cancel() }

    /// Ends the waiting for an answer that is not needed any more, or will not come.
    func noticedPairing(_ event: BlueZEvent) {
        switch event {
        case .deviceChanged(let device) where device.isPaired:
            guard let current = pairing[device.identifier], current.timer == nil else { return }
            pairing[device.identifier]?.timer = loop.schedule(after: Self.pairedAnswerTime) {
                current.asking.cancel()
            }
        case .deviceRemoved(let device): pairing[device]?.asking.cancel()
        default: return
        }
    }

    /// Trusts a device, or no longer. Only trusted devices are reconnected by themselves.
    public func setTrusted(_ isTrusted: Bool, _ device: DeviceIdentifier) async throws(BlueZError) {
        try await call(
            device.path, BlueZName.properties, "Set",
            [.string(BlueZName.device), .string("Trusted"), .variant(.boolean(isTrusted))],
            during: "\(isTrusted ? "trust" : "distrust") \(device)")
    }

    /// Has BlueZ forget a device: its bond, its services, its trust.
    public func removeDevice(_ device: DeviceIdentifier) async throws(BlueZError) {
        try await call(
            device.adapter.path, BlueZName.adapter, "RemoveDevice", [.objectPath(device.path)],
            timeout: BlueZTimeout.connect, during: "remove \(device)", accepting: [.noSuchObject])
    }

    // MARK: Characteristics

    /// Subscribes to a characteristic: its values arrive as `valueChanged`. It succeeds if the subscription already
    /// exists.
    ///
    /// BlueZ accepts it for a device that is not connected and subscribes when it is; and it subscribes again after
    /// each reconnection, as long as we stay on the bus and the object lives.
    public func startNotify(_ characteristic: CharacteristicIdentifier) async throws(BlueZError) {
        // BlueZ keeps one subscription for each program: "in progress" while it is not confirmed by the device,
        // "already notifying" after.
        try await call(
            characteristic.path, BlueZName.characteristic, "StartNotify", timeout: BlueZTimeout.attribute,
            during: "subscribe to \(characteristic)", accepting: [.alreadyDone, .inProgress])
    }

    /// Reads a characteristic from the device.
    public func readValue(_ characteristic: CharacteristicIdentifier) async throws(BlueZError) -> [UInt8] {
        let operation = "read \(characteristic)"
        let answer = try await call(
            characteristic.path, BlueZName.characteristic, "ReadValue", [.properties([:])],
            timeout: BlueZTimeout.attribute, during: operation)
        guard let value = answer.first?.bytesValue, answer.count == 1, value.count <= Characteristic.largestValue else {
            throw BlueZError(
                .malformedAnswer, "answer of type '\(answer.signature)', not at most 512 bytes", during: operation)
        }
        return value
    }

    /// Writes a characteristic.
    public func writeValue(
        _ value: [UInt8], _ kind: WriteKind = .request, to characteristic: CharacteristicIdentifier
    ) async throws(BlueZError) {
        let operation = "write \(characteristic)"
        guard value.count <= Characteristic.largestValue else {
            throw BlueZError(.invalidArguments, "\(value.count) bytes; at most 512 fit", during: operation)
        }
        try await call(
            characteristic.path, BlueZName.characteristic, "WriteValue",
            [.bytes(value), .properties(["type": .string(kind.rawValue)])], timeout: BlueZTimeout.attribute,
            during: operation)
    }
}
