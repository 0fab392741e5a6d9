// One QUIC connection to a relay: control messages, media datagrams, and packets outside of QUIC.
import Cryptography
import Logging
import MonotonicTime
import QUIC
import Reactor
import RelayProtocol

/// The connection of one attempt of a `RelayClient`. It is `Sendable` only so that the client may be handed it: all use is
/// on the client's loop.
final class QUICTransport: RelayTransport, @unchecked Sendable {
    let kind = LinkKind.quic
    let connection: QUICConnection
    private let endpoint: QUICEndpoint
    /// The relay, with the place at which it was looked for.
    let relay: InvitationLink
    /// Where it began.
    let address: SocketAddress
    /// How packets to an address would leave this machine.
    let route: @Sendable (SocketAddress) -> NetworkRoute?
    let loop: EventLoop
    weak let client: RelayClient?
    let logger: Logger
    private var stream: QUICStream?
    private var decoder = MessageDecoder()
    private(set) var isClosed = false
    var path: TransportPath?
    var pacer = ResumptionPacer()
    var pacerTimer: EventLoop.Timer?
    /// Whether the handshake was completed.
    private(set) var wasConnected = false

    /// Begins to connect to `address`, which must have the key of `relay`.
    init(
        address: SocketAddress, relay: InvitationLink, identity: Identity, returning: Returning, client: RelayClient,
        logger: Logger
    ) throws(QUICError) {
        var configuration = QUICConfiguration(
            applicationProtocol: RelayProtocolLimits.applicationProtocol,
            identity: QUICIdentity(
                certificate: identity.certificateDER, privateKey: identity.privateKeyDER, encoding: .der))
        configuration.streamSendBuffer = Self.controlBufferBytes
        endpoint = try QUICEndpoint(loop: client.loop, bind: .any(), configuration: configuration, logger: logger)
        do {
            connection = try endpoint.connect(
                to: address,
                options: QUICClientOptions(
                    verification: .pinned([relay.pin.bytes]), resumption: returning.state,
                    expectedRoundTrip: returning.roundTripTime))
        } catch {
            endpoint.close()
            throw error
        }
        self.address = address
        self.relay = relay
        loop = client.loop
        route = client.route
        self.client = client
        self.logger = logger
        endpoint.delegate = self
        connection.delegate = self
        followPath()
    }

    var lastHeard: Instant? { connection.lastHeard }
    var roundTripTime: Duration? { connection.roundTripTime }
    var keepAlive: Duration {
        get { connection.keepAlive ?? RelayClientStateMachine.keepAlive }
        set { connection.keepAlive = newValue }
    }

    /// Sends a control message; false when the relay has not taken the ones before it.
    func send(_ message: ClientMessage) -> Bool {
        guard !isClosed else { return true }
        do throws(QUICError) {
            if stream == nil { stream = try connection.openStream() }
            try stream?.write(message.framed())
            return true
        } catch {
            logger.debug("control message not sent", metadata: ["error": "\(error)"])
            return false
        }
    }

    /// Sends a media datagram. The outcome is reported later under the returned number; `nil` when the transport does
    /// not accept it.
    func send(_ datagram: [UInt8]) -> UInt64? {
        guard !isClosed else { return nil }
        return try? connection.sendDatagram(datagram)
    }

    /// Sends a message in a datagram, without its length: it arrives soon or never.
    func send(loosely message: ClientMessage) { _ = send(message.encoded()) }

    /// Sends a packet again, on the control stream; false when the stream's backlog is too long. This leaves space for
    /// more important messages.
    func sendRepair(_ packet: [UInt8]) -> Bool {
        guard !isClosed, let stream, stream.availableCapacity >= Self.reservedControlBytes else { return false }
        return send(.mediaRepair(packet))
    }

    /// Of the control stream's buffer, what packets sent again leave free.
    private static let reservedControlBytes = 16 * 1_024
    /// The control stream's buffer: what may be lost in a gap of seconds, and has to be sent again.
    private static let controlBufferBytes = 256 * 1_024

    /// Closes the connection and the socket. No event follows.
    func close(_ code: RelayCloseCode) {
        guard !isClosed else { return }
        keepUnsaved()
        isClosed = true
        leavePath()
        connection.delegate = nil
        endpoint.delegate = nil
        endpoint.close(code: code.rawValue)
    }

