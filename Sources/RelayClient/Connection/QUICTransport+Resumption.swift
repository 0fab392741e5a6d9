// Returning to a known relay: the join goes with the first packet, and the relay's tickets for the next time are kept.
import Cryptography
import Logging
import MonotonicTime
import QUIC
import Reactor
import RelayProtocol

/// What is known of a relay from an earlier connection.
struct Returning {
    var state: ResumptionState?
    var roundTripTime: Duration?
}

extension QUICTransport {
    /// Whether what is sent now goes with the first packet.
    var offersEarlyData: Bool { connection.earlyData == .offered }

    /// The relay gave something to return with.
    func keep(_ state: ResumptionState) {
        guard !isClosed, pacer.came(state) else { return }
        pacerTimer = loop.schedule(after: ResumptionPacer.pause) { [weak self] in self?.keepUnsaved() }
    }

    /// Keeps what came and was not kept yet.
    func keepUnsaved() {
        pacerTimer?.cancel()
        pacerTimer = nil
        guard let state = pacer.take() else { return }
        client?.assumeIsolated { $0.resumption.keep(state, of: relay, for: $0.identity.pin) }
    }

    /// The connection has ended with `reason`. A ticket with which it did not come about is of no use, perhaps the cause.
    func forgetTicket(after reason: QUICCloseReason) {
        guard !wasConnected, connection.earlyData != .notOffered else { return }
        switch reason {
        case .handshakeTimeout, .idleTimeout, .endpointClosed, .closedLocally, .statelessReset: return
        default: client?.assumeIsolated { $0.resumption.keep(nil, of: relay, for: $0.identity.pin) }
        }
    }

    /// For the log: whether this connection has saved a round trip.
    func noteEarlyData() {
        let outcome =
            switch connection.earlyData {
            case .notOffered: "not offered"
            case .offered, .rejected: "not taken"
            case .accepted: "taken"
            }
        logger.debug(
            "connected",
            metadata: ["relay": "\(address)", "early-join": "\(outcome)", "t": "\(Instant.now.nanoseconds)"])
    }
}

extension RelayClient {
    /// What is known of the relay for the next connection.
    func returning(to address: SocketAddress) -> Returning {
        Returning(state: resumption.state(of: core.relay, for: identity.pin), roundTripTime: lastRoundTrip)
    }
}
