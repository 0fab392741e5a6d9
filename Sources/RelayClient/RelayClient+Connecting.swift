// A link's attempts to connect, and the events of the current attempt's connection.
import Logging
import MonotonicTime
import QUIC
import Reactor
import RelayProtocol

extension RelayClient {
    /// Begins an attempt, at the next of the relay's addresses.
    func connect() {
        attempt += 1
        let relay = core.relay
        if let address = SocketAddress(relay.host, port: relay.port) {
            know([address])
            return connect(to: address)
        }
        let (attempt, host, port) = (attempt, relay.host, relay.port)
        Task {
            let result: Result<[SocketAddress], QUICError>
            do throws(QUICError) {
                result = .success(try await resolve(host, port))
            } catch {
                result = .failure(error)
            }
            // Another attempt, or a leave, may have come meanwhile.
            guard attempt == self.attempt, transport == nil else { return }
            switch result {
            case .success(let addresses):
                know(addresses)
                // Those without a way would only use up an attempt's time; a way may come while one is made, though.
                let reachable = known.addresses.filter { route($0) != nil }
                guard let address = addressTurns.next(of: reachable.isEmpty ? known.addresses : reachable) else {
                    return take(.connectionEnded(.unreachable("'\(host)' has no address")))
                }
                connect(to: address)
            case .failure(let error): take(.connectionEnded(.unreachable("\(error)")))
            }
        }
    }

    private func connect(to address: SocketAddress) {
        do throws(QUICError) {
            let transport = try RelayTransport(
                address: address, relay: core.relay, identity: identity, returning: returning(to: address),
                client: self, logger: logger)
            self.transport = transport
            if transport.offersEarlyData { offerEarlyData() }
        } catch {
            // Not at once: this may be within `carryOut`.
            let attempt = attempt
            loop.execute { [weak self] in
                self?.assumeIsolated { client in
                    if attempt == client.attempt { client.take(.connectionEnded(.system("\(error)"))) }
                }
            }
        }
    }

    /// Ends the attempt; nothing that still comes of it counts.
    func close(_ code: RelayCloseCode) {
        attempt += 1
        transport?.close(code)
        transport = nil
    }

    // MARK: What the transport tells

    func transport(_ sender: RelayTransport, _ event: RelayClientCore.Event) {
        guard sender === transport else { return }
        switch event {
        case .connected: addressTurns.succeeded()
        case .message: lastRoundTrip = sender.connection.roundTripTime ?? lastRoundTrip
        default: break
        }
        if case .message(.successor(let place)) = event {
            logger.info("the relay is draining and names a successor", metadata: ["relay": "\(place)"])
            tellOfHost(.sent)
        }
        switch event {
        case .message(.floorTaken), .message(.floorGranted):
            if let roundTripTime { note(roundTrip: roundTripTime) }
        default: break
        }
        take(event)
        // What came may have begun or ended the wait for the relay's answer; or the connection.
        if sender === transport { sender.connection.keepAlive = core.keepAlive }
    }

    func transport(_ sender: RelayTransport, received packet: UnsafeRawBufferPointer) {
        guard sender === transport else { return }
        take(packet)
    }
}
