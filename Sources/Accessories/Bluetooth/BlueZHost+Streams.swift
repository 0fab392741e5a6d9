// Streams of bytes: the serial port through bluetoothd, hands-free commands through BlueALSA.
import BlueZ
import DBus
import Logging
import Reactor

extension BlueZHost {
    /// Opens a stream; its bytes and its end are reported. Nil once it is open, also when it was.
    func openStream(_ device: DeviceIdentifier, _ kind: StreamKind) async -> BluetoothFailure? {
        guard let client else { return .serviceGone }
        let id = StreamID(device: device, kind: kind)
        guard streams.want(id) else { return .other("more than \(StreamTable.streamsMax) streams are open") }
        if !streams.has(id) {
            streams.setOpening(id, true)
            defer { streams.setOpening(id, false) }
            let failure =
                switch kind {
                case .serialPort: await connectSerial(id, client)
                case .handsFree: await openCommands(id)
                }
            // A connection of the device's own may have come meanwhile, whatever became of ours.
            if !streams.has(id) { return failure ?? .notSupported }
        }
        // Closed while it was being opened.
        guard streams.wanted.contains(id) else {
            streams.drop(id)
            return .notConnected
        }
        do throws(SystemError) {
            try streams.start(id, on: loop) { [weak self] report in
                self?.assumeIsolated { $0.handler?(report) }
            }
        } catch {
            return .other("\(error)")
        }
        return nil
    }

    /// Writes a few bytes to an open stream.
    func writeStream(_ bytes: [UInt8], to device: DeviceIdentifier, _ kind: StreamKind) -> BluetoothFailure? {
        do throws(SystemError) {
            return try streams.write(bytes, StreamID(device: device, kind: kind)) ? nil : .notConnected
        } catch {
            return .other("\(error)")
        }
    }

    // MARK: The serial port

    private func connectSerial(_ id: StreamID, _ client: BlueZClient) async -> BluetoothFailure? {
        do throws(BlueZError) {
            // From the first serial accessory on: other machines need no such record.
            try await client.registerSerialProfile { [weak self] event in
                self?.assumeIsolated { $0.serial(event) } ?? false
            }
            try await client.connectSerial(id.device)
            // It says so too when there was no record; and when it takes a connection for open that we have not got: that ends here.
            if !streams.has(id) { try await client.disconnectProfile(id.device, BlueZClient.serialPort) }
            return nil
        } catch {
            return BluetoothFailure(error)
        }
    }

    /// Whether the connection is taken.
    private func serial(_ event: SerialProfileEvent) -> Bool {
        switch event {
        case .connected(let device, let descriptor):
            let id = StreamID(device: device, kind: .serialPort)
            guard streams.wanted.contains(id) else { return false }
            let wasOpen = streams.isOpen(id)
            do throws(SystemError) {
                try streams.put(descriptor, id)
            } catch {
                logger.warning("serial connection not usable", metadata: ["device": "\(device)", "reason": "\(error)"])
                return false
            }
            // The former one is void, and the rules open this one.
            if wasOpen { handler?(.streamClosed(device: device, .serialPort)) }
            if !streams.isOpening(id) { handler?(.streamOffered(device: device, .serialPort)) }
            return true
        case .disconnectionRequested(let device):
            if streams.drop(StreamID(device: device, kind: .serialPort)) {
                handler?(.streamClosed(device: device, .serialPort))
            }
            return true
        }
    }

    // MARK: Hands-free

    private func openCommands(_ id: StreamID) async -> BluetoothFailure? {
        do throws(BlueALSAError) {
            let descriptor = try await BlueALSA.openCommands(of: id.device, on: connection)
            do throws(SystemError) {
                try streams.put(descriptor, id)
            } catch {
                return .other("\(error)")
            }
            return nil
        } catch {
            return .other(error.description)
        }
    }
}
