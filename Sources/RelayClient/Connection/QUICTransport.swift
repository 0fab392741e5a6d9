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
    /// The rules of the path.
    var path: PathStateMachine
    var pathTimer: EventLoop.Timer?
    /// The relay's address that is used, or is about to be.
    var target: SocketAddress
    private var pacer = ResumptionPacer()
    private var pacerTimer: EventLoop.Timer?
    /// Whether the handshake was completed.
    private(set) var wasConnected = false

    /// Begins to connect to `address`, which must have the key of `relay`.
    init(
        address: SocketAddress, relay: InvitationLink, identity: Identity, resumption: ResumptionState?,
        expectedRoundTrip: Duration?, client: RelayClient, logger: Logger
    ) throws(QUICError) {
        connection = try connectToRelay(
            at: address, pin: relay.pin, identity: identity, resumption: resumption,
            expectedRoundTrip: expectedRoundTrip, loop: client.loop, logger: logger)
        (self.address, target, self.relay) = (address, address, relay)
        (loop, route, self.client, self.logger) = (client.loop, client.route, client, logger)
        path = PathStateMachine(route: client.route(address))
        connection.endpoint.delegate = self
        connection.delegate = self
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

    func send(outsideQUIC packet: [UInt8]) {
        if !isClosed { connection.send(foreign: packet) }
    }

    func awaitAnswer(_ isAwaited: Bool) {
        if !isClosed { connection.awaitsAnswer = isAwaited }
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

    /// Closes the connection and the socket. No event follows.
    func close(_ code: RelayCloseCode) {
        guard !isClosed else { return }
        keepUnsaved()
        isClosed = true
        pathTimer?.cancel()
        connection.delegate = nil
        connection.endpoint.delegate = nil
        connection.endpoint.close(code: code.rawValue)
    }

    /// The connection serves no more: tells so, and closes what is left of it.
    func end(_ error: RelayLinkError) {
        tell(.connectionEnded(error))
        close(.none)
    }

    // MARK: Returning to a known relay

    /// Whether what is sent now goes with the first packet.
    var offersEarlyData: Bool { connection.earlyData == .offered }

    /// Keeps what the relay gave to return with, if that was not kept yet.
    private func keepUnsaved() {
        pacerTimer?.cancel()
        pacerTimer = nil
        if let state = pacer.take() { keep(state) }
    }

    private func keep(_ state: ResumptionState?) {
        client?.assumeIsolated { $0.resumption.keep(state, of: relay, for: $0.identity.pin) }
    }

    /// The connection has ended with `reason`. A ticket with which it did not come about is of no use, perhaps the cause.
    private func forgetTicket(after reason: QUICCloseReason) {
        guard !wasConnected, connection.earlyData != .notOffered else { return }
        switch reason {
        case .handshakeTimeout, .idleTimeout, .endpointClosed, .closedLocally, .statelessReset: return
        default: keep(nil)
        }
    }

    /// For the log: whether this connection has saved a round trip.
    private func noteEarlyData() {
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

    /// Reads a stream that the relay opened. What is missing at its end is asked for again when its time has come.
    private func readAnswer(on stream: QUICStream) {
        guard let answer = stream.context as? AnswerReader, !answer.isOver else { return }
        let (bytes, isEnd) = stream.read()
        if let event = answer.take(bytes, isEnd: isEnd) { tell(event) }
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

    func connection(_ connection: QUICConnection, didReceive resumption: ResumptionState) {
        guard !isClosed, pacer.came(resumption) else { return }
        pacerTimer = loop.schedule(after: ResumptionPacer.pause) { [weak self] in self?.keepUnsaved() }
    }

    /// An answer to a request for packets or for a burst; nothing is said on this side.
    func connection(_ connection: QUICConnection, didOpen stream: QUICStream) {
        stream.context = AnswerReader()
        stream.finish()
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
        for message in messages { tell(message: message) }
        if let failure { tell(.violation(failure.description)) }
        if isEnd { end(.closedByRelay("the control stream ended")) }
    }

    func connection(_ connection: QUICConnection, didClose stream: QUICStream, errorCode: UInt64?) {
        guard stream === self.stream else { return readAnswer(on: stream) }
        end(.closedByRelay("the control stream was closed"))
    }

    func connection(_ connection: QUICConnection, didAbandon stream: QUICStream) {
        if stream === self.stream { end(.closedByRelay("the control stream was closed")) }
    }

    func connection(_ connection: QUICConnection, didEndMigration succeeded: Bool) {
        pathHandles(succeeded ? .validated : .failed)
    }

    func connection(_ connection: QUICConnection, didAcknowledgeDatagram id: UInt64) { tell(.mediaAcknowledged(id)) }

    func connection(_ connection: QUICConnection, didLoseDatagram id: UInt64) { tell(.mediaLost(id)) }

    func connectionWasRefused(_ connection: QUICConnection) {
        guard !isClosed else { return }
        client?.assumeIsolated { $0.wasRefused(self) }
    }

    func connection(_ connection: QUICConnection, didClose reason: QUICCloseReason) {
        forgetTicket(after: reason)
        end(Self.error(reason))
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