    func tell(_ event: RelayClientCore.Event) {
        guard !isClosed else { return }
        client?.assumeIsolated { $0.transport(self, event) }
    }

    private static func error(_ reason: QUICCloseReason) -> RelayLinkError {
        switch reason {
        case .closedByPeer(let code, let text): RelayLinkError(closedWith: code, text)
        case .peerKeyRejected: .wrongRelayKey
        case .handshakeTimeout: .unreachable("no answer")
        case .statelessReset: .lost("the relay has restarted")
        case .idleTimeout: .lost("nothing was heard from the relay")
        default: .closedByRelay(reason.description)
        }
    }
}

extension QUICTransport: QUICEndpointDelegate {
    func endpoint(
        _ endpoint: QUICEndpoint, didReceiveForeignPacket packet: UnsafeRawBufferPointer, from address: SocketAddress
    ) {
        guard !isClosed, address == connection.remoteAddress else { return }
        // The call returns before the packet goes.
        nonisolated(unsafe) let packet = packet
        client?.assumeIsolated { $0.transport(self, received: packet) }
    }
}

extension QUICTransport: QUICConnectionDelegate {
    func connectionDidBecomeReady(_ connection: QUICConnection) {
        wasConnected = true
        noteEarlyData()
        tell(.connected)
    }

    func connection(_ connection: QUICConnection, didReceive resumption: ResumptionState) { keep(resumption) }

    func connection(_ connection: QUICConnection, didOpen stream: QUICStream) {
        beginAnswer(on: stream)
    }

    func connection(_ connection: QUICConnection, streamDidBecomeReadable stream: QUICStream) {
        guard stream === self.stream else { return readAnswer(on: stream) }
        let (bytes, isEnd) = stream.read()
        var messages: [[UInt8]] = []
        var failure: MessageDecoder.Failure?
        do throws(MessageDecoder.Failure) {
            try decoder.feed(bytes) { messages.append($0) }
        } catch {
            failure = error
        }
        for message in messages {
            do throws(RelayMessageError) {
                tell(.message(try ServerMessage(parsing: message)))
            } catch {
                guard error.isViolation else {
                    logger.debug("control message of an unknown kind ignored")
                    continue
                }
                tell(.violation(error.description))
            }
        }
        if let failure { tell(.violation(failure.description)) }
        if isEnd { tell(.connectionEnded(.closedByRelay("the control stream ended"))) }
    }

    func connection(_ connection: QUICConnection, didClose stream: QUICStream, errorCode: UInt64?) {
        guard stream === self.stream else { return endAnswer(on: stream) }
        tell(.connectionEnded(.closedByRelay("the control stream was closed")))
    }

    func connection(_ connection: QUICConnection, didAbandon stream: QUICStream) {
        if stream === self.stream { tell(.connectionEnded(.closedByRelay("the control stream was closed"))) }
    }

    func connection(_ connection: QUICConnection, didEndMigration succeeded: Bool) { moveEnded(succeeded) }

    func connection(_ connection: QUICConnection, didAcknowledgeDatagram id: UInt64) { tell(.mediaAcknowledged(id)) }

    func connection(_ connection: QUICConnection, didLoseDatagram id: UInt64) { tell(.mediaLost(id)) }

    func connectionWasRefused(_ connection: QUICConnection) {
        guard !isClosed else { return }
        client?.assumeIsolated { $0.wasRefused(self) }
    }

    func connection(_ connection: QUICConnection, didClose reason: QUICCloseReason) {
        forgetTicket(after: reason)
        tell(.connectionEnded(Self.error(reason)))
    }
}

extension RelayLinkError {
    /// What it means that the relay has closed the connection with that code (docs/relay-protocol.md, section 11).
    init(closedWith code: UInt64, _ text: String) {
        switch RelayCloseCode(rawValue: code) {
        case .replaced: self = .replaced
        case .revoked: self = .invitationRefused(text.isEmpty ? "this member was removed" : text)
        case .goingDown: self = .goesDown
        case .channelEnded: self = .channelEnded(text)
        default: self = .closedByRelay(text.isEmpty ? "code \(code)" : text)
        }
    }
}
