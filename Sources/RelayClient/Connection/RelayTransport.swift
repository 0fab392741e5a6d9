// What a client needs of its connection to a relay, over whichever path it leads.
import Cryptography
import Logging
import MonotonicTime
import QUIC
import Reactor
import RelayProtocol

/// The two kinds of connection to a relay.
enum LinkKind: Sendable, Hashable, CaseIterable {
    /// QUIC over UDP.
    case quic
    /// A WebSocket over TLS, where UDP is blocked (docs/relay-protocol.md, section 21).
    case tls
}

/// One connection to a relay, from the attempt on. It tells its client of `connected`, of what comes, and of its end; all
/// use is on the client's loop.
protocol RelayTransport: AnyObject, Sendable {
    var kind: LinkKind { get }
    var client: RelayClient? { get }
    var logger: Logger { get }
    /// Whether it is over; nothing is told any more.
    var isClosed: Bool { get }
    /// When something of the relay came last.
    var lastHeard: Instant? { get }
    /// The smoothed round-trip time; nil: not measured yet.
    var roundTripTime: Duration? { get }
    /// After how much silence the relay is asked for a sign of life.
    var keepAlive: Duration { get set }

    /// Sends a control message; false when the relay has not taken the ones before it.
    func send(_ message: ClientMessage) -> Bool
    /// Sends a media packet. Its fate is told later under the returned number; `nil` when it is not accepted.
    func send(_ datagram: [UInt8]) -> UInt64?
    /// Sends a media packet with its trailer outside QUIC, where there is such a way.
    func send(outsideQUIC packet: [UInt8])
    /// Whether an answer to such packets is awaited: meanwhile the relay is asked often for a sign of life.
    func awaitAnswer(_ isAwaited: Bool)
    /// Sends a message that arrives soon or never, where there is such a way.
    func send(loosely message: ClientMessage)
    /// Sends a packet again, as a control message; false when too many wait.
    func sendRepair(_ packet: [UInt8]) -> Bool
    /// This machine's network has changed, or the machine slept.
    func networkChanged(_ news: NetworkChanges.News)
    /// Closes it. No event follows.
    func close(_ code: RelayCloseCode)
}

extension RelayTransport {
    /// Whether nothing is lost on the way, so that nothing has to be sent again.
    var isReliable: Bool { kind == .tls }

    func tell(_ event: RelayClientCore.Event) {
        guard !isClosed else { return }
        client?.assumeIsolated { $0.transport(self, event) }
    }

    /// Tells of a control message; of a kind that is not known, it is ignored.
    func tell(message bytes: [UInt8]) {
        do throws(RelayMessageError) {
            tell(.message(try ServerMessage(parsing: bytes)))
        } catch {
            guard error.isViolation else { return logger.debug("control message of an unknown kind ignored") }
            tell(.violation(error.description))
        }
    }
}

/// One answer of the relay to a request for packets or for a burst, as far as it has come: on a stream of QUIC, or in parts over TLS.
final class AnswerReader {
    private var decoder = RepairStreamDecoder()
    /// It is complete, or its rest is not needed.
    private(set) var isOver = false

    /// Takes the next bytes of the answer.
    ///
    /// - Returns: What the rules are to know of it; nil: nothing.
    func take(_ bytes: [UInt8], isEnd: Bool) -> RelayClientCore.Event? {
        guard !isOver else { return nil }
        var packets: [[UInt8]] = []
        do throws(RepairStreamDecoder.Failure) {
            try decoder.feed(bytes, isEnd: isEnd) { packets.append($0) }
        } catch {
            isOver = true
            return .violation(error.description)
        }
        isOver = isEnd
        guard let id = decoder.id, isEnd || !packets.isEmpty else { return nil }
        guard decoder.isBurst else { return .repaired(request: id, packets: packets, isEnd: isEnd) }
        return .burst(
            request: BurstRequestID(rawValue: id), packets: packets, isWhole: decoder.isWhole, isEnd: isEnd)
    }
}

/// Begins a connection to a relay, with an endpoint of its own, which is to be closed by who gets it.
func connectToRelay(
    at address: SocketAddress, pin: PublicKeyPin, identity: Identity, resumption: ResumptionState? = nil,
    expectedRoundTrip: Duration? = nil, loop: EventLoop, logger: Logger
) throws(QUICError) -> QUICConnection {
    var configuration = QUICConfiguration(
        applicationProtocol: RelayProtocolLimits.applicationProtocol,
        identity: QUICIdentity(
            certificate: identity.certificateDER, privateKey: identity.privateKeyDER, encoding: .der))
    // The control stream's: what may be lost in a gap of seconds, and has to be sent again.
    configuration.streamSendBuffer = 256 * 1_024
    let endpoint = try QUICEndpoint(loop: loop, bind: .any(), configuration: configuration, logger: logger)
    do {
        return try endpoint.connect(
            to: address,
            options: QUICClientOptions(
                verification: .pinned([pin.bytes]), resumption: resumption, expectedRoundTrip: expectedRoundTrip))
    } catch {
        endpoint.close()
        throw error
    }
}
